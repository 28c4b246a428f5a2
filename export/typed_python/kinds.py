"""Define the types that rules have in C, and find them in the annotations of Python.

float  -> double       int -> int64_t        bool -> int        Literal words -> an enum's number
list[float] of n       -> double[n]          NamedTuple -> a struct, by value
KeptNumbers            -> a struct, by pointer
FloatArray             -> float *, memory of the caller's own
Reals                  -> edgefold_real *, likewise: double or, on microcontrollers, float
Counts                 -> uint16_t *, likewise
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from edgefold.runtime.kept_numbers import KeptNumbers

RESERVED = frozenset(
    """
    auto break case char const continue default do double else enum extern float for goto if inline
    int long register restrict return short signed sizeof static struct switch typedef union
    unsigned void volatile while bool true false
    """.split()  # noqa: SIM905
)
"""Words of C, which no field or variable may have as its name."""
IN_LIBRARY = frozenset(
    """
    log exp sqrt floor ceil round log1p fabs fmod rint copysign index remainder time clock y0 y1 yn
    j0 j1 jn gamma
    """.split()  # noqa: SIM905
)
"""Names of C's library, which no variable may have."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Describes a type.

    Attributes:
        word: "float", "int", "bool", "word", "list", "array" of float32, "single", which is an item
            of an array, "reals", "counts", "tuple", "rule" or "nothing".
        of: The class of a tuple or a rule; else None.
        item: The kind of a list's items; else None.
        size: The number of a list's items; 0 where a function's argument leaves it open.
    """

    word: str
    of: Any = None
    item: Any = None
    size: int = 0

    @property
    def is_number(self) -> bool:
        """Return whether values are single numbers."""
        return self.word in ("float", "int", "bool", "word")

    @property
    def c(self) -> str:
        """Return the type's name in C; of a list, that of its items."""
        if self.item is not None:
            text: str = self.item.c
            return text
        if self.of is not None:
            return f"struct {struct_name(self.of)}"
        return C_NAMES[self.word]

    def fits(self, other: Kind) -> bool:
        """Return whether a value of the other kind can be assigned to a variable of this kind."""
        if self == other or (self.word, other.word) in LARGER:
            return True
        return self.word == other.word == "list" and self.item == other.item


C_NAMES = {
    "float": "double", "int": "int64_t", "bool": "int", "word": "int", "array": "float",
    "single": "float", "reals": "edgefold_real", "counts": "uint16_t", "nothing": "void",
}  # fmt: skip
"""Maps the words of kinds that are no class to the names of types in C."""
FLOAT, INT, BOOL = Kind("float"), Kind("int"), Kind("bool")
WORD, ARRAY, REALS, COUNTS = Kind("word"), Kind("array"), Kind("reals"), Kind("counts")
ARRAYS = ("array", "reals", "counts")
"""The words of kinds that are arrays of the caller's own."""
NOTHING, SINGLE = Kind("nothing"), Kind("single")
LARGER = {("float", "int"), ("float", "bool"), ("int", "bool")}
"""Pairs of kinds of which the first one holds all values of the second."""


def kind_of_hint(hint: Any) -> Kind:
    """Return the kind of an annotation.

    Raises:
        TypeError: The subset has no such type.
    """
    simple = {float: FLOAT, int: INT, bool: BOOL, type(None): NOTHING}
    if hint in simple:
        return simple[hint]
    if get_origin(hint) is Literal and all(isinstance(word, str) for word in get_args(hint)):
        return WORD
    if get_origin(hint) is list:
        return Kind("list", item=kind_of_hint(get_args(hint)[0]))
    if get_origin(hint) is np.ndarray:
        numbers = {(np.float64,): REALS, (np.uint16,): COUNTS}
        return numbers.get(get_args(get_args(hint)[1]), ARRAY)
    if isinstance(hint, type) and issubclass(hint, KeptNumbers):
        return Kind("rule", hint)
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
        return Kind("tuple", hint)
    raise TypeError(f"{hint} is not a type of the subset")


def kind_of_constant(value: Any) -> Kind | None:
    """Return the kind of a constant of a module; None if it is not one of the subset."""
    for of, kind in ((bool, BOOL), (int, INT), (float, FLOAT), (str, WORD)):
        if isinstance(value, of):
            return kind
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return Kind("tuple", type(value))
    if isinstance(value, (tuple, list)) and value:
        kinds = [kind_of_constant(item) for item in value]
        if all(kind is not None and kind.is_number for kind in kinds):
            item = FLOAT if FLOAT in kinds else kinds[0]
            return Kind("list", item=item, size=len(value))
    return None


def fields_of(of: type) -> dict[str, Kind]:
    """Return the fields of a NamedTuple or a rule's class, with their kinds, in their order.

    Raises:
        TypeError: A field has a type that the subset lacks.
    """
    hints = get_type_hints(of)
    if not issubclass(of, KeptNumbers):
        return {name: kind_of_hint(hints[name]) for name in of._fields}  # type: ignore[attr-defined]
    fields = {}
    for name, default in of._DEFAULTS.items():
        kind = kind_of_hint(hints[name])
        if kind.word == "list":
            kind = Kind("list", item=kind.item, size=len(default))
        fields[name] = kind
    return fields


def field_name(name: str) -> str:
    """Return a field's name in C: without underscores in front, and no reserved word."""
    name = name.lstrip("_") or "unused"
    return f"{name}_" if name in RESERVED else name


def c_name(name: str) -> str:
    """Return a variable's name in C."""
    name = field_name(name)
    return f"{name}_" if name in IN_LIBRARY else name


def struct_name(of: type) -> str:
    """Return the name of a class's struct."""
    return "edgefold_" + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", of.__name__.lstrip("_")).lower()


def struct_bytes(of: type) -> int:
    """Return the size of a class's struct, where double and int64_t have places that 8 divides.

    Pointers take 4 bytes, as on microcontrollers.
    """
    sizes = {"bool": 4, "word": 4, "array": 4, "reals": 4, "counts": 4}
    end, largest = 0, 4
    for kind in fields_of(of).values():
        item = kind.item if kind.word == "list" else kind
        size = struct_bytes(item.of) if item.of is not None else sizes.get(item.word, 8)
        whole = 4 if size == 4 else 8
        largest = max(largest, whole)
        end = -whole * (-end // whole) + size * (kind.size or 1)
    return -largest * (-end // largest)
