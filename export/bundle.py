"""Write a model as a bundle (graphs, weights, recorded golden stream); compare it with PyTorch.

A golden stream holds recorded points and predictions, with which any machine checks the bundle. The
bundle is written into a temporary folder next to its place and renamed at the end, so that a failed
export leaves no half bundle and does not touch an older one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgefold.export.bundle_files import BundleWriter, ExportSubject, new_folder, scaling_of
from edgefold.export.checks.parity import GoldenRecording, ParityRow, draw_stream, record, shortened
from edgefold.export.checks.resumption import add_resumed
from edgefold.export.graphs.portable import portable
from edgefold.export.graphs.step_graphs import Sizes, StepGraphs
from edgefold.export.lowering.steps import lower
from edgefold.export.precision.accuracy_loss import likelihood_change
from edgefold.export.precision.calibrate import calibrate
from edgefold.export.precision.precisions import (
    PRECISIONS,
    Cost,
    checked_tolerance,
    require_acceptable,
)
from edgefold.export.precision.task_streams import with_smooth
from edgefold.runtime.errors import ExportError
from edgefold.train.contract import StreamingModel
from edgefold.train.tasks.contract import TaskStreams

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ExportConfig:
    """Holds the settings of an export: sizes and precision, which a bundle cannot change later.

    Attributes:
        chunk: Number of points that `condition` learns at once.
        targets: Number of targets that one query predicts.
        streams: Number of streams that a bundle serves at the same time (B).
        parity_steps: Number of points of the golden stream; 0 for the precision's own.
        precision: "float32", "float16" or "int8".
        max_loss: Largest loss of log-likelihood, in nats, that a narrow precision may cost; None
            takes the bound of the precision.
        accept_loss: Whether a bundle is also written if it costs more than its bounds allow.
        force: Whether an older bundle at the same place is replaced.
        resumes: Folders of earlier bundles of the same model, whose snapshots the new one resumes.
    """

    chunk: int = 32
    targets: int = 16
    streams: int = 1
    parity_steps: int = 0
    precision: str = "float32"
    max_loss: float | None = None
    accept_loss: bool = False
    force: bool = False
    resumes: tuple[Path, ...] = ()

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
        """Return the number of points of the golden stream, recorded to check the bundle."""
        return self.parity_steps or PRECISIONS[self.precision].parity_steps

    @property
    def sizes(self) -> Sizes:
        """Return the sizes of the graphs: chunk, targets and streams."""
        return Sizes(self.chunk, self.targets, self.streams)


@dataclass(frozen=True, slots=True)
class ExportReport:
    """Reports a written bundle: its agreement with PyTorch, and the cost of its precision.

    `n_bytes` is the size of all its files together, and `parity` has one row for each moment of the
    golden stream. `memory_plan` and `precision` are entries of its manifest.
    """

    path: Path
    parity: tuple[ParityRow, ...]
    memory_plan: dict[str, Any]
    n_bytes: int
    precision: dict[str, Any]


def export_bundle(
    model: StreamingModel,
    task: dict[str, Any],
    out: Path,
    config: ExportConfig | None = None,
    progress: Progress = lambda line: None,
    streams: TaskStreams | None = None,
) -> ExportReport:
    """Export a model as a bundle, and compare the bundle's predictions with the model's.

    Args:
        model: Model in evaluation mode, with float32 parameters on the CPU.
        task: The run's task: name; x_shift, x_scale, y_shift and y_scale if x and y are scaled.
        out: Folder that becomes the bundle.
        config: Settings of the export; `ExportConfig()` by default.
        progress: Function that is called with one line of text at each stage.
        streams: Streams of the model's task, on which a narrow precision is calibrated and its cost
            is measured; none by default.

    Raises:
        ExportError: Something lies at `out`, the model cannot be exported, its graphs compute
            other predictions, or the precision costs too much.
    """
    config = config or ExportConfig()
    if not isinstance(task.get("name"), str):
        raise ExportError("the run's task has no name; restore its config.json from a copy.")
    with new_folder(out, config.force) as folder:
        report = _Export(model, task, config, progress, streams or TaskStreams([])).write(folder)
    return replace(report, path=out)


def subject_of(model: StreamingModel, task: dict[str, Any]) -> ExportSubject:
    """Return what a bundle's manifest says of a model and its task, apart from the graphs."""
    facts = {
        "name": model.name or type(model).__name__,
        "summary": model.summary,
        "n_parameters": sum(p.numel() for p in model.parameters()),
        "settings": model.settings(),
    }
    return ExportSubject(
        facts,
        task,
        model.prediction,
        scaling_of(task, "x", model.n_inputs),
        scaling_of(task, "y", model.n_outputs),
    )


