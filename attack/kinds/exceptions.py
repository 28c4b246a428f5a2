"""Exceptions raised before any line that runs inside a call of `Stream`: Ctrl-C, or no memory.

Afterwards the stream must hold exactly the points that `n_points` reports: its state, its next
prediction and everything that is learned later equal those of a stream that was never interrupted.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attack.outcomes import Outcome, cause_of, random_of
from attack.subjects import NAMES
from edgefold.runtime import Stream
from edgefold.runtime.errors import EdgefoldError

N_BEFORE, N_AFTER = 5, 9
TOLERANCE = 1e-4
"""Chunks and single updates differ by the rounding of float32 sums; a lost point by far more."""
RAISED: tuple[type[BaseException], ...] = (KeyboardInterrupt, MemoryError, RuntimeError)
State = dict[str, Any]


@contextlib.contextmanager
def interrupted(k: int, error: type[BaseException]) -> Iterator[Callable[[], int]]:
    """Raise before the k-th line of the runtime in the block; yields the count of lines."""
    count = 0

    def local(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        if event == "line":
            count += 1
            if count == k:
                raise error("injected")
        return local

    def trace(frame: Any, event: str, arg: Any) -> Any:
        name = frame.f_code.co_filename
        return local if "/runtime/" in name and "/manifest" not in name else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lambda: count
    finally:
        sys.settrace(before)


@dataclass(frozen=True, slots=True)
class Reference:
    """States and predictions of an uninterrupted stream after each number of points.

    Attributes:
        states: By the number of points from 0.
        answers: Predictions at the same inputs.
    """

    states: list[State]
    answers: list[State]


ACTIONS = ("update", "update many", "query", "refresh", "reset", "save", "restore", "buffered")


class Cases:
    """Cases of exceptions at one line each."""

    def __init__(self, subjects: Path, scratch: Path):
        self._subjects, self._scratch = subjects, scratch
        self._names = [n for n in NAMES if (subjects / n).exists() and n != "co2"]
        self._stream = functools.cache(self._open)
        self._reference = functools.cache(self._record)
        self._n_lines = functools.cache(self._count)

    def _draw(self, number: int) -> tuple[str, str, type[BaseException], np.random.Generator]:
        random = random_of("exceptions", number)
        name = self._names[random.integers(len(self._names))]
        action = ACTIONS[random.integers(len(ACTIONS))]
        if name == "filter" and action in ("update many", "query", "refresh", "buffered"):
            action = "update"
        if action == "buffered" and name != "cmanp":
            action = "update many"
        return name, action, RAISED[random.integers(len(RAISED))], random

    def describe(self, number: int) -> str:
        """Say which call is interrupted, by what, and where."""
        name, action, error, random = self._draw(number)
        return (
            f"{name}: {error.__name__} in {action} before line {self._line(name, action, random)}"
        )

    def _line(self, name: str, action: str, random: np.random.Generator) -> int:
        return int(random.integers(1, self._n_lines(name, action) + 1))

    def _open(self, name: str, buffered: bool) -> Stream:
        return Stream.open(self._subjects / name, buffered=buffered)

    def _points(self, name: str) -> tuple[Any, Any, Any]:
        manifest = self._stream(name, False).manifest
        random = np.random.default_rng(7)
        lead = () if manifest.n_streams == 1 else (manifest.n_streams,)
        n = N_BEFORE + N_AFTER

        def rows(n: int, columns: int) -> Any:
            return random.normal(size=(*lead, n, columns)) if columns else None

        x, y = rows(n, manifest.n_inputs), rows(n, manifest.n_outputs)
        return x, y, rows(1, manifest.n_inputs)

    def _learn(self, name: str, stream: Stream, start: int, stop: int) -> None:
        x, y, _ = self._points(name)
        part = [None if a is None else a[..., start:stop, :] for a in (x, y)]
        if stream.manifest.is_filter:
            for row in range(stop - start):
                stream.step(None if part[0] is None else part[0][..., row : row + 1, :])
        elif stop > start:
            stream.update(*part)

    def _answer(self, name: str, stream: Stream) -> State:
        if stream.manifest.is_filter:
            return {}
        prediction = stream.query(self._points(name)[2])
        return {key: array.copy() for key, array in prediction.tensors.items()}

    def _record(self, name: str) -> Reference:
        stream = self._stream(name, False)
        stream.reset()
        states, answers = [stream.state()], [self._answer(name, stream)]
        for row in range(N_BEFORE + N_AFTER):
            self._learn(name, stream, row, row + 1)
            states.append(stream.state())
            answers.append(self._answer(name, stream))
        return Reference(states, answers)

    def _begin(self, name: str, action: str) -> Stream:
        """A stream that holds `N_BEFORE` points, and besides it a snapshot of two points."""
        stream = self._stream(name, action == "buffered")
        stream.reset()
        self._learn(name, stream, 0, 2)
        stream.save(self._scratch / "two.npz")
        self._learn(name, stream, 2, N_BEFORE)
        if action != "refresh":
            self._answer(name, stream)
        return stream

    def _act(self, name: str, action: str, stream: Stream) -> None:
        if action == "update":
            self._learn(name, stream, N_BEFORE, N_BEFORE + 1)
        elif action in ("update many", "buffered"):
            self._learn(name, stream, N_BEFORE, N_BEFORE + N_AFTER)
        elif action == "query":
            self._answer(name, stream)
        elif action == "refresh":
            stream.refresh()
        elif action == "reset":
            stream.reset()
        elif action == "save":
            stream.save(self._scratch / "kept.npz")
        else:
            stream.restore(self._scratch / "two.npz")

    def _count(self, name: str, action: str) -> int:
        stream = self._begin(name, action)
        with interrupted(0, RuntimeError) as count:
            self._act(name, action, stream)
            return count()

    def play(self, number: int) -> Outcome:
        """Interrupt one call at one line, and look at what the stream holds."""
        name, action, error, random = self._draw(number)
        reference = self._reference(name)
        k = self._line(name, action, random)
        stream = self._begin(name, action)
        try:
            with interrupted(k, error):
                self._act(name, action, stream)
            ended = "accepted"
        except (error, EdgefoldError):
            ended = "resumed"
        allowed = {"reset": {0, N_BEFORE}, "restore": {2, N_BEFORE}}.get(
            action, set(range(N_BEFORE, N_BEFORE + N_AFTER + 1))
        )
        try:
            n = stream.n_points
            if n not in allowed:
                return Outcome("wrong", f"{action}: a number of points that never was")
            for what, expected, state_of in (
                ("prediction", reference.answers, lambda: self._answer(name, stream)),
                ("state", reference.states, stream.state),
            ):
                wrong = _differ(expected[n], state_of())
                if wrong:
                    return Outcome("wrong", f"{action}: {what} of other points than n_points")
            n = stream.n_points
            self._learn(name, stream, n, N_BEFORE + N_AFTER)
            if _differ(reference.states[-1], stream.state()):
                return Outcome("wrong", f"{action}: another state after the next points")
        except EdgefoldError as refusal:
            self._stream.cache_clear()
            return Outcome("wrong", f"{action}: the stream goes on no more: {cause_of(refusal)}")
        return Outcome(ended, action)


def _differ(one: State, other: State) -> bool:
    """Whether two sets of arrays differ by more than rounding."""
    if one.keys() != other.keys():
        return True
    return not all(np.allclose(one[key], other[key], rtol=TOLERANCE, atol=TOLERANCE) for key in one)
