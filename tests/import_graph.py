"""Which module imports which, read from the files without importing them."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMESPACE = "edgefold"


def imports(node: ast.AST, for_types: bool = False) -> Iterator[str]:
    """Names of imported modules, also within functions, and on request for type checkers too."""
    if not for_types and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    for name in ("body", "orelse", "handlers", "finalbody", "cases"):  # where statements stand
        for child in getattr(node, name, ()) if not isinstance(node, ast.expr) else ():
            yield from imports(child, for_types)


@cache
def tree_of(path: Path) -> ast.Module:
    """Return a file's syntax tree, which callers only read."""
    gc.disable()  # else the collector walks over all trees that are kept, again and again
    try:
        return ast.parse(path.read_text())
    finally:
        gc.freeze()
        gc.enable()


@cache
def imported_modules(path: Path, for_types: bool = False) -> frozenset[str]:
    """Return the names of the modules that a file imports."""
    return frozenset(imports(tree_of(path), for_types))


def modules(folders: Sequence[str], namespace: str) -> dict[str, Path]:
    """Files by the name under which they are imported; a package has the name of its folder."""
    found = {}
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join((*namespace.split(), *parts)).removesuffix(".__init__")] = path
    return found


def exported_names(package: str, path: Path) -> dict[str, str]:
    """Modules of the names that a package hands on, by the names' dotted form."""
    return {
        f"{package}.{alias.asname or alias.name}": node.module
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
