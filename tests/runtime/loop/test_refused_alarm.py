from edgefold.runtime.loop.refused_alarm import RefusedAlarm, is_alarm


def test_an_alarm_comes_at_20_200_2000_and_so_on() -> None:
    assert [n for n in range(250_000) if is_alarm(n)] == [20, 200, 2_000, 20_000, 200_000]


def test_an_alarm_is_said_once_a_stage_and_its_end_once() -> None:
    alarm = RefusedAlarm()
    said = [n for n in range(1, 2_500) if alarm.refused(n, n, "was wrong")]
    assert said == [20, 200, 2_000]
    assert [bool(alarm.learned(line)) for line in (2_500, 2_501)] == [True, False]
    assert not alarm.refused(1, 2_502, "was wrong")
    assert not alarm.learned(2_503)
