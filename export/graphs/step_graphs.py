"""Define step graphs: one ONNX graph for each step of a model, and the state that they share.

All shapes are fixed and all tensors have names. The exporter of PyTorch models and the importer of
ONNX files make step graphs; precision, counting and the bundle's writer know nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from edgefold.runtime.bundle.manifest import Tensor


@dataclass(frozen=True, slots=True)
class Sizes:
    """Holds the sizes of graphs: points of a chunk, targets of a query, number of streams."""

    chunk: int
    targets: int
    streams: int


@dataclass(frozen=True, slots=True)
class StepGraph:
    """Holds the ONNX graph of one step of a model; it becomes one file of a bundle.

    Attributes:
        name: Name of the file without its ending, as "query_one".
        step: The step: one of `edgefold.runtime.bundle.manifest.STEPS`.
        width: Number of points or targets of one call; 0 for consolidate, merge and refresh.
        model: The checked ONNX graph, with fixed shapes everywhere and its weights inside.
        inputs, outputs: The tensors of the graph in its order, with their roles.
        precision: Element type of its products: "float32", "float16" or "int8".
    """

    name: str
    step: str
    width: int
    model: onnx.ModelProto
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    precision: str = "float32"


@dataclass(frozen=True, slots=True)
class StepGraphs:
    """Holds all step graphs of one model in one precision, and facts of its state.

    Attributes:
        steps: The graphs.
        state: First value of each state tensor, (B, ...), by name in the manifest's order.
        cache: Shape and type of each tensor that refresh writes and query reads, by name.
        rings: Axis of the rows of each ring, by name. A ring is a state tensor of which a step
            returns only one new row (role "row").
        slots: Name of the output (role "slot") that says where a ring's row goes, by the ring's
            name; rings whose rows follow each other have none.
        consolidate_every: Number of points after which `consolidate` must run; 0 for never.
        capacity: Number of points that the state holds; 0 where any number fits.
        when_full: Rule for a point beyond the capacity: "refuse", "overwrite" or "reservoir".
        n_streams: Number of streams (B).
    """

    steps: tuple[StepGraph, ...]
    state: Mapping[str, NDArray[Any]]
    cache: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]] = field(default_factory=dict)
    rings: Mapping[str, int] = field(default_factory=dict)
    slots: Mapping[str, str] = field(default_factory=dict)
    consolidate_every: int = 0
    capacity: int = 0
    when_full: str = "refuse"
    n_streams: int = 1

    def of_step(self, step: str) -> list[StepGraph]:
        """Return all graphs of a step, the one with the smallest width first."""
        return sorted((g for g in self.steps if g.step == step), key=lambda graph: graph.width)
