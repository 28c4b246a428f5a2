"""Make one C text of rules: the structs, the constants and all functions that entries reach."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from edgefold.export.typed_python.kinds import (
    ARRAYS,
    Kind,
    field_name,
    fields_of,
    kind_of_constant,
    struct_name,
)
from edgefold.export.typed_python.statements import INDENT, FunctionWriter
from edgefold.export.typed_python.values import number_text
from edgefold.runtime.kept_numbers import KeptNumbers

WIDTH = 100
BREAKS = re.compile(r"(?<=, )|(?<= \(\()|(?= (?:&&|\|\||\?|:|\+|-|\*|/) )")
"""Places at which a long line of C may be broken: behind a comma, in front of an operator."""
C_FILES = tuple(Path(__file__).parent / "c" / name for name in ("scalars.h", "reals.h"))
"""The functions in C that stand for those of Python's numbers, lists and arrays."""


@dataclass(frozen=True, slots=True)
class RulesText:
    """Holds rules as C.

    Attributes:
        words: An enum of all words of `Literal` types.
        structs: The definitions of all structs, each after those that it holds.
        functions: Constants, declarations, and definitions of all functions.
        keeping: Functions that write and read the numbers of a snapshot.
    """

    words: str
    structs: str
    functions: str
    keeping: str


class RulesProgram:
    """Collects what entries reach; `values.NeededCode` describes the methods.

    Args:
        words: Words that get the first numbers, from 0 on.
        written: Functions that are written in C by hand, and modules all of whose functions are.
    """

    def __init__(
        self,
        words: Sequence[str] = ("",),
        written: Sequence[ModuleType | Callable[..., Any]] = (),
    ):
        self._written = {item for item in written if callable(item)}
        self._written_modules = {item.__name__ for item in written if isinstance(item, ModuleType)}
        self._words = dict.fromkeys(words)
        self._structs: dict[type, str] = {}
        self._constants: dict[str, str] = {}
        self._functions: dict[tuple[FunctionType, type | None], str] = {}
        self._waiting: list[tuple[FunctionType, type | None]] = []
        self._heads: list[str] = []
        self._definitions: list[str] = []

    def text(
        self,
        entries: Sequence[tuple[Callable[..., Any], type | None]],
        kept: Collection[type[KeptNumbers]] = (),
    ) -> RulesText:
        """Make C of functions, or of methods of classes, and of everything that they need.

        Args:
            entries: The functions; of a method, also its class.
            kept: Classes for which functions write and read the numbers of a snapshot; the classes
                of their parts must be among them.

        Raises:
            SubsetError: Code is not in the subset.
        """
        for function, of in entries:
            self.function(function, of)
        while self._waiting:
            function, of = self._waiting.pop(0)
            written = FunctionWriter(self, function, self._functions[function, of], of)
            self._heads.append(f"{written.head};")
            self._definitions.append("\n".join(written.lines))
        for of in [*self._structs]:
            if issubclass(of, KeptNumbers):
                self._write_beginning(of)
        keeping = [text for of in kept for text in _keeping(of)]
        keeping = [*(f"{text.partition(' {')[0]};" for text in keeping), "", *keeping]
        definitions = [_wrapped(text) for text in (*self._heads, "", *self._definitions)]
        words = ",\n".join(f"{INDENT}{self.word(w)} = {n}" for n, w in enumerate(self._words))
        functions = [*map(_wrapped, self._constants.values()), "", *definitions]
        return RulesText(
            f"enum edgefold_word {{\n{words}\n}};\n",
            "\n".join(self._structs.values()).rstrip() + "\n",
            "\n".join(functions) + "\n",
            "\n".join(map(_wrapped, keeping)) + "\n",
        )

    def function(self, function: Callable[..., Any], of: type | None) -> str:
        assert isinstance(function, FunctionType)
        key = (function, of)
        if key not in self._functions:
            name = function.__name__.lstrip("_")
            owner = struct_name(of) if of is not None else "edgefold"
            self._functions[key] = f"{owner}_{name}"
            is_written = function.__module__ in self._written_modules or function in self._written
            if not is_written:
                self._waiting.append(key)
        return self._functions[key]

    def constant(self, name: str, value: Any, module: str) -> str:
        kind = kind_of_constant(value)
        assert kind is not None
        c = f"{module.rpartition('.')[2].upper()}_{name.lstrip('_')}"
        if c not in self._constants:
            if kind.word == "list":
                items = ", ".join(
                    self.word(item) if kind.item.word == "word" else number_text(item)
                    for item in value
                )
                self._constants[c] = f"static const {kind.c} {c}[{kind.size}] = {{{items}}};"
            else:
                text = number_text(value)
                text = f"({text})" if text.startswith("-") else text
                self._constants[c] = f"#define {c} {text}"
        return c

    @property
    def words(self) -> tuple[str, ...]:
        """Return all words, by their numbers."""
        return tuple(self._words)

    def word(self, word: str) -> str:
        self._words.setdefault(word)
        return "EDGEFOLD_" + (re.sub(r"\W+", "_", word).upper() or "NOTHING")

    def struct(self, of: type) -> None:
        if of in self._structs:
            return
        fields = fields_of(of)
        for kind in fields.values():
            if kind.of is not None:
                self.struct(kind.of)
        names = [field_name(name) for name in fields]
        if len({*names}) != len(names):
            raise TypeError(f"{of} has two fields of one name in C")
        lines = [
            f"{INDENT}{_member(name, kind)};"
            for name, kind in zip(names, fields.values(), strict=True)
        ]
        self._structs[of] = "\n".join([f"struct {struct_name(of)} {{", *lines, "};\n"])
        if _restores(of):
            self.function(of.restored, of)  # type: ignore[attr-defined]

    def _write_beginning(self, of: type[KeptNumbers]) -> None:
        """Write the function that gives the fields of a rule their default values."""
        name = struct_name(of)
        head = f"static void {name}_begin_fields(struct {name} *self)"
        lines = []
        for field, kind in fields_of(of).items():
            place, default = f"self->{field_name(field)}", of._DEFAULTS[field]
            if kind.word == "rule":
                lines.append(f"{struct_name(kind.of)}_begin_fields(&{place});")
            elif kind.word == "list":
                lines += _filled(place, kind, default)
            elif kind.word == "word":
                lines.append(f"{place} = {self.word(default)};")
            elif kind.word == "tuple":
                items = ", ".join(
                    self.word(v) if isinstance(v, str) else number_text(v) for v in default
                )
                lines.append(f"{place} = ({kind.c}){{{items}}};")
            elif kind.word in ARRAYS:
                lines.append(f"{place} = 0;")
            else:
                lines.append(f"{place} = {number_text(default)};")
        if _restores(of):
            lines.append(f"{name}_restored(self);")
        self._heads.append(f"{head};")
        body = [f"{INDENT}{line}" for line in lines]
        self._definitions.append("\n".join([f"{head} {{", *body, "}"]))


