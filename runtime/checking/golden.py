"""Replay a bundle's golden stream on this machine, and compare with the recorded predictions.

The golden stream was recorded at export. It holds points, and for some moments (after so many
points) the predictions of the reference: PyTorch in float64, or onnxruntime for an imported file.
The replay runs every graph of the bundle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.bundle.manifest_file import PARSE_ERRORS
from edgefold.runtime.checking.step_times import keep_times
from edgefold.runtime.errors import BundleError
from edgefold.runtime.npz import read_npz, write_npz
from edgefold.runtime.stream.stream import Stream

LEAD = "prediction."
TOLERANCE = 1e-4
"""Errors up to this pass where a manifest states no tolerance; in scaled units, as for float32."""
MOST_POINTS, MOST_TARGETS, MOST_MOMENTS = 100_000, 10_000, 1_000
"""A golden stream may hold at most so many points, targets and moments.

Export writes 1000 points or 3 chunks, 24 targets and 14 moments.
"""
ROOM_BYTES, MOST_PACKED = 64_000_000, 32
"""A golden stream may take at most ROOM_BYTES plus MOST_PACKED times its file's size in memory."""
SINGLES = ("x", "y", "targets", "n_condition", "moments", "tolerance")


@dataclass(frozen=True, slots=True)
class Golden:
    """Holds a recorded stream with all numbers in raw units.

    The first axis of arrays is that of the bundle's streams (B).

    Attributes:
        x: Inputs of the points, (B, N, X).
        y: Outputs of the points, (B, N, Y); empty for a filtering model.
        targets: Inputs to predict at, (B, M, X); empty for a filtering model.
        n_condition: Number of points that one call of `condition` learns before single updates.
        moments: Numbers of points after each of which predictions were recorded, (J,), rising.
        predictions: Recorded predictions by tensor name, each (J, B, M, *shape); M is 1 for a
            filtering model.
        tolerance: The largest error of a prediction, in scaled units, that passes.
    """

    x: FloatArray
    y: FloatArray
    targets: FloatArray
    n_condition: int
    moments: Array
    predictions: Mapping[str, Array]
    tolerance: float

    def save(self, path: Path) -> None:
        """Write the stream to an .npz file, without pickled objects."""
        arrays = {name: np.asarray(getattr(self, name)) for name in SINGLES}
        arrays |= {f"{LEAD}{name}": array for name, array in self.predictions.items()}
        write_npz(path, arrays, compressed=True)

    @classmethod
    def load(cls, manifest: Manifest) -> Golden:
        """Read a bundle's golden stream and check it against the manifest.

        Raises:
            BundleError: The file is missing or damaged, or does not fit this bundle.
        """
        path, n_bytes = manifest.path / manifest.golden["file"], manifest.golden["n_bytes"]
        try:
            arrays = read_npz(path, ROOM_BYTES + MOST_PACKED * n_bytes, _is_known)
            parts = {
                name.removeprefix(LEAD): a for name, a in arrays.items() if name not in SINGLES
            }
            fields: dict[str, Any] = {name: arrays[name] for name in SINGLES}
            for name, kind in (("n_condition", int), ("tolerance", float)):
                _require_numbers(name, fields[name], (), "iu" if kind is int else "f")
                fields[name] = kind(fields[name])
            golden = cls(**fields, predictions=parts)
            _require_sound(golden, manifest)
        except OSError as error:
            raise BundleError(f"{path} cannot be read: {error.strerror}.") from error
        except PARSE_ERRORS as error:
            raise BundleError(
                f"{path} is damaged or of another bundle ({error}); copy the bundle again."
            ) from error
        return golden


def _is_known(name: str) -> bool:
    return name in SINGLES or name.startswith(LEAD)


def _require_numbers(name: str, array: Array, shape: tuple[int, ...], kinds: str = "f") -> None:
    if array.shape != shape or array.dtype.kind not in kinds or not np.isfinite(array).all():
        raise ValueError(f"{name} is {array.dtype} {array.shape}, not finite numbers {shape}")


