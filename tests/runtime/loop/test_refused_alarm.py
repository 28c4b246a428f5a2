from edgefold.runtime.loop.refused_alarm import end_of_alarm, is_alarm, refused_alarm


def test_an_alarm_comes_at_20_200_2000_and_so_on() -> None:
    assert [n for n in range(250_000) if is_alarm(n)] == [20, 200, 2_000, 20_000, 200_000]
    assert [n for n in range(2_500) if refused_alarm(n, f"line {n}", "was wrong")] == [
        20,
        200,
        2_000,
    ]


def test_only_an_alarm_that_was_given_has_an_end() -> None:
    assert [bool(end_of_alarm(n, "line 7")) for n in (0, 19, 20, 300)] == [False, False, True, True]