def kept_size(of: type[KeptNumbers]) -> int:
    """Return how many numbers a snapshot keeps of a rule."""
    fields = fields_of(of)
    sizes = (
        kept_size(fields[name].of) if fields[name].word == "rule" else max(fields[name].size, 1)
        for name in of.KEPT
    )
    return sum(sizes)


def _keeping(of: type[KeptNumbers]) -> list[str]:
    """Return the functions that write and read the numbers that a snapshot keeps of a rule."""
    name, fields = struct_name(of), fields_of(of)
    numbers, take, functions = [], [], list[str]()
    for field in of.KEPT:
        kind, place = fields[field], f"self->{field_name(field)}"
        if kind.word == "rule":
            part = struct_name(kind.of)
            numbers.append(f"to = {part}_numbers(&{place}, to);")
            take.append(f"from = {part}_take(&{place}, from);")
        elif kind.word == "list":
            head = f"for (int at = 0; at < {kind.size}; at++)"
            numbers.append(f"{head} *to++ = (double){place}[at];")
            take.append(f"{head} {place}[at] = ({kind.c})*from++;")
        else:
            numbers.append(f"*to++ = (double){place};")
            truth = " != 0.0" if kind.word == "bool" else ""
            take.append(f"{place} = ({kind.c})(*from++{truth});")
    if _restores(of):
        take.append(f"{name}_restored(self);")
    both = (
        (f"double *{name}_numbers(const struct {name} *self, double *to)", numbers, "to"),
        (f"const double *{name}_take(struct {name} *self, const double *from)", take, "from"),
    )
    for head, lines, result in both:
        body = [f"{INDENT}{line}" for line in [*lines, f"return {result};"]]
        functions.append("\n".join([f"static {head} {{", *body, "}\n"]))
    return functions


def _restores(of: type) -> bool:
    """Return whether a class computes fields when the others have been restored."""
    return issubclass(of, KeptNumbers) and of.restored is not KeptNumbers.restored


def _member(name: str, kind: Kind) -> str:
    if kind.word == "list":
        return f"{kind.c} {name}[{kind.size}]"
    is_pointer = kind.word in ARRAYS
    return f"{kind.c} *{name}" if is_pointer else f"{kind.c} {name}"


def _filled(place: str, kind: Kind, default: Sequence[float]) -> list[str]:
    """Return lines that give a list its default numbers."""
    head = f"for (int at = 0; at < {kind.size}; at++)"
    first = number_text(default[0])
    if all(number_text(number) == first for number in default):
        return [head, f"{INDENT}{place}[at] = {first};"]
    return [f"{place}[{at}] = {number_text(number)};" for at, number in enumerate(default)]


def _wrapped(text: str) -> str:
    """Return C whose lines have at most `WIDTH` columns, as far as there are places to break."""
    lines = []
    for line in text.split("\n"):
        inner = " " * (len(line) - len(line.lstrip()) + 4)
        while len(line) > WIDTH:
            ends = [found.start() for found in BREAKS.finditer(line, len(inner) + 1)]
            fitting = [end for end in ends if end <= WIDTH]
            if not fitting:
                break
            lines.append(line[: fitting[-1]].rstrip())
            line = inner + line[fitting[-1] :].lstrip()
        lines.append(line)
    return "\n".join(lines)
