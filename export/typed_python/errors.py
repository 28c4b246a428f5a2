"""Report code that is not in the subset of Python from which C is made."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any


class SubsetError(Exception):
    """Says which line of a rule is not in the subset, and why."""


def refused(node: ast.AST, function: Callable[..., Any], why: str) -> SubsetError:
    """Return the error for a node of a function's tree, with its file and line."""
    code = function.__code__
    line = code.co_firstlineno + getattr(node, "lineno", 1) - 1
    text = ast.unparse(node) if isinstance(node, ast.AST) else ""
    return SubsetError(f"{code.co_filename}:{line}: {function.__qualname__}: {why}: {text:.120}")
