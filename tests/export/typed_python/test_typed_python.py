"""C that is made of typed Python gives Python's bits; what is not in the subset is refused."""

from __future__ import annotations

import ctypes
import math
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.export.typed_python.errors import SubsetError
from edgefold.export.typed_python.program import C_FILES, RulesProgram
from edgefold.runtime.kept_numbers import KeptNumbers, filled
from tests.export.typed_python.sample_rules import DIRECTIONS, Place, Sample
from tests.native_builds import compiler_or_skip

BEGINNING = """
#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif
typedef double edgefold_real;
"""
METHODS = ("of_numbers", "of_lists", "of_words", "of_parts", "of_arrays")
DRIVER = """
static struct edgefold_sample sample;
void begin(void) { edgefold_sample_begin_fields(&sample); }
double of_numbers(double a, double b, int64_t n, int64_t m) {
    return edgefold_sample_of_numbers(&sample, a, b, n, m);
}
static void put(struct edgefold_place place, double *to) {
    to[0] = place.number; to[1] = (double)place.n; to[2] = place.direction;
}
void of_lists(double a, int64_t n, double *to) { put(edgefold_sample_of_lists(&sample, a, n), to); }
void of_words(double a, int64_t n, double *to) { put(edgefold_sample_of_words(&sample, a, n), to); }
double of_parts(double a) { return edgefold_sample_of_parts(&sample, a); }
double of_arrays(float *values, double *work, int64_t n) {
    return edgefold_sample_of_arrays(&sample, values, work, n);
}
"""


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    program = RulesProgram(DIRECTIONS)
    text = program.text([(getattr(Sample, name), Sample) for name in METHODS])
    parts = (BEGINNING, text.words, text.structs, *(f.read_text() for f in C_FILES), text.functions)
    folder = tmp_path_factory.mktemp("typed")
    (folder / "sample.c").write_text("".join(parts) + DRIVER)
    flags = ["-std=c99", "-O2", "-ffp-contract=off", "-shared", "-fPIC", "-Wall", "-Werror"]
    command = [
        *compiler_or_skip().command,
        *flags,
        "-Wno-unused-function",
        "sample.c",
        "-o",
        "sample.so",
        "-lm",
    ]
    subprocess.run(command, cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "sample.so"))
    for name in ("of_numbers", "of_parts", "of_arrays"):
        getattr(library, name).restype = ctypes.c_double
    return library


def same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def test_numbers_are_those_of_python(sample: ctypes.CDLL) -> None:
    rule, draw = Sample(), random.Random(0)
    for _ in range(3000):
        a, b = draw.choice([draw.gauss(0, 9), draw.randint(-5, 5) / 2]), draw.gauss(0, 3)
        n, m = draw.randint(-50, 50), draw.choice([-7, -2, 1, 3, 8])
        arguments = ctypes.c_double(a), ctypes.c_double(b), ctypes.c_int64(n), ctypes.c_int64(m)
        assert same(sample.of_numbers(*arguments), rule.of_numbers(a, b, n, m)), (a, b, n, m)


def test_lists_words_and_parts_are_those_of_python(sample: ctypes.CDLL) -> None:
    rule, draw, result = Sample(), random.Random(1), (ctypes.c_double * 3)()
    sample.begin()
    for _ in range(2000):
        a, n = draw.gauss(0, 3), draw.randint(0, 40)
        for name in ("of_lists", "of_words"):
            getattr(sample, name)(ctypes.c_double(a), ctypes.c_int64(n), result)
            expected: Place = getattr(rule, name)(a, n)
            assert result[0] == expected.number and result[1] == expected.n
            assert DIRECTIONS[int(result[2])] == expected.direction
        assert sample.of_parts(ctypes.c_double(a)) == rule.of_parts(a)


def test_slices_of_arrays_are_those_of_numpy(sample: ctypes.CDLL) -> None:
    """Sums of numpy add in pairs, those of C in sequence."""
    rule, draw = Sample(), np.random.default_rng(2)
    for n in (2, 7, 64, 301):
        values = draw.normal(size=n).astype(np.float32)
        values[: n // 2][draw.random(n // 2) < 0.1] = math.nan  # only where NaN is searched for
        theirs, work, own = values.copy(), np.zeros(n), np.zeros(n)
        addresses = (ctypes.c_void_p(array.ctypes.data) for array in (theirs, work))
        found = sample.of_arrays(*addresses, ctypes.c_int64(n))
        assert found == pytest.approx(rule.of_arrays(values, own, n), rel=1e-12)
        assert work == pytest.approx(own, rel=1e-12)


def test_the_fields_of_a_rule_are_kept_in_their_order() -> None:
    one, other = Sample().inner, Sample().inner
    one.push(4.0)
    numbers = one.numbers()
    assert numbers.tolist() == [1.5, 0.0, 0.0, 0.0, 4.0, 1.0]
    other.take(numbers * np.array([2, 1, 1, 1, 1, 1]))
    assert (other.level, other.last, other.n, other._half) == (3.0, [0, 0, 0, 4.0], 1, 1.5)
    with pytest.raises(ValueError, match="5 numbers stand for 6"):
        other.take(numbers[1:])


def test_copies_share_no_parts() -> None:
    one = Sample()
    other = one.copy()
    other.inner.push(1.0)
    assert one.inner.n == 0 and other.inner.n == 1 and Sample().inner.n == 0


# Functions that are not in the subset: each takes and returns a float.


class Holder(KeptNumbers):
    """A rule that is changed by a method and read beside it."""

    number: float = 0.0
    items: list[float] = filled(0.0, 3)

    def grow(self) -> float:
        """Change the field, and return it."""
        self.number += 1.0
        return self.number

    def read_beside_change(self) -> float:
        """Read a field beside a call that changes it."""
        return self.number + self.grow()

    def replace_within_loop(self) -> float:
        """Replace the list of a loop."""
        total = 0.0
        for number in self.items:
            self.items = [1.0, 2.0, 3.0]
            total += number
        return total


def raising(a: float) -> float:
    """Raise an error."""
    if a > 0:
        raise ValueError("positive")
    return a


def summing(a: float) -> float:
    """Sum a generator."""
    return sum(a for _ in range(3))


def calling(a: float) -> float:
    """Call what no C has."""
    return float(str(a))


def changing_type(a: float) -> float:
    """Assign a float to a variable of whole numbers."""
    n = 1
    if a > 0:
        n = a  # type: ignore[assignment]
    return n


def returning_a_word(a: float) -> float:
    """Return another type than the annotation says."""
    return "up" if a > 0 else "down"  # type: ignore[return-value]


def with_a_dictionary(a: float) -> float:
    """Make a dictionary."""
    numbers = {1: a}
    return numbers[1]


@pytest.mark.parametrize(
    "function",
    [raising, summing, calling, changing_type, returning_a_word, with_a_dictionary],
    ids=lambda function: function.__name__,
)
def test_a_function_outside_of_the_subset_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(SubsetError, match=rf"{Path(__file__).name}:\d+: {function.__name__}: "):
        RulesProgram().text([(function, None)])


@pytest.mark.parametrize("name", ["read_beside_change", "replace_within_loop"])
def test_a_method_whose_order_c_does_not_keep_is_refused(name: str) -> None:
    with pytest.raises(SubsetError, match=name):
        RulesProgram().text([(getattr(Holder, name), Holder)])
