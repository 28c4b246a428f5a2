"""Place the buffers of a function's intermediate values in one block of memory, the arena.

A buffer is needed from the first statement that uses it to the last. Buffers that are never needed
at once may lie at the same place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgefold.export.native.program.statements import Loop, Nest, Statement
from edgefold.export.native.program.values import Buffer

ALIGNED = 64
"""Alignment of buffers in bytes: the length of a cache line and of the widest vector."""


@dataclass(frozen=True, slots=True)
class ArenaBuffer:
    """Describes a buffer with its place in the arena.

    Attributes:
        name: Name of the buffer in C.
        c_type: Type of its elements in C.
        n_bytes: Number of bytes of the arena that it takes.
        start: Its first byte in the arena.
        first, last: Numbers of the first and the last statement that use it.
    """

    name: str
    c_type: str
    n_bytes: int
    start: int
    first: int
    last: int

    @property
    def stop(self) -> int:
        """Return the byte of the arena behind the buffer."""
        return self.start + self.n_bytes

    def meets(self, first: int, last: int) -> bool:
        """Return whether the buffer is needed in one of the statements `first` to `last`."""
        return self.first <= last and first <= self.last


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    """Holds the buffers of a function in the arena.

    Attributes:
        buffers: The buffers, in the order in which the graph makes them.
        notes: Names of the values that each statement computes.
    """

    buffers: tuple[ArenaBuffer, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def n_bytes(self) -> int:
        """Return the length of the arena in bytes."""
        return max((buffer.stop for buffer in self.buffers), default=0)

    @property
    def used_bytes(self) -> list[int]:
        """Return the bytes of all buffers that are needed in each statement."""
        used = [0] * len(self.notes)
        for buffer in self.buffers:
            for statement in range(buffer.first, buffer.last + 1):
                used[statement] += buffer.n_bytes
        return used


def planned(statements: Sequence[Statement], arena: Sequence[Buffer]) -> ArenaPlan:
    """Return the places of the buffers `arena` that statements use, in an arena as short as found.

    The largest buffers are placed first, each at the lowest address that is free for as long as it
    is needed.
    """
    lives = _lives(statements)
    placed: dict[Buffer, ArenaBuffer] = {}
    order = {buffer: at for at, buffer in enumerate(arena)}
    for buffer in sorted(lives, key=lambda b: (-n_bytes(b), order[b])):
        first, last = lives[buffer]
        size, start = n_bytes(buffer), 0
        others = [other for other in placed.values() if other.meets(first, last)]
        for other in sorted(others, key=lambda other: (other.start, other.stop)):
            if start + size <= other.start:
                break
            start = max(start, other.stop)
        placed[buffer] = ArenaBuffer(buffer.name, buffer.c_type, size, start, first, last)
    notes = tuple(statement.note for statement in statements)
    return ArenaPlan(tuple(placed[buffer] for buffer in arena if buffer in placed), notes)


def _lives(statements: Sequence[Statement]) -> dict[Buffer, tuple[int, int]]:
    """Return the numbers of the first and the last statement that use each buffer of the arena."""
    lives: dict[Buffer, tuple[int, int]] = {}
    for at, statement in enumerate(statements):
        loops = statement.body if isinstance(statement, Nest) else [statement]
        hidden = {
            a.target.buffer
            for loop in loops
            if isinstance(loop, Loop)
            for a in loop.assignments
            if a.local
        }
        for buffer in (statement.reads | statement.writes) - hidden:
            if buffer.place == "arena":
                lives[buffer] = (lives.get(buffer, (at, at))[0], at)
    return lives


def n_bytes(buffer: Buffer) -> int:
    """Return the number of bytes of the arena that a buffer takes."""
    width = np.dtype(buffer.dtype).itemsize
    return -(-buffer.size * width // ALIGNED) * ALIGNED
