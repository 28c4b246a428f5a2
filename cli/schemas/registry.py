"""Derive the JSON Schemas of all records, as files with references or as one complete file."""

from __future__ import annotations

from typing import Any

from edgefold.cli.schemas.benchmark import BenchmarkRecord
from edgefold.cli.schemas.budget import BudgetSweep
from edgefold.cli.schemas.check import CheckRecord
from edgefold.cli.schemas.compare import CompareRecord
from edgefold.cli.schemas.doctor import DoctorRecord
from edgefold.cli.schemas.evaluate import EvaluateRecord
from edgefold.cli.schemas.manifest import ManifestRecord, PrecisionFields
from edgefold.cli.schemas.parts import OPEN, PARTS
from edgefold.cli.schemas.profile import ProfileRecord
from edgefold.cli.schemas.schema import Schema, SchemaWriter
from edgefold.devices.budget.budget import Budget
from edgefold.devices.budget.microcontroller import MicrocontrollerBudget

DIALECT = "https://json-schema.org/draft/2020-12/schema"
RECORDS: dict[str, tuple[type, str]] = {
    "profile": (ProfileRecord, "The record of `edgefold profile`"),
    "compare": (CompareRecord, "The record of `edgefold compare`"),
    "budget": (Budget, "The record of `edgefold budget`"),
    "budget-microcontroller": (
        MicrocontrollerBudget,
        "The record of `edgefold budget` for a microcontroller",
    ),
    "check": (CheckRecord, "The record of `edgefold check`"),
    "doctor": (DoctorRecord, "The record of `edgefold doctor`"),
    "evaluate": (EvaluateRecord, "The record of `edgefold evaluate`"),
    "manifest": (ManifestRecord, "The manifest of a bundle"),
    "benchmark": (BenchmarkRecord, "The record of a benchmark"),
}
NAMES = (*RECORDS, "budget-sweep")
WRITER = SchemaWriter(
    {name: cls for name, (cls, _) in RECORDS.items()}, PARTS, (*OPEN, PrecisionFields)
)


def schema_of(name: str) -> Schema:
    """Return the JSON Schema of a record; shared parts are references to `parts.schema.json`.

    Args:
        name: Name of the record, one of `NAMES`; or "parts" for the shared parts.
    """
    if name == "parts":
        title, body = "Parts that several records share", {"$defs": WRITER.shared_parts()}
    elif name == "budget-sweep":
        title = "The record of `edgefold budget --sweep`"
        body = WRITER.value_schema(BudgetSweep)
    else:
        cls, title = RECORDS[name]
        body = WRITER.object_schema(cls)
    return {"$schema": DIALECT, "title": title, **body}


def whole_schema(name: str) -> Schema:
    """Return the schema of a record in one piece: parts and records it refers to are in `$defs`."""
    definitions: dict[str, Schema] = {}

    def local(value: Any) -> Any:
        if isinstance(value, list):
            return [local(item) for item in value]
        if not isinstance(value, dict):
            return value
        target = value.get("$ref")
        if target is None:
            return {key: local(item) for key, item in value.items()}
        file, _, part = target.partition(".schema.json")
        key = part.removeprefix("#/$defs/") or file
        if key not in definitions:
            definitions[key] = {}  # its place, while its own references are followed
            whole = schema_of(file)
            definitions[key] = local(whole["$defs"][key] if part else whole)
        return {**value, "$ref": f"#/$defs/{key}"}

    schema = local(schema_of(name))
    return {**schema, "$defs": definitions} if definitions else schema
