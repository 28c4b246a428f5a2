"""The mathematics of generated C against libm in double precision, and its special values."""

from __future__ import annotations

import ctypes
import itertools
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

FloatArray = npt.NDArray[np.float32]
MATHEMATICS = Path(__file__).parents[3] / "export" / "native" / "c" / "mathematics.c"
HARNESS = Path(__file__).parent / "mathematics_harness.c"
COMPILERS = [name for name in ("cc", "clang") if shutil.which(name)]
FLAGS = ("-std=c99", "-O3", "-fno-math-errno", "-fno-trapping-math")
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
NATIVE = ("-march=native",) if platform.machine() == "x86_64" else ()  # fused multiply-adds
CONTRACTION = {"fused": ("-ffp-contract=fast", *NATIVE), "separate": ("-ffp-contract=off",)}

# Largest errors in units of the last place that the functions' comments state.
STATED_ULP = {
    "exp": 1.04,
    "falling": 1.15,
    "log": 0.86,
    "tanh": 2.61,
    "erf": 1.59,
    "sigmoid": 2.49,
    "softplus": 2.52,
    "sin": 1.59,
    "cos": 1.59,
    "sin_all": 1.59,
    "cos_all": 1.59,
    "round": 0.0,
    "floor": 0.0,
    "sign": 0.0,
}
SWITCHES = (  # of a formula, of rounding, of overflow; and multiples of pi / 2 close to a float
    *(0.0, 1.1754944e-38, 1e-4, 0.34657359, 0.70710678, 0.92, 1.0, 1.41421356, 4.0, 9.01, 10.0),
    *(16.63, 87.33654, 88.72284, 103.97, 8192.0, 4194304.0, 8388608.0, 16777216.0, np.inf),
    *(0.78539816, 1.57079633, 2.35619449, 3.14159265, 355.0, 1.5e5, 1.6367e21, 3.4028235e38),
)
ALL_FLOATS = 1 << 32

pytestmark = pytest.mark.skipif(not COMPILERS, reason="no C compiler (cc or clang) is here")


def compile_c(source: Path, target: Path, *flags: str, compiler: str) -> int:
    """Compile with MATHEMATICS defined as the file under test; return the compiler's status."""
    define = f'-DMATHEMATICS="{MATHEMATICS}"'
    command = (compiler, *FLAGS, *flags, define, str(source), "-o", str(target), "-lm")
    return subprocess.run(command, check=False, capture_output=True).returncode


class Mathematics:
    """The functions of the compiled harness."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.worst_error.restype = ctypes.c_double

    def two(self, name: str, kind: Any, a: float, b: float) -> Any:
        """The harness's function of two arguments of one C type."""
        function = self._library[name]
        function.restype = kind
        return function(kind(a), kind(b))

    def worst_error(self, name: str, n: int, first: int = 0, stride: int = 1) -> float:
        """The largest error in ulp over n floats of bits first, first + stride, ..."""
        bits = ctypes.c_uint32(first), ctypes.c_uint64(n), ctypes.c_uint32(stride)
        at = ctypes.c_float()
        worst = float(self._library.worst_error(name.encode(), *bits, ctypes.byref(at)))
        print(f"{name}: {worst:.3f} ulp at {at.value.hex()}")
        return worst

    def worst_power(self, n: int, most: float) -> float:
        """The largest error in ulp over n powers between 2^-most and 2^most."""
        at = (ctypes.c_float * 2)()
        self._library.worst_power.restype = ctypes.c_double
        worst = self._library.worst_power(1, ctypes.c_uint64(n), ctypes.c_double(most), at)
        print(f"{at[0].hex()} to the power of {at[1].hex()}: {worst:.3f} ulp")
        return float(worst)

    def __call__(self, name: str, x: npt.ArrayLike) -> FloatArray:
        y = np.array(x, np.float32)
        self._library.apply(name.encode(), ctypes.c_void_p(y.ctypes.data), y.size)
        return y


