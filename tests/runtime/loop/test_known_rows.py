"""Rows that come again are known by their times; a clock that was set back is believed later."""

from __future__ import annotations

import math

from edgefold.runtime.loop.known_rows import KnownRows


def test_nothing_is_known_before_rows_are_expected_to_come_again() -> None:
    known = KnownRows()
    assert not known.skips("roof", 1.0)
    assert known.n_skipped == 0


def test_rows_up_to_the_newest_time_of_their_own_sensor_are_known() -> None:
    known = KnownRows()
    known.expect({"roof": 5.0, "cellar": 2.0})
    assert [known.skips("roof", time) for time in (4.0, 5.0)] == [True, True]
    assert not known.skips("cellar", 3.0)
    assert not known.skips("attic", 1.0)  # a sensor that has not come yet
    assert known.n_skipped == 2


def test_after_the_first_later_row_an_older_one_is_a_matter_of_the_clock() -> None:
    known = KnownRows()
    known.expect({"roof": 5.0})
    assert known.skips("roof", 5.0)
    assert not known.skips("roof", 6.0)
    assert not known.skips("roof", 4.0)


def test_a_clock_that_stays_back_is_believed_after_an_hour() -> None:
    now = 100.0
    known = KnownRows(lambda: now)
    known.expect({"roof": 5.0})
    now += 3599.0
    assert known.skips("roof", 1.0)
    now += 1.0
    assert not known.skips("roof", 1.0)


def test_a_sensor_is_pending_until_its_first_later_row_or_an_hour_has_passed() -> None:
    now = 100.0
    known = KnownRows(lambda: now)
    assert not known.pending
    known.expect({"roof": 5.0, "cellar": 2.0})
    known.skips("roof", 4.0)
    known.skips("cellar", 3.0)
    assert known.pending == ("roof",)
    now += 3600.0
    assert not known.pending


def test_rows_without_times_are_never_known() -> None:
    known = KnownRows()
    known.expect({"roof": math.nan})
    assert not known.skips("roof", 0.0)
