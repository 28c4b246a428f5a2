"""Check the shapes of a caller's points and targets, scale them, and scale predictions back."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from edgefold.runtime.arrays import Array, aligned_full
from edgefold.runtime.bundle.manifest import Manifest, Scaling
from edgefold.runtime.errors import ShapeError, StepRefusedError, ValueRefusedError
from edgefold.runtime.predictions import Prediction
from edgefold.runtime.predictions.base import PredictionTensor
from edgefold.runtime.stream.state_buffers import Step

N_AT_ONCE = 1 << 14
"""Arrays are checked in pieces of this many numbers (128 KiB), to limit the memory for it."""
FEW = 8
"""Largest count of numbers that are scaled one by one: numpy takes longer to begin its loops."""
PLAIN = frozenset(np.dtype(code) for code in "?bBhHiIlLqQefd")
"""Types of numbers whose arithmetic with float64 is the same in Python and in numpy."""


class PointBuffers:
    """Scales a caller's values into a graph's input buffer, in float64, and refuses bad values.

    Args:
        role: The role of the graph inputs that are filled, such as "points.x".
        scaling: The shift and scale of each column.
        n_streams: B, the number of streams.
        width: The largest number of points of one call.
        is_used: Whether any graph has such an input.
        limit: The largest scaled value that is accepted; the prediction kind's `largest_input`.

    Attributes:
        role: The role of the graph inputs that are filled.
        name: The array's name in messages, "x" or "y".
        is_used: Whether any graph has such an input; if not, values are not read.
    """

    def __init__(
        self,
        role: str,
        scaling: Scaling,
        n_streams: int,
        width: int,
        is_used: bool,
        limit: float,
    ):
        self._limit = limit
        self.role, self.name = role, role[-1]
        self.is_used, self._n_streams = is_used, n_streams
        self.n_columns = len(scaling.shift)
        self._identity = scaling.is_identity
        self._shift, self._scale = np.array(scaling.shift), np.array(scaling.scale)
        width = width if is_used else 0
        self._scratch = aligned_full((n_streams, width, self.n_columns), "float64", 0)
        self.n_bytes = self._scratch.nbytes
        few = is_used and n_streams == 1 and self.n_columns <= FEW
        self._row = (1, self.n_columns) if few else None
        self._bare_row = (self.n_columns,) if few else None
        self._scales = list(enumerate(zip(scaling.shift, scaling.scale, strict=True)))

    def scaled_row(self, values: ArrayLike | None, bare: bool = False) -> list[float] | None:
        """Return one row of few numbers scaled, as `taken` and `into` scale it, in half the time.

        It is the most frequent case. None is returned for all other values, and [] if there are
        none and no graph reads them.

        Args:
            values: The caller's array; None if the model takes no such values.
            bare: Whether the row may lack the axis n.

        Raises:
            ValueRefusedError: A value is NaN, infinite or too large.
        """
        if type(values) is not np.ndarray:
            return None if self.is_used or values is not None else []
        if values.shape != self._row and not (bare and values.shape == self._bare_row):
            return None
        if values.dtype not in PLAIN:
            return None
        numbers, limit = values.ravel().tolist(), self._limit
        for i, (shift, scale) in self._scales:
            numbers[i] = scaled = (numbers[i] - shift) / scale
            if not -limit <= scaled <= limit:  # of NaN, every comparison is false
                self._explain(values.reshape(1, 1, -1))
        return numbers

    def taken(
        self, call: str, values: ArrayLike | None, bare: bool = False
    ) -> tuple[Array | None, int | None]:
        """Return a caller's values as (B, n, columns), and n; both are None if there are none.

        An array is not copied. If no graph reads the values, only n is returned.

        Args:
            call: The name of the caller's method, for messages.
            values: The caller's array; None if the model takes no such values.
            bare: Whether a single row may lack the axis n.

        Raises:
            ShapeError: The values are not rows of `n_columns` numbers; the message names `call`.
            ValueRefusedError: A value is masked (`numpy.ma`).
        """
        columns, n_streams = self.n_columns, self._n_streams
        if values is None:
            if not self.is_used:
                return None, None
            raise ShapeError(f"{call}() got no {self.name}; give rows of {columns} numbers.")
        array = (
            values if type(values) is np.ndarray else _as_array(call, self.name, values, columns)
        )
        original, n_axes = array.shape, 2 if n_streams == 1 else 3
        if bare and len(original) == n_axes - 1:
            array = array[..., None, :]
        shape = array.shape
        if len(shape) != n_axes or shape[-1] != columns or (n_axes == 3 and shape[0] != n_streams):
            lead = "" if n_streams == 1 else f"{n_streams}, "
            raise ShapeError(
                f"{call}() got {self.name} of shape {original}; this bundle takes "
                f"({lead}n, {columns}). Reshape it, or export for other sizes."
            )
        if array.dtype.kind not in "fiub":
            raise ShapeError(f"{call}() got {self.name} of type {array.dtype}; give numbers.")
        rows = array[None] if n_axes == 2 else array
        return (rows if self.is_used else None), shape[-2]

    def into(self, target: Array, raw: Array) -> None:
        """Scale raw values (B, n, columns) into a target of the same shape.

        n is at most the width.

        Raises:
            ValueRefusedError: A value is NaN, infinite or too large; the target is unchanged.
        """
        scaled = self._scratch[:, : raw.shape[1]]
        if self._identity and raw.dtype == np.float32:  # nothing is lost without the detour
            scaled = raw
        elif self._identity:
            scaled[...] = raw
        else:
            np.subtract(raw, self._shift, out=scaled)
            np.divide(scaled, self._scale, out=scaled)
        # One pass finds NaN, infinity and absurd values: a comparison with NaN is false.
        flat = scaled.reshape(-1)
        if not float(np.vdot(flat, flat)) <= self._limit * self._limit:
            self._explain(raw)
        target[...] = scaled

    def require_sound(self, raw: Array, start: int) -> None:
        """Raise ValueRefusedError for bad values; raw begins at the caller's row `start`."""
        if not (np.abs((raw - self._shift) / self._scale) <= self._limit).all():
            self._explain(raw, start)

    def _explain(self, raw: Array, start: int = 0) -> None:
        scaled = (raw.astype(np.float64) - self._shift) / self._scale
        bad = ~(np.abs(scaled) <= self._limit).all(axis=(0, 2))
        if not bad.any():
            return  # many large values, each of them allowed
        row = int(np.argmax(bad))
        raise ValueRefusedError(
            f"row {start + row} holds {raw[:, row].ravel().tolist()}: NaN, infinite, or beyond "
            f"{self._limit:g} scale units. Nothing was learned; leave the row out or correct it."
        )