@pytest.fixture(scope="module", params=CONTRACTION)
def mathematics(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    library = tmp_path_factory.mktemp("mathematics") / "harness.so"
    flags = ("-shared", "-fPIC", *WARNINGS, *CONTRACTION[request.param])
    assert compile_c(HARNESS, library, *flags, compiler=COMPILERS[0]) == 0
    return Mathematics(library)


def spread(n: int) -> FloatArray:
    """N floats of all exponents, of both signs, infinite ones and NaN among them."""
    bits = np.linspace(0, ALL_FLOATS - 1, n).astype(np.uint32)
    return bits.view(np.float32)


@pytest.mark.parametrize("name", STATED_ULP)
def test_errors_over_a_million_floats_are_at_most_the_stated_ones(
    mathematics: Mathematics, name: str
) -> None:
    stride = 4099  # a prime: about 2046 floats of each exponent and sign

    assert mathematics.worst_error(name, ALL_FLOATS // stride, stride=stride) <= STATED_ULP[name]


@pytest.mark.parametrize("name", STATED_ULP)
def test_errors_around_switches_and_ends_are_at_most_the_stated_ones(
    mathematics: Mathematics, name: str
) -> None:
    for bits in np.array([*SWITCHES, *(-x for x in SWITCHES)], np.float32).view(np.uint32):
        first = (int(bits) - 256) % ALL_FLOATS

        assert mathematics.worst_error(name, 512, first) <= STATED_ULP[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", STATED_ULP)
def test_errors_over_every_61st_float_are_at_most_the_stated_ones(
    mathematics: Mathematics, name: str
) -> None:
    stride = 61  # all 2^32 floats of all functions would take more than an hour

    assert mathematics.worst_error(name, ALL_FLOATS // stride, stride=stride) <= STATED_ULP[name]


def test_results_at_infinity_zero_and_beyond_the_ends_are_exact(mathematics: Mathematics) -> None:
    inf = np.inf
    expected = {
        "exp": (
            [-inf, -88, 0, 88.72283, 88.72284, inf],
            [0, 0, 1, np.exp(np.float32(88.72283)), inf, inf],
        ),
        "falling": ([-inf, 88, 0, -0.0, inf], [0, 0, 1, 1, 0]),
        "log": ([0, -0.0, 1, inf], [-inf, -inf, 0, inf]),
        "tanh": ([-inf, -10, 0, 10, inf], [-1, -1, 0, 1, 1]),
        "erf": ([-inf, -4, 0, 4, inf], [-1, -1, 0, 1, 1]),
        "sigmoid": ([-inf, -89, 0, 18, inf], [0, 0, 0.5, 1, 1]),
        "softplus": ([-inf, -88, 20, 3e38, inf], [0, 0, 20, 3e38, inf]),
        "cos": ([0, -0.0], [1, 1]),
        "round": ([0.5, 1.5, 2.5, -2.5, 8388607.5, -inf], [0, 2, 2, -2, 8388608, -inf]),
        "floor": ([-0.5, 0.5, -2, 8388607.5, inf], [-1, 0, -2, 8388607, inf]),
        "sign": ([-inf, -1e-45, 0, 1e-45], [-1, -1, 0, 1]),
    }
    for name, (x, y) in expected.items():
        np.testing.assert_array_equal(mathematics(name, x), np.array(y, np.float32), name)


@pytest.mark.parametrize("name", STATED_ULP)
def test_nan_gives_nan(mathematics: Mathematics, name: str) -> None:
    assert np.isnan(mathematics(name, [np.nan, -np.nan])).all()


def test_values_without_a_result_give_nan(mathematics: Mathematics) -> None:
    assert np.isnan(mathematics("log", [-1e-45, -1, -np.inf])).all()
    for name in ("sin", "cos", "sin_all", "cos_all"):
        assert np.isnan(mathematics(name, [np.inf, -np.inf])).all()


@pytest.mark.parametrize("name", ["sin_all", "cos_all", "sin", "cos", "tanh", "erf"])
def test_results_stay_within_one(mathematics: Mathematics, name: str) -> None:
    assert np.nanmax(np.abs(mathematics(name, spread(1 << 20)))) == 1
    assert np.nanmax(np.abs(mathematics(name, np.linspace(-8000, 8000, 1 << 20)))) == 1


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_blocks_with_a_large_argument_equal_blocks_without(
    mathematics: Mathematics, name: str
) -> None:
    generator = np.random.default_rng(0)
    for n in (0, 1, 7, 63, 64, 65, 200):
        x = generator.uniform(-100, 100, n).astype(np.float32)
        x[2::50] = 1e9

        # The compiler may fuse other operations in vectors than in single numbers.
        np.testing.assert_array_max_ulp(mathematics(f"{name}_all", x), mathematics(name, x), 1)


def test_max_and_min_give_nan_where_one_argument_is_nan(mathematics: Mathematics) -> None:
    for a, b in itertools.product([np.nan, -np.inf, -2.0, 0.0, 3.0, np.inf], repeat=2):
        larger = mathematics.two("larger", ctypes.c_float, a, b)
        smaller = mathematics.two("smaller", ctypes.c_float, a, b)

        np.testing.assert_equal([larger, smaller], [np.maximum(a, b), np.minimum(a, b)])


@pytest.mark.parametrize(("most", "stated"), [(10.0, 1.45), (128.0, 7.0)])
def test_errors_of_powers_are_at_most_the_stated_ones(
    mathematics: Mathematics, most: float, stated: float
) -> None:
    assert mathematics.worst_power(3_000_000, most) <= stated


def test_powers_of_special_values_are_those_of_c(mathematics: Mathematics) -> None:
    sizes = (0.0, 1e-42, 1e-30, 0.5, 1.0, 2.0, 2.5, 3.0, 8388609.0, 16777216.0, 3.4e38, np.inf)
    for pair in itertools.product([*sizes, *(-size for size in sizes), np.nan], repeat=2):
        x, y = (float(np.float32(number)) for number in pair)
        found = mathematics.two("power", ctypes.c_float, x, y)
        expected = mathematics.two("exact_power", ctypes.c_double, x, y)
        with np.errstate(over="ignore", under="ignore"):
            rounded = float(np.float32(expected))

        if not np.isfinite(rounded) or rounded == 0:
            np.testing.assert_equal(found, rounded)
        else:
            assert found == pytest.approx(expected, rel=7 * 2.0**-23, abs=2.0**-149)


def test_whole_powers_are_products(mathematics: Mathematics) -> None:
    for x, n in itertools.product([0.0, 0.3, -1.7, 3.0, np.inf, np.nan], range(-15, 16)):
        with np.errstate(all="ignore"):
            expected = np.power(np.float64(np.float32(x)), float(n))
        found = mathematics.two("whole_power", ctypes.c_float, x, n)

        np.testing.assert_allclose(found, np.float32(expected), rtol=6 * 2.0**-23)


INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@given(INT64, INT64 | st.integers(-3, 3))
@example(-(1 << 63), -1)  # its quotient is no int64
def test_remainders_have_the_divisors_sign_as_in_python(
    mathematics: Mathematics, a: int, b: int
) -> None:
    expected = a % b if b else 0

    assert mathematics.two("remainder_of", ctypes.c_int64, a, b) == expected


@pytest.mark.parametrize("compiler", COMPILERS)
def test_functions_without_use_give_no_warning(compiler: str, tmp_path: Path) -> None:
    source = tmp_path / "unused.c"
    source.write_text("#include MATHEMATICS\nint main(void) {\n    return 0;\n}\n")

    assert compile_c(source, tmp_path / "unused", *WARNINGS, compiler=compiler) == 0


@pytest.mark.parametrize("compiler", COMPILERS)
def test_fast_math_is_refused(compiler: str, tmp_path: Path) -> None:
    target = tmp_path / "harness.so"

    assert compile_c(HARNESS, target, "-shared", "-fPIC", "-ffast-math", compiler=compiler) != 0
