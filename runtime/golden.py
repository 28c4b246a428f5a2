"""Replay a bundle's golden stream on this machine and compare it with the recorded predictions.

The golden stream was recorded at export: points, a few moments along them, and at each moment the
predictions of the reference (PyTorch in float64, or onnxruntime on an imported file). It passes
through every graph of the bundle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.errors import BundleError
from edgefold.runtime.manifest import Manifest
from edgefold.runtime.stream import Stream

LEAD = "prediction."
SINGLES = ("x", "y", "targets", "n_condition", "moments", "tolerance")


@dataclass(frozen=True, slots=True)
class Golden:
    """A recorded stream, in raw units, streams (B) leading.

    Attributes:
        x: (B, N, X). y: (B, N, Y). targets: (B, M, X); a filtering model has none of both.
        n_condition: Points learned by one call of `condition` before single updates begin.
        moments: (J,) numbers of points after which the prediction was recorded, rising.
        predictions: By prediction tensor, (J, B, M, *shape); M is 1 for a filtering model.
        tolerance: Largest error of a prediction in scaled units that passes.
    """

    x: FloatArray
    y: FloatArray
    targets: FloatArray
    n_condition: int
    moments: Array
    predictions: Mapping[str, Array]
    tolerance: float

    def save(self, path: Path) -> None:
        """Write as .npz without pickles."""
        arrays = {name: np.asarray(getattr(self, name)) for name in SINGLES}
        arrays |= {f"{LEAD}{name}": array for name, array in self.predictions.items()}
        np.savez_compressed(path, allow_pickle=False, **arrays)

    @classmethod
    def load(cls, path: Path) -> Golden:
        """Read what `save` wrote.

        Raises:
            BundleError: Missing or damaged.
        """
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                fields: dict[str, Any] = {name: archive[name] for name in SINGLES}
                found = {n.removeprefix(LEAD): archive[n] for n in archive.files if LEAD in n}
                if "mean" in archive.files:  # of schema 1
                    found = {name: archive[name] for name in ("mean", "std")}
        except Exception as error:
            raise BundleError(f"{path} is damaged ({error}); copy the bundle again.") from error
        fields["n_condition"] = int(fields["n_condition"])
        fields["tolerance"] = float(fields["tolerance"])
        return cls(**fields, predictions=found)


@dataclass(frozen=True, slots=True)
class CheckRow:
    """Largest errors after some points by prediction tensor, in scaled units."""

    n_points: int
    errors: dict[str, float]

    @property
    def worst(self) -> float:
        """The largest; NaN if any is."""
        return float(np.max(list(self.errors.values())))


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Errors along the golden stream against its tolerance."""

    rows: tuple[CheckRow, ...]
    tolerance: float
    backend: dict[str, Any]
    bundle_hash: str

    @property
    def worst(self) -> float:
        """The largest error of all; NaN if any prediction was NaN."""
        return float(np.max([row.worst for row in self.rows]))

    @property
    def passed(self) -> bool:
        """Whether every error is within the tolerance; NaN is not."""
        return self.worst <= self.tolerance


def rows_of(array: FloatArray, start: int, stop: int, one: bool) -> FloatArray | None:
    """Rows of (B, N, columns) as `Stream` takes them; None where there are no columns.

    A bundle of one stream takes rows without the leading axis.
    """
    part = array[:, start:stop]
    return None if not part.shape[2] else part[0] if one else part


def replay(stream: Stream, golden: Golden) -> Iterator[tuple[int, dict[str, Array]]]:
    """Drive a fresh stream along the golden one; yields points and predictions at every moment.

    The predictions are copies, each (B, M, *shape), raw units.
    """
    manifest = stream.manifest
    one = manifest.n_streams == 1

    stream.reset()
    done = 0
    for moment in golden.moments.tolist():
        found = None
        if done < golden.n_condition <= moment:
            stop = golden.n_condition
            stream.condition(*(rows_of(array, done, stop, one) for array in (golden.x, golden.y)))
            done = stop
        while done < moment:
            x = rows_of(golden.x, done, done + 1, one)
            if manifest.is_filter:
                found = stream.step(x)
            else:
                stream.update(x, rows_of(golden.y, done, done + 1, one))
            done += 1
        if found is not None:
            tensors = found.tensors.items()
            yield moment, {name: (a[None] if one else a).copy() for name, a in tensors}
        elif not manifest.is_filter:
            yield moment, query_all(stream, golden.targets)


def query_all(stream: Stream, targets: FloatArray) -> dict[str, Array]:
    """Predictions (B, M, *shape) at all targets: the first alone, the others at full width."""
    manifest = stream.manifest
    one, widest = manifest.n_streams == 1, manifest.targets
    parts: dict[str, list[Array]] = {told.name: [] for told in manifest.prediction_tensors}
    starts = [0, *range(1, targets.shape[1], widest)]
    for start, stop in zip(starts, [*starts[1:], targets.shape[1]], strict=True):
        x = targets[:, start:stop]
        prediction = stream.query(None if not x.shape[2] else x[0] if one else x)
        for name, array in prediction.tensors.items():
            parts[name].append((array[None] if one else array).copy())
    return {name: np.concatenate(arrays, 1) for name, arrays in parts.items()}


def distances(
    manifest: Manifest, one: Mapping[str, Array], other: Mapping[str, Array]
) -> dict[str, float]:
    """The largest difference of each prediction tensor, raw units in, scaled units out."""
    scale = np.array(manifest.scaling_y.scale)
    found = {}
    for told in manifest.prediction_tensors:
        difference = np.abs(one[told.name].astype(float) - other[told.name].astype(float))
        if told.unscale != "none":
            difference /= scale
        found[told.name] = float(difference.max())
    return found


def check_bundle(
    path: str | Path,
    backend: str = "auto",
    threads: int = 1,
    memory_limit: int | None = None,
    engine: EngineOptions | None = None,
    expect_hash: str | None = None,
) -> CheckReport:
    """Replay a bundle's golden stream; the arguments are those of `Stream.open`.

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
        golden = Golden.load(Path(path) / stream.manifest.golden["file"])
        rows = []
        for index, (n_points, found) in enumerate(replay(stream, golden)):
            recorded = {name: array[index] for name, array in golden.predictions.items()}
            rows.append(CheckRow(n_points, distances(stream.manifest, found, recorded)))
        told = stream.backend_report
        return CheckReport(tuple(rows), golden.tolerance, told, stream.manifest.bundle_hash)