def write_graphs(
    folder: Path, graphs: StepGraphs, subject: ExportSubject, recording: GoldenRecording
) -> BundleWriter:
    """Write graphs and the whole golden stream as a bundle that can be opened."""
    writer = BundleWriter(folder, subject, portable(graphs))
    writer.write_manifest(recording.golden, {"name": "float32"})
    return writer


def finish(
    writer: BundleWriter,
    recording: GoldenRecording,
    cost: Cost,
    config: ExportConfig,
) -> ExportReport:
    """Refuse a written bundle that loses too much accuracy; else write its final manifest.

    `cost` holds the measured loss, which is compared with the bounds of the precision and `config`.
    """
    if cost.name == "float32" or not config.accept_loss:
        require_acceptable(cost, config.max_loss)
    elif not cost.is_finite:
        raise ExportError(f"the {cost.name} graphs give no finite numbers; nothing was written.")
    golden = shortened(recording.golden, checked_tolerance(cost))
    precision = cost.to_json(golden.tolerance)
    writer.write_manifest(golden, precision)
    add_resumed(writer.folder, config.resumes)
    n_bytes = sum(file.stat().st_size for file in writer.folder.iterdir())
    return ExportReport(writer.folder, cost.parity, writer.memory_plan, n_bytes, precision)


class _Export:
    """Exports one model: makes graphs, writes and compares them, measures the loss of accuracy."""

    def __init__(
        self,
        model: StreamingModel,
        task: dict[str, Any],
        config: ExportConfig,
        progress: Progress,
        streams: TaskStreams,
    ):
        self._model, self._config, self._progress, self._streams = model, config, progress, streams
        self._subject = subject_of(model, task)

    def write(self, folder: Path) -> ExportReport:
        """Write the bundle into a folder and compare it; an error leaves the folder unusable."""
        config, name = self._config, self._config.precision
        exact = lower(self._model, config.sizes, progress=self._progress)
        n_steps = config.n_parity_steps
        self._progress(f"recording a golden stream of {n_steps} points in PyTorch")
        drawn = draw_stream(self._model, config.streams, n_steps, config.chunk)
        recording = record(self._model, self._subject, drawn, config.targets, self._progress)
        if name == "float32":
            writer = write_graphs(folder, exact, self._subject, recording)
            self._progress("replaying it through the graphs")
            cost = Cost(name, recording.compare(folder), {}, "", "")
            return finish(writer, recording, cost, config)
        with tempfile.TemporaryDirectory(prefix="edgefold-") as temporary:
            return self._write_narrow(folder, Path(temporary), exact, recording)

    def _write_narrow(
        self, folder: Path, reference: Path, exact: StepGraphs, recording: GoldenRecording
    ) -> ExportReport:
        config, name, streams = self._config, self._config.precision, self._streams
        write_graphs(reference, exact, self._subject, recording)
        self._progress("replaying it through the float32 graphs")
        require_acceptable(Cost("float32", recording.compare(reference), {}, "", ""))
        precision = PRECISIONS[name]
        samples = {}
        if precision.calibrates:
            streams = with_smooth(streams, self._model, self._subject)
            self._progress(f"finding ranges on {streams.calibrated_on}")
            samples = calibrate(reference, streams.calibration)
        if precision.in_torch:
            exact = lower(self._model, config.sizes, name, self._progress)
        narrow = precision.narrowed(exact, samples)
        writer = write_graphs(folder, narrow, self._subject, recording)
        self._progress("replaying it through the graphs")
        rows = recording.compare(folder)
        changes = {}
        scored = streams.scored if self._model.prediction.has_score else {}
        for kind, episodes in scored.items():
            self._progress(f"measuring the cost on {streams.measured_on}: {kind}")
            changes[kind] = likelihood_change(reference, folder, episodes)
        calibrated_on = streams.calibrated_on if precision.calibrates else ""
        cost = Cost(name, rows, changes, streams.measured_on, calibrated_on)
        return finish(writer, recording, cost, config)
