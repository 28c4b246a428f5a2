import pytest

from edgefold.runtime.series.durations import duration, elapsed


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 milliseconds"),
        (0.02, "20 milliseconds"),
        (1, "1 second"),
        (59.99, "1 minute"),
        (90, "1.5 minutes"),
        (3600, "1 hour"),
        (86400 * 1.5, "1.5 days"),
        (604800, "7 days"),
        (86400 * 365, "365 days"),
        (86400 * 365.2425 * 17, "17 years"),
        (86400 * 365.2425 * 12_345, "12,345 years"),
    ],
)
def test_a_duration_is_in_the_unit_that_people_use(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_times_that_are_numbers_keep_their_own_unit() -> None:
    assert elapsed(3600, "date") == "1 hour"
    assert elapsed(3600, "number") == "3600 in units of its times"
