"""Ctrl-C, or any exception, between any two lines: the stream is as before or as after."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgefold.runtime import BackendError, StateSlots, Stream
from edgefold.runtime.backends.host_memory import HostBuffer
from edgefold.runtime.stream.state_buffers import StateBuffers
from tests.runtime.stream.interruptions import Reference, interrupt_everywhere
from tests.runtime.stream.subjects import points

# A file that is open where the exception comes is closed by the garbage collector, with a warning.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of a ring of 4 rows; y alone, two outputs."""
    pytest.importorskip("torch", reason="exporting needs the train extra")
    from edgefold.export.bundle import ExportConfig, export_bundle
    from tests.export.lowering.small_models import Window

    folder = tmp_path_factory.mktemp("rings") / "window"
    config = ExportConfig(targets=1, parity_steps=128)
    export_bundle(Window().eval(), {"name": "untrained"}, folder, config)
    return folder


def reference(stream: Stream, n: int) -> Reference:
    x, y = points(stream, n)
    if stream.manifest.n_inputs:
        return Reference(stream, x, y, x[:2])
    return Reference(stream, None, y, None)


EVERY_TIME = pytest.mark.parametrize(
    "every_time", [False, pytest.param(True, marks=pytest.mark.product)]
)
"""Whether a line of a loop is tried each time that it runs, or the first and the last time."""


@pytest.mark.long
@EVERY_TIME
@pytest.mark.parametrize("buffered", [False, True])
def test_an_interrupt_at_any_line_leaves_a_stream_before_or_after(
    tiny_bundle: Path, tmp_path: Path, buffered: bool, every_time: bool
) -> None:
    """Buffered, three of eight points wait: 3 more stay waiting, 9 more fill the buffer twice."""
    with Stream.open(tiny_bundle, buffered=buffered) as stream:
        tried = interrupt_everywhere(reference(stream, 14), 3, 9, tmp_path / "s.npz", every_time)
    assert sum(tried.values()) > 500, tried
    assert all(n > 2 for n in tried.values())


@EVERY_TIME
def test_an_interrupt_at_any_line_leaves_a_ring_before_or_after(
    window: Path, tmp_path: Path, every_time: bool
) -> None:
    with Stream.open(window) as stream:
        tried = interrupt_everywhere(reference(stream, 8), 5, 2, tmp_path / "s.npz", every_time)
    assert sum(tried.values()) > 500, tried


class LateCtrlC(StateBuffers):
    """Buffers in which Ctrl-C comes right after a commit, before the next line begins."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "at":
            raise KeyboardInterrupt


def test_an_interrupt_right_after_a_commit_keeps_the_new_rings(window: Path) -> None:
    y = np.random.default_rng(0).normal(size=(8, 2))
    with Stream.open(window) as stream:
        slots = StateSlots(stream.manifest, 1)
        stream.update(y=y[:3])
        stream.take(slots, 0)
        stream.update(y=y[3:])
        stream._state.__class__ = LateCtrlC
        with pytest.raises(KeyboardInterrupt):
            stream.put(slots, 0)
        assert stream.n_points == 3
        for name, tensor in stream.state().items():
            np.testing.assert_array_equal(tensor, slots.state(0)[name], name)


class Interrupted:
    """A stream with three waiting points whose steps fail when they are told to."""

    def __init__(self, stream: Stream):
        self.stream, self.x, self.y = stream, *points(stream, 12)
        self.fails_after = -1
        for step in stream._steps.values():
            step.run = self._failing(step.run)  # type: ignore[method-assign,assignment]

    def _failing(self, run: Callable[[int], None]) -> Callable[[int], None]:
        def counted(sides: int) -> None:
            self.fails_after -= 1
            if self.fails_after == -1:
                raise BackendError("injected")
            run(sides)

        return counted


@pytest.mark.parametrize("n_learned", [0, 1, 2])
def test_waiting_points_that_were_not_learned_wait_on_after_an_error(
    tiny_bundle: Path, n_learned: int
) -> None:
    with Stream.open(tiny_bundle, buffered=True) as stream:
        failing = Interrupted(stream)
        x, y = failing.x, failing.y
        stream.update(x[:3], y[:3])
        failing.fails_after = n_learned
        with pytest.raises(BackendError, match="injected"):
            stream.flush()
        assert stream.n_points == 3
        assert (stream._state.at.n_points, stream._state.at.n_waiting) == (n_learned, 3 - n_learned)
        stream.update(x[3:], y[3:])  # beyond the buffer's end, which some learned rows still take
        found = stream.query(x[:2]).copy()
    with Stream.open(tiny_bundle) as expected:
        expected.update(x, y)
        np.testing.assert_allclose(found.mean, expected.query(x[:2]).mean, rtol=0, atol=2e-5)


def test_a_row_of_a_ring_that_could_not_be_written_is_written_by_the_next_call(
    window: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    y = np.random.default_rng(0).normal(size=(8, 2))
    with Stream.open(window) as stream, Stream.open(window) as expected:
        for each in (stream, expected):
            each.update(y=y[:6])
        expected.update(y=y[6:7])
        with monkeypatch.context() as failing:
            failing.setattr(HostBuffer, "write_row", _fail)
            with pytest.raises(BackendError, match="injected"):
                stream.update(y=y[6:7])
            with pytest.raises(BackendError, match="injected"):
                stream.query()
        assert stream.n_points == 7
        np.testing.assert_array_equal(stream.query().mean, expected.query().mean)
        for each in (stream, expected):
            each.update(y=y[7:])
        np.testing.assert_array_equal(stream.state()["past"], expected.state()["past"])


def _fail(*arguments: object) -> None:
    raise BackendError("injected")
