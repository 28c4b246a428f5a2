"""Write a model as a bundle: graphs, weights, golden stream, manifest; then prove it.

The bundle is written into a folder beside the target and renamed at the end, so that a failed
export leaves no half bundle and does not touch an older one:

    .b.tmp written and proved ──> b renamed to .b.old ──> .b.tmp renamed to b ──> .b.old removed

A kill between the two renames leaves the old bundle as .b.old; the next export puts it back first.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgefold.export.bundle_files import (
    Build,
    Sizes,
    Source,
    build,
    build_int8,
    write_graphs,
    write_manifest,
)
from edgefold.export.parity import ParityRecorder, ParityRow, draw_stream, shortened
from edgefold.export.precision.accuracy_loss import likelihood_change
from edgefold.export.precision.calibrate import calibrate
from edgefold.export.precision.precisions import (
    PRECISIONS,
    Cost,
    checked_tolerance,
    require_acceptable,
)
from edgefold.export.precision.task_streams import RealSeries, TaskStreams, streams_of
from edgefold.runtime.errors import DataError, ExportError
from edgefold.runtime.files import take
from edgefold.runtime.manifest import FILE_NAME
from edgefold.runtime.manifest_file import PARSE_ERRORS
from edgefold.runtime.series.spec import SeriesSpec
from edgefold.train.models.cmanp import Cmanp

__all__ = ["ExportConfig", "ExportError", "ExportReport", "export_bundle"]


@dataclass(frozen=True, slots=True)
class ExportConfig:
    """Sizes and precision, which are fixed at export.

    Attributes:
        chunk: Points that `condition` folds at once. targets: Targets of one query.
        streams: Streams served side by side (B).
        parity_steps: Length of the golden stream; 0 takes the precision's own.
        precision: Name of one of `PRECISIONS`.
        max_loss: Most nats of log-likelihood that a narrow precision may cost; None takes the
            precision's own bound.
        accept_loss: Whether a bundle beyond its bounds is written all the same.
    """

    chunk: int = 32
    targets: int = 16
    streams: int = 1
    parity_steps: int = 0
    precision: str = "float32"
    max_loss: float | None = None
    accept_loss: bool = False

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ExportError(
                f"--precision is {self.precision!r}; give one of {', '.join(PRECISIONS)}."
            )
        for name, least in (("chunk", 2), ("targets", 1), ("streams", 1)):
            self._require(name, getattr(self, name), least)
        self._require("parity_steps", self.n_parity_steps, 4 * self.chunk)

    @staticmethod
    def _require(name: str, value: int, least: int) -> None:
        if value < least:
            raise ExportError(f"--{name.replace('_', '-')} is {value}; give at least {least}.")

    @property
    def n_parity_steps(self) -> int:
        """Length of the golden stream."""
        return self.parity_steps or PRECISIONS[self.precision].parity_steps


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What was written, how well it agrees with PyTorch, and what its precision costs."""

    path: Path
    parity: tuple[ParityRow, ...]
    memory_plan: dict[str, Any]
    n_bytes: int
    precision: dict[str, Any]


def export_bundle(
    model: Cmanp,
    task: dict[str, Any],
    out: Path,
    config: ExportConfig | None = None,
    progress: Callable[[str], None] = lambda line: None,
    series: RealSeries | None = None,
) -> ExportReport:
    """Export a model and check the result against it.

    Args:
        model: In evaluation mode, float32, on the CPU.
        task: The run's task: name, and x_shift, x_scale, y_shift, y_scale where x and y are scaled.
        out: The bundle's folder; an older bundle there is replaced, anything else is refused.
        config: Chunk, targets, streams, precision.
        progress: Called with a line per stage.
        series: The real rows of a series' run, for the ranges and the cost of its precision.

    Raises:
        ExportError: Something that is no bundle lies at `out`, parity failed, or the precision
            costs too much.
    """
    config = config or ExportConfig()
    _require_task(task)
    place = Path(os.path.realpath(out))
    if place in (here := Path.cwd(), *here.parents):
        raise ExportError(f"--out {str(out)!r} is the folder you are in or above; name a new one.")
    place.parent.mkdir(parents=True, exist_ok=True)
    with _claimed(place):
        report = _replace(place, _Export(Source.of(model, task), config, progress, series))
    return replace(report, path=out)


@contextmanager
def _claimed(place: Path) -> Iterator[None]:
    """Hold a bundle's place against every other export; the lock dies with its process.

    Raises:
        ExportError: Another export holds it.
    """
    lock = place.with_name(f".{place.name}.lock")
    handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        # One that ended just now may have removed the file that was opened here.
        if not take(handle) or not _is_at(lock, handle):
            raise ExportError(
                f"another export to {place} is under way; wait for it, or choose another --out."
            )
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
    finally:
        os.close(handle)


