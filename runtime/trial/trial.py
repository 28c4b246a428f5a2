"""Run a new model, the candidate, next to the one in service, and decide which of the two speaks.

    shadow     the candidate learns each row and is not heard; evidence that it is better
       │ enough: promoted                       (probability that a worse one is, ever: `risk`)
    probation  the candidate speaks, the old model learns each row and is not heard; evidence that
       │       the old one is better
       ├──> rolled back: the old model speaks again; it has missed no row
       └──> taken over after `probation` rows: the old model is dropped

Both models learn the same rows from the first to the last, so that neither decision loses any. A
candidate that fails in a step, or refuses rows that the old one takes, is rolled back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from edgefold.runtime.errors import (
    DataError,
    EdgefoldError,
    SnapshotError,
    StepRefusedError,
    ValueRefusedError,
)
from edgefold.runtime.loop.streams import LoopStream, LoopStreams
from edgefold.runtime.rows.csv_columns import Row
from edgefold.runtime.stream.stream import Stream
from edgefold.runtime.trial.evidence import Evidence

SHADOW, PROBATION, ROLLED_BACK, TAKEN_OVER = "shadow", "probation", "rolled back", "taken over"
PHASES = (SHADOW, PROBATION, ROLLED_BACK, TAKEN_OVER)
MOST_REFUSED = 20
"""A candidate that refuses so many rows in sequence that the old model takes is rolled back."""


REFUSALS = (DataError, ValueRefusedError, StepRefusedError)
"""Errors that refuse a row and change nothing."""


@dataclass(frozen=True, slots=True)
class TrialOptions:
    """Holds the settings of a trial.

    Attributes:
        risk: Alpha, the largest probability that a candidate that is worse is ever promoted; and
            that one that is better is rolled back by its scores.
        probation: Number of scored rows for which the old model goes on after a promotion.
        tell: Function that gets a sentence for the user.
    """

    risk: float = 0.05
    probation: int = 2000
    tell: Callable[[str], None] = lambda sentence: None


@dataclass(slots=True)
class RowAnswer:
    """Holds what one model made of a row.

    Attributes:
        sensor: The row's sensor; None if the row was refused.
        fields: The fields of the output.
        n_refused: Number of rows that were refused directly before.
        error: Why the row was refused; None if it was learned.
    """

    sensor: LoopStream | None = None
    fields: list[str] | None = None
    n_refused: int = 0
    error: EdgefoldError | None = None


class Trial:
    """Lets two models learn the same rows, and decides which one speaks.

    Args:
        new: The sensors of the candidate, with states of their own.
        stream: The candidate's stream.
        options: The settings.

    Attributes:
        phase: One of `PHASES`.
        n_rows: Number of scored rows in this phase.
        evidence: Evidence for the candidate in the shadow, for the old model in probation.
        n_promoted_after: Number of scored rows until the promotion; 0 before it.
        reason: Why it was rolled back, in words.
    """

    def __init__(self, new: LoopStreams, stream: Stream, options: TrialOptions):
        self.new, self.stream, self._options = new, stream, options
        self.phase, self.reason = SHADOW, ""
        self.evidence = Evidence()
        self.n_promoted_after = self._n_refused = 0

    @property
    def n_rows(self) -> int:
        """Return the number of rows in this phase that both models scored."""
        return self.evidence.n

    @property
    def risk(self) -> float:
        """Return the largest probability of a wrong promotion."""
        return self._options.risk

    @property
    def is_running(self) -> bool:
        """Return whether both models still learn."""
        return self.phase in (SHADOW, PROBATION)

    @property
    def is_heard(self) -> bool:
        """Return whether the candidate's predictions are written."""
        return self.phase in (PROBATION, TAKEN_OVER)

    def learn(self, old: LoopStreams, name: str, row: Row) -> RowAnswer:
        """Let both models predict and learn a row, and return the answer of the one that speaks.

        Args:
            old: The sensors of the model in service.
            name: The name of the row's sensor.
            row: The row.

        Raises:
            EdgefoldError: The old model failed; the candidate never ends the loop.
        """
        was_heard = self.is_heard
        own = learned(old, name, row)
        theirs = self._try(name, row)
        self._weigh(own, theirs)
        # The loop counts a refusal of the one that speaks.
        if was_heard and self.is_heard:
            if own.error is not None:
                count_refused(old, name)
            return theirs
        if theirs.error is not None:
            count_refused(self.new, name)
        return own

    def fold(self, rows: Iterable[tuple[str, tuple[float, ...]]]) -> None:
        """Let the candidate learn rows from before the trial; refused ones are passed over.

        Args:
            rows: The rows, the oldest first, as pairs of a sensor's name and numbers.
        """
        n_rows = 0
        for name, numbers in rows:
            learned(self.new, name, Row(0, numbers, ("",) * len(numbers)), (EdgefoldError,))
            n_rows += 1
        self.tell(f"the candidate begins with {n_rows:,} rows that were kept")

    def tell(self, sentence: str) -> None:
        """Give a sentence to the user."""
        self._options.tell(sentence)

    def _try(self, name: str, row: Row) -> RowAnswer:
        """Let the candidate learn a row; any failure of it counts as a refusal."""
        try:
            return learned(self.new, name, row, (EdgefoldError,))
        except (ArithmeticError, MemoryError, OSError) as error:
            return RowAnswer(error=EdgefoldError(f"{type(error).__name__}: {error}"))

    def _weigh(self, own: RowAnswer, theirs: RowAnswer) -> None:
        """Add the row's scores to the evidence, and decide."""
        if theirs.error is not None and own.error is None:
            self._n_refused += 1
            if self._n_refused >= MOST_REFUSED:
                self._roll_back(f"it refused {MOST_REFUSED} rows in sequence: {theirs.error}")
            return
        self._n_refused = 0
        if own.sensor is None or theirs.sensor is None:
            return
        difference = theirs.sensor.view().log_density - own.sensor.view().log_density
        is_probation = self.phase == PROBATION
        self.evidence.add(-difference if is_probation else difference)
        is_enough = self.evidence.log_e >= -math.log(self._options.risk)
        if is_enough and is_probation:
            self._roll_back(f"it scored {self.evidence.mean:.3g} nats a row less")
        elif is_enough:
            self._promote()
        elif is_probation and self.evidence.n >= self._options.probation:
            self.phase = TAKEN_OVER
            self.tell(f"the candidate has taken over after {self.evidence.n:,} rows of probation")

    def _promote(self) -> None:
        self.tell(
            f"the candidate speaks from now on: over {self.evidence.n:,} rows it scored "
            f"{self.evidence.mean:.3g} nats a row more; the old model goes on unheard for "
            f"{self._options.probation:,} rows"
        )
        self.n_promoted_after = self.evidence.n
        self.phase, self.evidence = PROBATION, Evidence()

    def _roll_back(self, reason: str) -> None:
        self.phase, self.reason = ROLLED_BACK, reason
        self.tell(f"the candidate is given up: {reason}; the old model speaks")

    def to_json(self) -> dict[str, Any]:
        """Return the state of the trial as a JSON object."""
        return {
            "bundle": self.stream.manifest.bundle_hash,
            "path": str(self.stream.manifest.path),
            "phase": self.phase,
            "reason": self.reason,
            "evidence": self.evidence.to_json(),
            "promoted_after": self.n_promoted_after,
            "refused": self._n_refused,
        }

    def load(self, form: Mapping[str, Any]) -> None:
        """Restore the state that `to_json` returned; raise SnapshotError if it is damaged."""
        try:
            if form["phase"] not in PHASES:
                raise ValueError(f"{form['phase']!r} is no phase")
            self.phase, self.reason = form["phase"], str(form["reason"])
            self.evidence = Evidence.from_json(form["evidence"])
            self.n_promoted_after = int(form["promoted_after"])
            self._n_refused = int(form["refused"])
        except (KeyError, TypeError, ValueError) as error:
            raise SnapshotError(f"the trial of the snapshot is damaged ({error}).") from None


def learned(
    sensors: LoopStreams, name: str, row: Row, caught: tuple[type[EdgefoldError], ...] = REFUSALS
) -> RowAnswer:
    """Let a model predict and learn a row, and return its answer or why it refused.

    Args:
        sensors: The model's sensors.
        name: The name of the row's sensor.
        row: The row.
        caught: The errors that are a refusal; others are raised.
    """
    answer = RowAnswer()
    try:
        sensor = sensors.turn_to(name)
        answer.n_refused = sensor.counters.refused_in_a_row
        answer.fields = sensor.process(row)
        answer.sensor = sensor
    except caught as error:
        answer.error = error
    return answer


def count_refused(sensors: LoopStreams, name: str) -> None:
    """Count a refused row of a sensor that has come."""
    if (sensor := sensors.find(name)) is not None:
        sensor.counters.skip()
