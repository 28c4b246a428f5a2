"""The backend that runs a bundle's compiled C, on small bundles; all models are in tests/export."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.runtime import BackendError, EngineOptions, Stream
from edgefold.runtime.backends.native.backend import NativeBackend
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.checking.golden import check_bundle
from tests.contract import Contract
from tests.native_builds import Native
from tests.pairwise import leave_out
from tests.runtime.stream.subjects import StreamSubject, points


class TestOneStream(Contract):
    @pytest.fixture
    def subject(self, bundles: Path, native: Native) -> Any:
        bundle = bundles / "tiny"
        with Stream.open(bundle, "native", engine=native(bundle)) as stream:
            yield StreamSubject(stream)


class TestThreeStreams(Contract):
    @pytest.fixture
    def subject(self, bundles: Path, native: Native) -> Any:
        bundle = bundles / "streams"
        with Stream.open(bundle, "native", engine=native(bundle)) as stream:
            yield StreamSubject(stream)


class TestNarrowPrecisions(Contract):
    @pytest.fixture(params=leave_out(["float16", "int8"], ["float16"]))
    def subject(self, bundles: Path, native: Native, request: pytest.FixtureRequest) -> Any:
        bundle = bundles / f"tiny-{request.param}"
        with Stream.open(bundle, "native", engine=native(bundle)) as stream:
            yield StreamSubject(stream)


class TestWaitingPoints(Contract):
    @pytest.fixture
    def subject(self, bundles: Path, native: Native) -> Any:
        bundle = bundles / "tiny"
        with Stream.open(bundle, "native", buffered=True, engine=native(bundle)) as stream:
            yield StreamSubject(stream)


@pytest.mark.long
def test_the_golden_stream_passes_and_the_report_tells_what_ran(
    tiny_bundle: Path, native: Native
) -> None:
    report = check_bundle(tiny_bundle, "native", engine=native(tiny_bundle))
    assert report.passed
    told = report.backend
    assert (told["name"], told["device"], told["threads"]) == ("native", "cpu", 1)
    assert Path(told["library"]).parent == native(tiny_bundle).cache
    assert re.match(r"generator \S+, \w+ [\d.]+", told["version"])
    assert told["arena_bytes"] > 0 and told["proof"]["worst"] <= told["proof"]["tolerance"]


@pytest.mark.long
def test_a_snapshot_goes_to_onnxruntime_and_back(
    tiny_bundle: Path, native: Native, tmp_path: Path
) -> None:
    engine = native(tiny_bundle)
    with (
        Stream.open(tiny_bundle, "native", engine=engine) as one,
        Stream.open(tiny_bundle, "onnxruntime") as other,
    ):
        x, y = points(one, 60)
        one.update(x[:30], y[:30])
        one.save(tmp_path / "state.npz")
        other.restore(tmp_path / "state.npz")
        one.update(x[30:], y[30:])
        other.update(x[30:], y[30:])
        np.testing.assert_allclose(one.query(x[:3]).mean, other.query(x[:3]).mean, atol=1e-5)
        other.save(tmp_path / "state.npz")
        one.restore(tmp_path / "state.npz")
        np.testing.assert_allclose(one.query(x[:3]).std, other.query(x[:3]).std, atol=1e-5)


def test_auto_takes_native_where_it_was_built_and_else_tells_how_to_build(
    tiny_bundle: Path, bundles: Path, native: Native
) -> None:
    engine = native(tiny_bundle)
    with Stream.open(tiny_bundle, engine=engine) as stream:
        assert stream.backend_report["name"] == "native"
        assert list(stream.backend_report["refused"]) == ["tensorrt"]
    with Stream.open(bundles / "foreign", engine=engine) as stream:
        assert stream.backend_report["name"] == "onnxruntime"
        refused = stream.backend_report["refused"]["native"]
    assert f"edgefold build {bundles / 'foreign'}" in refused


def test_more_than_one_thread_is_refused_and_auto_then_takes_onnxruntime(
    tiny_bundle: Path, native: Native
) -> None:
    if (os.cpu_count() or 1) < 2:
        pytest.skip("this machine has one processor")
    with pytest.raises(BackendError, match="one thread"):
        Stream.open(tiny_bundle, "native", threads=2, engine=native(tiny_bundle))
    with Stream.open(tiny_bundle, threads=2, engine=native(tiny_bundle)) as stream:
        assert stream.backend_report["name"] == "onnxruntime"


PROGRAM = """
import sys
from pathlib import Path
from edgefold.runtime import EngineOptions, Stream
with Stream.open(sys.argv[1], "native", engine=EngineOptions(Path(sys.argv[2]))) as stream:
    stream.update([[0.1, 0.2]], [[0.3]])
    stream.query([[0.1, 0.2]])
    stream.save(sys.argv[3])
    stream.restore(sys.argv[3])
    mapped = open("/proc/self/maps").read()
    assert sys.argv[2] in mapped and "onnxruntime" not in mapped
