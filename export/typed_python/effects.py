"""Find out whether a function of rules changes fields, so that the order of its calls matters."""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from types import FunctionType


@cache
def changes_fields(function: FunctionType) -> bool:
    """Return whether a function may assign to a field, itself or by a function that it calls.

    A method that is called is taken for any method of its name in the function's own module.
    """
    return _changes(function, frozenset())


def _changes(function: FunctionType, before: frozenset[FunctionType]) -> bool:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            return True
        if isinstance(node, ast.Call):
            for called in _called(node, function):
                if called not in before and _changes(called, before | {called, function}):
                    return True
    return False


def _called(node: ast.Call, function: FunctionType) -> list[FunctionType]:
    """Return the functions that a call may mean: of the module, or methods of classes in it."""
    scope = function.__globals__
    if isinstance(node.func, ast.Name):
        found = [scope.get(node.func.id)]
    elif isinstance(node.func, ast.Attribute):
        classes = [value for value in scope.values() if isinstance(value, type)]
        found = [inspect.getattr_static(of, node.func.attr, None) for of in classes]
    else:
        found = []
    return [one for one in found if isinstance(one, FunctionType)]
