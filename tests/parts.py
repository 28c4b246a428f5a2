"""Choose a part of the tests by their names: the same on every machine and in every worker."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from zlib import crc32


def part_of(names: Sequence[str], part: str) -> set[int]:
    """Indices of the tests that belong to a part, "K/N": the K-th of N, from 0."""
    k, n = map(int, part.split("/"))
    return {index for index, name in enumerate(names) if crc32(name.encode()) % n == k}


def first_cases(tests: Sequence[Hashable]) -> set[int]:
    """Indices of the first case of each test; `tests` says of which test each case is one."""
    return set({test: index for index, test in reversed([*enumerate(tests)])}.values())


def everyday(tests: Sequence[Hashable], marks: Sequence[Collection[str]]) -> set[int]:
    """Indices of the cases that `make test` runs.

    Args:
        tests: Says of which test each case is one.
        marks: Names of each case's markers.
    """
    short = [n for n, names in enumerate(marks) if not {"slow", "long", "product"} & {*names}]
    first = {short[n] for n in first_cases([tests[n] for n in short])}
    return {n for n in short if n in first or "one_case" not in marks[n]}
