"""Tell which tests are quick: those that start no process, export nothing and compile nothing."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import Any

SLOW_NAMES = frozenset(
    (
        *("subprocess", "Popen", "fork", "killed_chains", "interrupt_everywhere", "interruptions"),
        *("export_bundle", "exported", "lower", "torch_export", "verify", "fit"),
        *("compile_library", "compiler_or_skip", "find_compiler", "compiled", "build"),
        "find_sshd",
    )
)
"""Names that a function uses when it starts a process, exports or compiles."""
SHARED = frozenset({"bundles"})
"""Fixtures whose work is done once for all tests."""


def names_used(function: Any, known: set[Any] | None = None) -> Iterator[str]:
    """Names that a function uses, and those that functions of its module use which it calls."""
    known = set() if known is None else known
    if function.__code__ in known:
        return
    known.add(function.__code__)
    names = set(function.__code__.co_names)
    for constant in function.__code__.co_consts:  # functions within
        names.update(getattr(constant, "co_names", ()))
    for name in names:
        yield name
        other = function.__globals__.get(name)
        other = getattr(other, "__wrapped__", other)
        if isinstance(other, FunctionType) and other.__module__ == function.__module__:
            yield from names_used(other, known)


def is_quick(function: Any, fixtures: dict[str, Any]) -> bool:
    """Whether neither a test nor one of its fixtures, by name, uses one of `SLOW_NAMES`."""
    functions = [function, *(made for name, made in fixtures.items() if name not in SHARED)]
    return not any(
        name in SLOW_NAMES for each in functions for name in (each.__name__, *names_used(each))
    )
