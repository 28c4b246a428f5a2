"""Define the statements of one C function, and simplify them before they become text.

A statement is a loop over the elements of a shape, with one assignment or more; or sums of an
expression; or a call of a kernel: a fixed C function. Values stay expressions until something needs
them in memory; `Program.keep` then writes them. Afterwards loops over the same elements are joined,
and memory that only one loop uses becomes a local variable, so that a chain of operations passes
over memory once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from edgefold.export.native.program.values import (
    Buffer,
    Expression,
    Literal,
    Shape,
    Value,
    View,
    leaves,
    mapped,
    row_major,
)

INDICES = "ijklmnpqrstuvw"
"""Names of a loop's indices. No value has more axes than these that are longer than 1."""
SHORT = 1024
"""Number of elements below which a loop takes little longer than to begin it."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Assigns the value of an expression to an element of memory.

    Attributes:
        target: Place of the element.
        expression: The expression.
        note: Name of the value in the graph.
        local: Whether a local variable with the buffer's name is assigned instead of memory.
    """

    target: View
    expression: Expression
    note: str
    local: bool = False


@dataclass(slots=True)
class Loop:
    """Runs assignments, in order, for every element of a shape; no element depends on another."""

    shape: Shape
    assignments: list[Assignment]

    @property
    def note(self) -> str:
        """Return the names of the values that the loop computes."""
        return ", ".join(dict.fromkeys(assignment.note for assignment in self.assignments))

    @property
    def reads(self) -> set[Buffer]:
        return {v.buffer for a in self.assignments for v in leaves(a.expression)}

    @property
    def writes(self) -> set[Buffer]:
        return {a.target.buffer for a in self.assignments}


@dataclass(slots=True)
class SumLoop:
    """Adds up n values of an expression for every element of a shape.

    The expression is never written to memory. Neighbours along the shape's last axis are computed
    side by side.

    Attributes:
        note: Name of the result in the graph.
        shape: Lengths of the result's axes; none is 1, and there is at least one.
        n: Number of values in each sum.
        target: Place of a result; it has a stride of 0 for the axis along which values are added.
        expression: The expression; its views have the axes of `shape` and then that of the values.
    """

    note: str
    shape: Shape
    n: int
    target: View
    expression: Expression

    @property
    def reads(self) -> set[Buffer]:
        return {view.buffer for view in leaves(self.expression)}

    @property
    def writes(self) -> set[Buffer]:
        return {self.target.buffer}


@dataclass(slots=True)
class KernelCall:
    """Calls a kernel for each row, or each matrix, of some values.

    Attributes:
        note: Name of the result in the graph.
        lead: Lengths of the axes over which the calls go; none is 1.
        views: Views of the values. The axes of lead come first; the kernel passes along the others.
        shapes: Lengths of the axes along which the kernel passes, for each view.
        template: C text of a call; `{k}` stands for the address where the kernel finds value k.
        written: Numbers k of the values that the kernel writes.
    """

    note: str
    lead: Shape
    views: list[View]
    shapes: list[Shape]
    template: str
    written: frozenset[int]

    @property
    def reads(self) -> set[Buffer]:
        return {v.buffer for k, v in enumerate(self.views) if k not in self.written}

    @property
    def writes(self) -> set[Buffer]:
        return {self.views[k].buffer for k in self.written}


@dataclass(slots=True)
class Nest:
    """Runs statements one after the other for each slice of an axis that all of them have.

    Attributes:
        n: Number of slices.
        body: The statements without that axis; `View.outer` is the stride of this axis.
    """

    n: int
    body: list[Loop | SumLoop | KernelCall]

    @property
    def note(self) -> str:
        """Return the names of the values that the statements compute."""
        return ", ".join(statement.note for statement in self.body)

    @property
    def reads(self) -> set[Buffer]:
        return set[Buffer]().union(*(s.reads for s in self.body))

    @property
    def writes(self) -> set[Buffer]:
        return set[Buffer]().union(*(s.writes for s in self.body))


Statement = Loop | SumLoop | KernelCall | Nest


