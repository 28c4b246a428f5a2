"""Count how much memory a bundle needs from its graphs, before anything runs.

    weights      each stored once, however many graphs read it
    state        two buffers for each tensor, but one for a ring
    cache        tensors that refresh writes and query reads
    io           points, targets, predictions and checks of every graph
    activations  per graph: the most that its intermediate values take at once; graphs run one after
                 the other, so the total takes the largest
    work         per graph: operations and traffic of one call, from which a budget bounds its time

Process, interpreter and runtime come on top; a profile measures those.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from edgefold.export.counting.activations import activation_bytes
from edgefold.export.counting.op_counts import sizes_of, work_of
from edgefold.export.graphs.step_graphs import StepGraph
from edgefold.runtime.bundle.manifest import StateTensor, Tensor


def weight_bytes(model: onnx.ModelProto) -> int:
    """Return how many bytes the constants that a graph reads take."""
    sizes = sizes_of(model)
    return sum(sizes[tensor.name] for tensor in model.graph.initializer)


def tensor_bytes(tensors: Sequence[StateTensor | Tensor]) -> int:
    """Return how many bytes one buffer for each tensor takes in total."""
    return sum(math.prod(t.shape) * np.dtype(t.dtype).itemsize for t in tensors)


def memory_plan(
    steps: Sequence[StepGraph],
    state: Sequence[StateTensor],
    cache: Sequence[StateTensor],
    stored_weight_bytes: int,
) -> dict[str, Any]:
    """Return the memory plan as the manifest keeps it; all numbers except `work` are bytes.

    It has weights_bytes, state_bytes, cache_bytes, io_bytes, activations_bytes, total_bytes, and by
    graph `graphs`.

    Args:
        steps: Step graphs of the bundle.
        state: Tensors of the state.
        cache: Tensors of the cache.
        stored_weight_bytes: Bytes of all weights, each counted once.
    """
    per_graph: dict[str, Any] = {}
    for step in steps:
        io = [t for t in (*step.inputs, *step.outputs) if t.role not in ("state", "cache")]
        per_graph[step.name] = {
            "weights_bytes": weight_bytes(step.model),
            "activations_bytes": activation_bytes(step.model),
            "io_bytes": tensor_bytes(io),
            "work": work_of(step.model).to_json(),
        }
    pairs = sum(tensor_bytes([t]) * (2 if t.ring is None else 1) for t in state)
    parts = {
        "weights_bytes": stored_weight_bytes,
        "state_bytes": pairs,
        "cache_bytes": tensor_bytes(cache),
        "io_bytes": sum(g["io_bytes"] for g in per_graph.values()),
        "activations_bytes": max(g["activations_bytes"] for g in per_graph.values()),
    }
    return {**parts, "total_bytes": sum(parts.values()), "graphs": per_graph}
