"""Describe settings as fields of frozen dataclasses, from which a command line makes its flags.

A field holds the help of its flag; `edgefold.cli.options.flags` makes flags of fields, and a user's
program fills the dataclass itself. Nothing here reads a command line.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

OPTION = "option"
"""The key of an `Option` in a field's metadata."""


@dataclass(frozen=True, slots=True)
class Option:
    """The name and the explanation of a field on a command line.

    Attributes:
        help: The text of `--help`.
        metavar: The word for the value there; by default its name in capitals, or its choices.
        choices: The values that the field may have; those of a `Literal` are known without it.
        parse: Reads a text; raises DataError with the reason, or ValueError. By default the field's
            type reads the text.
        stored: The name under which commands store the value, if it is not the field's name.
    """

    help: str
    metavar: str | None = None
    choices: Collection[Any] | None = None
    parse: Callable[[str], Any] | None = None
    stored: str = ""


def option(
    help: str,
    metavar: str | None = None,
    choices: Collection[Any] | None = None,
    parse: Callable[[str], Any] | None = None,
    stored: str = "",
    default: Any = None,
) -> Any:
    """Make a field of a dataclass of options, with its flag; see `Option`."""
    return field(default=default, metadata={OPTION: Option(help, metavar, choices, parse, stored)})
