"""Derive JSON Schemas from the dataclasses that describe records.

    python -m edgefold.cli.schemas profile > profile.schema.json

A record is a dataclass: where a module fills it, that module's own, else one of this folder. The
first paragraph of its docstring and the texts of its fields become descriptions, its annotations
become types (`edgefold.runtime.record_fields`). A field is required unless it has the default
`MISSING` or the mark `OPTIONAL`. A class is a closed object unless the registry calls it open; a
subclass of a part adds fields to it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from edgefold.runtime.record_fields import (
    MISSING,
    OPTIONAL,
    Keyword,
    Shared,
    Shown,
    written_properties,
)

JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
PARTS_FILE = "parts.schema.json#/$defs/"

Schema = dict[str, Any]


class SchemaWriter:
    """Derives schemas, in which records and shared parts refer to each other.

    Args:
        records: Classes of whole records by their names.
        parts: Classes and annotations that several records share, by their names.
        open_classes: Classes whose objects may have further fields.
    """

    def __init__(
        self,
        records: Mapping[str, type],
        parts: Mapping[str, Any],
        open_classes: Collection[type],
    ) -> None:
        self._parts, self._open = parts, open_classes
        self._references = {cls: f"{name}.schema.json" for name, cls in records.items()}
        classes = {name: part for name, part in parts.items() if dataclasses.is_dataclass(part)}
        self._references |= {cls: f"{PARTS_FILE}{name}" for name, cls in classes.items()}  # type: ignore[misc]

    def shared_parts(self) -> dict[str, Schema]:
        """Return the schemas of the shared parts, by the names that references use."""
        schemas = {}
        for name, part in self._parts.items():
            if dataclasses.is_dataclass(part):
                schemas[name] = self.object_schema(part)  # type: ignore[arg-type]
            else:
                inner, *notes = get_args(part)
                shared = next(n for n, note in enumerate(notes) if isinstance(note, Shared))
                schemas[name] = _annotated(self.value_schema(inner), notes[:shared])
        return schemas

    def object_schema(self, cls: type) -> Schema:
        """Return the schema of a dataclass: its fields, and a reference to the part it extends."""
        base = next((b for b in cls.__bases__ if b in self._references), None)
        inherited = {f.name for f in dataclasses.fields(base)} if base else set()
        hints = get_type_hints(cls, include_extras=True)
        schema: Schema = {"type": "object", "description": description_of(cls)}
        if base:
            schema["allOf"] = [{"$ref": self._references[base]}]
        properties, required = {}, []
        for field in dataclasses.fields(cls):
            if field.name in inherited:
                continue
            name, hint = field.name.rstrip("_"), hints[field.name]
            properties[name] = self.value_schema(hint)
            if field.default is not MISSING and OPTIONAL not in _notes(hint):
                required.append(name)
        for name, getter in written_properties(cls).items():
            hint = get_type_hints(getter, include_extras=True)["return"]
            properties[name] = self.value_schema(hint) | {"description": description_of(getter)}
            required.append(name)
        schema |= {"properties": properties, "required": required}
        if cls not in self._open:
            schema["unevaluatedProperties" if base else "additionalProperties"] = False
        return schema

    def value_schema(self, hint: Any) -> Schema:
        """Return the schema of the values that one type annotation allows."""
        origin, args = get_origin(hint), get_args(hint)
        if origin is Annotated:
            inner, notes = args[0], args[1:]
            shared = next((note for note in notes if isinstance(note, Shared)), None)
            if shared:  # the notes behind it belong to this use of the part
                reference = {"$ref": f"{PARTS_FILE}{shared.part}"}
                return _annotated(reference, notes[notes.index(shared) + 1 :])
            return _annotated(self.value_schema(inner), notes)
        if origin is Union or type(hint).__name__ == "UnionType":
            choices = [choice for choice in args if choice is not type(None)]
            if len(choices) > 1:
                return {"oneOf": [self.value_schema(choice) for choice in choices]}
            schema = self.value_schema(choices[0])
            return schema | {"type": [schema["type"], "null"]}
        if origin is Literal:
            constant = {"const": args[0]} if len(args) == 1 else {"enum": list(args)}
            return {"type": JSON_TYPES[type(args[0])]} | constant
        if origin is list or (origin is tuple and args[1] is ...):
            return {"type": "array", "items": self.value_schema(args[0])}
        if origin is tuple:
            n = len(args)
            items = self.value_schema(args[-1])  # of an interval, the end that may be null
            return {"type": "array", "items": items, "minItems": n, "maxItems": n}
        if origin is dict or origin is Mapping:
            values = {} if args[1] is Any else {"additionalProperties": self.value_schema(args[1])}
            return {"type": "object"} | values
        if hint in self._references:
            return {"$ref": self._references[hint]}
        if dataclasses.is_dataclass(hint):
            return self.object_schema(hint)  # type: ignore[arg-type]
        return {} if hint is Any else {"type": JSON_TYPES[hint]}


def description_of(documented: Any) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join((documented.__doc__ or "").partition("\n\n")[0].split())


def _notes(hint: Any) -> tuple[Any, ...]:
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _annotated(schema: Schema, notes: Sequence[Any]) -> Schema:
    """Return a schema with an annotation's keywords, and its last text as the description."""
    keywords = {note.name: note.value for note in notes if isinstance(note, Keyword)}
    texts = [note for note in notes if isinstance(note, str)]
    return schema | keywords | ({"description": texts[-1]} if texts else {})


def shown_fields(cls: type, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Shown]]:
    """Yield each field that is annotated with `Shown`: the names that lead to it, and the note.

    Fields of inner dataclasses are included. `path` has the names that lead to `cls` itself.
    """
    for name, hint in get_type_hints(cls, include_extras=True).items():
        yield from (((*path, name), note) for note in _notes(hint) if isinstance(note, Shown))
        inner = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        if dataclasses.is_dataclass(inner):
            yield from shown_fields(inner, (*path, name))  # type: ignore[arg-type]
