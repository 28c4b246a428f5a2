"""Compute ratios of two records' figures, with intervals, and whether the records are alike.

Both intervals are moved to logarithms, where a ratio is a difference, and combined by the method of
variance estimates recovery (Zou and Donner, Statistics in Medicine 27, 2008):

    a [a1, a2],  b [b1, b2]:    b - a  from  b - a - sqrt((b - b1)^2 + (a2 - a)^2)
                                       to    b - a + sqrt((b2 - b)^2 + (a - a1)^2)

Each interval is that of one run. It does not include differences between one start of a program and
the next, such as the place of its memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from edgefold.cli.records.figures import (
    BYTES,
    COMPARED,
    DISTURBED,
    JOULES,
    SECONDS,
    SHARE,
    UNSTEADY,
    Record,
    RecordFigure,
    disturbance,
    figures_of,
    kind_of,
)
from edgefold.runtime.record_fields import RatioOfTwo, one_of, unit

CONDITIONS = {
    "profile": {
        "board": "conditions.board",
        "processor": "conditions.cpu_model",
        "architecture": "conditions.architecture",
        "cores": "conditions.n_cores",
        "governor": "conditions.frequency_governor",
        "power mode": "conditions.power_mode.name",
        "backend": "conditions.backend.name",
        "device": "conditions.backend.device",
        "threads": "options.threads",
        "CUDA graphs": "options.cuda_graphs",
        "wait for the GPU": "options.gpu_wait",
        "precision": "bundle.precision",
        "streams": "bundle.n_streams",
        "chunk": "bundle.chunk",
        "targets": "bundle.targets",
        "power sensor": "energy.sensor",
        "replay of power": "energy.replay",
    },
    "budget": {
        "board": "board",
        "precision": "precision",
        "backend": "demand.backend",
        "arrivals per prediction": "demand.predict_every",
    },
}
CLOCKS = ("governor", "min_hz", "max_hz", "units_off")
"""Fields of a clock that two records must share; a profile's validity covers its frequency."""
VERSIONS = {
    "bundle": "bundle.hash",
    "edgefold": "conditions.edgefold",
    "onnxruntime": "conditions.onnxruntime",
    "numpy": "conditions.numpy",
    "python": "conditions.python",
    "kernel": "conditions.kernel",
}
"""Fields with versions, which may differ, since people compare versions."""


@dataclass(frozen=True)
class RatioRecord:
    """Records one figure of two records, and the ratio between them."""

    figure: Annotated[str, "Its name, such as update.p99."]
    unit: Annotated[str, one_of(SECONDS, BYTES, JOULES, SHARE), "Unit of both values."]
    base_value: Annotated[float, "Value of the base.", unit("as `unit` says")]
    value: Annotated[
        float | None, "Value of the record; null if it has none.", unit("as `unit` says")
    ]
    ratio: Annotated[RatioOfTwo | None, "Value over that of the base."]
    interval_95: Annotated[
        tuple[Annotated[RatioOfTwo | None, "An end."], Annotated[RatioOfTwo | None, "An end."]],
        "Both ends of the 95 % interval over the calls of one run each; null is not known.",
    ]
    exact: Annotated[bool, "Counted or predicted and not sampled: there is no interval."]
    reason: Annotated[str, "Why there is no ratio; empty otherwise."]


@dataclass(frozen=True, slots=True)
class Ratio:
    """Holds the ratio of a figure of another record to the same figure of the base.

    Attributes:
        base: The figure of the base record.
        other: The figure of the other record.
        ratio: The value of `other` over that of `base`; None where one of them is missing or not
            above zero, and `reason` then says which.
        low, high: Ends of the 95 % interval; None where an end is not known.
    """

    base: RecordFigure
    other: RecordFigure
    ratio: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""

    @property
    def name(self) -> str:
        """Return the name of the figure."""
        return self.base.name

    def record(self) -> RatioRecord:
        """Return the ratio as an entry of the record of a comparison."""
        base, ends = self.base, (self.low, self.high)
        assert base.value is not None  # `compare` leaves such figures out
        return RatioRecord(
            self.name,
            base.unit,
            base.value,
            self.other.value,
            self.ratio,
            ends,
            base.exact,
            self.reason,
        )


def compare(base: Record, other: Record) -> list[Ratio]:
    """Return the ratio of each figure that a comparison shows and that the base has."""
    figures, others = figures_of(base), figures_of(other)
    return [
        _ratio(
            figure, others.get(name) or RecordFigure(name, figure.unit, None, reason="not in it")
        )
        for name, figure in figures.items()
        if name.rpartition(".")[2] in COMPARED and figure.value is not None
    ]


def _ratio(base: RecordFigure, other: RecordFigure) -> Ratio:
    if other.value is None:
        return Ratio(base, other, None, reason=f"not measured: {other.reason}")
    if not (base.value and base.value > 0 and other.value > 0):
        return Ratio(base, other, None, reason="not above zero, so it has no ratio")
    a, b = math.log(base.value), math.log(other.value)
    a_low, a_high, b_low, b_high = map(_log, (base.low, base.high, other.low, other.high))
    low = high = None
    if b_low is not None and a_high is not None:
        low = math.exp(b - a - math.hypot(b - b_low, a_high - a))
    if b_high is not None and a_low is not None:
        high = math.exp(b - a + math.hypot(b_high - b, a - a_low))
    return Ratio(base, other, other.value / base.value, low, high)


def _log(end: float | None) -> float | None:
    return math.log(end) if end is not None and end > 0 else None


def unlike(base: Record, other: Record) -> list[str]:
    """Return in words the conditions in which two records differ; empty if they can be compared."""
    kinds = kind_of(base), kind_of(other)
    if kinds[0] != kinds[1]:
        return [f"kind of record: {kinds[0]} and {kinds[1]}"]
    assert kinds[0] is not None
    differences = list(_differences(base, other, CONDITIONS[kinds[0]]))
    if kinds[0] == "profile":
        one, two = _clocks(base), _clocks(other)
        if one != two:
            differences.append(f"rules of the clocks: {one} and {two}")
    return differences


def unsettled(record: Record) -> str:
    """Return why a record's times cannot be compared with others; empty if they can."""
    return disturbance(record, DISTURBED, UNSTEADY)


def changed(base: Record, other: Record) -> list[str]:
    """Return in words which versions differ between two profiles, the bundle included."""
    return list(_differences(base, other, VERSIONS)) if kind_of(base) == "profile" else []


def _differences(base: Record, other: Record, paths: dict[str, str]) -> Iterator[str]:
    for name, path in paths.items():
        one, two = _at(base, path), _at(other, path)
        if one != two:
            yield f"{name}: {_shown(one)} and {_shown(two)}"


def _at(record: Record, path: str) -> Any:
    value: Any = record
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _shown(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text[:12] if len(text) == 64 else text[:60]  # the start of a hash is enough


def _clocks(record: Record) -> str:
    """Return governors and bounds of all clocks of a record as one text."""
    conditions = record["conditions"]
    groups = [*(conditions.get("cpu_clocks") or ()), conditions.get("gpu_clock")]
    rules = [[_shown(group[key]) for key in CLOCKS if key in group] for group in groups if group]
    memory = conditions.get("memory_cap_hz")
    return "; ".join([*map(" ".join, rules), *([f"memory {memory}"] if memory else [])]) or "none"
