"""Describe the fields of a record in its dataclass, and turn a filled record into plain JSON.

    p99_s: Annotated[Seconds | None, "99 % quantile; null for fewer than 100 calls."]

A record is a dataclass that is written as a JSON object. The text of an annotation says what the
field is, and an alias such as `Seconds` gives its unit. `edgefold.cli.schemas` derives JSON Schemas
and docs/records.md from these annotations; on a board nothing reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, Literal, TypeVar

MISSING: Any = "may be missing"
"""Marks, as the value of a field, that the field is left out of the JSON.

It is the default of every field that a record may lack.
"""
OPTIONAL: Any = object()
"""Marks, in an annotation, a field that is always written but missing in older records."""

Getter = TypeVar("Getter", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Keyword:
    """Adds a keyword to the JSON Schema of the annotated value, such as its unit or pattern.

    Attributes:
        name: The keyword, such as "pattern".
        value: The keyword's value in the schema.
    """

    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Shown:
    """Gives the annotated figure a name, by which gates, comparisons and tables refer to it.

    A gate is a condition such as `update.p99 > 2ms` under which a profile fails.

    Attributes:
        name: Name of the figure in gates and tables.
        metric: Name of the figure's metric in Prometheus' text format; "" for no metric.
        help: Sentence that explains the metric in Prometheus' text format.
        is_limit: Whether users choose a memory limit by this figure; such figures come first.
    """

    name: str
    metric: str = ""
    help: str = ""
    is_limit: bool = False


@dataclass(frozen=True, slots=True)
class Shared:
    """Names the schema of the annotated value, so that several records share one schema.

    Attributes:
        part: The name of the shared schema.
    """

    part: str


def unit(name: str) -> Keyword:
    """Make the keyword of JSON Schema that states a number's unit, such as "s" or "B"."""
    return Keyword("unit", name)


def one_of(*choices: str) -> Keyword:
    """Make the keyword of JSON Schema that lists the only texts that a field may have."""
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
"""Annotates a JSON object whose fields are described elsewhere."""
SchemaVersion = Annotated[Literal[1], "Version of this record's fields.", unit("count")]
MemoryPlan = Annotated[Object, Shared("plan")]
BackendReport = Annotated[Object, Shared("backend")]


def written(getter: Getter) -> Getter:
    """Mark a property to be written into the record, after the dataclass's own fields.

    Use it as a decorator below `@property`.

    Args:
        getter: The property's function.

    Returns:
        The same function, marked.
    """
    getter.is_written = True  # type: ignore[attr-defined]
    return getter


def written_properties(cls: type) -> dict[str, Callable[..., Any]]:
    """Return the functions of all properties of a class that `written` marked, by name."""
    members = (entry for base in cls.__mro__ for entry in vars(base).items())
    getters = {name: m.fget for name, m in members if isinstance(m, property) and m.fget}
    return {name: getter for name, getter in getters.items() if hasattr(getter, "is_written")}


def as_json(value: Any) -> Any:
    """Turn a record, also inside lists and mappings, into dictionaries and lists for JSON.

    Fields keep their order, and those that are `MISSING` are left out. Any other value is returned
    as it is.
    """
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if isinstance(value, Mapping):
        return {key: as_json(item) for key, item in value.items()}
    if not is_dataclass(value):
        return value
    names = [field.name for field in fields(value)] + [*written_properties(type(value))]
    items = {name.rstrip("_"): getattr(value, name) for name in names}
    return {name: as_json(item) for name, item in items.items() if item is not MISSING}
