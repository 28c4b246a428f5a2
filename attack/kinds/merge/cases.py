"""Parts of a stream that are learned apart and joined: no order and no tree may be seen.

The points are cut into two to six parts of any size, empty ones too, and each is learned in chunks
of any length. Then two of the states are joined again and again until one is left. It must be that
of a stream that has learned all points: its numbers of points, its predictions and, in float64,
every tensor of it, or what queries read of sums in two levels.
"""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

import numpy as np

from attack.kinds.merge import subjects as forms
from attack.outcomes import Outcome, random_of
from edgefold.export.checks.laws import distance, draw, join_snapshots, targets
from edgefold.export.checks.subjects import Arrays, StreamSubject, Subject
from edgefold.runtime.arrays import Array

FORMS = ("float64", "device", "onnxruntime", "C")
TOLERANCES = {"float64": 1e-10, "device": 1e-5, "onnxruntime": 1e-5, "C": 1e-5}
"""Largest difference of predictions around 1. Sums of float32 in another order differ by 1e-6."""
SIZES = (0, 1, 2, 7, 30, 130, 300)
"""Numbers of points; a device's form consolidates its sums after 128."""
NO_COMPILER = "not played: no C compiler is here"


class Cases:
    """Cases of states that are joined."""

    def __init__(self, subjects: Path, scratch: Path):
        self._subjects, self._scratch = subjects, scratch
        self._subject = functools.cache(self._open)

    def _open(self, form: str, name: str) -> Subject | None:
        if form == "float64":
            return forms.in_double(name)
        if form == "device":
            return forms.on_device(name)
        if form == "onnxruntime":
            return forms.as_bundle(self._subjects)
        return forms.in_c(self._subjects, self._scratch)

    def _draw(self, number: int) -> tuple[str, str, int, int, np.random.Generator]:
        """Return form, name of the model, number of points and of parts, and random numbers."""
        random = random_of("merge", number)
        form = FORMS[int(random.integers(len(FORMS)))]
        name = tuple(forms.SMALL)[int(random.integers(len(forms.SMALL)))]
        if form in ("onnxruntime", "C"):
            name = forms.BUNDLE
        n_points, n_parts = SIZES[int(random.integers(len(SIZES)))], int(random.integers(2, 7))
        return form, name, n_points, n_parts, random

    def describe(self, number: int) -> str:
        """Say what is joined."""
        form, name, n_points, n_parts, _ = self._draw(number)
        return f"{name} in {form}: {n_points} points in {n_parts} parts"

    def play(self, number: int) -> Outcome:
        """Learn the parts, join them, and compare with a stream of all points."""
        form, name, n_points, n_parts, random = self._draw(number)
        if importlib.util.find_spec("torch") is None:
            return Outcome("accepted", "not played: torch is missing")
        subject = self._subject(form, name)
        if subject is None:
            return Outcome("accepted", NO_COMPILER)
        differences = self.differences(subject, number, n_points, n_parts, random)
        where = f"{form} {name}"
        if isinstance(subject, StreamSubject):
            at = subject.stream._state.at
            if (at.n_points, at.n_recent) != (n_points, 0):
                return Outcome("wrong", f"{where}: counts of points")
        for what, difference in differences.items():
            counts = what == "predictions" or form == "float64"
            if counts and not difference <= TOLERANCES[form]:
                return Outcome("wrong", f"{where}: {what}")
        return Outcome("accepted", form)

    def differences(
        self,
        subject: Subject,
        number: int,
        n_points: int,
        n_parts: int,
        random: np.random.Generator,
    ) -> dict[str, float]:
        """Learn points in parts, join them, and compare with a stream of all points.

        Returns:
            The largest difference of "predictions"; and of each tensor of the state, or of what
            queries read of it, as a share of its largest value and of 1 at least.
        """
        x, y = draw(subject, n_points, number)
        subject.reset()
        _learn(subject, x, y, random)
        whole, state = subject.query(targets(subject)), _read(subject)
        self._join(subject, x, y, n_parts, random)
        found = {"predictions": distance(subject.query(targets(subject)), whole)}
        for tensor, array in _read(subject).items():
            most = max(1.0, float(np.abs(state[tensor]).max()))
            found[tensor] = float(np.abs(array - state[tensor]).max()) / most
        return found

    def _join(
        self, subject: Subject, x: Array, y: Array, n_parts: int, random: np.random.Generator
    ) -> None:
        """Let the subject learn each part by itself, and leave it with the joined state."""
        n = x.shape[1]
        cuts = np.sort(random.integers(0, n + 1, n_parts - 1))
        paths = [self._scratch / f"part-{part}" for part in range(n_parts)]
        for rows, path in zip(np.split(random.permutation(n), cuts), paths, strict=True):
            subject.reset()
            _learn(subject, x[:, rows], y[:, rows], random)
            subject.save(path)
        join_snapshots(subject, paths, random)


def _read(subject: Subject) -> Arrays:
    """Return the state, or what queries read of it if it has recent and older sums."""
    if isinstance(subject, forms.DoubleSubject) and subject.model.consolidate_every:
        return subject.cache()
    return subject.state()


def _learn(subject: Subject, x: Array, y: Array, random: np.random.Generator) -> None:
    """Learn points in chunks of any length."""
    start, n = 0, x.shape[1]
    while start < n:
        stop = min(n, start + int(random.integers(1, 40)))
        subject.update(x[:, start:stop], y[:, start:stop])
        start = stop