assert not any(name.partition(".")[0] == "onnxruntime" for name in sys.modules)
assert sys.argv[2] not in open("/proc/self/maps").read()
"""


def test_a_process_with_native_loads_no_onnxruntime_and_drops_the_library_at_the_end(
    tiny_bundle: Path, native: Native, tmp_path: Path
) -> None:
    cache = str(native(tiny_bundle).cache)
    command = [sys.executable, "-c", PROGRAM, str(tiny_bundle), cache, str(tmp_path / "state.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_two_streams_of_one_library_do_not_meet(tiny_bundle: Path, native: Native) -> None:
    engine = native(tiny_bundle)

    def opened() -> Stream:
        return Stream.open(tiny_bundle, "native", engine=engine)

    with opened() as one, opened() as other, opened() as alone:
        x, y = points(one, 40)
        for row in range(0, 40, 2):
            one.update(x[row : row + 1], y[row : row + 1])
            other.update(x[row + 1 : row + 2], y[row + 1 : row + 2])
        told = other.query(x[:2]).copy().tensors
        other.close()  # the library stays mapped for the others
        for row in range(0, 40, 2):
            alone.update(x[row : row + 1], y[row : row + 1])
        expected = alone.query(x[:2]).tensors
        for name, array in one.query(x[:2]).tensors.items():
            assert np.array_equal(array, expected[name])
            assert not np.array_equal(array, told[name])


def test_a_library_of_another_bundle_does_not_open(
    tiny_bundle: Path, bundles: Path, native: Native
) -> None:
    with Stream.open(tiny_bundle, "native", engine=native(tiny_bundle)) as stream:
        library = Path(stream.backend_report["library"])
    with pytest.raises(BackendError, match="was built from the bundle"):
        NativeBackend(load_manifest(bundles / "foreign"), library, {})


@pytest.mark.parametrize("content", [b"", b"\x7fELF and no more", b"int main"])
def test_what_is_no_library_does_not_open(
    tiny_bundle: Path, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "library.so").write_bytes(content)
    with pytest.raises(BackendError, match="does not load"):
        NativeBackend(load_manifest(tiny_bundle), tmp_path / "library.so", {})


def test_a_copy_that_does_not_open_is_told_by_the_name_of_what_was_copied(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    copy, given = tmp_path / "copy.so", Path("dist/given.so")
    copy.write_bytes(b"no library")
    with pytest.raises(BackendError, match=r"dist/given\.so does not load") as refused:
        NativeBackend(load_manifest(tiny_bundle), copy, {}, named=given)
    assert str(copy) not in str(refused.value)


def test_a_library_of_other_functions_does_not_open(tiny_bundle: Path) -> None:
    import ctypes.util

    with pytest.raises(BackendError, match="does not load"):
        NativeBackend(load_manifest(tiny_bundle), Path(ctypes.util.find_library("m") or "m"), {})


def test_the_folder_of_libraries_may_be_the_current_one(
    tiny_bundle: Path, native: Native, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, bundle = native(tiny_bundle).cache, tiny_bundle.absolute()
    assert cache is not None
    monkeypatch.chdir(cache)
    with Stream.open(bundle, "native", engine=EngineOptions(Path())) as stream:
        stream.update([[0.1, 0.2]], [[0.3]])


def test_what_begins_is_told(tiny_bundle: Path, native: Native) -> None:
    told: list[tuple[str, str]] = []

    def watch(doing: str, name: str) -> None:
        told.append((doing, name))

    engine = EngineOptions(native(tiny_bundle).cache, watch=watch)
    with Stream.open(tiny_bundle, "native", engine=engine) as stream:
        graphs = list(stream.manifest.graphs)
        assert told[: 1 + len(graphs)] == [("load", "native"), *(("open", name) for name in graphs)]
        stream.run_step(graphs[0])
    assert told[-1] == ("run", graphs[0])
