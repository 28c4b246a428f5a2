"""Fields of the record of `edgefold compare`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from edgefold.runtime.record_fields import RatioOfTwo, SchemaVersion, unit


@dataclass(frozen=True, kw_only=True)
class ComparisonRatio:
    """One figure."""

    figure: Annotated[str, "Its name, such as update.p99."]
    unit: Annotated[Literal["s", "B", "J", "share"], "Unit of both values."]
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


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One record."""

    record: Annotated[str, "Its file."]
    unlike: Annotated[
        list[Annotated[str, "A condition."]],
        "Conditions in which it differs from the base; empty unless --anyway was given.",
    ]
    changed: Annotated[list[Annotated[str, "What differs."]], "Bundle and versions that differ."]
    ratios: Annotated[list[ComparisonRatio], "One for each figure."]


@dataclass(frozen=True, kw_only=True)
class CompareRecord:
    """Ratios of the figures of records to those of a base."""

    schema: SchemaVersion
    base: Annotated[str, "File of the base."]
    comparisons: Annotated[list[Comparison], "One for each other record."]
