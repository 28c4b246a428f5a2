"""Replay a bundle's golden stream on this machine and compare with what PyTorch predicted.

The golden stream was recorded at export: points, a few moments along them, and at each moment the
predictions of a float64 reference. It passes through all steps: condition, update, consolidate,
refresh and query at every width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.errors import BundleError
from edgefold.runtime.stream import Stream


@dataclass(frozen=True, slots=True)
class Golden:
    """A recorded stream, in raw units, streams (B) leading.

    Attributes:
        x: (B, N, X). y: (B, N, Y). targets: (B, M, X).
        n_condition: Points folded by one call of `condition` before single updates begin.
        moments: (J,) numbers of points after which the stream was queried, rising.
        mean, std: (J, B, M, Y), the reference's predictions.
        tolerance: Largest error of the scaled mean and of the scaled std that passes.
    """

    x: FloatArray
    y: FloatArray
    targets: FloatArray
    n_condition: int
    moments: Array
    mean: FloatArray
    std: FloatArray
    tolerance: float

    def save(self, path: Path) -> None:
        """Write as .npz without pickles."""
        np.savez_compressed(
            path,
            allow_pickle=False,
            **{name: np.asarray(getattr(self, name)) for name in self.__slots__},
        )

    @classmethod
    def load(cls, path: Path) -> Golden:
        """Read what `save` wrote.

        Raises:
            BundleError: Missing or damaged.
        """
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                fields: dict[str, Any] = {name: archive[name] for name in cls.__slots__}
        except Exception as error:
            raise BundleError(f"{path} is damaged ({error}); copy the bundle again.") from error
        fields["n_condition"] = int(fields["n_condition"])
        fields["tolerance"] = float(fields["tolerance"])
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class CheckRow:
    """Largest errors after some points, in scaled units of y."""

    n_points: int
    mean_error: float
    std_error: float


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Errors along the golden stream against its tolerance."""

    rows: tuple[CheckRow, ...]
    tolerance: float
    backend: dict[str, Any]

    @property
    def worst(self) -> float:
        """The largest error of all; NaN if any prediction was NaN."""
        return float(np.max([(r.mean_error, r.std_error) for r in self.rows]))

    @property
    def passed(self) -> bool:
        """Whether every error is within the tolerance; NaN is not."""
        return self.worst <= self.tolerance


def replay(stream: Stream, golden: Golden) -> Iterator[tuple[int, FloatArray, FloatArray]]:
    """Drive a fresh stream along the golden one; yields points, mean and std at every moment."""
    one = stream.manifest.n_streams == 1

    def rows(array: FloatArray, start: int, stop: int) -> FloatArray:
        part = array[:, start:stop]
        return part[0] if one else part

    stream.reset()
    done = 0
    for moment in golden.moments.tolist():
        if done < golden.n_condition <= moment:
            stop = golden.n_condition
            stream.condition(rows(golden.x, done, stop), rows(golden.y, done, stop))
            done = stop
        while done < moment:
            stream.update(rows(golden.x, done, done + 1), rows(golden.y, done, done + 1))
            done += 1
        yield moment, *_query_all(stream, golden.targets)


def _query_all(stream: Stream, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Predictions (B, M, Y) at all targets: the first alone, the others at full width."""
    one, widest = stream.manifest.n_streams == 1, stream.manifest.targets
    means, stds = [], []
    starts = [0, *range(1, targets.shape[1], widest)]
    for start, stop in zip(starts, [*starts[1:], targets.shape[1]], strict=True):
        part = targets[:, start:stop]
        prediction = stream.query(part[0] if one else part)
        shape = (targets.shape[0], stop - start, stream.manifest.n_outputs)
        means.append(prediction.mean.reshape(shape).copy())
        stds.append(prediction.std.reshape(shape).copy())
    return np.concatenate(means, 1), np.concatenate(stds, 1)


def check_bundle(
    path: str | Path,
    backend: str = "auto",
    threads: int = 1,
    memory_limit: int | None = None,
    engine: EngineOptions | None = None,
) -> CheckReport:
    """Replay a bundle's golden stream; the arguments are those of `Stream.open`.

    Raises:
        BundleError, BackendError, MemoryLimitError: The bundle does not open.
    """
    with Stream.open(path, backend, threads, memory_limit=memory_limit, engine=engine) as stream:
        golden = Golden.load(Path(path) / stream.manifest.golden["file"])
        scale = np.array(stream.manifest.scaling_y.scale)
        rows = []
        for index, (n_points, mean, std) in enumerate(replay(stream, golden)):
            mean_error = np.abs(mean - golden.mean[index]) / scale
            std_error = np.abs(std - golden.std[index]) / scale
            rows.append(CheckRow(n_points, float(mean_error.max()), float(std_error.max())))
        return CheckReport(tuple(rows), golden.tolerance, stream.backend_report)
