"""Define the fields of a bundle's manifest, `manifest.json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from edgefold.runtime.record_fields import (
    MISSING,
    Bytes,
    Count,
    Index,
    MemoryPlan,
    Object,
    Sha256,
    unit,
)


@dataclass(frozen=True, kw_only=True)
class ScalingFields:
    """Describes how x is scaled: (raw - shift) / scale, with one pair for each column."""

    shift: Annotated[list[Annotated[float, "In units of the column.", unit("raw")]], "Shifts."]
    scale: Annotated[list[Annotated[float, "In units of the column.", unit("raw")]], "Scales."]


@dataclass(frozen=True, kw_only=True)
class PointFields:
    """Describes how the columns of points are scaled."""

    x: ScalingFields
    y: Annotated[ScalingFields, "How y is scaled: (raw - shift) / scale, one pair a column."]


@dataclass(frozen=True, kw_only=True)
class AnswerFields:
    """Describes one tensor of a query's answer."""

    name: Annotated[str, "Its name."]
    shape: Annotated[list[Annotated[Count, "A length."]], "Shape of one target's."]
    unscale: Annotated[
        Literal["affine", "scale", "log-density", "none"], "How it returns to raw units."
    ]
    dtype: Annotated[str, "Element type."]


@dataclass(frozen=True, kw_only=True)
class PredictionFields:
    """Describes the kind of a query's answers, such as a mean and a deviation."""

    kind: Annotated[str, "Name of the kind, such as gaussian."]
    settings: Annotated[Object, "Its settings."]
    tensors: Annotated[list[AnswerFields], "Its tensors."]


@dataclass(frozen=True, kw_only=True)
class PrecisionFields:
    """Holds the precision in which the graphs refresh and query compute."""

    name: Annotated[Literal["float32", "float16", "int8"], "The type."]


@dataclass(frozen=True, kw_only=True)
class InitialFields:
    """Describes the place of an array in the weight file."""

    offset: Annotated[Bytes, "Where it begins."]
    n_bytes: Annotated[Bytes, "Its length."]


@dataclass(frozen=True, kw_only=True)
class CacheFields:
    """Describes one tensor of the cache (which refresh writes and query reads) or of the state."""

    name: Annotated[str, "Its name."]
    shape: Annotated[list[Annotated[Count, "A length."]], "Its shape, streams leading."]
    dtype: Annotated[str, "Element type."]
    initial: Annotated[
        Annotated[float, "The number.", unit("as the tensor")] | InitialFields,
        "First value of a state tensor: one number for all elements, or the place of an "
        "array in the weight file.",
    ] = MISSING
    ring: Annotated[Index, "Axis of the rows of a ring; missing for other tensors."] = MISSING


@dataclass(frozen=True, kw_only=True)
class StateFields(CacheFields):
    """Describes one tensor of the state that a stream keeps from call to call."""

    slot: Annotated[str, "Of a ring whose step says where its row goes: the output that does."] = (
        MISSING
    )


@dataclass(frozen=True, kw_only=True)
class TensorFields:
    """Describes one input or output of a graph."""

    name: Annotated[str, "Its name in the graph."]
    role: Annotated[
        Literal[
            "points.x",
            "points.y",
            "points.mask",
            "targets.x",
            "targets.mask",
            "state",
            "other",
            "row",
            "slot",
            "cache",
            "prediction",
            "finite",
        ],
        "Where it comes from or goes to.",
    ]
    of: Annotated[str, "The tensor that it stands for."]
    shape: Annotated[list[Annotated[Count, "A length."]], "Its shape, streams leading."]
    dtype: Annotated[str, "Element type."]


@dataclass(frozen=True, kw_only=True)
class GraphFields:
    """Describes one step graph of the bundle: its file, its inputs and its outputs."""

    step: Annotated[
        Literal["condition", "update", "consolidate", "merge", "refresh", "query", "step"],
        "What it does.",
    ]
    width: Annotated[Count, "Points or targets of one call; 0 for the others."]
    precision: Annotated[str, "Element type of its products."]
    file: Annotated[str, "Name of its ONNX file."]
    sha256: Annotated[Sha256, "SHA-256 of the file."]
    inputs: Annotated[list[TensorFields], "In the graph's order."]
    outputs: Annotated[list[TensorFields], "In the graph's order."]
    opset: Annotated[Index, "Version of ONNX's operators."]


@dataclass(frozen=True, kw_only=True)
class FileFields:
    """Describes a data file of the bundle: the weight file, or the recorded stream."""

    file: Annotated[str, "Its name."]
    sha256: Annotated[Sha256, "Its SHA-256."]
    n_bytes: Annotated[Bytes, "Its size."]


@dataclass(frozen=True, kw_only=True)
class ManifestRecord:
    """Holds everything that the runtime knows of a bundle."""

    schema: Annotated[Literal[2], "Version of this record's fields.", unit("count")]
    model: Annotated[
        Object,
        "The model: its name, its summary, n_parameters, and what the exporter knows of "
        "its source.",
    ]
    task: Annotated[Object, "The task: its name, and for a series the features that a row becomes."]
    n_streams: Annotated[Count, "Streams side by side."]
    points: PointFields
    prediction: PredictionFields
    precision: PrecisionFields
    consolidate_every: Annotated[
        Count, "Points after which consolidate runs; 0 for a model without it."
    ]
    capacity: Annotated[
        Count,
        "Points that the state holds; 0 where any number fits. Missing in bundles of "
        "older versions.",
    ] = MISSING
    when_full: Annotated[
        Literal["refuse", "overwrite", "reservoir"],
        "What becomes of a point that finds the state full.",
    ] = MISSING
    state: Annotated[list[StateFields], "Tensors of the state."]
    cache: Annotated[list[CacheFields], "Tensors that refresh writes and query reads."]
    graphs: Annotated[dict[str, GraphFields], "By name."]
    weights: FileFields
    golden: Annotated[FileFields, "The recorded stream."]
    memory_plan: MemoryPlan
    versions: Annotated[
        dict[str, Annotated[str, "A version."]], "Versions of the packages that exported it."
    ]
    sha256: Annotated[Sha256, "SHA-256 of everything else in this file."]
