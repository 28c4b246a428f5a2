from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.runtime import (
    BackendError,
    ClosedError,
    ShapeError,
    StepRefusedError,
    Stream,
    ValueRefusedError,
)
from edgefold.runtime.bundle.manifest import Scaling
from edgefold.runtime.stream.points import PointBuffers
from tests.contract import Array, Contract
from tests.pairwise import leave_out
from tests.runtime.stream.subjects import StreamSubject, points


class TestOneStream(Contract):
    @pytest.fixture
    def subject(self, bundles: Path) -> Any:
        with Stream.open(bundles / "tiny") as stream:
            yield StreamSubject(stream)


class TestThreeStreams(Contract):
    @pytest.fixture
    def subject(self, bundles: Path) -> Any:
        with Stream.open(bundles / "streams") as stream:
            yield StreamSubject(stream)


class TestNarrowPrecisions(Contract):
    @pytest.fixture(params=leave_out(["float16", "int8"], ["float16"]))
    def subject(self, bundles: Path, request: pytest.FixtureRequest) -> Any:
        with Stream.open(bundles / f"tiny-{request.param}") as stream:
            yield StreamSubject(stream)


class TestWaitingPoints(Contract):
    @pytest.fixture
    def subject(self, bundles: Path) -> Any:
        with Stream.open(bundles / "tiny", buffered=True) as stream:
            yield StreamSubject(stream)


def test_waiting_points_are_counted_and_folded_when_asked(tiny_bundle: Path) -> None:
    with Stream.open(tiny_bundle, buffered=True) as waiting, Stream.open(tiny_bundle) as eager:
        x, y = points(eager, 30)
        for row in range(30):
            waiting.update(x[row : row + 1], y[row : row + 1])
            eager.update(x[row : row + 1], y[row : row + 1])
        assert waiting.n_points == eager.n_points == 30
        waiting.flush()
        assert waiting.n_points == 30
        one, other = waiting.query(x[:3]), eager.query(x[:3])
        np.testing.assert_allclose(one.mean, other.mean, rtol=0, atol=2e-5)


def test_masked_rows_are_invisible_even_as_nan(stream: Stream) -> None:
    """The padding of a chunk is whatever the buffer held: poison it and compare."""
    x, y = points(stream, 6)
    stream.update(x, y)
    expected = stream.query(x[:2]).mean.copy()
    stream.reset()
    chunk = stream._steps["condition"].inputs
    chunk["points.x"].fill(np.nan)
    chunk["points.y"].fill(np.nan)
    stream.update(x, y)
    np.testing.assert_array_equal(stream.query(x[:2]).mean, expected)


