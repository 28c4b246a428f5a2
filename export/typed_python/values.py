"""Hold pieces of C: expressions with their types, operators, numbers, and what they need."""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Protocol, get_type_hints

from edgefold.export.typed_python.kinds import FLOAT, NOTHING, Kind, field_name, kind_of_hint

OPERATORS = {
    ast.Add: ("+", 12), ast.Sub: ("-", 12), ast.Mult: ("*", 13), ast.Div: ("/", 13),
    ast.LShift: ("<<", 11), ast.RShift: (">>", 11), ast.BitAnd: ("&", 8), ast.BitOr: ("|", 6),
    ast.FloorDiv: ("", 0), ast.Mod: ("", 0),
}  # fmt: skip
"""Maps operators to those of C and their ranks: a higher one binds more tightly."""
COMPARISONS = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
OF_BITS = (ast.LShift, ast.RShift, ast.BitAnd, ast.BitOr)
CHOICE, OR, AND, SAME, ORDER, UNARY, CALL = 3, 4, 5, 9, 10, 14, 16
MATH = {
    math.log: "log", math.log1p: "log1p", math.exp: "exp", math.sqrt: "sqrt",
    math.copysign: "copysign", math.fmod: "fmod",
}  # fmt: skip
MATH_TESTS = {math.isfinite: "isfinite", math.isnan: "isnan", math.isinf: "isinf"}


@dataclass(frozen=True, slots=True)
class Expression:
    """Holds an expression in C.

    Attributes:
        text: The C; of a rule, a pointer to its struct.
        kind: Its type.
        rank: How tightly its outermost operator binds.
    """

    text: str
    kind: Kind
    rank: int = CALL

    def within(self, rank: int) -> str:
        """Return the text for an operator of a rank, in parentheses where it needs them."""
        return self.text if self.rank >= rank else f"({self.text})"

    @property
    def as_float(self) -> Expression:
        """Return the value as a double, for an operation that would be one of integers in C."""
        if self.kind == FLOAT:
            return self
        return Expression(f"(double){self.within(UNARY)}", FLOAT, UNARY)

    def field(self, name: str) -> str:
        """Return the text of a field of a struct or, through its pointer, of a rule."""
        if self.kind.word == "tuple":
            return f"{self.within(CALL)}.{field_name(name)}"
        if self.text.startswith("&"):
            return f"{self.text[1:]}.{field_name(name)}"
        return f"{self.within(CALL)}->{field_name(name)}"


class NeededCode(Protocol):
    """Collects the code that a function needs beside its own."""

    def function(self, function: Callable[..., Any], of: type | None) -> str:
        """Return the name in C of a function, or of the method of a class, and ask for its code."""

    def constant(self, name: str, value: Any, module: str) -> str:
        """Return the name in C of a constant of a module, and ask for its definition."""

    def word(self, word: str) -> str:
        """Return the name in C of a word of a `Literal` type."""

    def struct(self, of: type) -> None:
        """Ask for the definition of the struct of a class."""


def signature_of(function: FunctionType, of: type | None) -> tuple[dict[str, Kind], Kind]:
    """Return the kinds of a function's parameters, `self` among them, and of its result.

    Raises:
        TypeError: A parameter or the result has no type, or one that the subset lacks.
    """
    hints = get_type_hints(function)
    parameters = {}
    for name in inspect.signature(function).parameters:
        if name == "self" and of is not None:
            is_tuple = hasattr(of, "_fields")
            parameters[name] = Kind("tuple" if is_tuple else "rule", of)
        else:
            parameters[name] = kind_of_hint(hints[name])
    return parameters, kind_of_hint(hints["return"]) if "return" in hints else NOTHING


def number_text(number: float) -> str:
    """Return a number as C writes it, with all of its digits."""
    if isinstance(number, bool):
        return str(int(number))
    if isinstance(number, int):
        return str(number) if abs(number) < 2**31 else f"{number}LL"
    if math.isnan(number):
        return "NAN"
    if math.isinf(number):
        return "INFINITY" if number > 0 else "-INFINITY"
    return repr(number)
