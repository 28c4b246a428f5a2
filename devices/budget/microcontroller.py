"""Predict whether a bundle, as C, fits a microcontroller: flash, RAM, time of each step, a verdict.

    flash    constants, and the code that reads them
    RAM      both sides of the state, the cache, buffers of points and predictions, the arena of the
             activations, the stack: there is no process, no Python and no operating system
    latency  the time of one arrival against the time between two

A part is a range. Where the bundle was written as C on this machine (`CSizes`), constants and RAM
are exact but for the stack; else the arena is at most what onnxruntime's planner holds, as C joins
what it keeps apart. Code is estimated from firmware that was linked (native_sizes).

Time, with `clock` and the core's operations a cycle:

    at least  flop / (operations a cycle * clock); where these are unknown, two: no core that is
              described here starts more than one fused multiply-add a cycle
    at most   4 cycles * instructions / clock
              instructions = 4.5 flop + 60 nodes with an FPU, 125 flop + 60 nodes without

A sensor's C also searches for seasons, once in 256 rows. Its operations are counted
(`edgefold.devices.budget.season_search_work`); those in double precision take 125 instructions on a
core without double. In an emulated Cortex-M4F a search took 59 million instructions with seasons of
up to 1,440 and 7.6 million with 168 (sensor_firmware); counted are 59 to 75 million and 6.5 to 8.0.

Instructions were counted in emulated Cortex-M4F, M7, M33, a 32-bit RISC-V, and with software floats
(native_sizes). How many cycles an instruction takes was measured on no board: 4 is a reserve for
flash that is slower than the core.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from edgefold.devices.boards.board import Microcontroller
from edgefold.devices.budget.checks import (
    ARRIVAL,
    FITS,
    MISFIT,
    UNSURE,
    BoardName,
    BoardTitle,
    BundleFolder,
    BundlePrecision,
    Capacity,
    Checks,
    Demand,
    FigureStatuses,
    FitCheck,
    Judgement,
    StepTimes,
    arrival_of,
    latency_check,
    quicker,
    step_times,
)
from edgefold.devices.budget.roofline import Range
from edgefold.devices.budget.season_search_work import search_work
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.predictions.sensor_forecast import LEAST_LONGEST, SensorForecast
from edgefold.runtime.record_fields import Bytes, SchemaVersion

STACK_BYTES = 8192
"""Bytes that the linker files of the firmware reserve for the stack."""
CODE_BYTES, CODE_BYTES_PER_NODE = 24_000, 250
"""Largest size of the code: a fixed part, and a part for each node of a graph."""
INSTRUCTIONS_PER_FLOP = {"none": 125.0, "single": 4.5, "double": 4.5}
INSTRUCTIONS_PER_NODE = 60
CYCLES_PER_INSTRUCTION = 4.0
MOST_FLOPS_PER_CYCLE = 2.0
SEARCH = "search for seasons"
"""Names the search among the times of steps."""
COUNT = "count cycles on the board (DWT CYCCNT, on a Cortex-M0+ SysTick)"
"""Advice how to measure time on a part that has no Python for `edgefold profile`."""
NARROWER = {
    "float32": "export with --precision float16 or int8, or ",
    "float16": "export with --precision int8, or ",
}
"""Advice that makes the constants of a bundle smaller, by the bundle's precision."""


@dataclass(frozen=True, slots=True)
class CSizes:
    """Holds the exact sizes that the C of a bundle needs, from the header that was written for it.

    Attributes:
        ram_bytes: Bytes of RAM of the stream, with the arena.
        arena_bytes: Bytes of the arena of activations.
        constant_bytes: Bytes of the constants in flash: weights, first values of the state.
    """

    ram_bytes: int
    arena_bytes: int
    constant_bytes: int


@dataclass(frozen=True, slots=True)
class NoCSizes:
    """States why the sizes of a bundle's C are not known.

    Attributes:
        reason: A clause, such as the operator that no C is written for.
        change: What the user can do.
        is_refused: Whether no C can be written; else it is not known whether it can.
    """

    reason: str
    change: str
    is_refused: bool


@dataclass(frozen=True, slots=True)
class FirmwarePart:
    """Describes one part of the flash or of the RAM, with bounds of its size."""

    name: Annotated[str, "What it is."]
    low_bytes: Annotated[Bytes, "At least."]
    high_bytes: Annotated[Bytes, "At most."]


