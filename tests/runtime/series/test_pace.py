"""How the first rows decide whether a series comes at the model's pace."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefold.runtime.errors import PaceError
from edgefold.runtime.series.pace import Pace
from edgefold.runtime.series.spec import DAY_S, SeriesSpec

WEEK_S = 7 * DAY_S
WEEKLY = SeriesSpec(clock="date", step=WEEK_S)


def judged(intervals: list[float]) -> bool | None:
    """Whether the pace of these intervals, in steps, is taken for right; None if that is open."""
    pace = Pace(WEEKLY)
    try:
        for time in np.cumsum([0.0, *intervals]):
            pace.note(float(time) * WEEK_S)
            if pace.is_known:
                return True
    except PaceError:
        return False
    return None


WRONG = st.floats(1e-3, 0.49) | st.floats(1.51, 1e6)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.floats(0.51, 1.49), min_size=11), st.lists(WRONG, max_size=5), st.randoms())
def test_a_third_of_wrong_intervals_anywhere_does_not_make_a_right_pace_wrong(
    right: list[float], wrong: list[float], order: Random
) -> None:
    first = [*right[:11], *wrong]
    order.shuffle(first)
    assert judged(first) is True


@settings(deadline=None, max_examples=300)
@given(
    st.floats(0.001, 0.3) | st.floats(2.0, 1000.0),
    st.lists(st.floats(0.8, 1.2), min_size=16, max_size=16),
    st.lists(st.floats(1e-3, 1e6), max_size=4),
    st.randoms(),
)
def test_a_wrong_pace_is_refused_and_never_known_whatever_a_quarter_of_the_intervals_is(
    step: float, jitter: list[float], others: list[float], order: Random
) -> None:
    first = [*others, *(step * factor for factor in jitter)][:16]
    order.shuffle(first)
    assert judged(first) is False


def test_three_wrong_times_in_ten_hide_neither_a_right_pace_nor_a_wrong_one() -> None:
    def known(step: float, chance: np.random.Generator) -> bool:
        pace = Pace(WEEKLY)
        for row in range(200):
            far = 10 ** chance.uniform(0, 6) * (1 if chance.random() < 0.6 else -1)
            wrong = max(0.0, row * step + far)
            try:
                pace.note((wrong if chance.random() < 0.3 else row * step) * WEEK_S)
            except PaceError:
                return False
            if pace.is_known:
                return True
        raise AssertionError("200 rows decide nothing")

    n_known = {
        step: sum(known(step, np.random.default_rng(seed)) for seed in range(200))
        for step in (0.3, 1.0, 2.0, 24.0)
    }
    assert n_known[1.0] >= 194  # 1.4 are expected to be refused, by 20,000 draws
    assert n_known[0.3] <= 4 and n_known[2.0] == n_known[24.0] == 0
