"""Print docs/api.md: the public names of each package, their signatures and what they are.

    python scripts/api_page.py > docs/api.md

A test compares the file with what this prints, so that it is always that of the docstrings.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import GenericAlias, ModuleType
from typing import Any

WIDTH = 100
HEAD = """\
# The public names

What a program may rely on: the names below, imported from these five packages, as in
`from edgefold.runtime import Stream`. Everything else may move between versions. The docstrings in
the code say more: shapes, units, who owns a buffer, what is raised. `make docs` writes this page.
"""
NEEDS = {
    "runtime": "on a board, with the base install",
    "devices": "on a board, with the base install",
    "train": "where models are trained, with the `train` extra",
    "fleets": "where tables are, with the `parquet` extra",
    "export": "where bundles are written, with the `train` extra",
}


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for name, needs in NEEDS.items():
        package = import_module(f"edgefold.{name}")
        text = textwrap.fill(f"{sentence(package)} For use {needs}.", WIDTH)
        entries = [entry(public, package) for public in sorted(package.__all__, key=order(package))]
        parts.append(f"## edgefold.{name}\n\n{text}\n\n{''.join(entries)}")
    return "\n".join(parts)


def order(package: ModuleType) -> Callable[[str], bool]:
    """Errors stand behind everything else."""

    def is_error(name: str) -> bool:
        value = getattr(package, name)
        return inspect.isclass(value) and issubclass(value, Exception)

    return is_error


def entry(name: str, package: ModuleType) -> str:
    """A name with its signature and first sentence; a class with its public methods."""
    value = getattr(package, name)
    if isinstance(value, GenericAlias):
        return item(name, f"`{value}`, tensors by name.")
    if not inspect.isclass(value):
        return item(f"{name}{signature(value)}", sentence(value))
    lines = [item(f"{name}{'' if is_abstract(value) else signature(value)}", sentence(value))]
    for method, found in members(value, package).items():
        function = found.__func__ if isinstance(found, classmethod | staticmethod) else found
        if method.startswith("_") or not function.__doc__:
            continue
        if inspect.isfunction(function):
            lines.append(item(f".{method}{signature(function)}", sentence(function), "  "))
        elif isinstance(function, property):
            lines.append(item(f".{method}", sentence(function), "  "))
    return "".join(lines)


def members(cls: type[Any], package: ModuleType) -> dict[str, Any]:
    """What a class defines, and what it has from a base in its package that is not public."""
    found = dict(vars(cls))
    for base in cls.__bases__:
        if base.__module__.startswith(package.__name__) and base.__name__ not in package.__all__:
            found |= members(base, package)
    return found


def is_abstract(cls: type[Any]) -> bool:
    """Whether a class is derived from or caught, and not made by its users."""
    return issubclass(cls, Exception) or "Use `" in (cls.__init__.__doc__ or "")


def signature(function: Any) -> str:
    """Names and defaults of the arguments."""
    parameters = inspect.signature(function).parameters.values()
    shown = []
    for parameter in parameters:
        if parameter.name in ("self", "cls"):
            continue
        default = parameter.default
        if default is inspect.Parameter.empty:
            shown.append(parameter.name)
        elif inspect.isfunction(default) or "factory" in repr(default):
            shown.append(f"{parameter.name}=...")
        else:
            value = str(default) if isinstance(default, Path) else default
            shown.append(f"{parameter.name}={value!r}")
    return f"({', '.join(shown)})"


def sentence(value: Any) -> str:
    """The first sentence of a docstring, in one line."""
    first = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
    return first if first.endswith(".") or not first else f"{first.partition('. ')[0].rstrip(':')}."


def item(code: str, text: str, indent: str = "") -> str:
    """A list's entry, wrapped."""
    return (
        textwrap.fill(
            f"`{code}`: {text}",
            WIDTH,
            initial_indent=f"{indent}- ",
            subsequent_indent=f"{indent}  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        + "\n"
    )


if __name__ == "__main__":
    print(page(), end="")
