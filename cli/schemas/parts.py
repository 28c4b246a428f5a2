"""Define the parts that several records share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from edgefold.devices.budget.roofline import Range
from edgefold.devices.machine.condition import Condition
from edgefold.devices.machine.jetson import PowerMode
from edgefold.devices.machine.machine import Machine
from edgefold.devices.machine.validity import Validity
from edgefold.devices.memory.monitor import MemoryFigure
from edgefold.devices.profile.latency import Interval
from edgefold.runtime.errors import Remedy
from edgefold.runtime.record_fields import MISSING, Bytes, Count, unit


@dataclass(frozen=True, kw_only=True)
class BackendFields:
    """Describes the backend that ran the graphs, which may report more than these fields."""

    asked: Annotated[str, "What --backend asked for; missing where it was the one that opened."] = (
        MISSING
    )
    name: Annotated[str, "Name of the backend, as --backend takes it."]
    device: Annotated[str, "`cpu`, or the GPU's name."]
    version: Annotated[str, "Version of the inference library."]
    provider: Annotated[str, "Execution provider of onnxruntime."] = MISSING
    threads: Annotated[Count, "Threads of a step."] = MISSING
    refused: Annotated[
        dict[str, Annotated[str, "Why it did not open."]],
        "Backends that `auto` did not open, with the reason.",
    ] = MISSING
    chosen: Annotated[str, "Why `auto` opened this backend."] = MISSING
    row_s: Annotated[
        dict[str, Annotated[float, "Seconds of a row.", unit("s")]],
        "Kept times by which `auto` chose, by backend; empty where none decided.",
    ] = MISSING


@dataclass(frozen=True, kw_only=True)
class WorkFields:
    """Holds the counted work of one call of a graph."""

    flop: Annotated[int, "Additions and multiplications.", unit("flop")]
    bytes: Annotated[Bytes, "Bytes that it must touch."]
    moved_bytes: Annotated[Bytes, "Bytes that its nodes read and write."] = MISSING
    n_nodes: Annotated[Count, "Nodes."] = MISSING


@dataclass(frozen=True, kw_only=True)
class GraphPlanFields:
    """Holds the bytes and the work that the plan counts for one graph."""

    weights_bytes: Annotated[Bytes, "Weights that it reads."]
    activations_bytes: Annotated[Bytes, "Its activations at their most."]
    io_bytes: Annotated[Bytes, "Its inputs and outputs."]
    work: WorkFields = MISSING


@dataclass(frozen=True, kw_only=True)
class PlanFields:
    """Holds the bytes that a bundle takes in memory, as counted at export."""

    weights_bytes: Annotated[Bytes, "Weights."]
    state_bytes: Annotated[Bytes, "Both buffers of the state."]
    cache_bytes: Annotated[Bytes, "What queries read."]
    io_bytes: Annotated[Bytes, "Inputs and outputs of all graphs."]
    activations_bytes: Annotated[Bytes, "The largest graph's activations."]
    total_bytes: Annotated[Bytes, "All of these."]
    graphs: Annotated[dict[str, GraphPlanFields], "By graph."]


PARTS: dict[str, Any] = {
    "interval": Interval,
    "machine": Machine,
    "backend": BackendFields,
    "plan": PlanFields,
    "memory_figure": MemoryFigure,
    "range": Range,
    "remedy": Remedy,
    "power_mode": PowerMode,
    "condition": Condition,
    "validity": Validity,
}
"""Classes and annotations of the shared parts, by the names that schemas refer to."""
OPEN = (Machine, BackendFields, PlanFields)
"""Parts whose objects may have further fields."""
