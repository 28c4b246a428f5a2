"""Which of two backends needs less power: known differences with known intervals."""

from __future__ import annotations

import pytest

from edgefold.devices.profile.crossing import Crossing, PowerPoint, find_crossing


def crossing(*differences: tuple[float, float, float]) -> Crossing:
    """The crossing of B less A given as (rate, power, half-width); A needs 1 W throughout."""
    of_a = [PowerPoint(rate_hz, 1.0, 0.0) for rate_hz, _, _ in differences]
    of_b = [PowerPoint(rate_hz, 1.0 + power_w, half_w) for rate_hz, power_w, half_w in differences]
    return find_crossing("a", "b", of_a, of_b)


def test_a_line_between_two_certain_rates_is_cut_where_it_meets_zero() -> None:
    found = crossing((10, 0.3, 1e-9), (50, -0.1, 1e-9))
    assert (found.verdict, found.less) == ("crossing", "b")
    for rate_hz in (found.rate_hz, found.low_hz, found.high_hz):
        assert rate_hz == pytest.approx(40)
    assert (found.after_hz, found.until_hz) == (10, 50)


def test_the_ends_are_fiellers() -> None:
    found = crossing((10, 0.3, 0.1), (50, -0.2, 0.1))
    assert found.rate_hz == pytest.approx(34)
    for end_hz in (found.low_hz, found.high_hz):
        assert end_hz is not None
        at = (end_hz - 10) / 40
        squares = ((1 - at) * 0.1) ** 2 + (at * 0.1) ** 2  # of the interpolated half-width
        assert ((1 - at) * 0.3 - at * 0.2) ** 2 == pytest.approx(squares)
    assert found.low_hz < 34 < found.high_hz  # type: ignore[operator]


def test_it_does_not_matter_which_backend_is_named_first() -> None:
    found = crossing((10, -0.3, 0.1), (50, 0.2, 0.1))
    other = crossing((10, 0.3, 0.1), (50, -0.2, 0.1))
    assert (found.less, other.less) == ("a", "b")
    assert (found.low_hz, found.rate_hz, found.high_hz) == (
        other.low_hz,
        other.rate_hz,
        other.high_hz,
    )


def test_rates_where_nothing_can_be_told_lie_inside_the_crossing() -> None:
    found = crossing((50, -0.3, 0.1), (1, 0.4, 0.1), (20, 0.05, 0.1), (35, -0.02, 0.1))
    assert found.verdict == "crossing"
    assert (found.after_hz, found.until_hz) == (1, 50)
    assert found.low_hz is not None and found.high_hz is not None
    assert 1 < found.low_hz < 20 < 35 < found.high_hz < 50
    assert [d.rate_hz for d in found.differences] == [1, 20, 35, 50]
    assert [d.less for d in found.differences] == ["a", None, None, "b"]


@pytest.mark.parametrize(
    ("powers_w", "verdict", "less"),
    [
        ((0.3, 0.2), "one", "a"),
        ((-0.3, -0.2), "one", "b"),
        ((0.3, 0.05), "part", "a"),
        ((0.05, -0.2), "part", "b"),
        ((0.05, -0.05), "unclear", None),
        ((0.3, -0.3, 0.3), "mixed", None),
    ],
)
def test_what_cannot_be_told_has_no_crossing(
    powers_w: tuple[float, ...], verdict: str, less: str | None
) -> None:
    found = crossing(*((10.0 * n, power_w, 0.1) for n, power_w in enumerate(powers_w, 1)))
    assert (found.verdict, found.less, found.rate_hz) == (verdict, less, None)


def test_backends_without_a_common_rate_do_not_compare() -> None:
    found = find_crossing("a", "b", [PowerPoint(1, 1, 0.1)], [PowerPoint(2, 1, 0.1)])
    assert found.verdict == "none" and found.reason