def require_sound(points: Sequence[tuple[PointBuffers, Array]], n: int) -> None:
    """Refuse NaN, infinite and too large values among n points, before the first is learned.

    The memory that this takes does not grow with n.

    Args:
        points: Pairs of the buffers that scale x or y, and its values, an array (B, n, columns).
        n: The number of points.

    Raises:
        ValueRefusedError: The message names the first bad row.
    """
    n_rows = max(1, N_AT_ONCE // max((rows[:, :1].size for _, rows in points), default=1))
    for start in range(0, n, n_rows):
        for buffers, rows in points:
            buffers.require_sound(rows[:, start : start + n_rows], start)


class _Views(NamedTuple):
    """Holds views of one tensor of a prediction, in scaled units and in the caller's units.

    Attributes:
        name: The tensor's name.
        scaled: The view of a step's output buffer, (B, M, *shape).
        raw: The view of the buffer in the caller's units, (B, M, *shape).
        scale: The factor that brings scaled numbers to the caller's units; None changes nothing.
        shift: The number to add after the scale; None adds nothing.
        bound: The largest size (`_size`) that counts as finite; None checks nothing.
    """

    name: str
    scaled: Array
    raw: Array
    scale: Array | None
    shift: Array | None
    bound: float | None


class _Few(NamedTuple):
    """Holds views of a tensor of few numbers, which are converted and checked one by one.

    Attributes:
        name: The tensor's name.
        scaled: The flat view of a step's output buffer.
        raw: The flat view of the buffer in the caller's units.
        shaped: The same in the tensor's shape, (M, *shape).
        scales: The index, factor and summand of each number.
        bound: The largest absolute value that counts as finite.
    """

    name: str
    scaled: Array
    raw: Array
    shaped: Array
    scales: list[tuple[int, float, float]]
    bound: float


class _Kind(NamedTuple):
    """Describes tensors that are checked together, by their type and bound (`_Views.bound`)."""

    dtype: str
    bound: float | None


def _kind_of(tensor: PredictionTensor) -> _Kind:
    dtype = tensor.dtype if tensor.unscale == "none" else "float64"
    if np.dtype(dtype).kind != "f":
        return _Kind(dtype, None)
    # In units of y every number must be finite; scores may be infinite, but not NaN.
    is_score = tensor.unscale in ("none", "log-density")
    return _Kind(dtype, math.inf if is_score else sys.float_info.max)


def _size(numbers: Array) -> float:
    """Return the sum of squares; of one number, which is faster, the absolute value."""
    return float(abs(numbers.item()) if numbers.size == 1 else np.vdot(numbers, numbers))


class RawPredictions:
    """Converts predictions from scaled units to the caller's units, into buffers of its own.

    Args:
        manifest: The bundle's manifest, which lists the tensors of a prediction and the scaling.
        width: The largest number of targets of one query.
    """

    def __init__(self, manifest: Manifest, width: int):
        self._one_stream = manifest.n_streams == 1
        tensors = manifest.prediction_tensors
        kinds = [_kind_of(tensor) for tensor in tensors]
        shapes = [(manifest.n_streams, width, *tensor.shape) for tensor in tensors]
        # Tensors of one kind lie side by side in one array, so that one pass can check them all.
        sizes = Counter[_Kind]()
        for kind, shape in zip(kinds, shapes, strict=True):
            sizes[kind] += math.prod(shape)
        flat = {kind: aligned_full((size,), kind.dtype, 0) for kind, size in sizes.items()}
        left = dict(flat)
        self._tensors: list[tuple[str, Array, Array | None, Array | None, float | None]] = []
        for tensor, kind, shape in zip(tensors, kinds, shapes, strict=True):
            n, scale, shift = math.prod(shape), None, None
            buffer, left[kind] = left[kind][:n].reshape(shape), left[kind][n:]
            if tensor.unscale != "none":
                scale, shift = manifest.scaling_y.of(tensor.unscale)
            self._tensors.append((tensor.name, buffer, scale, shift, kind.bound))
        self._flat = [(of, kind.bound) for kind, of in flat.items() if kind.bound is not None]
        self.n_bytes = sum(of.nbytes for of in flat.values())
        # A loop asks the same step for as many targets each time. Making its views only once saves
        # a third of the time that a prediction of seven tensors takes.
        self._step: Step | None = None
        self._width = width
        self._m, self._views = 0, list[_Views]()
        self._few, self._many = list[_Few](), list[_Views]()  # how each is converted
        self._checked: list[tuple[Array, float]] = []  # what must be finite, and its largest size

    def of(self, step: Step, m: int) -> Prediction:
        """Return the prediction for m targets, in the caller's units, from a step's output buffers.

        Raises:
            StepRefusedError: The prediction is not finite.
        """
        if step is not self._step or m != self._m:
            self._look_at(step, m)
        tensors = {}
        for name, scaled, raw, shaped, scales, bound in self._few:
            numbers = scaled.tolist()
            for i, factor, summand in scales:
                raw[i] = number = numbers[i] * factor + summand
                if not -bound <= number <= bound:  # of NaN, every comparison is false
                    self._require_finite(step)
            # Each caller gets a new view, because a caller may set its shape.
            tensors[name] = shaped[()]
        for name, scaled, raw, scale, shift, _ in self._many:
            if scale is None:
                raw[...] = scaled
            else:
                np.multiply(scaled, scale, out=raw)
            if shift is not None:
                np.add(raw, shift, out=raw)
            tensors[name] = raw[0] if self._one_stream else raw[:]
        for numbers, bound in self._checked:
            if not _size(numbers) <= bound:
                self._require_finite(step)
        return Prediction(tensors)

    def _look_at(self, step: Step, m: int) -> None:
        """Make the views of m targets, and note what must be finite of them.

        If they fill the buffers, one pass over all tensors of a type finds what is not finite.
        """
        self._step, self._m = step, m
        self._views = [
            _Views(name, step.outputs[name][:, :m], buffer[:, :m], scale, shift, bound)
            for name, buffer, scale, shift, bound in self._tensors
        ]
        few = [_few(of) if self._one_stream else None for of in self._views]
        self._few = [of for of in few if of is not None]
        self._many = [of for of, one in zip(self._views, few, strict=True) if one is None]
        each = [(of.raw, of.bound) for of in self._many if of.bound is not None]
        self._checked = self._flat if m == self._width and not self._few else each

    def _require_finite(self, step: Step) -> None:
        """Refuse a prediction with a tensor that is not finite; only their sum may be too large."""
        for of in self._views:
            if of.bound is not None and not _size(of.raw) <= of.bound:
                raise StepRefusedError(
                    f"{step.graph.name} gave a {of.name} that is not finite; the state is as "
                    "before. Check the snapshot that was restored, if any, and the bundle with "
                    "`edgefold check`."
                )

    def release(self) -> None:
        """Drop the references to the step's buffers, so that their memory can be freed."""
        self._step, self._views, self._few, self._many = None, [], [], []


def _few(of: _Views) -> _Few | None:
    """Return how to convert a tensor of one stream number by number, or None if it has too many."""
    if of.raw.size > FEW or of.scale is None or of.shift is None or of.bound is None:
        return None
    scale, shift = (np.broadcast_to(a, of.raw.shape).ravel() for a in (of.scale, of.shift))
    scales = list(zip(range(of.raw.size), scale.tolist(), shift.tolist(), strict=True))
    return _Few(of.name, of.scaled.reshape(-1), of.raw.reshape(-1), of.raw[0], scales, of.bound)


def _as_array(call: str, name: str, values: ArrayLike, columns: int) -> Array:
    try:
        if "numpy.ma" in sys.modules and _is_masked(values):
            raise ValueRefusedError(
                f"{call}() got {name} with masked values. Nothing was learned; leave their rows "
                "out, or put numbers in their place with filled()."
            )
        return np.asarray(values)
    except ValueRefusedError:
        raise
    except Exception as error:  # rows of different lengths, or whatever another library raises
        reason = " ".join(str(error).split())
        raise ShapeError(
            f"{call}() got {name} that is not an array ({reason}); give rows of {columns} numbers."
        ) from error


def _is_masked(values: Any) -> bool:
    """Return whether a masked array of numpy, or a list of such arrays, hides a value."""
    if isinstance(values, (list, tuple)):
        return any(map(_is_masked, values))
    return isinstance(values, np.ma.MaskedArray) and bool(np.any(values.mask))
