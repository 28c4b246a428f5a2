"""A loop's memory stays level: kept tuples are freed, and what exists before it is put aside."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

from edgefold.cli.loop.steady_memory import EVERY, SteadyMemory


@pytest.fixture(autouse=True)
def _nothing_frozen_later() -> Iterator[None]:
    yield
    gc.unfreeze()


def blocks_after(memory: SteadyMemory, n_lines: int) -> int:
    """Blocks of memory after lines that each make a tuple in the way that CPython keeps one."""
    for _ in range(n_lines):
        tuple(number for number in range(7))
        memory.line()
    return sys.getallocatedblocks()


def test_tuples_that_cpython_keeps_are_freed_again() -> None:
    memory = SteadyMemory()
    first = blocks_after(memory, EVERY + 1)  # the last line collects
    assert blocks_after(memory, 5 * EVERY) - first < EVERY / 10


@pytest.mark.long
def test_what_exists_before_the_first_line_is_put_aside() -> None:
    before = gc.get_freeze_count()
    memory = SteadyMemory()
    assert gc.get_freeze_count() == before
    memory.line()
    frozen = gc.get_freeze_count()
    assert frozen > before
    blocks_after(memory, 2 * EVERY)
    assert gc.get_freeze_count() == frozen