@dataclass(slots=True)
class Program:
    """Holds the statements of a C function and the buffers that they use.

    Attributes:
        statements: The statements in order.
        arena: All buffers in the arena, which is the function's memory for intermediate values.
    """

    statements: list[Statement] = field(default_factory=list)
    arena: list[Buffer] = field(default_factory=list)
    _names: dict[str, int] = field(default_factory=dict)

    def fresh(self, name: str, shape: Shape, dtype: str) -> Value:
        """Return new memory in the arena, in row-major order, under a name like `name`."""
        text, count = name, self._names.get(name, 1)
        while text in self._names:
            count += 1
            text = f"{name}_{count}"
        self._names |= {name: count, text: 1}
        buffer = Buffer(text, dtype, Value(shape, dtype, Literal("0")).size, "arena")
        self.arena.append(buffer)
        return Value(shape, dtype, View(buffer, 0, row_major(shape)))

    def reserve(self, name: str) -> None:
        """Exclude a name from those that buffers of the arena may get."""
        self._names[name] = 1

    def keep(self, value: Value, name: str, into: Value | None = None) -> Value:
        """Write a value to new memory, or to `into`, and return it as a value in that memory."""
        into = into or self.fresh(name, value.shape, value.dtype)
        assert into.view is not None
        axes = _turned_axes(value, into)
        if axes:
            self._transpose(value, name, into, *axes)
        elif value.size:
            assignment = Assignment(into.view, value.expression, name)
            self.statements.append(_plain(value.shape, assignment))
        return into

    def _transpose(self, value: Value, name: str, into: Value, row: int, column: int) -> None:
        """Append calls of the kernel that turns rows into columns.

        Neighbours along axis `column` lie side by side in `value`, those along axis `row` in
        `into`.
        """
        lead = [axis for axis in range(len(value.shape)) if axis not in (row, column)]
        left, right = value.transposed((*lead, row, column)), into.transposed((*lead, column, row))
        assert left.view is not None and right.view is not None
        call = (
            f"edgefold_transpose({left.shape[-2]}, {left.shape[-1]}, {{0}}, "
            f"{left.view.strides[-2]}, {{1}}, {right.view.strides[-2]});"
        )
        self.rows(name, left.shape[:-2], [left, right], call, [right])

    def in_memory(self, value: Value, name: str) -> Value:
        """Return the value itself if it lies in memory, else a copy that does."""
        return value if value.view else self.keep(value, name)

    def contiguous(self, value: Value, name: str) -> Value:
        """Return the value in memory, in row-major order without gaps; by a copy if needed."""
        return value if value.is_row_major else self.keep(value, name)

    def sums(self, value: Value, name: str, into: Value) -> None:
        """Write the sums along the last axis of a value to `into`, which has the other axes."""
        assert into.view is not None
        axes = _long_axes(into.shape)

        def without(view: View) -> View:
            return replace(view, strides=tuple(view.strides[axis] for axis in (*axes, -1)))

        target = without(replace(into.view, strides=(*into.view.strides, 0)))
        shape, expression = tuple(into.shape[a] for a in axes), mapped(value.expression, without)
        self.statements.append(SumLoop(name, shape, value.shape[-1], target, expression))

    def rows(
        self, note: str, lead: Shape, values: Sequence[Value], call: str, writes: Sequence[Value]
    ) -> None:
        """Append calls of a kernel for each row, or each matrix, of some values.

        Args:
            note: Name of the result in the graph.
            lead: Lengths of the axes over which the calls go.
            values: Values in memory; each has the axes of lead in front, or none of them.
            call: C text of a call; `{k}` stands for the address of the row of value k.
            writes: Values, of those in `values`, that the kernel writes; it may read all.
        """
        axes = _long_axes(lead)
        views, shapes = [], []
        for value in values:
            view = value.view
            assert view is not None
            moves = value.shape[: len(lead)] == lead
            assert moves or set(value.shape[:-1]) <= {1}  # one row, which all calls share
            first = len(lead) if moves else 0
            front = tuple(view.strides[axis] if moves else 0 for axis in axes)
            views.append(View(view.buffer, view.offset, front + view.strides[first:]))
            shapes.append(value.shape[first:])
        written = frozenset(k for k, v in enumerate(values) if any(v is w for w in writes))
        turns = tuple(lead[axis] for axis in axes)
        self.statements.append(KernelCall(note, turns, views, shapes, call, written))


def _turned_axes(value: Value, into: Value) -> tuple[int, int] | None:
    """Return the axes whose neighbours lie side by side in `into` and in `value`, if they differ.

    None is returned, too, where an axis is shorter than 4, or the value must be computed.
    """
    if value.view is None or into.view is None or value.dtype != "float32":
        return None
    pairs = [
        (row, column)
        for row, to in enumerate(into.view.strides)
        for column, of in enumerate(value.view.strides)
        if to == of == 1 and row != column and min(value.shape[row], value.shape[column]) >= 4
    ]
    return pairs[0] if pairs and value.view.strides[pairs[0][0]] > 1 else None


