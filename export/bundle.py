"""Write a model as a bundle: graphs, weights, golden stream, manifest; then prove it.

The bundle is written into a folder beside the target and renamed at the end, so that a failed
export leaves no half bundle and does not touch an older one:

    .b.tmp written and proved ──> b renamed to .b.old ──> .b.tmp renamed to b ──> .b.old removed

A kill between the two renames leaves the old bundle as .b.old; the next export puts it back first.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx

from edgefold.export.cmanp_graphs import CONSOLIDATE_EVERY, CmanpGraphs
from edgefold.export.graph import OPSET, GraphBuilder, WeightFile
from edgefold.export.parity import TOLERANCE, ParityRecorder, ParityRow, draw_stream
from edgefold.export.plan import memory_plan
from edgefold.runtime.digest import sha256_of
from edgefold.runtime.errors import DataError
from edgefold.runtime.manifest import DAMAGE, FILE_NAME, SCHEMA, Scaling, seal
from edgefold.runtime.series_spec import SeriesSpec
from edgefold.train.models.cmanp import Cmanp


class ExportError(Exception):
    """The bundle cannot be written, or its graphs do not compute what the model does."""


@dataclass(frozen=True, slots=True)
class ExportConfig:
    """Sizes that are fixed at export.

    Attributes:
        chunk: Points that `condition` folds at once. targets: Targets of one query.
        streams: Streams served side by side (B). parity_steps: Length of the golden stream.
    """

    chunk: int = 32
    targets: int = 16
    streams: int = 1
    parity_steps: int = 1000

    def __post_init__(self) -> None:
        for name, least in (
            ("chunk", 2),
            ("targets", 1),
            ("streams", 1),
            ("parity_steps", 4 * self.chunk),
        ):
            if getattr(self, name) < least:
                raise ExportError(
                    f"--{name.replace('_', '-')} is {getattr(self, name)}; give at least {least}."
                )


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What was written and how well it agrees with PyTorch."""

    path: Path
    parity: tuple[ParityRow, ...]
    memory_plan: dict[str, Any]
    n_bytes: int


