"""Raise an exception at every line of the runtime in turn, and look at what a stream is then.

Ctrl-C raises KeyboardInterrupt between any two lines. `interrupt_everywhere` does the same by a
trace function at the lines of the watched modules, and compares what the stream holds and
predicts with a stream that learned the same points undisturbed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from itertools import chain, count
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from edgefold.runtime import StateSlots, Stream
from tests.contract import Array

MODULES = (
    *(
        "stream.stream",
        "stream.state_keeper",
        "stream.joint_prediction",
        "stream.call_guard",
        "stream.point_updates",
        "stream.queries",
        "stream.points",
        "stream.state_buffers",
        "stream.snapshot",
        "stream.named_states",
        "stream.provenance",
    ),
    *("sensors.named_sensors", "sensors.compiled_sensors", "sensors.timed_engine"),
    "sensors.scored_rows",
    *("sensors.sensors", "sensors.engine", "sensors.slots_ahead", "sensors.score_counts"),
    *("sensors.sensor_scores", "sensors.joined_path", "sensors.clock.season_search"),
    *("sensors.forecasts", "sensors.time_parsing", "sensors.clock.row_clock", "kept_arrays"),
    *("sensors.clock.slot_clock", "sensors.clock.seasons", "sensors.clock.row_slots"),
    *("sensors.clock.notes", "sensors.alarms.alarms", "kept_numbers"),
    *("sensors.warm.warm_start", "sensors.warm.votes", "sensors.warm.fleet"),
    *("sensors.alarms.resting_values", "sensors.alarms.run_lengths"),
    "sensors.alarms.tail_probability",
    *("stream.state_slots", "files", "npz", "plain_files", "backends.host_memory"),
)
WATCHED = {import_module(f"edgefold.runtime.{name}").__file__ for name in MODULES}
Act = Callable[[], object]


class InjectedError(BaseException):
    """As KeyboardInterrupt, no handler for ordinary exceptions catches it."""


@dataclass
class Lines:
    """Raises at the n-th line event of the watched modules; lists them where n is None."""

    at: int | None = None
    events: list[tuple[str, int]] = field(default_factory=list)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in WATCHED:
            return None
        if event == "line":
            if len(self.events) == self.at:
                sys.settrace(None)
                raise InjectedError
            self.events.append((frame.f_code.co_filename, frame.f_lineno))
        return self

    def watch(self, act: Act) -> bool:
        """Run with every line watched; returns whether it was interrupted."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            act()
        except InjectedError:
            return True
        finally:
            sys.settrace(before)
        return False


def interruptions(prepare: Act, act: Act, whole: bool = False) -> Iterator[tuple[int, bool]]:
    """Interrupt an action at its lines, prepared again each time.

    A line that runs several times, in a loop or by several calls, is tried the first and the last
    time; `whole` tries it each time.

    Yields the number of the line event, and whether the action was interrupted there; the last time
    it was not, and was complete.
    """
    prepare()
    lines = Lines()
    lines.watch(act)
    n_events = len(lines.events)
    first = {place: n for n, place in reversed([*enumerate(lines.events)])}
    last = {place: n for n, place in enumerate(lines.events)}
    chosen = range(n_events) if whole else sorted({*first.values(), *last.values()})
    for n in chain(chosen, count(n_events)):
        prepare()
        was_interrupted = Lines(n).watch(act)
        yield n, was_interrupted
        if not was_interrupted:
            return


@dataclass
class Reference:
    """What an undisturbed stream holds and predicts after each number of points.

    Args:
        stream: The one that will be interrupted, not buffered or buffered.
        x: Points (N, X). y: (N, Y).
        targets: (M, X).
        atol: Of predictions: float32 sums in another order, as chunks are cut differently.
    """

    stream: Stream
    x: Array | None
    y: Array
    targets: Array | None
    atol: float = 2e-5
    predictions: list[Array] = field(default_factory=list)

    def __post_init__(self) -> None:
        with Stream.open(self.stream.manifest.path) as undisturbed:
            for n in range(len(self.y) + 1):
                self.predictions.append(undisturbed.query(self.targets).mean.copy())
                if n < len(self.y):
                    self.learn(undisturbed, n, n + 1)

    def learn(
        self, stream: Stream, start: int, stop: int, call: Callable[..., None] | None = None
    ) -> None:
        """Give a stream the points from start to stop, by `update` or another call."""
        x = None if self.x is None else self.x[start:stop]
        (call or stream.update)(x, self.y[start:stop])

    def require_in_step(self) -> None:
        """Check that the stream's points are the first n, whole, and that it goes on from there."""
        stream, last = self.stream, len(self.y)
        n = stream.n_points
        self._require_prediction(n)
        self.learn(stream, n, last)
        assert stream.n_points == last
        self._require_prediction(last)

    def _require_prediction(self, n: int) -> None:
        found = self.stream.query(self.targets).mean
        expected = self.predictions[n]
        assert np.allclose(found, expected, rtol=0, atol=self.atol), (
            f"not the prediction of {n} points: off by {np.abs(found - expected).max():.2g}"
        )


def interrupt_everywhere(
    reference: Reference, start: int, n: int, path: Path, whole: bool = False
) -> dict[str, int]:
    """Interrupt every kind of call of a stream at every line; returns lines tried by call.

    Args:
        reference: The stream, its points and what they lead to.
        start: Points that the stream has before each call.
        n: Points that an update takes.
        path: Where snapshots are written.
        whole: Whether a line is tried each time that it runs, or the first and the last time.

    Raises:
        AssertionError: After some line the stream was between the state before and that after.
    """
    stream = reference.stream
    other = path.with_name("other.npz")

    def prepared() -> None:
        stream.reset()
        for row in range(start):
            reference.learn(stream, row, row + 1)

    few = start // 2
    stream.reset()
    reference.learn(stream, 0, few)
    stream.save(other)
    slots = StateSlots(stream.manifest, 2)  # one is taken into, and one is put
    stream.take(slots, 1)
    calls: dict[str, tuple[Act, set[int]]] = {
        "update": (
            lambda: reference.learn(stream, start, start + n),
            set(range(start, start + n + 1)),
        ),
        "condition": (
            lambda: reference.learn(stream, start, start + n, stream.condition),
            set(range(start, start + n + 1)),
        ),
        "query": (lambda: stream.query(reference.targets), {start}),
        "sample": (lambda: stream.sample(reference.targets, block=1), {start}),
        "flush": (stream.flush, {start}),
        "refresh": (stream.refresh, {start}),
        "save": (lambda: stream.save(path), {start}),
        "restore": (lambda: stream.restore(other), {start, few}),
        "reset": (stream.reset, {start, 0}),
        "take": (lambda: stream.take(slots, 0), {start}),
        "put": (lambda: stream.put(slots, 1), {start, few}),
    }
    tried = {}
    for name, (call, allowed) in calls.items():
        n_lines = 0
        for line, was_interrupted in interruptions(prepared, call, whole):
            found = stream.n_points
            assert found in allowed, f"{name} at line event {line}: {found} points"
            if name == "save":
                assert not list(path.parent.glob("*.tmp")), f"save at line event {line}"
                if path.exists():
                    stream.restore(path)  # whatever was written is whole
            try:
                reference.require_in_step()
                if name == "take":  # the slot holds what it held before, or all of the new state
                    assert slots.n_points[0] in (0, start)
                    stream.put(slots, 0)
                    reference.require_in_step()
                    stream.reset()
                    stream.take(slots, 0)
            except AssertionError as error:
                raise AssertionError(f"{name} at line event {line}: {error}") from error
            n_lines += was_interrupted
        tried[name] = n_lines
    return tried
