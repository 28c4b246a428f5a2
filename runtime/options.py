"""Describe settings as fields of frozen dataclasses, from which a command line makes its flags.

Each field holds the help text of its flag. `edgefold.cli.options.flags` makes the flags from the
fields; a user's program fills the dataclass itself. Nothing here reads a command line.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

OPTION = "option"
"""A field's metadata holds its `Option` under this key."""


@dataclass(frozen=True, slots=True)
class Option:
    """Describes how one field of a dataclass of settings appears as a flag on a command line.

    Attributes:
        help: The text that `--help` shows for the flag.
        metavar: The word that stands for the value in `--help`; None shows the flag's name in
            capitals, or the choices.
        choices: The values that the field may have; not needed for a field of type `Literal`.
        parse: Function that turns the flag's text into the field's value. It raises DataError with
            the reason, or ValueError. None calls the field's type with the text.
        stored: The name under which commands store the value; "" for the field's own name.
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
    """Make a dataclass field that describes its own flag; see `Option` for the arguments."""
    return field(default=default, metadata={OPTION: Option(help, metavar, choices, parse, stored)})
