"""Derive JSON Schemas from the dataclasses that describe records.

    python -m edgefold.cli.schemas profile > profile.schema.json

A record is a class of this folder. Its docstring and the texts of its fields become descriptions,
its annotations become types:

    base_value: Annotated[Seconds | None, "The base's value; null if it has none."]

A unit is a part of an alias such as `Seconds`. A field with the default `MISSING` may be missing. A
class is a closed object unless it is marked `open`; a subclass of an open class adds fields to it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

MISSING: Any = "may be missing"
"""The default of a field that a record may lack."""
JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}

Schema = dict[str, Any]
Class = TypeVar("Class", bound=type)


@dataclass(frozen=True, slots=True)
class Keyword:
    """A keyword of JSON Schema for the annotated value, such as its unit or its pattern."""

    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Shown:
    """A figure that gates, comparisons, tables and Prometheus take from the annotated field.

    Attributes:
        name: Name of the figure in gates and tables.
        metric: Name of its metric in Prometheus' text format; "" for none.
        help: Sentence that explains the metric there.
    """

    name: str
    metric: str = ""
    help: str = ""


@dataclass(frozen=True, slots=True)
class Shared:
    """The name under which several records share the annotated value, which is not a class."""

    part: str


def unit(name: str) -> Keyword:
    """The unit in which a number is given."""
    return Keyword("unit", name)


Seconds = Annotated[float, unit("s")]
Bytes = Annotated[int, unit("B")]
Joules = Annotated[float, unit("J")]
Watts = Annotated[float, unit("W")]
Hertz = Annotated[float, unit("Hz")]
Celsius = Annotated[float, unit("°C")]
Percent = Annotated[float, unit("%")]
Share = Annotated[float, unit("share")]
Ratio = Annotated[float, unit("ratio")]
Count = Annotated[int, unit("count")]
Index = Annotated[int, unit("index")]
Sha256 = Annotated[str, Keyword("pattern", "^[0-9a-f]{64}$")]
Object = dict[str, Any]
"""An object whose fields are named elsewhere."""


def record(*, name: str = "", title: str = "", part: str = "", open: bool = False) -> Any:
    """Make a class a description of a record or of a part of one.

    Args:
        name: Name of a whole record, which is that of its schema.
        title: Title of a whole record.
        part: Name under which several records share this class.
        open: Whether an object may have other fields, too.
    """

    def decorate(cls: Class) -> Class:
        result: Any = dataclass(frozen=True, kw_only=True)(cls)
        result.NAME, result.TITLE, result.PART, result.OPEN = name, title, part, open
        return result  # type: ignore[no-any-return]

    return decorate


def object_schema(cls: type) -> Schema:
    """Schema of a class: its fields, and the class that it extends by reference."""
    base = next((b for b in cls.__bases__ if dataclasses.is_dataclass(b)), None)
    inherited = {f.name for f in dataclasses.fields(base)} if base else set()
    hints = get_type_hints(cls, include_extras=True)
    fields = [f for f in dataclasses.fields(cls) if f.name not in inherited]
    schema: Schema = {"type": "object", "description": description_of(cls)}
    if base:
        schema["allOf"] = [reference(base)]
    schema["properties"] = {f.name.rstrip("_"): value_schema(hints[f.name]) for f in fields}
    schema["required"] = [f.name.rstrip("_") for f in fields if f.default is not MISSING]
    if not cls.OPEN:  # type: ignore[attr-defined]
        schema["unevaluatedProperties" if base else "additionalProperties"] = False
    return schema


def description_of(cls: type) -> str:
    """Text of a class: its docstring on one line."""
    return " ".join((cls.__doc__ or "").split())


def reference(cls: type) -> Schema:
    """Schema that refers to a shared part or to a whole record."""
    if cls.PART:  # type: ignore[attr-defined]
        return shared_reference(cls.PART)  # type: ignore[attr-defined]
    return {"$ref": f"{cls.NAME}.schema.json"}  # type: ignore[attr-defined]


def shared_reference(part: str) -> Schema:
    """Schema that refers to a part of `parts.schema.json`."""
    return {"$ref": f"parts.schema.json#/$defs/{part}"}


def annotated(schema: Schema, notes: Sequence[Any]) -> Schema:
    """Schema with the description and the keywords of an annotation."""
    keywords = {note.name: note.value for note in notes if isinstance(note, Keyword)}
    texts = [note for note in notes if isinstance(note, str)]
    return schema | keywords | ({"description": texts[-1]} if texts else {})


def shared_parts(module: ModuleType) -> dict[str, Schema]:
    """Schemas of the parts that a module shares, by the names in their references."""
    schemas = {}
    for value in vars(module).values():
        if dataclasses.is_dataclass(value):
            if part := getattr(value, "PART", ""):
                schemas[part] = object_schema(value)  # type: ignore[arg-type]
        elif get_origin(value) is Annotated:
            inner, *notes = get_args(value)
            for shared in (note for note in notes if isinstance(note, Shared)):
                schemas[shared.part] = annotated(value_schema(inner), notes[: notes.index(shared)])
    return schemas


def shown_fields(cls: type, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Shown]]:
    """Yield the fields of a record that are figures, with the way to each."""
    for name, hint in get_type_hints(cls, include_extras=True).items():
        notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        yield from (((*path, name), note) for note in notes if isinstance(note, Shown))
        inner = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        if dataclasses.is_dataclass(inner):
            yield from shown_fields(inner, (*path, name))  # type: ignore[arg-type]


def value_schema(hint: Any) -> Schema:
    """Schema of one annotation."""
    if get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        shared = next((note for note in notes if isinstance(note, Shared)), None)
        if shared:  # the notes behind it belong to this use of the part
            return annotated(shared_reference(shared.part), notes[notes.index(shared) + 1 :])
        return annotated(value_schema(inner), notes)
    if get_origin(hint) is Union or type(hint).__name__ == "UnionType":
        choices = [choice for choice in get_args(hint) if choice is not type(None)]
        if len(choices) > 1:
            return {"oneOf": [value_schema(choice) for choice in choices]}
        schema = value_schema(choices[0])
        return schema | {"type": [schema["type"], "null"]}
    if get_origin(hint) is Literal:
        values = list(get_args(hint))
        constant = {"const": values[0]} if len(values) == 1 else {"enum": values}
        return {"type": JSON_TYPES[type(values[0])]} | constant
    if get_origin(hint) is list:
        return {"type": "array", "items": value_schema(get_args(hint)[0])}
    if get_origin(hint) is tuple:
        items = get_args(hint)
        return {
            "type": "array",
            "items": value_schema(items[0]),
            "minItems": len(items),
            "maxItems": len(items),
        }
    if get_origin(hint) is dict:
        values = get_args(hint)[1]
        return {"type": "object"} | (
            {} if values is Any else {"additionalProperties": value_schema(values)}
        )
    if dataclasses.is_dataclass(hint):
        shared_class = hint.PART or hint.NAME  # type: ignore[union-attr]
        return reference(hint) if shared_class else object_schema(hint)  # type: ignore[arg-type]
    return {} if hint is Any else {"type": JSON_TYPES[hint]}
