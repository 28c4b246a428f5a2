"""Define the fields of the record of `edgefold compare`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from edgefold.cli.records.comparison import RatioRecord
from edgefold.runtime.record_fields import SchemaVersion


@dataclass(frozen=True, slots=True)
class Comparison:
    """Holds the comparison of one record with the base: conditions, versions and ratios."""

    record: Annotated[str, "Its file."]
    unlike: Annotated[
        list[Annotated[str, "A condition."]],
        "Conditions in which it differs from the base; empty unless --anyway was given.",
    ]
    changed: Annotated[list[Annotated[str, "What differs."]], "Bundle and versions that differ."]
    ratios: Annotated[list[RatioRecord], "One for each figure."]


@dataclass(frozen=True, slots=True)
class CompareRecord:
    """Holds the ratios of the figures of records to those of a base."""

    schema: SchemaVersion = field(default=1, init=False)
    base: Annotated[str, "File of the base."]
    comparisons: Annotated[list[Comparison], "One for each other record."]
