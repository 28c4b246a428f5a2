"""The parts of the tests: together they are all, and no test is without a case."""

from __future__ import annotations

from tests.parts import first_cases, part_of

NAMES = [f"tests/test_{n % 7}.py::test[{n}]" for n in range(200)]


def test_the_parts_together_are_all_tests_and_share_none() -> None:
    parts = [part_of(NAMES, f"{k}/8") for k in range(8)]
    assert sorted(index for part in parts for index in part) == list(range(200))
    assert min(map(len, parts)) > 10


def test_each_test_has_its_first_case() -> None:
    assert first_cases(["a", "b", "a", ("a", "order"), "b", "c"]) == {0, 1, 3, 5}
    assert first_cases([]) == set()
