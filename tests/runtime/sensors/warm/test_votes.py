"""The votes of siblings on the alarms of a new sensor."""

from __future__ import annotations

import numpy as np
import pytest

from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.sensors.alarms.alarms import Watch
from edgefold.runtime.sensors.alarms.slot_place import NOWHERE
from edgefold.runtime.sensors.alarms.verdict import QUIET, AlarmVerdict
from edgefold.runtime.sensors.warm.votes import N_ERRORS, Votes

RATE = 1e-4


def learned(scale: float, n: int = 3000) -> dict[str, Array]:
    """The watch of a sensor whose errors are normal with this deviation."""
    watch = Watch(RATE)
    for error in np.random.default_rng(1).normal(size=n):
        watch.see(scale * error, p_of(error), 0.0, -1.0)
    return watch.arrays()


def p_of(error: float) -> float:
    """Some p-value, which falls with the error."""
    return float(min(1.0, 2 * np.exp(-0.5 * error * error - 0.7 * abs(error))))


def judged(votes: Votes, value: float, own: AlarmVerdict, p_value: float | None = None) -> bool:
    p = p_of(value) if p_value is None else p_value
    return votes.judged(own, value, p, 0.0, -1.0, 0, NOWHERE).alarm


def settled(watches: list[dict[str, Array]], scale: float = 1.0) -> Votes:
    """Votes that have seen as many usual errors as they need."""
    votes = Votes.of(watches, RATE)
    for error in np.random.default_rng(2).normal(size=N_ERRORS).clip(-2, 2):
        votes.judged(QUIET, scale * error, p_of(error), 0.0, -1.0, 0, NOWHERE)
    return votes


OWN = AlarmVerdict(True, "value")


def test_an_alarm_that_no_sibling_confirms_is_an_event_without_an_alarm() -> None:
    verdict = settled([learned(1.0)] * 3).judged(OWN, 1.0, p_of(1.0), 0.0, -1.0, 0, NOWHERE)
    assert verdict == AlarmVerdict(False, "value")


def test_an_alarm_that_siblings_confirm_stands() -> None:
    assert judged(settled([learned(1.0)] * 3), 9.0, OWN)


def test_most_votes_alarm_without_the_new_sensors_own_watch() -> None:
    verdict = settled([learned(1.0)] * 3).judged(QUIET, 9.0, p_of(9.0), 0.0, -1.0, 0, NOWHERE)
    assert verdict == AlarmVerdict(True, "value")


def test_siblings_of_another_unit_vote_by_the_size_of_the_new_sensors_errors() -> None:
    """In their own unit these errors would be nothing at all; half of the votes knows better."""
    votes = settled([learned(1000.0)] * 3)
    assert judged(votes.copy(), 9.0, OWN, p_value=0.01)
    assert not judged(votes.copy(), 9.0, QUIET, p_value=0.01)


def test_a_few_errors_alarm_nothing_by_themselves() -> None:
    votes = Votes.of([learned(1.0)] * 3, RATE)
    assert not judged(votes, 9.0, QUIET)


def test_a_copy_goes_on_by_itself_and_arrays_restore_all() -> None:
    votes = settled([learned(1.0), learned(2.0)])
    other = votes.copy()
    before = {name: array.tobytes() for name, array in votes.arrays().items()}
    judged(other, 5.0, QUIET)
    assert {name: array.tobytes() for name, array in votes.arrays().items()} == before
    restored = Votes.of([learned(3.0)] * 2, RATE)
    restored.load(votes.arrays())
    assert {name: array.tobytes() for name, array in restored.arrays().items()} == before
    damaged = {**votes.arrays(), "errors": np.array([[2.5, 1.0]])}
    with pytest.raises(SnapshotError):
        restored.load(damaged)
