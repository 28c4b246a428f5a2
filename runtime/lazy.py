"""Load a package's names when they are first used, so that a board loads nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, places: Mapping[str, str]) -> tuple[list[str], Callable[[str], Any]]:
    """Make `__all__` and `__getattr__` of a package that imports a module when a name is used.

    Args:
        package: The package's `__name__`.
        places: For each module of the package, the names to take from it, with spaces between
            them. No name may equal a module's name: importing that module would hide the name.

    Returns:
        The sorted names for `__all__`, and the function for `__getattr__` (PEP 562).
    """
    modules = {name: module for module, names in places.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return sorted(modules), load