def _require_sound(golden: Golden, m: Manifest) -> None:
    """Raise ValueError if a golden stream's shapes or values are not as a replay needs them.

    Args:
        golden: The stream, as it was read from its file.
        m: The manifest of its bundle.
    """
    moments = golden.moments
    if any(array.ndim != 3 for array in (golden.x, golden.targets)) or moments.ndim != 1:
        raise ValueError("x, targets and moments have other axes")
    n_points, n_targets, n_moments = golden.x.shape[1], golden.targets.shape[1], len(moments)
    n_y, n_columns = (0, 0) if m.is_filter else (m.n_outputs, m.n_inputs)
    most = max(MOST_POINTS, 4 * m.chunk)
    sizes = 1 <= n_points <= most and n_targets <= MOST_TARGETS and n_moments <= MOST_MOMENTS
    if not sizes or not (m.is_filter or n_targets == 1 or (n_columns and n_targets)):
        raise ValueError(f"it has {n_points} points, {n_targets} targets, {n_moments} moments")
    for name, array, n, scaling, columns in (
        ("x", golden.x, n_points, m.scaling_x, m.n_inputs),
        ("y", golden.y, n_points, m.scaling_y, n_y),
        ("targets", golden.targets, n_targets, m.scaling_x, n_columns),
    ):
        _require_numbers(name, array, (m.n_streams, n, columns))
        with np.errstate(all="ignore"):
            scaled = (array - scaling.shift) / scaling.scale if columns else array
        if not (np.abs(scaled) <= m.prediction.largest_input).all():
            raise ValueError(f"{name} holds values that no stream takes")
    _require_numbers("moments", moments, (n_moments,), "iu")
    rising = n_moments and moments[0] >= m.is_filter and (moments[1:] > moments[:-1]).all()
    if not rising or moments[-1] > n_points:
        raise ValueError(f"the moments are not rising up to {n_points}")
    if not 0 <= golden.n_condition <= (0 if m.is_filter else n_points):
        raise ValueError(f"n_condition is {golden.n_condition}")
    if golden.predictions.keys() != {tensor.name for tensor in m.prediction_tensors}:
        raise ValueError(f"it holds predictions of {sorted(golden.predictions)}")
    lead = n_moments, m.n_streams, 1 if m.is_filter else n_targets
    for tensor in m.prediction_tensors:
        shape = (*lead, *tensor.shape)
        _require_numbers(tensor.name, golden.predictions[tensor.name], shape, "fiub")
    tolerance = m.precision.get("parity", {}).get("tolerance", TOLERANCE)
    if golden.tolerance != tolerance or not golden.tolerance > 0:
        raise ValueError(f"its tolerance is {golden.tolerance}, the manifest says {tolerance}")


