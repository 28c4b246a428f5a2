"""Print docs/records.md: the exit codes, and the fields of every record from their schemas.

    python scripts/records_page.py > docs/records.md

The prose is scripts/records_head.md. A test compares the page with what this prints.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.schemas.registry import schema_of
from edgefold.cli.schemas.schema import Schema

ROOT = Path(__file__).parents[1]
ORDER = (
    *("profile", "compare", "budget", "budget-microcontroller", "budget-sweep", "check", "doctor"),
    *("evaluate", "manifest", "benchmark"),
)
PARTS = {
    "machine": "The machine",
    "power_mode": "The power mode",
    "condition": "The condition of a machine",
    "validity": "The validity",
    "backend": "The backend",
    "plan": "The memory plan",
    "range": "A range of time",
    "memory_figure": "A figure of memory",
    "interval": "An interval",
    "remedy": "A remedy",
}


def page() -> str:
    """The whole page."""
    codes = [f"| {code.value} | {code.meaning} |" for code in ExitCode]
    table = "\n".join(["| code | meaning |", "| ---: | --- |", *codes])
    head = (ROOT / "scripts" / "records_head.md").read_text().replace("EXIT_CODES\n", f"{table}\n")
    sections = [section(schema_of(name)["title"], name, schema_of(name)) for name in ORDER]
    shared = schema_of("parts")["$defs"]
    sections += [section(title, None, shared[name]) for name, title in PARTS.items()]
    return "\n".join([head, *sections])


def section(title: str, name: str | None, schema: Schema) -> str:
    """One record, or a part that several records share."""
    source = f"Schema: `python -m edgefold.cli.schemas {name}`. " if name else ""
    lines = [f"## {title}", "", f"{source}{schema['description']}", ""]
    rows = list(fields(schema, ""))
    if rows:
        lines += ["| field | type, unit | what it is |", "| --- | --- | --- |", *rows, ""]
    return "\n".join(lines)


def fields(schema: Schema, path: str) -> Iterator[str]:
    """A row for each field below a schema."""
    for name, inner in schema.get("properties", {}).items():
        optional = "" if name in schema.get("required", ()) else " (may be missing)"
        place = f"{path}.{name}" if path else name
        yield f"| `{place}` | {kind(inner)}{optional} | {told(inner)} |"
        yield from fields(inner, place)
    inner = schema.get("items")
    if inner and ("properties" in inner or inner.get("type") == "array"):
        yield from fields(inner, f"{path}[]")
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        every = f"{path}.*".removeprefix(".")
        yield f"| `{every}` | {kind(values)} | {told(values)} |"
        yield from fields(values, every)


def kind(schema: Schema) -> str:
    """The type and the unit in a few words."""
    if "$ref" in schema:
        return link(schema["$ref"])
    if "oneOf" in schema:
        return " or ".join(kind(choice) for choice in schema["oneOf"])
    named = schema.get("type", "any")
    types = named if isinstance(named, list) else [named]
    words = [word for word in types if word != "null"]
    text = ", ".join(filter(None, [*words, unit(schema)]))
    if words == ["array"]:
        text = f"list of {kind(schema['items'])}"
    return f"{text} or null" if "null" in types else text


def unit(schema: Schema) -> str:
    """The unit, or the texts that are allowed."""
    return str(schema.get("unit") or " / ".join(schema.get("enum", [])))


def target(reference: str) -> Schema:
    """The schema that a reference names."""
    file, _, part = reference.partition("#/$defs/")
    schema = schema_of(file.partition(".")[0])
    found: Schema = schema["$defs"][part] if part else schema
    return found


def link(reference: str) -> str:
    """A link to the section of a part or of another record."""
    name = reference.rpartition("/")[2]
    title = schema_of(name.partition(".")[0])["title"] if name.endswith(".json") else PARTS[name]
    anchor = "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c == "-")
    return f"[{title[0].lower()}{title[1:]}](#{anchor})"


def told(schema: Schema) -> str:
    """What it is; a record's parts that are defined elsewhere are linked."""
    described = schema if "description" in schema else target(schema["$ref"])
    text = str(described["description"])
    others = [link(part["$ref"]) for part in schema.get("allOf", ())]
    return f"{text} With the fields of {', '.join(others)}" if others else text


if __name__ == "__main__":
    print(page(), end="")
