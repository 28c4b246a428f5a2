"""Schemas of all records, as files that refer to each other or as one complete file each."""

from __future__ import annotations

from typing import Any

from edgefold.cli.schemas import (
    benchmark,
    budget,
    check,
    compare,
    doctor,
    evaluate,
    manifest,
    parts,
    profile,
)
from edgefold.cli.schemas.schema import Schema, object_schema, shared_parts, value_schema

DIALECT = "https://json-schema.org/draft/2020-12/schema"
RECORDS: dict[str, type] = {
    "profile": profile.ProfileRecord,
    "compare": compare.CompareRecord,
    "budget": budget.BudgetRecord,
    "budget-microcontroller": budget.MicrocontrollerBudgetRecord,
    "check": check.CheckRecord,
    "doctor": doctor.DoctorRecord,
    "evaluate": evaluate.EvaluateRecord,
    "manifest": manifest.ManifestRecord,
    "benchmark": benchmark.BenchmarkRecord,
}
NAMES = (*RECORDS, "budget-sweep")


def schema_of(name: str) -> Schema:
    """Schema of a record; what several records share is a reference to `parts.schema.json`.

    Args:
        name: One of `NAMES`, or "parts".
    """
    if name == "parts":
        return {
            "$schema": DIALECT,
            "title": "Parts that several records share",
            "$defs": shared_parts(parts),
        }
    if name == "budget-sweep":
        title, body = "The record of `edgefold budget --sweep`", value_schema(budget.BudgetSweep)
    else:
        cls: Any = RECORDS[name]
        title, body = cls.TITLE, object_schema(cls)
    return {"$schema": DIALECT, "title": title, **body}


def whole_schema(name: str) -> Schema:
    """Schema of a record in one file, with the parts and records that it refers to in `$defs`."""
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
