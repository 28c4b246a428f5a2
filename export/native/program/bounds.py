"""Prove that no statement reads or writes outside of its buffers, before it becomes C."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edgefold.export.native.program.statements import KernelCall, Loop, Nest, Statement, SumLoop
from edgefold.export.native.program.values import Apply, Expression, Pick, Shape, View

Place = tuple[View, Shape, Shape]
"""A view, the lengths of the axes along which it is used, and the strides of these axes."""


def outside(statements: Sequence[Statement]) -> str:
    """Return words that name the first statement that leaves a buffer; "" if none does.

    Kernels are fixed C functions that pass along the lengths that `KernelCall.shapes` states.
    """
    for statement in statements:
        assert not isinstance(statement, Nest)  # nests are made of proved statements
        for view, shape, strides in _places(statement):
            if 0 in shape:
                continue
            reach = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
            low = view.offset + sum(r for r in reach if r < 0)
            high = view.offset + sum(r for r in reach if r > 0)
            if low < 0 or high >= view.buffer.size:
                buffer = view.buffer
                return f"{buffer.name} has {buffer.size} elements, and {low} to {high} are used"
    return ""


def _places(statement: Loop | SumLoop | KernelCall) -> Iterator[Place]:
    if isinstance(statement, KernelCall):
        for view, shape in zip(statement.views, statement.shapes, strict=True):
            yield view, statement.lead + shape, view.strides
        return
    if isinstance(statement, SumLoop):
        shape = (*statement.shape, statement.n)
        yield statement.target, shape, statement.target.strides
        yield from _read(statement.expression, shape)
        return
    for assignment in statement.assignments:
        yield assignment.target, statement.shape, assignment.target.strides
        yield from _read(assignment.expression, statement.shape)


def _read(expression: Expression, shape: Shape) -> Iterator[Place]:
    if isinstance(expression, View):
        yield expression, shape, expression.strides
    elif isinstance(expression, Apply):
        for argument in expression.arguments:
            yield from _read(argument, shape)
    elif isinstance(expression, Pick):
        view = expression.view
        lengths = tuple(n for _, _, n in expression.picks)
        steps = tuple(stride for _, stride, _ in expression.picks)
        yield view, shape + lengths, view.strides + steps
        for index, _, _ in expression.picks:
            yield from _read(index, shape)
