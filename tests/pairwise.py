"""Choose cases of a product so that every pair of values of two axes occurs in at least one.

`make test` runs the chosen cases; the others are marked `product` and run in `make test-all`. A
fault that needs one value, or two values together, is met by the chosen cases, too (D. M. Cohen et
al., "The AETG system", IEEE Transactions on Software Engineering 23(7), 1997).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations, product
from typing import Any

import pytest


def pairwise(*axes: Sequence[Any]) -> list[tuple[int, ...]]:
    """Indices of cases that together contain each pair of values; the same ones every time.

    Each case is the one of the whole product that contains most pairs which are still missing; of
    several, the first.
    """
    missing = {
        (a, i, b, j)
        for a, b in combinations(range(len(axes)), 2)
        for i, j in product(range(len(axes[a])), range(len(axes[b])))
    }
    cases = list(product(*(range(len(axis)) for axis in axes)))
    chosen = []
    while missing:
        case = max(cases, key=lambda case: len(missing & pairs(case)))
        missing -= pairs(case)
        chosen.append(case)
    return chosen


def pairs(case: Sequence[int]) -> set[tuple[int, int, int, int]]:
    """Pairs of values that a case contains: axis, index, axis, index."""
    return {(a, case[a], b, case[b]) for a, b in combinations(range(len(case)), 2)}


def parametrize(**axes: Sequence[Any]) -> pytest.MarkDecorator:
    """Parametrize a test with a whole product of which only a pairwise choice is not `product`."""
    chosen = set(pairwise(*axes.values()))
    cases = []
    for case in product(*(range(len(axis)) for axis in axes.values())):
        values = [axis[i] for axis, i in zip(axes.values(), case, strict=True)]
        cases.append(pytest.param(*values, marks=() if case in chosen else pytest.mark.product))
    return pytest.mark.parametrize(tuple(axes), cases)


def leave_out(values: Sequence[Any], left_out: Collection[Any]) -> list[Any]:
    """Cases of one axis, of which those that `make test` leaves out are marked `product`."""
    return [
        pytest.param(value, marks=pytest.mark.product if value in left_out else ())
        for value in values
    ]


def in_turn(first: Sequence[Any], second: Sequence[Any]) -> set[tuple[Any, Any]]:
    """Pairs in which each value of both axes occurs, the values of the shorter axis taking turns.

    For two axes a pairwise choice is the whole product; this is the choice where that is too long.
    """
    longer = max(len(first), len(second))
    return {(first[k % len(first)], second[k % len(second)]) for k in range(longer)}