@dataclass(frozen=True, slots=True)
class CheckRow:
    """Holds the errors of the predictions at one moment of the golden stream.

    Attributes:
        n_points: Number of points that the stream had received.
        errors: The largest error of each prediction tensor by name, in scaled units.
    """

    n_points: int
    errors: dict[str, float]

    @property
    def worst(self) -> float:
        """Return the largest error of all tensors, in scaled units; NaN if an error is NaN."""
        return float(np.max(list(self.errors.values())))


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Holds the errors of the predictions along a bundle's golden stream.

    Attributes:
        rows: The errors at each moment, in the order of time.
        tolerance: The largest error that passes, in scaled units.
        backend: Facts of the backend that ran, such as its name, device and version.
        bundle_hash: The bundle's hash.
        keeps: Words that say what happens to points beyond the state's capacity.
    """

    rows: tuple[CheckRow, ...]
    tolerance: float
    backend: dict[str, Any]
    bundle_hash: str
    keeps: str = ""

    @property
    def worst(self) -> float:
        """Return the largest error of all rows, in scaled units; NaN if a prediction was NaN."""
        return float(np.max([row.worst for row in self.rows]))

    @property
    def passed(self) -> bool:
        """Return whether every error is within the tolerance; False if an error is NaN."""
        return self.worst <= self.tolerance


def rows_of(array: FloatArray, start: int, stop: int, one: bool) -> FloatArray | None:
    """Return the points `start` to `stop` of an array (B, N, columns) as `Stream` takes them.

    Args:
        array: The points of all streams.
        start: Number of the first point.
        stop: Number of the point after the last one.
        one: Whether the bundle has one stream; the result is then (n, columns).

    Returns:
        An array (B, n, columns) or (n, columns); None if there are no columns.
    """
    part = array[:, start:stop]
    return None if not part.shape[2] else part[0] if one else part


def replay(stream: Stream, golden: Golden) -> Iterator[tuple[int, dict[str, Array]]]:
    """Reset a stream, let it learn the golden points, and predict at every moment.

    Yields:
        The number of points so far, and copies of the predictions by tensor name, each
        (B, M, *shape) in raw units.
    """
    manifest = stream.manifest
    one = manifest.n_streams == 1

    stream.reset()
    done = 0
    for moment in golden.moments.tolist():
        prediction = None
        if done < golden.n_condition <= moment:
            stop = golden.n_condition
            stream.condition(*(rows_of(array, done, stop, one) for array in (golden.x, golden.y)))
            done = stop
        while done < moment:
            x = rows_of(golden.x, done, done + 1, one)
            if manifest.is_filter:
                prediction = stream.step(x)
            else:
                stream.update(x, rows_of(golden.y, done, done + 1, one))
            done += 1
        if prediction is not None:
            tensors = prediction.tensors.items()
            yield moment, {name: (a[None] if one else a).copy() for name, a in tensors}
        elif not manifest.is_filter:
            yield moment, query_all(stream, golden.targets)


def query_groups(n: int, widest: int) -> list[slice]:
    """Split n targets into queries: one target first, then groups of at most `widest` targets.

    Returns:
        The range of targets of each query, as a slice.
    """
    starts = [0, *range(1, n, widest)]
    return [slice(*ends) for ends in zip(starts, [*starts[1:], n], strict=True)]


def query_all(stream: Stream, targets: FloatArray) -> dict[str, Array]:
    """Predict at all targets, with one query for each group of `query_groups`.

    Args:
        stream: The stream that predicts.
        targets: Inputs of the targets in raw units, (B, M, X).

    Returns:
        The prediction's tensors by name, each (B, M, *shape) in raw units.
    """
    manifest = stream.manifest
    one = manifest.n_streams == 1
    parts: dict[str, list[Array]] = {tensor.name: [] for tensor in manifest.prediction_tensors}
    for group in query_groups(targets.shape[1], manifest.targets):
        x = targets[:, group]
        prediction = stream.query(None if not x.shape[2] else x[0] if one else x)
        for name, array in prediction.tensors.items():
            parts[name].append((array[None] if one else array).copy())
    return {name: np.concatenate(arrays, 1) for name, arrays in parts.items()}


def distances(
    manifest: Manifest, one: Mapping[str, Array], other: Mapping[str, Array]
) -> dict[str, float]:
    """Return the largest difference between two predictions for each tensor, in scaled units.

    Tensors without a unit, such as scores of classes, are compared relative to the largest of
    their numbers if that exceeds 1: rounding errors of large scores are large.

    Args:
        manifest: The bundle's manifest.
        one: A prediction's tensors by name, in raw units.
        other: The tensors of the prediction that counts as right, by name, in raw units.
    """
    largest = {}
    for tensor in manifest.prediction_tensors:
        expected = other[tensor.name].astype(float)
        difference = np.abs(one[tensor.name].astype(float) - expected)
        if tensor.unscale == "none":
            difference /= max(1.0, float(np.abs(expected).max()))
        else:
            difference /= manifest.scaling_y.of(tensor.unscale)[0]
        largest[tensor.name] = float(difference.max())
    return largest


def check_bundle(
    path: str | Path,
    backend: str = "auto",
    threads: int = 1,
    memory_limit: int | None = None,
    engine: EngineOptions | None = None,
    expect_hash: str | None = None,
    times: bool = False,
) -> CheckReport:
    """Open a bundle, replay its golden stream, and report the errors of its predictions.

    Args:
        path: The bundle's folder.
        backend: "auto", or a name of `edgefold.runtime.backends.registry`.
        threads: The number of CPU threads that one step uses.
        memory_limit: The number of bytes that this process may need; None checks nothing.
        engine: Settings with which TensorRT builds, keeps and launches its engines.
        expect_hash: The hash that the bundle must have; None accepts any hash.
        times: Whether the steps are timed afterwards and the times kept for `auto`, if all errors
            are within the tolerance.

    Raises:
        BundleError, BackendError, MemoryLimitError: The bundle does not open.
    """
    with Stream.open(
        path,
        backend,
        threads,
        memory_limit=memory_limit,
        engine=engine,
        expect_hash=expect_hash,
    ) as stream:
        report = check_stream(stream)
        if times and report.passed:
            keep_times(stream, engine.cache if engine else None)
        return report


def check_stream(stream: Stream) -> CheckReport:
    """Replay a bundle's golden stream on an open stream, and report the errors of predictions.

    The stream is reset first, and holds the golden points afterwards.

    Raises:
        BundleError: The golden stream is missing or damaged.
    """
    manifest = stream.manifest
    golden = Golden.load(manifest)
    rows = []
    for index, (n_points, prediction) in enumerate(replay(stream, golden)):
        recorded = {name: array[index] for name, array in golden.predictions.items()}
        rows.append(CheckRow(n_points, distances(manifest, prediction, recorded)))
    return CheckReport(
        tuple(rows),
        golden.tolerance,
        stream.backend_report,
        manifest.bundle_hash,
        manifest.keeps,
    )
