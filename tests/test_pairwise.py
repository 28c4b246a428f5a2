"""The choice of cases that `make test` takes of a product."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pairwise import in_turn, pairwise, parametrize


@given(st.lists(st.integers(1, 5), min_size=2, max_size=4))
def test_each_pair_of_values_occurs(sizes: list[int]) -> None:
    chosen = pairwise(*(range(size) for size in sizes))
    for a, b in combinations(range(len(sizes)), 2):
        assert {(case[a], case[b]) for case in chosen} == set(
            product(range(sizes[a]), range(sizes[b]))
        )
    assert len(chosen) == len(set(chosen)) <= len(list(product(*map(range, sizes))))


def test_four_axes_need_far_fewer_cases_than_their_product() -> None:
    assert len(pairwise("abcde", "abc", "abcdef", "ab")) <= 36  # of 180; at least 5 x 6 are needed


@pytest.mark.parametrize(("n", "m"), [(1, 3), (3, 2), (30, 3)])
def test_in_turn_leaves_no_value_out(n: int, m: int) -> None:
    chosen = in_turn(range(n), range(m))
    assert len(chosen) == max(n, m)
    assert {a for a, _ in chosen} == set(range(n)) and {b for _, b in chosen} == set(range(m))


def test_the_whole_product_is_parametrized_and_the_rest_is_marked() -> None:
    mark = parametrize(a=[1, 2, 3], b="xy", c=[True, False]).mark
    names, cases = mark.args
    marked = [case.values for case in cases if any(m.name == "product" for m in case.marks)]
    assert names == ("a", "b", "c") and len(cases) == 12 and len(marked) == 12 - 6
