"""Describe the fields of a record in the dataclass that is filled, and write it as plain JSON.

    p99_s: Annotated[Seconds | None, "99 % quantile; null for fewer than 100 calls."]

The text says what the field is, an alias such as `Seconds` its unit. `edgefold.cli.schemas` derives
JSON Schemas and docs/records.md from these annotations; on a board nothing reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, Literal, TypeVar

MISSING: Any = "may be missing"
"""The default of a field that a record may lack: it is left out where it has this value."""
OPTIONAL: Any = object()
"""Annotation of a field that is always written, and that records of older versions lack."""

Getter = TypeVar("Getter", bound=Callable[..., Any])


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
        is_limit: Whether a limit is set by it; such figures stand before all others.
    """

    name: str
    metric: str = ""
    help: str = ""
    is_limit: bool = False


@dataclass(frozen=True, slots=True)
class Shared:
    """The name under which several records share the schema of the annotated value."""

    part: str


def unit(name: str) -> Keyword:
    """Return the unit in which a number is given."""
    return Keyword("unit", name)


def one_of(*choices: str) -> Keyword:
    """Return the texts that a field may have."""
    return Keyword("enum", list(choices))


Seconds = Annotated[float, unit("s")]
Bytes = Annotated[int, unit("B")]
Joules = Annotated[float, unit("J")]
Watts = Annotated[float, unit("W")]
Hertz = Annotated[float, unit("Hz")]
Celsius = Annotated[float, unit("°C")]
Percent = Annotated[float, unit("%")]
ShareOfOne = Annotated[float, unit("share")]
RatioOfTwo = Annotated[float, unit("ratio")]
Count = Annotated[int, unit("count")]
Index = Annotated[int, unit("index")]
Sha256 = Annotated[str, Keyword("pattern", "^[0-9a-f]{64}$")]
BytesRange = tuple[Annotated[Bytes, "Least or most."], Annotated[Bytes, "Least or most."]]
Object = dict[str, Any]
"""An object whose fields are named elsewhere."""
SchemaVersion = Annotated[Literal[1], "Version of this record's fields.", unit("count")]
MemoryPlan = Annotated[Object, Shared("plan")]
BackendReport = Annotated[Object, Shared("backend")]


def written(getter: Getter) -> Getter:
    """Make a property a field of the record, after all others: `@property` over `@written`."""
    getter.is_written = True  # type: ignore[attr-defined]
    return getter


def written_properties(cls: type) -> dict[str, Callable[..., Any]]:
    """Return the getters of the properties of a class that its record has, by name."""
    members = (entry for base in cls.__mro__ for entry in vars(base).items())
    getters = {name: m.fget for name, m in members if isinstance(m, property) and m.fget}
    return {name: getter for name, getter in getters.items() if hasattr(getter, "is_written")}


def as_json(value: Any) -> Any:
    """Return a record as plain JSON, its fields in their order; what is not a dataclass stays."""
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if isinstance(value, Mapping):
        return {key: as_json(item) for key, item in value.items()}
    if not is_dataclass(value):
        return value
    names = [field.name for field in fields(value)] + [*written_properties(type(value))]
    items = {name.rstrip("_"): getattr(value, name) for name in names}
    return {name: as_json(item) for name, item in items.items() if item is not MISSING}
