"""Kernels that TensorRT-RTX compiles when it runs: kept, taken, refused, and added to."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from edgefold.runtime.stream.stream import Stream
from tests.runtime.backends.host_driver import HostDriver
from tests.runtime.backends.on_the_host import SESSIONS, driver, opened
from tests.runtime.stream.subjects import points


def kept_kernels(folder: Path) -> Path:
    (path,) = folder.glob("*.kernels")
    return path


def n_opened(stream: Stream) -> int:
    """The number of graphs that are opened with a stream."""
    return sum(not graph.opens_late for graph in stream.manifest.graphs.values())


def test_a_second_open_compiles_no_kernel(tiny_bundle: Path, tmp_path: Path) -> None:
    first, second = driver("rtx"), driver("rtx")
    with opened(tiny_bundle, first, tmp_path) as stream:
        assert stream.backend_report["kernels"] == "compiled"
    assert first.n_compiled == n_opened(stream)
    written = kept_kernels(tmp_path).stat().st_mtime_ns
    with opened(tiny_bundle, second, tmp_path) as stream:
        assert stream.backend_report["kernels"] == "from the cache"
        x, y = points(stream, 300)
        stream.update(x, y)
        stream.query(x[:3])
    assert second.n_compiled == 0
    assert kept_kernels(tmp_path).stat().st_mtime_ns == written


def test_a_first_merge_keeps_its_kernels_too(tiny_bundle: Path, tmp_path: Path) -> None:
    for n_compiled in (1, 0):
        seam = driver("rtx")
        with opened(tiny_bundle, seam, tmp_path / "cache") as stream:
            before = seam.n_compiled
            stream.update(*points(stream, 3))
            stream.save(tmp_path / "other.npz")
            stream.merge(tmp_path / "other.npz", disjoint=True)
            told = stream._backend.report()["kernels"] if stream._backend else ""
            assert seam.n_compiled == before + n_compiled
        assert told == ("compiled" if n_compiled else "from the cache")


def test_kernels_of_another_bundle_are_added_to_those_kept(bundles: Path, tmp_path: Path) -> None:
    class Tiny(HostDriver):
        """Compiles per bundle, as a GPU does: the stand-in knows engines by their graph's name."""

        def load(self, plan: bytes) -> Any:
            engine = super().load(plan)
            engine.name = plan.decode()
            return engine

    for name in ("tiny", "streams", "tiny", "streams"):
        seam = Tiny(SESSIONS, "tensorrt_rtx")
        with opened(bundles / name, seam, tmp_path) as stream:
            told = stream.backend_report["kernels"]
    assert told == "from the cache" and seam.n_compiled == 0
    assert len(kept_kernels(tmp_path).read_bytes().split(b".onnx")) == 12 + 1


def test_stale_kernels_are_compiled_again_and_replaced(tiny_bundle: Path, tmp_path: Path) -> None:
    opened(tiny_bundle, driver("rtx"), tmp_path).close()
    for _ in range(2):
        seam = driver("rtx")
        seam.fits = "another driver"
        with opened(tiny_bundle, seam, tmp_path) as stream:
            told = stream.backend_report["kernels"]
            assert seam.n_compiled == n_opened(stream)
        assert told == "compiled again, since the cached ones do not fit"


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_kernels_that_others_may_write_are_not_loaded(
    tiny_bundle: Path, tmp_path: Path, mode: int
) -> None:
    opened(tiny_bundle, driver("rtx"), tmp_path).close()
    kept_kernels(tmp_path).chmod(mode)
    seam = driver("rtx")
    with opened(tiny_bundle, seam, tmp_path) as stream:
        assert stream.backend_report["kernels"] == "compiled"
        assert seam.n_compiled == n_opened(stream)


def test_kernels_of_another_gpu_are_not_asked_for(tiny_bundle: Path, tmp_path: Path) -> None:
    class Newer(HostDriver):
        def device(self) -> Any:
            return dataclasses.replace(super().device(), cuda_version="13.1")

    opened(tiny_bundle, driver("rtx"), tmp_path).close()
    with opened(tiny_bundle, Newer(SESSIONS, "tensorrt_rtx"), tmp_path) as stream:
        assert stream.backend_report["kernels"] == "compiled"
    assert len(list(tmp_path.glob("*.kernels"))) == 2


def test_kernels_that_cannot_be_kept_are_told_and_the_stream_runs(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file in the folder's place")
    with opened(tiny_bundle, driver("rtx"), tmp_path / "cache") as stream:
        assert stream.backend_report["kernels"].startswith("compiled, but not kept: ")
        stream.update(*points(stream, 3))