def test_raw_units_are_scaled_both_ways(bundles: Path) -> None:
    with Stream.open(bundles / "scaled") as stream:
        prior = stream.query([[10.0]])
        assert abs(prior.mean.item() - 400) < 100
        with_shift = stream.query([[10.0 + 1e-9]]).mean.item()
        assert with_shift == pytest.approx(prior.mean.item(), abs=1e-4)
        stream.update([[11.0]], [[420.0]])
        moved = stream.query([[11.0]]).mean.item()
    with Stream.open(bundles / "scaled") as stream:
        stream.update([[11.0]], [[400.0]])
        assert stream.query([[11.0]]).mean.item() != moved


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300, 1e12])
@pytest.mark.parametrize("n", [1, 3, 20])
@pytest.mark.parametrize("wait", [False, True])
def test_bad_points_are_refused_before_they_touch_the_state(
    tiny_bundle: Path, bad: float, n: int, wait: bool
) -> None:
    with Stream.open(tiny_bundle, buffered=wait) as stream:
        x, y = points(stream, n)
        stream.update(x, y)
        before, count = stream.state(), stream.n_points
        for values in (x, y):
            kept = values[n // 2, 0]
            values[n // 2, 0] = bad
            with pytest.raises(ValueRefusedError, match=f"row {n // 2} "):
                stream.update(x, y)
            values[n // 2, 0] = kept
        after = stream.state()
        assert stream.n_points == count
        assert all(np.array_equal(before[name], after[name]) for name in before)
        with pytest.raises(ValueRefusedError):
            stream.query([[bad, 0.0]])


def test_a_bad_point_behind_the_end_of_a_waiting_chunk_folds_nothing(tiny_bundle: Path) -> None:
    with Stream.open(tiny_bundle, buffered=True) as stream:
        x, y = points(stream, 6)
        stream.update(x, y)
        y[5] = np.nan  # the chunk of 8 fills at row 1
        with pytest.raises(ValueRefusedError, match="row 5 "):
            stream.update(x, y)
        assert stream.n_points == 6


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (np.zeros((1, 3)), np.zeros((1, 1))),
        (np.zeros((2, 2)), np.zeros((1, 1))),
        (np.zeros(2), np.zeros(1)),
        (np.zeros((1, 1, 2)), np.zeros((1, 1, 1))),
        (np.array([["a", "b"]]), np.zeros((1, 1))),
        (np.zeros((1, 2)), np.zeros((1, 2))),
    ],
)
def test_wrong_shapes_are_refused_with_what_was_expected(
    stream: Stream, x: Array, y: Array
) -> None:
    with pytest.raises(ShapeError, match=r"this bundle takes|one y for each x|give numbers"):
        stream.update(x, y)
    assert stream.n_points == 0


def test_too_many_targets_say_how_to_export(stream: Stream) -> None:
    with pytest.raises(ShapeError, match="--targets 5"):
        stream.query(np.zeros((5, 2)))
    with pytest.raises(ShapeError, match="1 to 4"):
        stream.query(np.zeros((0, 2)))


def test_no_points_are_no_error(stream: Stream) -> None:
    stream.update(np.zeros((0, 2)), np.zeros((0, 1)))
    assert stream.n_points == 0


def test_refresh_is_lazy(stream: Stream) -> None:
    calls = []
    run = stream._steps["refresh"].run

    def counted(sides: int) -> None:
        calls.append(sides)
        run(sides)

    stream._steps["refresh"].run = counted  # type: ignore[method-assign]
    x, y = points(stream, 3)
    stream.query(x[:1])
    stream.query(x[:1])
    stream.update(x, y)
    stream.update(x, y)
    assert len(calls) == 1
    stream.query(x[:1])
    assert len(calls) == 2


@pytest.mark.parametrize("failing", ["update", "condition", "consolidate", "refresh"])
def test_a_failing_step_leaves_the_state_as_it_was(stream: Stream, failing: str) -> None:
    x, y = points(stream, 200)
    n = stream.manifest.consolidate_every if failing == "consolidate" else 100
    for row in range(n):
        stream.update(x[row : row + 1], y[row : row + 1])
    before, count = stream.state(), stream.n_points

    def fail(sides: int) -> None:
        raise BackendError("injected")

    step = stream._steps[failing]
    run = step.run
    step.run = fail  # type: ignore[method-assign]
    with pytest.raises(BackendError, match="injected"):
        if failing == "refresh":
            stream.query(x[:1])
        else:
            rows = slice(0, 20 if failing == "condition" else 1)
            stream.update(x[rows], y[rows])
    assert stream.n_points == count
    step.run = run  # type: ignore[method-assign]
    after = stream.state()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    stream.update(x[n:], y[n:])
    with Stream.open(stream.manifest.path) as fresh:
        fresh.update(x, y)
        expected = fresh.query(x[:4]).mean.copy()
    np.testing.assert_allclose(stream.query(x[:4]).mean, expected, rtol=0, atol=2e-5)


def test_a_non_finite_step_is_not_committed(stream: Stream) -> None:
    x, y = points(stream, 2)
    stream.update(x, y)
    before = stream.state()
    run = stream._steps["update"].run

    def poisoned(sides: int) -> None:
        run(sides)
        assert stream._steps["update"].finite is not None
        stream._steps["update"].finite.fill(np.nan)

    stream._steps["update"].run = poisoned  # type: ignore[method-assign]
    with pytest.raises(StepRefusedError, match="not committed"):
        stream.update(x[:1], y[:1])
    after = stream.state()
    assert stream.n_points == 2
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_the_check_output_tells_of_non_finite_arithmetic(stream: Stream) -> None:
    stream._steps["update"].inputs["points.y"].fill(np.nan)
    stream.run_step("update")
    assert stream._steps["update"].finite is not None
    assert not np.isfinite(stream._steps["update"].finite).any()


def test_a_closed_stream_says_so(tiny_bundle: Path) -> None:
    stream = Stream.open(tiny_bundle)
    stream.close()
    stream.close()
    for call in (stream.refresh, stream.flush, stream.reset):
        with pytest.raises(ClosedError):
            call()
    with pytest.raises(ClosedError):
        stream.update([[0.0, 0.0]], [[0.0]])


def test_after_warm_up_an_update_keeps_nothing(stream: Stream) -> None:
    x, y = points(stream, 1)

    def growth_and_peak() -> tuple[int, int]:
        """What 400 updates keep, and the most that one of them held, in bytes."""
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for _ in range(400):
            stream.update(x, y)
        kept, peak = tracemalloc.get_traced_memory()
        return kept - before, peak - before

    # CPython before 3.11 gives a function a cache for its globals at its 1,024th call, and keeps it
    # (OPCACHE_MIN_RUNS in its ceval.c). Every function of an update has been called so often then.
    for _ in range(1100):
        stream.update(x, y)
    tracemalloc.start()
    try:
        for _ in range(200):
            stream.update(x, y)
        rounds = [growth_and_peak() for _ in range(3)]
    finally:
        tracemalloc.stop()
    growths, peaks = zip(*rounds, strict=True)
    # One reading may fall on something that the interpreter is about to free (204 bytes too many
    # were seen once). What updates keep adds up: 256 bytes of each round would be 768.
    assert min(growths) < 256  # two ints of the counters may change their size
    assert sum(growths) < 512
    assert max(peaks) < 1024


def state_addresses(stream: Stream) -> dict[str, list[int]]:
    pairs: dict[str, Any] = stream._state.pairs
    return {name: [host.array.ctypes.data for host in pair] for name, pair in pairs.items()}


def test_buffers_do_not_move(stream: Stream) -> None:
    x, y = points(stream, 5)
    addresses = state_addresses(stream)
    first = stream.query(x[:1]).mean.__array_interface__["data"]
    for _ in range(300):
        stream.update(x, y)
    assert first == stream.query(x[:1]).mean.__array_interface__["data"]
    assert addresses == state_addresses(stream)
    assert all(a % 64 == 0 for pair in addresses.values() for a in pair)


def test_answers_of_other_sizes_and_callers_do_not_touch_each_other(stream: Stream) -> None:
    x, y = points(stream, 4)
    stream.update(x, y)
    one, many = stream.query(x[:1]).copy(), stream.query(x).copy()
    for n in (1, 4, 4, 1, 3):
        expected = one if n == 1 else many
        answer = stream.query(x[:n])
        np.testing.assert_allclose(answer.mean, expected.mean[:n], rtol=0, atol=1e-6)
        assert stream.query(x[:n]).mean is not answer.mean  # a caller may set its own view's shape


def test_misuse_is_an_error_of_ours(stream: Stream) -> None:
    ragged: Any = [[0.0, 1.0], [2.0]]
    with pytest.raises(ShapeError, match="give rows of 2 numbers"):
        stream.query(ragged)
    with pytest.raises(ShapeError, match=r"update\(\) got y"):
        stream.update([[0.0, 1.0], [2.0, 3.0]], [[[1.0]], [2.0]])  # type: ignore[arg-type]
    assert stream.n_points == 0
    with pytest.raises(BackendError, match=r"'dance'; run one of: .*update"):
        stream.run_step("dance")
    stream.close()
    with pytest.raises(ClosedError), stream:
        pass


def taking(n_streams: int) -> PointBuffers:
    return PointBuffers("points.x", Scaling((0.0, 0.0), (1.0, 1.0)), n_streams, 1, True, 1e9)


@pytest.mark.parametrize(("n_streams", "one"), [(1, [1.0, 2.0]), (2, [[1.0, 2.0], [3.0, 4.0]])])
def test_one_row_of_each_stream_may_come_without_its_axis(n_streams: int, one: Any) -> None:
    rows, n = taking(n_streams).taken("step", one, bare=True)
    assert rows is not None and (n, rows.shape) == (1, (n_streams, 1, 2))
    assert np.array_equal(rows.reshape(-1), np.ravel(one))
    with pytest.raises(ShapeError, match="of shape"):
        taking(n_streams).taken("update", one)


@pytest.mark.parametrize(
    ("given", "told"), [(None, "got no x"), ([1, [2, 3]], "not an array"), (["a", "b"], "type")]
)
def test_a_row_that_is_no_row_is_a_shape_error(given: Any, told: str) -> None:
    with pytest.raises(ShapeError, match=told):
        taking(1).taken("step", given, bare=True)
