"""A bundle's files from a model: graphs, weights, golden stream, manifest.

The step graphs of one precision are a `Build`; `write` puts it into a folder. What a bundle is
worth, and whether it may take an older one's place, is `edgefold.export.bundle`.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from edgefold.export.cmanp_graphs import CONSOLIDATE_EVERY, CmanpGraphs
from edgefold.export.counting.memory_plan import memory_plan
from edgefold.export.graph import OPSET, GraphBuilder, WeightFile
from edgefold.export.precision.int8 import Samples, quantise
from edgefold.runtime.errors import ExportError
from edgefold.runtime.golden import Golden
from edgefold.runtime.hashing import sha256_of
from edgefold.runtime.manifest import FILE_NAME, Scaling, StateTensor
from edgefold.runtime.manifest_file import PARSE_ERRORS, SCHEMA, with_checksum
from edgefold.train.models.cmanp import Cmanp


@dataclass(frozen=True, slots=True)
class Sizes:
    """Chunk and targets: widths of the graphs. streams: B."""

    chunk: int
    targets: int
    streams: int


@dataclass(frozen=True, slots=True)
class StepGraph:
    """One file of a bundle: its step, its width, and the graph as declared and as ONNX."""

    step: str
    width: int
    builder: GraphBuilder
    model: onnx.ModelProto


@dataclass(frozen=True, slots=True)
class Build:
    """All graphs of a bundle in one precision, and what they share."""

    steps: tuple[StepGraph, ...]
    weights: WeightFile
    state: tuple[StateTensor, ...]
    memory: tuple[StateTensor, ...]

    def plan(self) -> dict[str, Any]:
        """The memory plan."""
        graphs = [(step.builder, step.model) for step in self.steps]
        return memory_plan(graphs, self.state, self.memory, self.weights.n_bytes)


def build(model: Cmanp, sizes: Sizes, narrow: str = "float32") -> Build:
    """The graphs with `narrow` as the element type of what lies behind the state."""
    weights = WeightFile()
    graphs = CmanpGraphs(model, sizes.streams, weights, narrow)
    declared = [
        ("condition", sizes.chunk, graphs.update("condition", sizes.chunk)),
        ("update", 1, graphs.update("update", 1)),
        ("consolidate", 0, graphs.consolidate()),
        ("refresh", 0, graphs.refresh()),
        ("query", sizes.targets, graphs.query("query", sizes.targets)),
    ]
    if sizes.targets > 1:  # most loops ask for one target at a time
        declared.append(("query", 1, graphs.query("query_one", 1)))
    steps = tuple(StepGraph(step, width, g, g.model()) for step, width, g in declared)
    return Build(steps, weights, graphs.state(), graphs.memory())


def build_int8(
    model: Cmanp, sizes: Sizes, reference: Path, samples: Mapping[str, Samples]
) -> Build:
    """The graphs with int8 products in refresh and query.

    Args:
        model: As for `build`.
        sizes: As for `build`.
        reference: A folder with the float32 graphs of the same sizes.
        samples: Of what the products read, by graph, as `calibrate` gives them.
    """
    exact = build(model, sizes)
    weights = WeightFile()
    steps = []
    for step in exact.steps:
        loaded = onnx.load(reference / f"{step.builder.name}.onnx")
        found = quantise(loaded, samples.get(step.builder.name, {}), weights)
        steps.append(replace(step, model=found))
    return replace(exact, steps=tuple(steps), weights=weights)


@dataclass(frozen=True, slots=True)
class Source:
    """What is exported: the model, its task's description, and the scaling taken from that."""

    model: Cmanp
    task: dict[str, Any]
    scaling_x: Scaling
    scaling_y: Scaling

    @classmethod
    def of(cls, model: Cmanp, task: dict[str, Any]) -> Source:
        """Read the scaling.

        Raises:
            ExportError: It is not one positive scale and one shift a column.
        """
        x = _scaling(task, "x", model.n_inputs)
        return cls(model, task, x, _scaling(task, "y", model.n_outputs))


def _scaling(task: dict[str, Any], name: str, columns: int) -> Scaling:
    try:
        shift = [float(v) for v in task.get(f"{name}_shift", [0.0] * columns)]
        scale = [float(v) for v in task.get(f"{name}_scale", [1.0] * columns)]
        sound = len(shift) == len(scale) == columns and min(scale) > 0
        sound = sound and all(map(math.isfinite, shift + scale))
    except PARSE_ERRORS:
        sound = False
    if not sound:
        raise ExportError(
            f"the run's {name}_shift and {name}_scale are not {columns} columns of positive scale."
        )
    return Scaling(tuple(shift), tuple(scale))


def write_graphs(folder: Path, made: Build) -> None:
    """Write graphs and weights, and have ONNX check them."""
    paths = [folder / f"{step.builder.name}.onnx" for step in made.steps]
    for path, step in zip(paths, made.steps, strict=True):
        onnx.save(step.model, path)
    made.weights.write(folder)
    for path in paths:  # the checker reads external data, so the weights come first
        onnx.checker.check_model(str(path), full_check=True)


def write_manifest(
    folder: Path, source: Source, made: Build, golden: Golden, precision: dict[str, Any]
) -> None:
    """Write the golden stream, and the manifest over all files."""
    golden.save(folder / "golden.npz")
    manifest = {
        "schema": SCHEMA,
        "model": {
            "kind": "cmanp",
            "n_parameters": sum(p.numel() for p in source.model.parameters()),
            **asdict(source.model.config),
        },
        "task": source.task,
        "n_streams": made.state[0].shape[0],
        "points": {"x": asdict(source.scaling_x), "y": asdict(source.scaling_y)},
        "prediction": "gaussian",
        "precision": precision,
        "consolidate_every": CONSOLIDATE_EVERY,
        "state": [tensor.to_json() for tensor in made.state],
        "memory": [tensor.to_json() for tensor in made.memory],
        "graphs": {step.builder.name: _graph_entry(folder, step) for step in made.steps},
        "weights": _entry(folder / made.weights.name),
        "golden": _entry(folder / "golden.npz"),
        "memory_plan": made.plan(),
        "versions": {
            "edgefold": importlib.metadata.version("edgefold"),
            "torch": importlib.metadata.version("torch"),
            "onnx": onnx.__version__,
            "opset": str(OPSET),
        },
    }
    (folder / FILE_NAME).write_text(json.dumps(with_checksum(manifest), indent=1) + "\n")


def _graph_entry(folder: Path, step: StepGraph) -> dict[str, Any]:
    name = step.builder.name
    return {
        "step": step.step,
        "width": step.width,
        "file": f"{name}.onnx",
        "sha256": sha256_of(folder / f"{name}.onnx"),
        "inputs": [t.to_json() for t in step.builder.inputs],
        "outputs": [t.to_json() for t in step.builder.outputs],
    }


def _entry(path: Path) -> dict[str, Any]:
    return {"file": path.name, "sha256": sha256_of(path), "n_bytes": path.stat().st_size}
