"""The parts of the tests: together they are all, and no test is without a case."""

from __future__ import annotations

from tests.parts import everyday, first_cases, part_of

NAMES = [f"tests/test_{n % 7}.py::test[{n}]" for n in range(200)]


def test_the_parts_together_are_all_tests_and_share_none() -> None:
    parts = [part_of(NAMES, f"{k}/8") for k in range(8)]
    assert sorted(index for part in parts for index in part) == list(range(200))
    assert min(map(len, parts)) > 10


def test_each_test_has_its_first_case() -> None:
    assert first_cases(["a", "b", "a", ("a", "order"), "b", "c"]) == {0, 1, 3, 5}
    assert first_cases([]) == set()


def test_every_day_runs_what_is_short_and_one_case_where_only_one_is_asked_for() -> None:
    cases = [
        ("plain", ""),
        ("plain", ""),
        ("plain", "product"),
        ("long", "long"),
        ("slow", "slow"),
        ("one", "one_case product"),
        ("one", "one_case"),
        ("one", "one_case"),
        ("never", "one_case long"),
    ]
    tests, marks = [test for test, _ in cases], [names.split() for _, names in cases]
    assert everyday(tests, marks) == {0, 1, 6}