@dataclass(frozen=True, slots=True)
class MicrocontrollerBudget(Judgement):
    """Holds the verdict whether a bundle, as C, fits a microcontroller, from data sheets."""

    schema: SchemaVersion = field(default=1, init=False)
    kind: Annotated[
        Literal["microcontroller"], "What distinguishes it from the record for a board."
    ] = field(default="microcontroller", init=False)
    board: BoardName
    title: BoardTitle
    bundle: BundleFolder
    precision: BundlePrecision
    demand: Demand
    flash: Annotated[tuple[FirmwarePart, ...], "What it needs of the flash; the parts add up."]
    ram: Annotated[tuple[FirmwarePart, ...], "What it needs of the RAM; the parts add up."]
    steps: StepTimes
    arrival: Annotated[Range, ARRIVAL]
    figures: FigureStatuses
    checks: Checks
    keeps: Capacity = ""

    @property
    def ram_bytes(self) -> int:
        """Return how many bytes of RAM the bundle needs at most."""
        return sum(share.high_bytes for share in self.ram)

    @property
    def flash_bytes(self) -> int:
        """Return how many bytes of flash the bundle needs at most."""
        return sum(share.high_bytes for share in self.flash)


def judge_microcontroller(
    manifest: Manifest,
    part: Microcontroller,
    demand: Demand,
    sizes: CSizes | NoCSizes | None = None,
) -> MicrocontrollerBudget:
    """Predict whether a bundle, as C, fits a microcontroller; return the verdict and its figures.

    Args:
        manifest: Manifest of the bundle.
        part: The microcontroller.
        demand: `memory_bytes` is the RAM that the firmware may use, `processes` the streams that
            take turns in it; its power and backend are ignored.
        sizes: Sizes of the bundle's C, where that was written; or why it was not. With None the
            verdict is that of a bundle which becomes C.
    """
    known = sizes if isinstance(sizes, CSizes) else None
    flash = _flash(manifest, known)
    ram = _ram(manifest, known, demand.processes)
    steps = step_times(manifest, lambda work, _: call_range(work, part))
    arrival = arrival_of(manifest, steps, demand.predict_every)
    if isinstance(manifest.prediction, SensorForecast):
        steps[SEARCH] = search_range(manifest.prediction.longest_season, part)
        arrival = Range(arrival.low_s, (arrival + steps[SEARCH]).high_s, arrival.reason)
    limit = part.ram_bytes.value if demand.memory_bytes is None else demand.memory_bytes
    exact = "`edgefold budget` where edgefold[build] is installed counts it exactly; "
    unknown = (exact, exact) if known is None else ("compile it to know its code's size; ", "")
    more = "take a part with more flash"
    if not isinstance(manifest.prediction, SensorForecast):
        more = NARROWER.get(str(manifest.precision["name"]), "") + more
    checks = [
        *c_checks(sizes),
        _room("flash", flash, part.flash_bytes.value, unknown[0], more),
        _room("RAM", ram, limit, unknown[1], _less_ram(manifest)),
    ]
    if demand.rate_hz is not None:
        change = quicker(manifest, demand, COUNT)
        if isinstance(manifest.prediction, SensorForecast):
            change = f"lower the rate, or {COUNT}"
        checks.append(latency_check(arrival, demand.rate_hz, change, COUNT))
    return MicrocontrollerBudget(
        part.name,
        part.title,
        str(manifest.path),
        str(manifest.precision["name"]),
        demand,
        flash,
        ram,
        steps,
        arrival,
        part.statuses(),
        tuple(checks),
        manifest.keeps,
    )


def c_checks(sizes: CSizes | NoCSizes | None) -> list[FitCheck]:
    """Return the check that no C, or none that is known of, can be written for a bundle, if so."""
    if not isinstance(sizes, NoCSizes):
        return []
    verdict = MISFIT if sizes.is_refused else UNSURE
    return [FitCheck("C", verdict, sizes.reason, sizes.change)]


