"""Step graphs with static shapes and named tensors, and the state that they share.

Whoever makes step graphs (the exporter of PyTorch models, the importer of ONNX files) makes these;
whoever works on them (precision, counting, the bundle's writer) knows nothing else.
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
    """Widths of the graphs: points of a chunk, targets of a query, streams."""

    chunk: int
    targets: int
    streams: int


@dataclass(frozen=True, slots=True)
class StepGraph:
    """One file of a bundle.

    Attributes:
        name: Of the file, without its ending: "query_one".
        step: What it does: "update", "condition", "consolidate", "refresh", "query" or "step".
        width: Points or targets of one call; 0 for consolidate and refresh.
        model: Static shapes everywhere, weights inside; checked.
        inputs, outputs: In the graph's order, with their roles.
        precision: "float32", "float16" or "int8".
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
    """All graphs of one model in one precision.

    Attributes:
        state: Each state tensor's first value, (B, ...), in the manifest's order.
        rings: Axis of each state tensor of which a step gives one new row (role "row").
        slots: Of rings whose step says where the row goes: the name of that output (role "slot").
        cache: Shape and type of each tensor that refresh writes and query reads.
        consolidate_every: Points after which `consolidate` must run; 0 for never.
        capacity: Points that the state holds; 0 where any number fits.
        when_full: What becomes of a point beyond that.
        n_streams: B.
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
        """All graphs of a step, narrowest first."""
        return sorted((g for g in self.steps if g.step == step), key=lambda graph: graph.width)
