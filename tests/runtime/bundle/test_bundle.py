from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from edgefold.runtime import BackendError, BundleError, Stream
from edgefold.runtime.bundle.manifest_file import with_checksum


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


def test_a_changed_digit_of_the_manifest_is_noticed(copy: Path) -> None:
    path = copy / "manifest.json"
    form = json.loads(path.read_text())
    assert form == with_checksum(form)
    form["points"]["y"]["scale"] = [3.0]
    path.write_text(json.dumps(form))
    with pytest.raises(BundleError, match=r"manifest\.json was changed"):
        Stream.open(copy)
    del form["sha256"]
    path.write_text(json.dumps(form))
    with pytest.raises(BundleError, match=r"manifest\.json was changed"):
        Stream.open(copy)
    path.write_text(json.dumps(with_checksum(form)))
    Stream.open(copy).close()


WRONG: list[tuple[tuple[str | int, ...], Any]] = [
    (("consolidate_every",), None),
    (("consolidate_every",), -1),
    (("n_streams",), 0),
    (("n_streams",), 1.0),
    (("prediction",), "laplace"),
    (("points",), []),
    (("points", "x", "scale"), [1.0]),
    (("points", "y", "scale"), [0.0]),
    (("points", "y", "scale"), [float("nan")]),
    (("points", "y"), {"shift": [], "scale": []}),
    (("points", "y", "shift"), [10**400]),
    (("state", 0), "attended"),
    (("state", 0, "shape"), [1, -4]),
    (("state", 0, "shape"), [1, "2"]),
    (("state", 0, "dtype"), "object"),
    (("state", 0, "name"), "another"),
    (("state", 0, "initial"), "zero"),
    (("cache",), {}),
    (("graphs",), []),
    (("graphs", "update"), None),
    (("graphs", "update", "step"), "dance"),
    (("graphs", "update", "width"), 0),
    (("graphs", "update", "file"), "../update.onnx"),
    (("graphs", "update", "inputs", 0, "of"), "nothing"),
    (("graphs", "update", "inputs", 0, "role"), "guest"),
    (("graphs", "query", "outputs", 0, "of"), "mode"),
    (("weights",), "weights.bin"),
    (("weights", "file"), 3),
    (("task",), None),
    (("memory_plan",), {}),
    (("memory_plan", "total_bytes"), -1),
    (("memory_plan", "state_bytes"), 10**400),
]


@pytest.mark.parametrize(("place", "value"), WRONG)
def test_a_sealed_manifest_that_is_wrong_is_one_error(
    copy: Path, place: tuple[str | int, ...], value: Any
) -> None:
    path = copy / "manifest.json"
    form = json.loads(path.read_text())
    part = form
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    path.write_text(json.dumps(with_checksum(form)))
    with pytest.raises(BundleError, match=r"manifest\.json is damaged"):
        Stream.open(copy)


def test_an_unknown_backend_lists_the_known_ones(tiny_bundle: Path) -> None:
    with pytest.raises(BackendError, match="auto, tensorrt, native, onnxruntime"):
        Stream.open(tiny_bundle, backend="abacus")


def test_the_report_says_what_runs(tiny_bundle: Path) -> None:
    with Stream.open(tiny_bundle) as stream:
        report = stream.backend_report
    assert report["asked"] == "auto"
    assert report["name"] == "onnxruntime"
    assert report["device"] == "cpu"


@pytest.mark.parametrize("threads", [0, -1, 100_000, "2", 1.0, None, True])
def test_threads_that_the_machine_does_not_have_are_refused(
    tiny_bundle: Path, threads: Any
) -> None:
    with pytest.raises(BackendError, match=f"threads is {threads!r}; give 1 to"):
        Stream.open(tiny_bundle, threads=threads)


def test_a_bundle_of_a_newer_schema_asks_for_a_newer_edgefold(copy: Path) -> None:
    path = copy / "manifest.json"
    for schema, cure in ((99, "upgrade edgefold here"), (0, "export it again")):
        path.write_text(json.dumps({**json.loads(path.read_text()), "schema": schema}))
        with pytest.raises(BundleError, match=cure):
            Stream.open(copy)


def test_a_type_that_no_graph_has_is_an_error_of_ours(copy: Path) -> None:
    path = copy / "manifest.json"
    form = json.loads(path.read_text())
    form["graphs"]["update"]["inputs"][0]["dtype"] = "float16"
    path.write_text(json.dumps(with_checksum(form)))
    with pytest.raises(BundleError, match="other inputs than its manifest"):
        Stream.open(copy, backend="onnxruntime")
