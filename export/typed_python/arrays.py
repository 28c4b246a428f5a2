"""Make loops of C of statements about slices of arrays, as numpy has them.

    a[:n] = b[k : k + n] - phi * a[:n]     ->  for (i < n) a[i] = b[k + i] - phi * a[i]
    total = float(np.sum(a[:n] * b[:n]))   ->  for (i < n) sum += a[i] * b[i]

A loop goes upwards. An array that is written may be read at the same place and at later ones.
"""

from __future__ import annotations

import ast
from typing import Any

from edgefold.export.typed_python.errors import refused
from edgefold.export.typed_python.expressions import Expressions
from edgefold.export.typed_python.kinds import ARRAYS, FLOAT, INT
from edgefold.export.typed_python.values import COMPARISONS, OPERATORS, Expression

ELEMENTWISE = {
    "minimum": "edgefold_real_least", "maximum": "edgefold_real_most",
    "abs": "edgefold_real_abs", "sqrt": "edgefold_real_sqrt", "rint": "edgefold_real_rint",
    "isnan": "isnan",
}  # fmt: skip
"""Maps functions of numpy to those of C."""


class ArrayLoops:
    """Makes the loops of one function."""

    def __init__(self, expressions: Expressions):
        self._expressions = expressions
        self._n = 0

    def new_index(self) -> str:
        """Return a name for the index of a loop."""
        self._n += 1
        return f"i_{self._n}"

    def assignment(self, target: ast.Subscript, value: ast.expr) -> list[str]:
        """Return the loop that assigns to a slice of an array."""
        at = self.new_index()
        place, n = self._slice(target, at)
        item = self._item(value, at)
        of = self._expressions.value(target.value)
        return [
            f"for (int64_t {at} = 0; {at} < {n}; {at}++)",
            f"    {place} = ({of.kind.c})({item});",
        ]

    def hoisted(self, node: ast.expr) -> tuple[list[str], ast.expr]:
        """Return the loops of all sums in an expression, and the expression of their results."""
        lines: list[str] = []
        loops = self

        class Sums(ast.NodeTransformer):
            def visit_Call(self, call: ast.Call) -> ast.AST:
                if ast.unparse(call.func) != "np.sum":
                    return self.generic_visit(call)
                at, name = loops.new_index(), f"sum_{loops._n}"
                first = next(part for part in ast.walk(call) if _is_slice(part))
                assert isinstance(first, ast.Subscript)
                _, n = loops._slice(first, at)
                item = loops._item(call.args[0], at)
                loops._expressions.variables[name] = FLOAT
                lines.extend(
                    [
                        f"double {name} = 0.0;",
                        f"for (int64_t {at} = 0; {at} < {n}; {at}++)",
                        f"    {name} += {item};",
                    ]
                )
                return ast.copy_location(ast.Name(name, ast.Load()), call)

        changed: Any = Sums().visit(node)
        return lines, changed

    def _slice(self, node: ast.Subscript, at: str) -> tuple[str, str]:
        """Return the item of a slice at the loop's index, and how many items it has."""
        of, cut = self._expressions.value(node.value), node.slice
        assert isinstance(cut, ast.Slice)
        if of.kind.word not in ARRAYS or cut.upper is None:
            raise refused(node, self._expressions.function, "no slice of an array with an end")
        step = 1 if cut.step is None else int(ast.literal_eval(cut.step))
        upper = self._whole(cut.upper)
        index = at if step == 1 else f"{step} * {at}"
        if cut.lower is None or ast.unparse(cut.lower) == "0":
            n = upper.text if step == 1 else f"{upper.within(13)} / {step}"
            return f"{of.text}[{index}]", n
        lower = self._whole(cut.lower)
        if step != 1:
            raise refused(node, self._expressions.function, "a slice with a step begins at 0")
        n = f"{upper.within(12)} - {lower.within(13)}"
        return f"{of.text}[{lower.within(12)} + {index}]", n

    def _whole(self, node: ast.expr) -> Expression:
        value = self._expressions.value(node)
        if value.kind != INT:
            raise refused(node, self._expressions.function, "a slice has ints as its ends")
        return value

    def _item(self, node: ast.expr, at: str) -> str:
        """Return an expression of slices at the loop's index, as an operand."""
        expressions = self._expressions
        if _is_slice(node):
            assert isinstance(node, ast.Subscript)
            return self._slice(node, at)[0]
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            text = OPERATORS[type(node.op)][0]
            return f"({self._item(node.left, at)} {text} {self._item(node.right, at)})"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return f"-{self._item(node.operand, at)}"
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = (self._item(part, at) for part in (node.left, node.comparators[0]))
            return f"({left} {COMPARISONS[type(node.ops[0])]} {right})"
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("np."):
            items = [self._item(argument, at) for argument in node.args]
            name = ast.unparse(node.func)
            if name == "np.where":
                return f"({items[0]} ? {items[1]} : {items[2]})"
            if name == "np.arange":
                return f"(edgefold_real){at}"
            function = ELEMENTWISE.get(name[3:])
            if function is None:
                raise refused(node, expressions.function, "no such function of arrays")
            return f"{function}({', '.join(items)})"
        return f"(edgefold_real){expressions.number(node).within(14)}"


def _is_slice(node: ast.AST) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)
