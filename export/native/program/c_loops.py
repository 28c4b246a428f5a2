"""Write statements as C text: loops over as few axes as possible, the last one innermost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgefold.export.native.program.statements import (
    INDICES,
    Assignment,
    KernelCall,
    Loop,
    Statement,
    SumLoop,
)
from edgefold.export.native.program.values import Expression, Literal, Pick, Shape, View, leaves

OUTER = "h"
"""Name of the C index of a nest, which is a loop over slices."""
IN_SUMS = ("at", "first", "sum")
"""Names of C variables of sums."""
VECTORISED = 8
"""Smallest length of an inner loop that gets the hint that its iterations are independent."""


def statement_text(statement: Statement) -> list[str]:
    """Return the C lines of a statement."""
    if isinstance(statement, Loop):
        return loop_text(statement)
    if isinstance(statement, SumLoop):
        return sums_text(statement)
    if isinstance(statement, KernelCall):
        return call_text(statement)
    lines = [f"    {line}" for inner in statement.body for line in statement_text(inner)]
    return [f"for (int {OUTER} = 0; {OUTER} < {statement.n}; {OUTER}++) {{", *lines, "}"]


def call_text(call: KernelCall) -> list[str]:
    """Return the C lines of the calls of a kernel, with the loops around them."""
    indices = INDICES[: len(call.lead)]
    lines = [f"/* {call.note} */"]
    for depth, (index, n) in enumerate(zip(indices, call.lead, strict=True)):
        lines.append("    " * depth + f"for (int {index} = 0; {index} < {n}; {index}++)")
    starts = []
    for view in call.views:
        at = place_text(view, view.strides[: len(indices)], indices)
        starts.append(view.buffer.name + f" + {at}" * (at != "0"))
    return [*lines, "    " * len(indices) + call.template.format(*starts)]


def sums_text(sums: SumLoop) -> list[str]:
    """Return the C lines of sums: those of one block of neighbours after the other.

    A block is as long as a vector (`EDGEFOLD_BLOCK` in c/lanes.c). The last one begins so early
    that it is full, and may compute sums again.
    """
    views = [sums.target, *leaves(sums.expression)]
    shape, strides = _collapsed((*sums.shape, sums.n), views)
    indices = INDICES[: len(shape)]
    last, term = indices[-2], indices[-1]
    length, n = shape[-2:]
    value = expression_text(sums.expression, indices, strides, {})
    each = f"for (int {last} = first; {last} < first + EDGEFOLD_BLOCK({length}); {last}++)"
    lines = [f"/* {sums.note} */"]
    for depth, (index, turns) in enumerate(zip(indices, shape[:-2], strict=False)):
        lines.append("    " * depth + f"for (int {index} = 0; {index} < {turns}; {index}++)")
    block = [
        f"for (int at = 0; at < {length}; at += EDGEFOLD_BLOCK({length})) {{",
        f"    const int first = EDGEFOLD_FIRST(at, {length});",
        f"    float sum[EDGEFOLD_BLOCK({length})] = {{0}};",
        f"    for (int {term} = 0; {term} < {n}; {term}++)",
        "        EDGEFOLD_INDEPENDENT",
        f"        {each}",
        f"            sum[{last} - first] += {value};",
        f"    {each}",
        f"        {element(sums.target, indices, strides)} = sum[{last} - first];",
        "}",
    ]
    return lines + ["    " * (len(shape) - 2) + line for line in block]


def loop_text(loop: Loop) -> list[str]:
    """Return the C lines of a loop with all its assignments."""
    views = [v for a in loop.assignments for v in (a.target, *leaves(a.expression))]
    shape, strides = _collapsed(loop.shape, views)
    indices = INDICES[: len(shape)]
    assert len(shape) <= len(INDICES)
    lines = [f"/* {loop.note} */"]
    for depth, (index, n) in enumerate(zip(indices, shape, strict=True)):
        inner = depth == len(shape) - 1
        if inner and n >= VECTORISED:
            lines.append("    " * depth + "EDGEFOLD_INDEPENDENT")
        brace = " {" if inner and len(loop.assignments) > 1 else ""
        lines.append("    " * depth + f"for (int {index} = 0; {index} < {n}; {index}++){brace}")
    indent = "    " * len(shape)
    local: dict[View, str] = {}
    for assignment in loop.assignments:
        lines.append(indent + _assigned(assignment, indices, strides, local))
    if shape and len(loop.assignments) > 1:
        lines.append("    " * (len(shape) - 1) + "}")
    elif len(loop.assignments) > 1:
        lines = [lines[0], "{", *(f"    {line}" for line in lines[1:]), "}"]
    return lines


def _assigned(
    assignment: Assignment, indices: str, strides: Mapping[Shape, Shape], local: dict[View, str]
) -> str:
    """Return an assignment as C text; if it makes a local variable, add its name to `local`.

    `indices`, `strides` and `local` are explained in `expression_text`.
    """
    value = expression_text(assignment.expression, indices, strides, local)
    target = assignment.target
    if assignment.local:
        local[target] = target.buffer.name
        return f"const {target.buffer.c_type} {target.buffer.name} = {value};"
    return f"{element(target, indices, strides)} = {value};"


def expression_text(
    expression: Expression,
    indices: str,
    strides: Mapping[Shape, Shape],
    local: Mapping[View, str],
) -> str:
    """Return an expression as C text.

    Args:
        expression: The expression.
        indices: Names of the loop's indices, one letter for each axis.
        strides: For the strides of each view (`View.strides`), those along the loop's axes, which
            are fewer where several axes run as one loop.
        local: Names of local variables, by the view for which each stands.
    """
    if isinstance(expression, Literal):
        return expression.text
    if isinstance(expression, View):
        return local.get(expression) or element(expression, indices, strides)
    if isinstance(expression, Pick):
        terms = [place_text(expression.view, strides[expression.view.strides], indices)]
        for index, stride, n in expression.picks:
            at = expression_text(index, indices, strides, local)
            terms.append(f"edgefold_within({at}, {n}) * {stride}")
        return f"{expression.view.buffer.name}[{' + '.join(terms)}]"
    return expression.template.format(
        *(expression_text(a, indices, strides, local) for a in expression.arguments)
    )


def element(view: View, indices: str, strides: Mapping[Shape, Shape]) -> str:
    """Return the C text of a view's element at the loop's indices; see `expression_text`."""
    return f"{view.buffer.name}[{place_text(view, strides[view.strides], indices)}]"


def place_text(view: View, strides: Shape, indices: str) -> str:
    """Return the C text `offset + i * stride + ...` of a place in a buffer, without terms of 0."""
    terms = [str(view.offset)] if view.offset else []
    for index, stride in zip((OUTER, *indices), (view.outer, *strides), strict=True):
        if stride:
            terms.append(index if stride == 1 else f"{index} * {stride}")
    return " + ".join(terms) or "0"


def _collapsed(shape: Shape, views: Sequence[View]) -> tuple[Shape, dict[Shape, Shape]]:
    """Join neighbouring axes of `shape` that one loop can run over, as all views step evenly there.

    Returns:
        The shape of the joined axes; and, for the strides of each view along `shape`, its strides
        along the joined axes.
    """
    all_strides = {view.strides for view in views}
    groups: list[list[int]] = []
    for axis in range(len(shape)):
        joins = groups and all(
            strides[groups[-1][-1]] == strides[axis] * shape[axis] for strides in all_strides
        )
        if joins:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    lengths = []
    for group in groups:
        n = 1
        for axis in group:
            n *= shape[axis]
        lengths.append(n)
    shorter = {strides: tuple(strides[group[-1]] for group in groups) for strides in all_strides}
    return tuple(lengths), shorter
