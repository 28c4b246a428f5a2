"""The products of generated C in every width of vectors that this machine has, against numpy."""

from __future__ import annotations

import ctypes
import itertools
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.export.native.generator import FOLDER, PARTS
from edgefold.export.native.program.constants import packed
from tests.export.native.c_streams import compiled

Array = Any
LANES = {
    1: ("-U__SSE2__", "-U__ARM_NEON"),
    4: (),
    8: ("-mavx2", "-mfma"),
    16: ("-mavx512f", "-mavx512vl", "-mavx512dq", "-mavx512bw"),
}
"""Flags of the compiler by the number of lanes that they allow."""
CPU_FLAGS = {8: {"avx2", "fma"}, 16: {"avx512f", "avx512vl", "avx512dq", "avx512bw"}}
"""What Linux must name in /proc/cpuinfo for a number of lanes."""
M, N, K = (1, 2, 3, 4, 7, 18), (*range(1, 19), 24, 33, 63), (1, 2, 15, 33)
TOLERANCE = 8e-6
"""Of results around 1: the same float32 sums in another order."""
CALLS = """
#define GIVEN int m, int n, int k, const float *a, int a_row, int a_column, const float *b, \\
              int apart, const float *bias, int bias_row, float *c, int c_row
int lanes(void);
void rows(GIVEN);
void columns(GIVEN);
int lanes(void) { return EDGEFOLD_LANES; }
void rows(GIVEN)
{
    edgefold_product(m, n, k, a, a_row, a_column, b, apart, bias, bias_row, c, c_row);
}
void columns(GIVEN)
{
    edgefold_product_columns(m, n, k, a, a_row, a_column, b, apart, bias, bias_row, c, c_row);
}
"""


@pytest.fixture(scope="module", params=LANES, ids=lambda n: f"{n} lanes")
def library(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ctypes.CDLL:
    """The kernels, compiled for a number of lanes."""
    lanes: int = request.param
    if lanes > 4:
        cpu = Path("/proc/cpuinfo")
        words = set(cpu.read_text().split()) if cpu.is_file() else set()
        if platform.machine() != "x86_64" or not CPU_FLAGS[lanes] <= words:
            pytest.skip(f"this processor has no vectors of {lanes} numbers")
    text = "\n".join((FOLDER / part).read_text() for part in PARTS) + CALLS
    flags = ("-ffp-contract=fast", "-Wno-unused-function", "-Wno-psabi", *LANES[lanes])
    made = compiled({"products.c": text}, tmp_path_factory.mktemp("products"), *flags)
    if made.lanes() != lanes:
        pytest.skip(f"the compiler makes vectors of {made.lanes()} numbers here")
    return made


def inside(array: Array, rows: int, columns: int) -> Array:
    """A copy in the middle of NaN, so that what is read beside it shows in the result."""
    around = np.full((rows, columns), np.nan, np.float32)
    around[1 : 1 + array.shape[0], 1 : 1 + array.shape[1]] = array
    return around


def factors() -> Iterator[tuple[Array, Array, Array]]:
    """Matrices of all sizes, and a bias."""
    random = np.random.default_rng(3)
    for m, n, k in itertools.product(M, N, K):
        a, b, bias = (random.normal(size=size) for size in ((m, k), (k, n), (m, n)))
        yield a.astype(np.float32), (b / k**0.5).astype(np.float32), bias.astype(np.float32)


def check(function: Any, a: Array, b: Array, apart: int, factor: Array, bias: Array | None) -> None:
    """Multiply with rows of A and of the result that lie apart; only the result may change.

    `b` is the right factor, and `factor` what the function reads of it.
    """
    (m, k), n = a.shape, b.shape[1]
    left, result = inside(a, m + 2, k + 3), inside(np.zeros((m, n), np.float32), m + 2, n + 4)
    start = ctypes.c_void_p(left[1:, 1:].ctypes.data), k + 3, 1
    more = (None, 0) if bias is None else (ctypes.c_void_p(bias.ctypes.data), n)
    right, into = (ctypes.c_void_p(x.ctypes.data) for x in (factor, result[1:, 1:]))
    function(m, n, k, *start, right, apart, *more, into, n + 4)
    expected = inside(a @ b if bias is None else a @ b + bias, m + 2, n + 4)
    np.testing.assert_allclose(result, expected, rtol=0, atol=TOLERANCE, equal_nan=True)


def test_a_factor_in_rows_is_multiplied_whatever_its_size(library: ctypes.CDLL) -> None:
    for a, b, bias in factors():
        k, n = b.shape
        around = inside(b, k + 2, n + 2)[1:, 1:]
        check(library.rows, a, b, n + 2, around, None)
        check(library.rows, a, b, n + 2, around, bias)


def test_weights_in_panels_are_multiplied_whatever_their_size(library: ctypes.CDLL) -> None:
    for a, b, bias in factors():
        check(library.rows, a, b, 0, packed(b), bias)


def test_a_factor_in_columns_is_multiplied_whatever_its_size(library: ctypes.CDLL) -> None:
    for a, b, bias in factors():
        k, n = b.shape
        around = inside(b.T, n + 2, k + 2)[1:, 1:]
        check(library.columns, a, b, k + 2, around, None)
        check(library.columns, a, b, k + 2, around, bias)
