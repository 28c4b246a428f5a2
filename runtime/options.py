"""Settings that a person chooses, as fields of frozen dataclasses: how a command line names them.

A field holds what a flag's help says; `edgefold.cli.options.flags` makes flags of fields, and a
program of one's own fills the dataclass itself. Nothing here reads a command line.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

OPTION = "option"
"""The key of an `Option` in a field's metadata."""


@dataclass(frozen=True, slots=True)
class Option:
    """How a field is named and explained on a command line.

    Attributes:
        help: What `--help` says of it.
        metavar: What stands for its value there; by default its name in capitals, or its choices.
        choices: The values that it may have; those of a `Literal` are known without it.
        parse: Reads a text; raises DataError with the reason, or ValueError. By default the field's
            type reads it.
        stored: The name under which commands store it, where others use the field's own name.
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
    """A field of a dataclass of options, with its flag; see `Option`."""
    return field(default=default, metadata={OPTION: Option(help, metavar, choices, parse, stored)})