def _long_axes(shape: Shape) -> list[int]:
    axes = [axis for axis, n in enumerate(shape) if n != 1]
    assert len(axes) <= len(INDICES), f"{len(axes)} axes"
    return axes


def _plain(shape: Shape, assignment: Assignment) -> Loop:
    """Return a loop over a shape for one assignment, without the axes of length 1."""
    axes = _long_axes(shape)

    def without(view: View) -> View:
        return View(view.buffer, view.offset, tuple(view.strides[axis] for axis in axes))

    flat = Assignment(
        without(assignment.target), mapped(assignment.expression, without), assignment.note
    )
    return Loop(tuple(shape[axis] for axis in axes), [flat])


def needed_only(statements: Sequence[Statement]) -> list[Statement]:
    """Return the statements without those that write only memory of the arena that nobody reads.

    A buffer counts as read if a later statement reads it, so that a chain of such statements goes
    as a whole. A kernel that reads what it writes is needed where its result is.
    """
    kept: list[Statement] = []
    read: set[Buffer] = set()
    for statement in reversed(statements):
        if any(b.place != "arena" or b in read for b in statement.writes):
            kept.append(statement)
            read |= statement.reads
            if isinstance(statement, KernelCall):
                read |= statement.writes  # a kernel may add to what is there
    return kept[::-1]


def joined(statements: Sequence[Statement]) -> list[Statement]:
    """Join each loop with the closest earlier loop over the same elements that it may join.

    A loop may join an earlier one if no statement between the two touches its data: none writes a
    buffer that the loop reads, and none uses a buffer that the loop writes. In addition, both loops
    must use only the same element, at a time, of each buffer that one of them writes.
    """
    done: list[Statement] = []
    for statement in statements:
        home = _home(statement, done) if isinstance(statement, Loop) else None
        if home is not None and isinstance(statement, Loop):
            home.assignments.extend(statement.assignments)
        elif isinstance(statement, Loop):
            done.append(Loop(statement.shape, list(statement.assignments)))
        else:
            done.append(statement)
    return done


def _home(loop: Loop, done: Sequence[Statement]) -> Loop | None:
    reads, writes = loop.reads, loop.writes
    for earlier in reversed(done):
        if isinstance(earlier, Loop) and earlier.shape == loop.shape and _agree(earlier, loop):
            return earlier if _worth_joining(earlier, loop) else None
        touched = earlier.reads | earlier.writes
        if earlier.writes & reads or touched & writes:
            return None
    return None


def _worth_joining(first: Loop, second: Loop) -> bool:
    """Return whether two loops are short, or use an element in common.

    If not, to join them saves nothing, and the result of the second would need its memory earlier.
    """
    one, two = (
        {v for a in loop.assignments for v in (a.target, *leaves(a.expression))}
        for loop in (first, second)
    )
    return math.prod(first.shape) < SHORT or not one.isdisjoint(two)


def _agree(first: Loop, second: Loop) -> bool:
    """Return whether, at each index, two loops use the same element of a buffer that one writes."""
    one = (
        [a.target for a in first.assignments],
        [v for a in first.assignments for v in leaves(a.expression)],
    )
    two = (
        [a.target for a in second.assignments],
        [v for a in second.assignments for v in leaves(a.expression)],
    )
    pairs = [(a, b) for a in one[0] for b in two[0] + two[1]]
    pairs += [(a, b) for a in one[1] for b in two[0]]
    return all(a == b for a, b in pairs if a.buffer is b.buffer)


def with_locals(statements: Sequence[Statement]) -> list[Statement]:
    """Make a local variable of each buffer of the arena that only one loop writes and reads."""
    users: dict[Buffer, list[Statement]] = {}
    for statement in statements:
        for buffer in statement.reads | statement.writes:
            users.setdefault(buffer, []).append(statement)
    for statement in statements:
        if not isinstance(statement, Loop):
            continue
        for at, a in enumerate(statement.assignments):
            buffer = a.target.buffer
            private = buffer.place == "arena" and len(users[buffer]) == 1
            twice = sum(b.target.buffer is buffer for b in statement.assignments) > 1
            if private and not twice:
                statement.assignments[at] = Assignment(a.target, a.expression, a.note, local=True)
    return list(statements)
