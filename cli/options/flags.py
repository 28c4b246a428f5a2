"""Turn a dataclass of options into flags, and a parsed command line into that dataclass.

    @dataclass                                   --season SEASON   season in days ...
    class Options:                         <──>
        season: float | None = option(...)       Options(season=7.0)

A field whose type is a dataclass stands for all flags of it. A field without an `option` has no
flag; it takes what the command stores under its name.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from edgefold.runtime.errors import DataError
from edgefold.runtime.options import OPTION, Option

if TYPE_CHECKING:
    from edgefold.train.tasks.contract import Task

NO_HELP: Mapping[str, str] = {}


def add_flags(
    parser: argparse._ActionsContainer, options: type, helps: Mapping[str, str] = NO_HELP
) -> argparse._ActionsContainer:
    """Declare the flags of a dataclass of options, in the order of its fields.

    Args:
        parser: Receives the flags, in a group if the dataclass has a `title` for it.
        options: The dataclass.
        helps: Texts of `--help` that replace those of the fields, by the name of the field.

    Returns:
        The group, or the parser where there is no group.
    """
    title = getattr(options, "title", "")
    group = parser.add_argument_group(title) if title else parser
    types = get_type_hints(options)
    for field in fields(options):
        if is_dataclass(types[field.name]):
            add_flags(group, types[field.name], helps)
        elif OPTION in field.metadata:
            option = field.metadata[OPTION]
            words: dict[str, Any] = {"dest": option.stored or field.name, "default": field.default}
            words["help"] = helps.get(field.name, option.help).replace("%", "%%")
            reads: dict[str, Any] = {"action": "store_true"}
            if (type := _plain(types[field.name])) is not bool:
                reads = _reads(type, option)
            group.add_argument(f"--{field.name.replace('_', '-')}", **words, **reads)
    return group


def _plain(hint: Any) -> Any:
    """Return the type of a field without its None."""
    if get_origin(hint) not in (UnionType, Union):
        return hint
    return next(part for part in get_args(hint) if part is not type(None))


def _reads(type: Any, option: Option) -> dict[str, Any]:
    """Return the keywords of `add_argument` for a field: metavar, choices, and type if not str."""
    words: dict[str, Any] = {"metavar": option.metavar, "choices": option.choices}
    if get_origin(type) is Literal:
        return {**words, "choices": get_args(type)}
    if option.parse is not None:
        words["type"] = _reported(option.parse)
    elif type is not str:
        words["type"] = type
    return words


def _reported(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a reader that makes argparse print the reason of a DataError of `parse`."""

    @wraps(parse)
    def reported(text: str) -> Any:
        try:
            return parse(text)
        except DataError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return reported


def options_of(options: type, args: argparse.Namespace) -> Any:
    """Return the dataclass with the command line's values; other fields keep their defaults."""
    types, stored, values = get_type_hints(options), vars(args), {}
    for field in fields(options):
        option = field.metadata.get(OPTION)
        name = (option and option.stored) or field.name
        if is_dataclass(types[field.name]):
            values[field.name] = options_of(types[field.name], args)
        elif name in stored:
            values[field.name] = stored[name]
    return options(**values)


def stored_names(options: type) -> list[str]:
    """Return the names under which a command stores the flags of a dataclass of options."""
    types, names = get_type_hints(options), list[str]()
    for field in fields(options):
        if is_dataclass(types[field.name]):
            names += stored_names(types[field.name])
        elif OPTION in field.metadata:
            names.append(field.metadata[OPTION].stored or field.name)
    return names


def task_options(task: type[Task], args: argparse.Namespace) -> Any:
    """Return a task's options; `args` for a task that declares its flags by itself."""
    return args if task.option_class is None else options_of(task.option_class, args)
