"""Rings whose steps say where a row goes: each stream its own place, on every backend."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from edgefold.runtime import BackendError, BundleError, StateSlots, StepRefusedError, Stream
from edgefold.runtime.backends.base import Contender
from edgefold.runtime.backends.host_memory import HostBuffer
from edgefold.runtime.backends.onnxruntime_gpu import OnnxRuntimeGpuBackend
from edgefold.runtime.backends.registry import BACKENDS
from edgefold.runtime.bundle.manifest_file import load_manifest, with_checksum
from edgefold.runtime.checking.lockstep import run_lockstep
from tests.contract import Array
from tests.runtime.backends.on_the_host import assert_same, driver, opened
from tests.runtime.stream.interruptions import Reference, interrupt_everywhere

pytest.importorskip("torch", reason="exporting needs the train extra")
LENGTH = 10


@pytest.fixture(scope="module")
def shelves(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Bundles of `Shelves` by number of streams."""
    from edgefold.export.bundle import ExportConfig, export_bundle
    from tests.export.lowering.small_models import Shelves

    folder = tmp_path_factory.mktemp("shelves")

    def made(n_streams: int) -> Path:
        out = folder / str(n_streams)
        if not out.exists():
            config = ExportConfig(targets=1, streams=n_streams, parity_steps=128)
            export_bundle(Shelves().eval(), {"name": "untrained"}, out, config)
        return out

    return made


@contextmanager
def on_the_cpu(bundle: Path, folder: Path) -> Iterator[Stream]:
    with Stream.open(bundle) as stream:
        yield stream


@contextmanager
def on_a_provider(bundle: Path, folder: Path) -> Iterator[Stream]:
    manifest, info = load_manifest(bundle), BACKENDS["onnxruntime-cuda"]
    backend = OnnxRuntimeGpuBackend(info, manifest, 1, [("CPUExecutionProvider", {})], "cpu")
    with Stream(manifest, backend, backend.report(), False) as stream:
        yield stream


@contextmanager
def on_a_driver(bundle: Path, folder: Path) -> Iterator[Stream]:
    with opened(bundle, driver(), folder / "cache") as stream:
        yield stream


def drawn(n_streams: int, n: int = 40) -> Array:
    """Points (B, n, 1) between -9.9 and 9.9, another order in each stream."""
    return np.random.default_rng(3).uniform(-9.9, 9.9, (n_streams, n, 1))


def expected(y: Array) -> tuple[Array, Array]:
    """What the two rings hold after points (B, n, 1)."""
    low, high = np.zeros((len(y), LENGTH, 1)), np.zeros((len(y), 2, LENGTH + 1))
    for stream, points in enumerate(y[..., 0]):
        for value in points.astype(np.float32):
            place = int(abs(value))
            low[stream, place] = value
            high[stream, :, LENGTH - place] = value, -value
    return low, high


@pytest.mark.parametrize("n_streams", [1, 3])
@pytest.mark.parametrize("where", [on_the_cpu, on_a_provider, on_a_driver])
def test_each_stream_s_row_goes_where_the_step_says(
    shelves: Callable[[int], Path],
    tmp_path: Path,
    n_streams: int,
    where: Callable[[Path, Path], AbstractContextManager[Stream]],
) -> None:
    y = drawn(n_streams)
    with where(shelves(n_streams), tmp_path) as stream:
        for row in range(y.shape[1]):
            part = y[:, row : row + 1]
            stream.update(y=part[0] if n_streams == 1 else part)
        low, high = expected(y)
        np.testing.assert_array_equal(stream.state()["low"], low)
        np.testing.assert_array_equal(stream.state()["high"], high)


