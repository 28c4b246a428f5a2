"""Run C statements for one attention head after another, or for slices of another shared axis.

    every head's scores ─> every head's softmax ─> every head's values
    becomes: for each head: its scores ─> its softmax ─> its values

Buffers that only these statements use then need the memory of one slice, and stay in the nearest
cache of the processor. A run is a list of statements that can be executed slice by slice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from edgefold.export.native.program.statements import KernelCall, Loop, Nest, Statement, SumLoop
from edgefold.export.native.program.values import ANYWHERE, Buffer, Shape, View, leaves, mapped

LEAST = 256
"""Smallest number of elements of a slice for which statements are nested."""
Span = tuple[int, int]
Inner = Loop | SumLoop | KernelCall
"""Kinds of statements that a nest may have."""


def nested(statements: Sequence[Statement]) -> list[Statement]:
    """Gather statements in nests (loops over slices) where that saves memory, and return all."""
    users = Counter(b for statement in statements for b in statement.reads | statement.writes)
    runs: list[list[Inner]] = []
    for statement in statements:
        assert not isinstance(statement, Nest)
        home = _home(statement, runs)
        if home is None:
            runs.append([statement])
        else:
            home.append(statement)
    return [part for run in runs for part in _closed(run, users)]


def _home(statement: Inner, runs: Sequence[list[Inner]]) -> list[Inner] | None:
    """Return the last run (statements that go slice by slice) that a statement may join.

    A statement must stay behind the last run on which it depends, so it joins this run or a later
    one. Return None if there is none to join.
    """
    n = _first_axis(statement)
    for run in reversed(runs):
        if n > 1 and n == _first_axis(run[0]) and _slices([*run, statement]) is not None:
            return run
        if _depends(statement, run):
            return None
    return None


def _first_axis(statement: Inner) -> int:
    if isinstance(statement, KernelCall):
        return statement.lead[0] if statement.lead else 1
    needed = 2 if isinstance(statement, SumLoop) else 1  # sums keep an axis of neighbours
    return statement.shape[0] if len(statement.shape) >= needed else 1


def _depends(statement: Inner, run: Sequence[Inner]) -> bool:
    """Return whether a statement must stay behind a run: one writes a buffer the other uses."""
    written = set[Buffer]().union(*(s.writes for s in run))
    touched = written.union(*(s.reads for s in run))
    return bool(statement.reads & written or statement.writes & touched)


def _views(statement: Inner) -> Iterator[tuple[View, Shape]]:
    """Yield the views that a statement touches, each with the lengths of its axes."""
    if isinstance(statement, KernelCall):
        for view, shape in zip(statement.views, statement.shapes, strict=True):
            yield view, statement.lead + shape
        return
    if isinstance(statement, SumLoop):
        for view in (statement.target, *leaves(statement.expression)):
            yield view, (*statement.shape, statement.n)
        return
    for a in statement.assignments:
        for view in (a.target, *leaves(a.expression)):
            yield view, statement.shape


def _slices(run: Sequence[Inner]) -> dict[Buffer, Span] | None:
    """Return the first and the last element that slice 0 uses, by buffer.

    Only buffers count that the run writes and several of its statements use. Return None where
    slices of one overlap: then the statements cannot run slice by slice.
    """
    shared = Counter(buffer for s in run for buffer in s.reads | s.writes)
    written = {b for s in run for b in s.writes if shared[b] > 1}
    spans: dict[Buffer, Span] = {}
    steps: dict[Buffer, int] = {}
    for statement in run:
        for view, shape in _views(statement):
            if view.buffer not in written:
                continue
            reach = [(n - 1) * s for n, s in zip(shape[1:], view.strides[1:], strict=True)]
            low = view.offset + sum(r for r in reach if r < 0)
            high = view.offset + sum(r for r in reach if r > 0)
            first, last = spans.get(view.buffer, (low, high))
            spans[view.buffer] = first, last = min(low, first), max(high, last)
            step = steps.setdefault(view.buffer, view.strides[0])
            if view.offset == ANYWHERE or step != view.strides[0] or last - first >= step:
                return None
    return spans


def _closed(run: list[Inner], users: Counter[Buffer]) -> list[Statement]:
    """Return statements as one loop over slices, or as they are where that saves no memory.

    `users` counts the statements that use each buffer.
    """
    inside = Counter(b for statement in run for b in statement.reads | statement.writes)
    spans = _slices(run) if len(run) > 1 else None
    private = {
        buffer: span
        for buffer, span in (spans or {}).items()
        if buffer.place == "arena" and inside[buffer] == users[buffer]
    }
    largest = max((last - first for first, last in private.values()), default=0)
    if largest < LEAST or all(isinstance(statement, Loop) for statement in run):
        return list(run)

    def cut(view: View) -> View:
        if view.buffer in private:
            return replace(
                view, offset=view.offset - private[view.buffer][0], strides=view.strides[1:]
            )
        return replace(view, outer=view.strides[0], strides=view.strides[1:])

    body: list[Inner] = []
    for statement in run:
        if isinstance(statement, KernelCall):
            views = [cut(view) for view in statement.views]
            body.append(replace(statement, lead=statement.lead[1:], views=views))
        elif isinstance(statement, SumLoop):
            target, expression = cut(statement.target), mapped(statement.expression, cut)
            shape = statement.shape[1:]
            body.append(replace(statement, shape=shape, target=target, expression=expression))
        else:
            assignments = [
                replace(a, target=cut(a.target), expression=mapped(a.expression, cut))
                for a in statement.assignments
            ]
            body.append(Loop(statement.shape[1:], assignments))
    n = _first_axis(run[0])
    for buffer, (first, last) in private.items():
        buffer.size = last - first + 1
    return [Nest(n, body)]