def export_bundle(
    model: Cmanp,
    task: dict[str, Any],
    out: Path,
    config: ExportConfig | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> ExportReport:
    """Export a model and check the result against it.

    Args:
        model: In evaluation mode, float32, on the CPU.
        task: The run's task: name, and x_shift, x_scale, y_shift, y_scale where x and y are scaled.
        out: The bundle's folder; an older bundle there is replaced, anything else is refused.
        config: Chunk, targets, streams.
        progress: Called with a line per stage.

    Raises:
        ExportError: Something that is no bundle lies at `out`, or parity failed.
    """
    config = config or ExportConfig()
    _require_task(task)
    place = Path(os.path.realpath(out))
    if place in (here := Path.cwd(), *here.parents):
        raise ExportError(f"--out {str(out)!r} is the folder you are in or above; name a new one.")
    beside, old = (place.with_name(f".{place.name}.{end}") for end in ("tmp", "old"))
    for left in (beside, old):
        _require_leftover(left)
    if old.exists() and not place.exists():  # killed between the renames of `_swap`
        old.rename(place)
    _require_replaceable(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(beside, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)
    beside.mkdir()
    try:
        report = _write(model, task, beside, config, progress)
        _require_replaceable(place)  # minutes may have passed
        _swap(beside, place, old)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return ExportReport(out, *report)


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
    except (OSError, *DAMAGE):
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


def _write(
    model: Cmanp,
    task: dict[str, Any],
    folder: Path,
    config: ExportConfig,
    progress: Callable[[str], None],
) -> tuple[tuple[ParityRow, ...], dict[str, Any], int]:
    progress("building the step graphs")
    weights = WeightFile()
    builder = CmanpGraphs(model, config.streams, weights)
    steps = _steps(builder, config)
    graphs = [(graph, graph.model()) for _, _, graph in steps]
    for graph, proto in graphs:
        onnx.save(proto, folder / f"{graph.name}.onnx")
    weights.write(folder)
    for graph, _ in graphs:  # the checker reads external data, so the weights come first
        onnx.checker.check_model(str(folder / f"{graph.name}.onnx"), full_check=True)
    scaling_x = _scaling(task, "x", model.n_inputs)
    scaling_y = _scaling(task, "y", model.n_outputs)
    progress(f"recording a golden stream of {config.parity_steps} points in PyTorch")
    stream = draw_stream(model, config.streams, config.parity_steps, config.chunk)
    recorder = ParityRecorder(model, scaling_x, scaling_y, stream)
    recorder.golden.save(folder / "golden.npz")
    plan = memory_plan(graphs, builder.state(), builder.memory(), weights.n_bytes)
    manifest = {
        "schema": SCHEMA,
        "model": {
            "kind": "cmanp",
            "n_parameters": sum(p.numel() for p in model.parameters()),
            **asdict(model.config),
        },
        "task": task,
        "n_streams": config.streams,
        "points": {"x": asdict(scaling_x), "y": asdict(scaling_y)},
        "prediction": "gaussian",
        "consolidate_every": CONSOLIDATE_EVERY,
        "state": [tensor.to_json() for tensor in builder.state()],
        "memory": [tensor.to_json() for tensor in builder.memory()],
        "graphs": {
            graph.name: {
                "step": step,
                "width": width,
                "file": f"{graph.name}.onnx",
                "sha256": sha256_of(folder / f"{graph.name}.onnx"),
                "inputs": [t.to_json() for t in graph.inputs],
                "outputs": [t.to_json() for t in graph.outputs],
            }
            for step, width, graph in steps
        },
        "weights": _entry(folder / weights.name),
        "golden": _entry(folder / "golden.npz"),
        "memory_plan": plan,
        "versions": {
            "edgefold": importlib.metadata.version("edgefold"),
            "torch": importlib.metadata.version("torch"),
            "onnx": onnx.__version__,
            "opset": str(OPSET),
        },
    }
    (folder / FILE_NAME).write_text(json.dumps(seal(manifest), indent=1) + "\n")
    progress("replaying it through the graphs")
    rows = tuple(recorder.compare(folder))
    worst = max(max(row.graphs_to_float32, row.graphs_to_float64) for row in rows)
    if not worst <= TOLERANCE:
        raise ExportError(
            f"the graphs are off by {worst:.1e} from PyTorch, tolerance {TOLERANCE:.0e}; "
            f"nothing was "
            "written. The worst moment: " + str(max(rows, key=lambda row: row.graphs_to_float64))
        )
    return rows, plan, sum(file.stat().st_size for file in folder.iterdir())


def _steps(builder: CmanpGraphs, config: ExportConfig) -> list[tuple[str, int, GraphBuilder]]:
    """Step, width and graph of every file in the bundle."""
    steps = [
        ("condition", config.chunk, builder.update("condition", config.chunk)),
        ("update", 1, builder.update("update", 1)),
        ("consolidate", 0, builder.consolidate()),
        ("refresh", 0, builder.refresh()),
        ("query", config.targets, builder.query("query", config.targets)),
    ]
    if config.targets > 1:  # most loops ask for one target at a time
        steps.append(("query", 1, builder.query("query_one", 1)))
    return steps


def _require_task(task: dict[str, Any]) -> None:
    if not isinstance(task.get("name"), str):
        raise ExportError("the run's task has no name; restore its config.json from a copy.")
    if task["name"] == "series":
        try:
            SeriesSpec.from_json(task["features"])
        except (DataError, *DAMAGE) as error:
            raise ExportError(f"the run's task has no usable features: {error}") from error


def _scaling(task: dict[str, Any], name: str, columns: int) -> Scaling:
    try:
        shift = [float(v) for v in task.get(f"{name}_shift", [0.0] * columns)]
        scale = [float(v) for v in task.get(f"{name}_scale", [1.0] * columns)]
        sound = len(shift) == len(scale) == columns and min(scale) > 0
        sound = sound and all(map(math.isfinite, shift + scale))
    except DAMAGE:
        sound = False
    if not sound:
        raise ExportError(
            f"the run's {name}_shift and {name}_scale are not {columns} columns of positive scale."
        )
    return Scaling(tuple(shift), tuple(scale))


def _entry(path: Path) -> dict[str, Any]:
    return {"file": path.name, "sha256": sha256_of(path), "n_bytes": path.stat().st_size}