def test_a_slot_out_of_range_is_refused_and_nothing_is_written(
    shelves: Callable[[int], Path],
) -> None:
    y = drawn(3, 4)
    with Stream.open(shelves(3)) as stream:
        stream.update(y=y)
        before, mean = stream.state(), stream.query().mean.copy()
        for value in (10.5, 1e6):
            bad = y[:, :1].copy()
            bad[1] = value
            with pytest.raises(StepRefusedError, match="slots"):
                stream.update(y=bad)
            assert_same(stream.state(), before)
        assert stream.n_points == 4
        np.testing.assert_array_equal(stream.query().mean, mean)
        stream.update(y=y[:, :1])


# A file that is open where the exception comes is closed by the garbage collector, with a warning.
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_an_interrupt_at_any_line_leaves_chosen_slots_before_or_after(
    shelves: Callable[[int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    with Stream.open(shelves(1)) as stream:
        reference = Reference(stream, None, drawn(1, 8)[0], None)
        tried = interrupt_everywhere(reference, 5, 2, tmp_path / "s.npz")
    assert sum(tried.values()) > 200, tried


def test_rows_that_could_not_be_written_are_written_by_the_next_call(
    shelves: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    y, written = drawn(3, 6), HostBuffer.write_row
    with ExitStack() as stack:
        for n_before in range(6):  # of two rings and three streams
            stream = stack.enter_context(Stream.open(shelves(3)))
            stream.update(y=y[:, :5])
            calls = iter(range(n_before))

            def failing(*arguments: object, calls: Iterator[int] = calls) -> None:
                if next(calls, None) is None:
                    raise BackendError("injected")
                written(*arguments)  # type: ignore[arg-type]

            with monkeypatch.context() as patch:
                patch.setattr(HostBuffer, "write_row", failing)
                with pytest.raises(BackendError, match="injected"):
                    stream.update(y=y[:, 5:])
            assert stream.n_points == 6
            low, high = expected(y)
            np.testing.assert_array_equal(stream.state()["low"], low)
            np.testing.assert_array_equal(stream.state()["high"], high)


def test_slots_snapshots_and_sensors_keep_what_was_written(
    shelves: Callable[[int], Path], tmp_path: Path
) -> None:
    y = drawn(3)
    with Stream.open(shelves(3)) as stream:
        slots = StateSlots(stream.manifest, 2)
        stream.update(y=y)
        stream.save(tmp_path / "s.npz")
        stream.take(slots, 1)
        stream.reset()
        assert not stream.state()["low"].any()
        stream.put(slots, 1)
        np.testing.assert_array_equal(stream.state()["low"], expected(y)[0])
        stream.reset()
        stream.restore(tmp_path / "s.npz")
        np.testing.assert_array_equal(stream.state()["high"], expected(y)[1])


def test_two_backends_agree_on_slots(shelves: Callable[[int], Path]) -> None:
    report = run_lockstep(shelves(3), Contender("onnxruntime"), Contender("onnxruntime", 2))
    assert report.passed
    assert {"place", "other"} <= {tensor.tensor for tensor in report.along.tensors}


@pytest.mark.parametrize(
    "fault", ["no such ring", "shape", "type", "missing", "not a ring", "not asked"]
)
def test_a_manifest_whose_slots_do_not_fit_is_refused(
    shelves: Callable[[int], Path], tmp_path: Path, fault: str
) -> None:
    bundle = Path(shutil.copytree(shelves(3), tmp_path / "copy"))
    form = json.loads((bundle / "manifest.json").read_text())
    outputs = form["graphs"]["update"]["outputs"]
    slot = next(t for t in outputs if t["role"] == "slot")
    ring = next(t for t in form["state"] if t.get("slot") == slot["of"])
    if fault == "no such ring":
        slot["of"] = "elsewhere"
    elif fault == "shape":
        slot["shape"] = [1]
    elif fault == "type":
        slot["dtype"] = "float32"
    elif fault == "missing":
        outputs.remove(slot)
    elif fault == "not a ring":
        del ring["ring"]
    else:
        del ring["slot"]
    (bundle / "manifest.json").write_text(json.dumps(with_checksum(form)))
    with pytest.raises(BundleError):
        load_manifest(bundle)
