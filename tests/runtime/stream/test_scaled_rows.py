"""One row of few numbers is scaled number by number; the results must be those of the arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgefold.runtime import ShapeError, Stream, ValueRefusedError
from edgefold.runtime.bundle.manifest import Scaling
from edgefold.runtime.stream import points as points_module
from edgefold.runtime.stream.points import PLAIN, PointBuffers
from tests.runtime.stream.subjects import points

SCALING = Scaling((0.1, -3.7), (0.3, 1e-3))


def buffers(scaling: Scaling = SCALING, n_streams: int = 1, is_used: bool = True) -> PointBuffers:
    return PointBuffers("points.x", scaling, n_streams, 4, is_used, 1e9)


@pytest.mark.parametrize("dtype", sorted(PLAIN, key=str), ids=str)
@pytest.mark.parametrize("scaling", [SCALING, Scaling((0.0, 0.0), (1.0, 1.0))], ids=["own", "none"])
def test_a_row_is_scaled_to_the_bits_of_the_array(dtype: Any, scaling: Scaling) -> None:
    limits = np.finfo(dtype) if dtype.kind == "f" else None
    largest = 1e5 if limits is not None and limits.bits > 16 else 100
    random = np.random.default_rng(0)
    for _ in range(50):
        drawn = random.standard_normal((1, 2)) * largest
        row = (drawn if np.dtype(dtype).kind in "if" else np.abs(drawn)).astype(dtype)
        wanted = np.zeros((1, 1, 2), np.float32)
        own = buffers(scaling)
        rows, n = own.taken("update", row)
        assert rows is not None and n == 1
        own.into(wanted, rows)
        numbers = own.scaled_row(row)
        assert numbers is not None
        assert np.array(numbers).astype(np.float32).tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    "values",
    [
        [[1.0, 2.0]],
        np.zeros((2, 2)),
        np.zeros((1, 3)),
        np.zeros(2),
        np.zeros((1, 2), np.longdouble),
        np.zeros((1, 2), ">f4"),
        np.zeros((1, 2), complex),
        np.array([["a", "b"]]),
        np.ma.array(np.zeros((1, 2)), mask=True),
        None,
    ],
    ids=str,
)
def test_all_but_a_plain_row_is_left_to_the_arrays(values: Any) -> None:
    assert buffers().scaled_row(values) is None


def test_rows_of_several_streams_or_of_unread_values_are_left_to_the_arrays() -> None:
    assert buffers(n_streams=2).scaled_row(np.zeros((1, 2))) is None
    assert buffers(is_used=False).scaled_row(np.zeros((1, 2))) is None
    assert buffers(is_used=False).scaled_row(None) == []
    wide = Scaling((0.0,) * 9, (1.0,) * 9)
    assert buffers(wide).scaled_row(np.zeros((1, 9))) is None


def test_a_bare_row_is_one_where_the_call_allows_it() -> None:
    row = np.array([1.0, 2.0])
    assert buffers().scaled_row(row) is None
    assert buffers().scaled_row(row, bare=True) == buffers().scaled_row(row[None])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300, -1e7])
def test_a_bad_number_of_a_row_changes_nothing(stream: Stream, bad: float) -> None:
    x, y = points(stream, 3)
    stream.update(x, y)
    scale = max(stream.manifest.scaling_y.scale)
    before = {name: value.tobytes() for name, value in stream._state.read().items()}
    with pytest.raises(ValueRefusedError, match="row 0 holds"):
        stream.update(x[:1], np.full_like(y[:1], bad * 1e3 * scale))
    with pytest.raises(ValueRefusedError, match="row 0 holds"):
        stream.query(np.full_like(x[:1], bad * 1e3 * max(stream.manifest.scaling_x.scale)))
    assert before == {name: value.tobytes() for name, value in stream._state.read().items()}
    assert stream.n_points == 3
    with pytest.raises(ShapeError, match="1 rows of x and 2 of y"):
        stream.update(x[:1], y[:2])


@pytest.mark.parametrize("n", [1, 3])
def test_few_predictions_have_the_bits_of_many(
    stream: Stream, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = points(stream, 12)
    stream.update(x, y)
    few = stream.query(x[:n]).copy()
    assert stream._predictor.predictions._few
    stream.query(x[:2])  # another number of targets: the views are made again
    monkeypatch.setattr(points_module, "FEW", 0)
    many = stream.query(x[:n])
    assert not stream._predictor.predictions._few
    for name, tensor in few.tensors.items():
        assert tensor.shape == many.tensors[name].shape
        assert tensor.tobytes() == many.tensors[name].tobytes()