def call_range(work: Mapping[str, Any], part: Microcontroller) -> Range:
    """Return bounds of the time of one call of a graph, by the formulas at the top of this file.

    Args:
        work: Counted work of the call; its `flop` and `n_nodes` are used.
        part: The microcontroller.
    """
    clock_hz = part.cpu.clock_hz.value
    if clock_hz is None:
        return Range(0.0, None, f"the clock of {part.cpu.model} is unknown")
    instructions = work["flop"] * INSTRUCTIONS_PER_FLOP[part.cpu.fpu]
    instructions += work["n_nodes"] * INSTRUCTIONS_PER_NODE
    per_cycle = part.cpu.flops_per_cycle.value or MOST_FLOPS_PER_CYCLE
    return Range(
        work["flop"] / (per_cycle * clock_hz), CYCLES_PER_INSTRUCTION * instructions / clock_hz
    )


def search_range(longest_season: int, part: Microcontroller) -> Range:
    """Return bounds of the time of a search for seasons in all values that are kept."""
    work = search_work(longest_season)
    least = call_range({"flop": work.least, "n_nodes": 0}, part)
    most = call_range({"flop": work.most, "n_nodes": 0}, part)
    if part.cpu.clock_hz.value is None or most.high_s is None:
        return most
    of_double = INSTRUCTIONS_PER_FLOP["double" if part.cpu.fpu == "double" else "none"]
    cycles = CYCLES_PER_INSTRUCTION * work.double * of_double
    return Range(least.low_s, most.high_s + cycles / part.cpu.clock_hz.value)


def _less_ram(manifest: Manifest) -> str:
    """Return advice on how a bundle needs less RAM."""
    if isinstance(manifest.prediction, SensorForecast):
        shorter = f"shorten the seasons (--longest-season {LEAST_LONGEST}), "
        is_least = manifest.prediction.longest_season <= LEAST_LONGEST
        return f"{'' if is_least else shorter}give more RAM (--memory), or take the bundle gp-tiny"
    smaller = manifest.with_less_room or "train a smaller model (the default one has --preset tiny)"
    return f"{smaller}, or export with smaller --chunk or --targets"


def _flash(manifest: Manifest, sizes: CSizes | None) -> tuple[FirmwarePart, ...]:
    graphs = manifest.memory_plan["graphs"].values()
    n_nodes = sum(graph.get("work", {}).get("n_nodes", 0) for graph in graphs)
    # The file of the weights pads each to a page, and two graphs may share some.
    low = max((graph["weights_bytes"] for graph in graphs), default=0)
    high = manifest.memory_plan["weights_bytes"]
    if sizes:
        low = high = sizes.constant_bytes
    return (
        FirmwarePart("constants", low, max(low, high)),
        FirmwarePart("code", 0, CODE_BYTES + CODE_BYTES_PER_NODE * n_nodes),
    )


def _ram(manifest: Manifest, sizes: CSizes | None, n_streams: int) -> tuple[FirmwarePart, ...]:
    plan = manifest.memory_plan
    is_sensor = isinstance(manifest.prediction, SensorForecast)
    # The C of a sensor also has a clock, the search for seasons and alarms.
    around = "rows, forecasts, alarms" if is_sensor else "points and predictions"
    arena_name = "activations, or a search" if is_sensor else "activations"
    parts = {
        "state, both sides": plan["state_bytes"] * n_streams,
        "cache": plan["cache_bytes"] * n_streams,
        around: plan["io_bytes"] * n_streams,
    }
    arena = (0, plan["activations_bytes"])
    if sizes:
        stream = sizes.ram_bytes - sizes.arena_bytes
        named_bytes = plan["state_bytes"] + plan["cache_bytes"]
        parts[around] = (stream - named_bytes) * n_streams
        arena = (sizes.arena_bytes, sizes.arena_bytes)
    shares = [FirmwarePart(name, n_bytes, n_bytes) for name, n_bytes in parts.items()]
    return (*shares, FirmwarePart(arena_name, *arena), FirmwarePart("stack", 0, STACK_BYTES))


def _room(
    name: str, shares: tuple[FirmwarePart, ...], limit: float | None, unknown: str, smaller: str
) -> FitCheck:
    low = sum(share.low_bytes for share in shares)
    high = sum(share.high_bytes for share in shares)
    shown = f"{low / 1e3:,.0f} to {high / 1e3:,.0f} kB"
    if limit is None:
        return FitCheck(name, UNSURE, f"{shown}; how much there is is unknown", "give --memory")
    shown += f" of {limit / 1e3:,.0f} kB"
    if high <= limit:
        return FitCheck(name, FITS, shown)
    if low > limit:
        return FitCheck(name, MISFIT, shown, smaller)
    return FitCheck(name, UNSURE, shown, f"{unknown}{smaller}")