def _is_at(path: Path, handle: int) -> bool:
    """Whether an open file is still the one at its path."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


def _replace(place: Path, export: _Export) -> ExportReport:
    """Write and prove the bundle beside its place, then swap it in."""
    beside, old = (place.with_name(f".{place.name}.{end}") for end in ("tmp", "old"))
    for left in (beside, old):
        _require_leftover(left)
    if old.exists() and not place.exists():  # killed between the renames of `_swap`
        old.rename(place)
    _require_replaceable(place)
    shutil.rmtree(beside, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)
    beside.mkdir()
    try:
        report = export.write(beside)
        _require_replaceable(place)  # minutes may have passed
        _swap(beside, place, old)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return report


def _swap(new: Path, place: Path, old: Path) -> None:
    """Put `new` into place; at every moment the older bundle lies at `place` or at `old`."""
    if place.exists():
        place.rename(old)
    try:
        new.rename(place)
    except OSError:
        if old.exists():
            old.rename(place)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _require_replaceable(place: Path) -> None:
    """Refuse what no export wrote.

    Raises:
        ExportError: Something other than an empty folder, or than a bundle's own files, lies there.
    """
    if not os.path.lexists(place):
        return
    if not place.is_dir():  # nor a link, which after resolving can only be a loop
        raise ExportError(f"{place} exists and is no bundle; choose another --out.")
    found = sorted(place.iterdir())
    if not found:
        return
    try:
        form = json.loads((place / FILE_NAME).read_bytes())
        if "schema" not in form:
            raise ValueError("no schema")
        entries = (*form["graphs"].values(), form["weights"], form["golden"])
        listed = {FILE_NAME, *(entry["file"] for entry in entries)}
    except (OSError, *PARSE_ERRORS):
        raise ExportError(
            f"{place} exists and is no bundle ({found[0].name} is there); choose another --out."
        ) from None
    for path in found:
        if path.name not in listed or path.is_symlink() or not path.is_file():
            raise ExportError(
                f"{path} is no part of the bundle in {place}, which would be replaced; move it "
                "away, or choose another --out."
            )


def _require_leftover(folder: Path) -> None:
    """Refuse to clear a hidden folder that is more than what a killed export leaves."""
    if not os.path.lexists(folder):
        return
    found = sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else [folder]
    for path in found:
        if path.name != FILE_NAME and path.suffix not in (".onnx", ".bin", ".npz"):
            raise ExportError(f"{path} is in the way of the export; move it away.")


class _Export:
    """One export into a folder: build, write, compare with PyTorch, weigh the precision's cost."""

    def __init__(
        self,
        source: Source,
        config: ExportConfig,
        progress: Callable[[str], None],
        series: RealSeries | None,
    ):
        self._source, self._config, self._progress = source, config, progress
        self._series = series
        self._sizes = Sizes(config.chunk, config.targets, config.streams)

    def write(self, folder: Path) -> ExportReport:
        """Write a proved bundle; the folder's content is undefined after an error.

        Raises:
            ExportError: Parity failed, or the precision costs too much.
        """
        config, source, name = self._config, self._source, self._config.precision
        self._progress("building the step graphs")
        exact = build(source.model, self._sizes)
        self._progress(f"recording a golden stream of {config.n_parity_steps} points in PyTorch")
        drawn = draw_stream(source.model, config.streams, config.n_parity_steps, config.chunk)
        recorder = ParityRecorder(source.model, source.scaling_x, source.scaling_y, drawn)
        with tempfile.TemporaryDirectory(prefix="edgefold-") as temporary:
            reference, streams, made = Path(temporary), None, exact
            if name != "float32":
                write_graphs(reference, exact)
                write_manifest(reference, source, exact, recorder.golden, {"name": "float32"})
                self._progress("replaying it through the float32 graphs")
                held = Cost("float32", tuple(recorder.compare(reference)), {}, "", "")
                require_acceptable(held)
                streams = streams_of(
                    source.model, source.task, source.scaling_x, source.scaling_y, self._series
                )
                made = self._narrowed(reference, streams)
            write_graphs(folder, made)
            write_manifest(folder, source, made, recorder.golden, {"name": name})
            self._progress("replaying it through the graphs")
            rows = tuple(recorder.compare(folder))
            cost = self._cost(reference, folder, streams, rows)
        if name == "float32" or not config.accept_loss:
            require_acceptable(cost, config.max_loss)
        elif not cost.is_finite:
            raise ExportError(f"the {name} graphs give no finite numbers; nothing was written.")
        golden = shortened(recorder.golden, checked_tolerance(cost))
        precision = cost.to_json(golden.tolerance)
        write_manifest(folder, source, made, golden, precision)
        n_bytes = sum(file.stat().st_size for file in folder.iterdir())
        return ExportReport(folder, rows, made.plan(), n_bytes, precision)

    def _narrowed(self, reference: Path, streams: TaskStreams) -> Build:
        source, name = self._source, self._config.precision
        if name != "int8":
            return build(source.model, self._sizes, name)
        self._progress(f"finding ranges on {streams.calibrated_on}")
        samples = calibrate(reference, streams.calibration)
        return build_int8(source.model, self._sizes, reference, samples)

    def _cost(
        self,
        reference: Path,
        folder: Path,
        streams: TaskStreams | None,
        rows: tuple[ParityRow, ...],
    ) -> Cost:
        if streams is None:
            return Cost(self._config.precision, rows, {}, "", "")
        changes = {}
        for name, trials in streams.scored.items():
            self._progress(f"weighing the cost on {streams.measured_on}: {name}")
            changes[name] = likelihood_change(reference, folder, trials)
        calibrated_on = streams.calibrated_on if self._config.precision == "int8" else ""
        return Cost(self._config.precision, rows, changes, streams.measured_on, calibrated_on)


def _require_task(task: dict[str, Any]) -> None:
    if not isinstance(task.get("name"), str):
        raise ExportError("the run's task has no name; restore its config.json from a copy.")
    if task["name"] == "series":
        try:
            SeriesSpec.from_json(task["features"])
        except (DataError, *PARSE_ERRORS) as error:
            raise ExportError(f"the run's task has no usable features: {error}") from error
