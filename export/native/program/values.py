"""Describe values of a graph as expressions over strided memory, so that a chain is one loop.

A value has a shape, a type, and an expression whose leaves are views: a buffer, an offset and a
stride for each axis of the shape, in elements. A broadcast axis has stride 0. Operations that only
move elements (transposing, slicing, broadcasting, most reshapes) change the views and compute
nothing; operations on single elements join expressions. A value is written to memory only when it
is kept, see `edgefold.export.native.program.statements`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from edgefold.export.native.program.c_words import C_TYPES

Shape = tuple[int, ...]


@dataclass(eq=False, slots=True)
class Buffer:
    """Describes memory for the elements of one tensor.

    Attributes:
        name: Name of the memory in C.
        dtype: numpy's name of the element type.
        size: Number of elements.
        place: Kind of memory: "argument" (a parameter of the function), "constant" (data) or
            "arena" (memory for intermediate values).
    """

    name: str
    dtype: str
    size: int
    place: str

    @property
    def c_type(self) -> str:
        return C_TYPES[self.dtype]


@dataclass(frozen=True, slots=True)
class View:
    """Describes where elements lie in a buffer: at `offset + sum(index * stride)`.

    Attributes:
        buffer: The memory.
        offset: Place of the first element, counted in elements.
        strides: Distance between neighbours along each axis, in elements.
        outer: Stride of a loop around the whole statement; see
            `edgefold.export.native.program.head_loops`.
    """

    buffer: Buffer
    offset: int
    strides: Shape
    outer: int = 0


@dataclass(frozen=True, slots=True)
class Literal:
    """Holds a number as C text."""

    text: str
    cost: int = 0


@dataclass(frozen=True, slots=True)
class Apply:
    """Holds an operation on expressions.

    Attributes:
        template: C text in which `{k}` stands for argument k.
        arguments: The expressions that the operation reads.
        cost: Cost of the operation and of those in its arguments, counted in additions.
        size: Number of nodes of the whole expression.
    """

    template: str
    arguments: tuple[Expression, ...]
    cost: int
    size: int = field(default=1)


@dataclass(frozen=True, slots=True)
class Pick:
    """Describes an element whose place is only known when the code runs.

    Attributes:
        view: The place of the element if every picked index were 0.
        picks: For each picked axis: the index, the axis's stride and its length. An index beyond
            the axis reads its first or last element, so that numbers of a damaged snapshot cannot
            reach outside.
        cost: Cost of the pick, counted in additions.
    """

    view: View
    picks: tuple[tuple[Expression, int, int], ...]
    cost: int = 4


Expression = View | Literal | Apply | Pick


def apply(template: str, cost: int, *arguments: Expression) -> Apply:
    """Return an operation on expressions; its cost is `cost` and the cost of its arguments.

    `template` is C text in which `{k}` stands for argument k.
    """
    cost += sum(a.cost for a in arguments if not isinstance(a, View))
    size = 1 + sum(a.size if isinstance(a, Apply) else 2 for a in arguments)
    return Apply(template, arguments, cost, size)


ANYWHERE = -1
"""Offset that `leaves` gives to a view of which any place may be read."""


def leaves(expression: Expression) -> Iterator[View]:
    """Yield all views that an expression reads."""
    if isinstance(expression, View):
        yield expression
    elif isinstance(expression, Pick):
        yield replace(expression.view, offset=ANYWHERE)
        for index, _, _ in expression.picks:
            yield from leaves(index)
    elif isinstance(expression, Apply):
        for argument in expression.arguments:
            yield from leaves(argument)


def mapped(expression: Expression, change: Callable[[View], View]) -> Expression:
    """Return the expression after `change` is applied to every view in it."""
    if isinstance(expression, View):
        return change(expression)
    if isinstance(expression, Pick):
        picks = tuple((mapped(index, change), s, n) for index, s, n in expression.picks)
        return replace(expression, view=change(expression.view), picks=picks)
    if isinstance(expression, Literal):
        return expression
    arguments = tuple(mapped(argument, change) for argument in expression.arguments)
    return replace(expression, arguments=arguments)


@dataclass(frozen=True, slots=True)
class Value:
    """Describes a tensor of a graph; each view in its expression has a stride for each axis."""

    shape: Shape
    dtype: str
    expression: Expression

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    @property
    def view(self) -> View | None:
        """Return the place of the value if it lies in memory, or None if it must be computed."""
        return self.expression if isinstance(self.expression, View) else None

    @property
    def in_rows(self) -> bool:
        """Return whether the value lies in memory, neighbours of its last axis side by side."""
        return self.view is not None and self.view.strides[-1] == (self.shape[-1] != 1)

    @property
    def is_row_major(self) -> bool:
        """Return whether the value lies in memory, row after row without gaps."""
        return self.view is not None and self.view.strides == row_major(self.shape)

    @property
    def cost(self) -> int:
        """Return the cost of computing one element, counted in additions."""
        return 0 if isinstance(self.expression, View) else self.expression.cost

    def moved(self, shape: Shape, change: Callable[[View], View]) -> Value:
        """Return a value of another shape, after `change` is applied to every view."""
        return replace(self, shape=shape, expression=mapped(self.expression, change))

    def transposed(self, axes: Sequence[int]) -> Value:
        """Return the value with its axes in another order: axis k is axis `axes[k]` of this one."""
        shape = tuple(self.shape[axis] for axis in axes)
        return self.moved(shape, lambda v: replace(v, strides=tuple(v.strides[a] for a in axes)))

    def broadcast(self, shape: Shape) -> Value:
        """Return the value broadcast to a shape by numpy's rules."""
        missing = len(shape) - len(self.shape)
        padded = (1,) * missing + self.shape

        def spread(view: View) -> View:
            strides = (0,) * missing + view.strides
            stretched = (0 if a == 1 else s for a, s in zip(padded, strides, strict=True))
            return replace(view, strides=tuple(stretched))

        return self.moved(shape, spread)

    def sliced(self, axis: int, start: int, step: int, n: int) -> Value:
        """Return n elements of an axis from `start` on, every `step`-th; a step may be negative."""

        def cut(view: View) -> View:
            strides = list(view.strides)
            offset = view.offset + start * strides[axis]
            strides[axis] *= step * (n != 1)
            return View(view.buffer, offset, tuple(strides))

        shape = (*self.shape[:axis], n, *self.shape[axis + 1 :])
        return self.moved(shape, cut)

    def reshaped(self, shape: Shape) -> Value | None:
        """Return the value in another shape of as many elements; None where that needs a copy."""
        strides_by_view: dict[Shape, Shape] = {}
        for view in leaves(self.expression):
            strides = reshaped_strides(self.shape, view.strides, shape)
            if strides is None:
                return None
            strides_by_view[view.strides] = strides
        return self.moved(shape, lambda v: replace(v, strides=strides_by_view[v.strides]))


def row_major(shape: Shape) -> Shape:
    """Return the strides of elements that lie one after the other, the last axis innermost.

    The stride of an axis of length 1 is 0 here and everywhere, so that equal views compare equal.
    """
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step * (n != 1))
        step *= n
    return tuple(reversed(strides))


def reshaped_strides(shape: Shape, strides: Shape, wanted: Shape) -> Shape | None:
    """Return strides for shape `wanted` that read the same elements in order; None if none do."""
    if 0 in shape:
        return (0,) * len(wanted)
    axes = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    runs: list[list[int]] = []  # [elements, innermost stride] of axes that lie as one
    for n, stride in axes:
        if runs and runs[-1][1] == n * stride:
            runs[-1] = [runs[-1][0] * n, stride]
        else:
            runs.append([n, stride])
    result: list[int] = []
    for n in reversed(wanted):
        if n == 1:
            result.append(0)
            continue
        if not runs or runs[-1][0] % n:
            return None
        left, stride = runs.pop()
        result.append(stride)
        if left > n:
            runs.append([left // n, stride * n])
    return tuple(reversed(result))
