"""Fields of the record of `edgefold compare`."""

from __future__ import annotations

from typing import Annotated, Literal

from edgefold.cli.schemas.schema import Ratio, record, unit


@record()
class ComparisonRatio:
    """One figure."""

    figure: Annotated[str, "Its name, such as update.p99."]
    unit: Annotated[Literal["s", "B", "J", "share"], "Unit of both values."]
    base_value: Annotated[float, "Value of the base.", unit("as `unit` says")]
    value: Annotated[
        float | None, "Value of the record; null if it has none.", unit("as `unit` says")
    ]
    ratio: Annotated[Ratio | None, "Value over that of the base."]
    interval_95: Annotated[
        tuple[Annotated[Ratio | None, "An end."], Annotated[Ratio | None, "An end."]],
        "Both ends of the 95 % interval over the calls of one run each; null is not known.",
    ]
    exact: Annotated[bool, "Counted or predicted and not sampled: there is no interval."]
    reason: Annotated[str, "Why there is no ratio; empty otherwise."]


@record()
class Comparison:
    """One record."""

    record: Annotated[str, "Its file."]
    unlike: Annotated[
        list[Annotated[str, "A condition."]],
        "Conditions in which it differs from the base; empty unless --anyway was given.",
    ]
    changed: Annotated[list[Annotated[str, "What differs."]], "Bundle and versions that differ."]
    ratios: Annotated[list[ComparisonRatio], "One for each figure."]


@record(name="compare", title="The record of `edgefold compare`")
class CompareRecord:
    """Ratios of the figures of records to those of a base."""

    schema: Annotated[Literal[1], "Version of this record's fields.", unit("count")]
    base: Annotated[str, "File of the base."]
    comparisons: Annotated[list[Comparison], "One for each other record."]
