"""Predict the time of one call of a graph on a board: a range, from counted work and rates.

On a CPU core, with rate the core's peak of float32 operations, fast = `CACHE_BYTES_PER_FLOP` times
that, and slow = the smaller of fast and `SLOW_CACHE_BYTES_PER_CYCLE` times the clock:

    low    the longer of flop / rate and bytes / fast: no kernel and no call costs anything
    model  flop / rate + moved / slow + nodes * NODE_CYCLES / clock
    high   HIGH_FACTOR * model + bytes / (COLD * bandwidth): nothing of it was in a cache before

`model` was calibrated on two x86-64 cores. With vectors of 256 bits graphs took 0.7 to 1.5 of it
when the machine was quiet and up to 2.5 with other work on both cores; with vectors of 512 bits 0.6
to 2.5 with other work (benchmarks/records/step_latency.json, budget.json). No board was measured:
that is what `HIGH_FACTOR` is for, and why this is a range.

In a power mode the bandwidth is that of the mode's memory clock: 2133 of 3199 MHz is two thirds.

A GPU has a lower bound only: with so little arithmetic most of the time is the launch of kernels,
which was not measured on any board.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from edgefold.devices.boards.board import Board, PowerMode
from edgefold.runtime.record_fields import Seconds

CACHE_BYTES_PER_FLOP = 1.1
"""Most bytes that a cache moves in the time of one float32 operation.

A copy in cache moved up to 123 GB/s where a matrix product did 114 GFLOP/s (one core, AVX2, a
quiet day): caches are built as wide as the vector units, at best."""
SLOW_CACHE_BYTES_PER_CYCLE = 20
"""Bytes that a cache moves in each cycle of the clock, for an upper bound of the time.

A core with vectors of 512 bits did 196 GFLOP/s and copied no more than 65 GB/s in cache, 21
bytes a cycle: wider units do not mean wider caches, so an upper bound does not count on it."""
NODE_CYCLES = 1100
"""Cycles that the call of one kernel takes: 0.3 us at 3.55 GHz, from the same measurements."""
HIGH_FACTOR = 4.0
COLD = 0.5
"""Share of the memory's peak bandwidth that one core reaches."""
SPEEDUP = {"float32": 1, "float16": 2, "int8": 4}
"""Largest factor by which each type speeds up a vector unit: for lower bounds only."""
WIDENED = {"float16": 3}
"""Factor on the moved bytes where a CPU computes float16 as float32: for upper bounds only."""


@dataclass(frozen=True, slots=True)
class Range:
    """Holds the bounds of a time in seconds, or the reason why there is no upper bound."""

    low_s: Annotated[Seconds, "At least."]
    high_s: Annotated[Seconds | None, "At most; null where there is no bound."]
    reason: Annotated[str, "Why there is no upper bound; may be empty."] = ""

    def __add__(self, other: Range) -> Range:
        """Return the time of two pieces of work that run one after the other."""
        high_s = None
        if self.high_s is not None and other.high_s is not None:
            high_s = self.high_s + other.high_s
        return Range(self.low_s + other.low_s, high_s, self.reason or other.reason)

    def times(self, share: float) -> Range:
        """Return the time of `share` calls, where this is the time of one call."""
        high_s = None if self.high_s is None else self.high_s * share
        return Range(self.low_s * share, high_s, self.reason)


def cpu_range(
    work: Mapping[str, Any], board: Board, precision: str, mode: PowerMode | None
) -> Range:
    """Return bounds of the time of one call of a graph on one core.

    Args:
        work: Counted work of the call: `flop` operations, `bytes` of weights, inputs and outputs,
            `moved_bytes` of all operands and results, and `n_nodes` kernels.
        board: The board with its rates.
        precision: Element type of the graph: float32, float16 or int8.
        mode: Power mode whose clocks count; None for the highest clocks.
    """
    clock_hz = mode.cpu_clock_hz if mode else board.cpu.clock_hz.value
    top = board.cpu.rate()
    if board.cpu.flops_per_cycle.value is None:
        return Range(0.0, None, f"the operations per cycle of {board.cpu.model} are unknown")
    rate = board.cpu.rate(clock_hz) or top
    if rate is None:
        return Range(0.0, None, f"the clock of {board.cpu.model} is unknown")
    reason = "" if clock_hz else f"the clock of mode {mode.name if mode else ''} is unknown"
    fast = CACHE_BYTES_PER_FLOP * rate
    fastest = rate * SPEEDUP.get(precision, 1)
    low_s = max(work["flop"] / fastest, work["bytes"] / fast)
    memory_hz = mode.memory_clock_hz if mode else None
    bandwidth = board.memory.bandwidth(memory_hz)
    if bandwidth is None:
        reason = reason or "the memory bandwidth is unknown"
    if mode and board.memory.clock_hz and not memory_hz:
        reason = reason or f"the memory's clock in mode {mode.name} is unknown"
    if reason or not clock_hz or not bandwidth:
        return Range(low_s, None, reason)
    widened = WIDENED.get(precision, 1)
    slow = min(fast, SLOW_CACHE_BYTES_PER_CYCLE * clock_hz)
    model_s = work["flop"] / rate + work["moved_bytes"] * widened / slow
    model_s += work["n_nodes"] * NODE_CYCLES / clock_hz
    return Range(low_s, HIGH_FACTOR * model_s + work["bytes"] / (COLD * bandwidth))


def gpu_precision(precision: str) -> str:
    """Return the precision whose peak rate bounds a graph of this precision on a GPU.

    For float32 this is float16: tensor cores may compute float32 as TF32, at most at that rate.
    """
    return "float16" if precision == "float32" else precision


def gpu_range(
    work: Mapping[str, Any], board: Board, precision: str, mode: PowerMode | None
) -> Range:
    """Return a lower bound of a call's time on the GPU; the arguments are those of `cpu_range`.

    Only arithmetic counts, because caches may hold all data.
    """
    if board.gpu is None:
        return Range(0.0, None, "the board has no GPU that we run on")
    fastest = gpu_precision(precision)
    figure = board.gpu.dense_operations_per_s.get(fastest)
    rate = figure.value if figure else None
    if rate is None:
        return Range(0.0, None, f"the GPU's {fastest} rate is unknown")
    top_hz = board.gpu.clock_hz.value
    if mode and mode.gpu_clock_hz and top_hz:
        rate *= mode.gpu_clock_hz / top_hz
    reason = "the launch cost of a GPU's kernels was not measured on any board"
    return Range(work["flop"] / rate, None, reason)
