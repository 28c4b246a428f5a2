from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edgefold.runtime import BackendError, BundleError, Stream


@pytest.fixture
def copy(tiny_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bundle, tmp_path / "copy"))


@pytest.mark.parametrize(
    "name",
    ["update.onnx", "condition.onnx", "refresh.onnx", "query.onnx", "weights.bin", "golden.npz"],
)
def test_a_changed_byte_is_refused_and_the_file_named(copy: Path, name: str) -> None:
    data = bytearray((copy / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / name).write_bytes(data)
    with pytest.raises(BundleError, match=f"{name} was changed"):
        Stream.open(copy)


@pytest.mark.parametrize("name", ["update.onnx", "weights.bin", "manifest.json"])
def test_a_missing_file_is_refused_and_named(copy: Path, name: str) -> None:
    (copy / name).unlink()
    with pytest.raises(BundleError, match=name):
        Stream.open(copy)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema": 99}', '{"schema": 1}', "\x00"])
def test_a_damaged_manifest_is_refused(copy: Path, text: str) -> None:
    (copy / "manifest.json").write_text(text)
    with pytest.raises(BundleError, match=r"manifest\.json"):
        Stream.open(copy)


def test_a_manifest_of_other_shapes_is_refused(copy: Path) -> None:
    path = copy / "manifest.json"
    path.write_text(path.read_text().replace('"consolidate_every"', '"consolidate_every_"'))
    with pytest.raises(BundleError, match="consolidate_every"):
        Stream.open(copy)


def test_an_unknown_backend_lists_the_known_ones(tiny_bundle: Path) -> None:
    with pytest.raises(BackendError, match="auto, onnxruntime"):
        Stream.open(tiny_bundle, backend="abacus")


def test_the_report_says_what_runs(tiny_bundle: Path) -> None:
    with Stream.open(tiny_bundle) as stream:
        report = stream.backend_report
    assert report["asked"] == "auto"
    assert report["name"] == "onnxruntime"
    assert report["device"] == "cpu"


@pytest.mark.parametrize("threads", [0, -1, 100_000])
def test_threads_that_the_machine_does_not_have_are_refused(
    tiny_bundle: Path, threads: int
) -> None:
    with pytest.raises(BackendError, match=f"threads is {threads}; give 1 to"):
        Stream.open(tiny_bundle, threads=threads)
