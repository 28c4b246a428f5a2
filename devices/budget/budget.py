"""Predict whether a bundle fits a board: memory, time of each step, power modes, a verdict.

    software   whether the backend is promised to run on this board
    memory     what the process needs, and what it takes to run well, against the limit: without
               the first it is killed, without the second it waits for a disk
    latency    the time of one arrival against the time between two
    power      whether a power mode within the allowed watts meets the rate

Nothing here is a measurement; the energy of an arrival is bounded by a mode's watts times the time,
and labelled an estimate. A microcontroller, which runs the bundle as C, is judged by
`edgefold.devices.budget.microcontroller`.

An arrival is what `edgefold run` does with a row: predict (refresh and a query of one target), then
learn (update, and its share of consolidating). A model that filters does one step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, overload

from edgefold.devices.boards.board import Board, Microcontroller, PowerMode
from edgefold.devices.budget.checks import (
    ARRIVAL,
    FITS,
    MEASURE,
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
    FitVerdict,
    Judgement,
    StepTimes,
    arrival_of,
    latency_check,
    quicker,
    step_times,
    verdict_on,
)
from edgefold.devices.budget.flash import FlashBudget
from edgefold.devices.budget.microcontroller import (
    CSizes,
    MicrocontrollerBudget,
    NoCSizes,
    c_checks,
    judge_microcontroller,
)
from edgefold.devices.budget.roofline import Range, cpu_range, gpu_precision, gpu_range
from edgefold.runtime.backends.registry import info_of
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.record_fields import (
    OPTIONAL,
    Bytes,
    BytesRange,
    Joules,
    SchemaVersion,
    ShareOfOne,
    Watts,
    written,
)
from edgefold.runtime.stream.memory_estimate import (
    MEASURED_PAGE_BYTES,
    PYTHON,
    RUN,
    Footprint,
    advice,
    footprint,
)

MARGIN = 0.15
"""Relative error that the predicted memory may have: a need this close to a limit is UNSURE."""
SHARE = 0.5
"""Share of the board's memory above which a need is UNSURE, if the caller sets no limit."""


@dataclass(frozen=True, slots=True)
class ModeRow:
    """Holds the time and energy of an arrival in one power mode, and whether it meets the rate."""

    name: Annotated[str, "Its name."]
    power_w: Annotated[Watts | None, "Its watts."]
    arrival: Range
    duty: Annotated[
        tuple[Annotated[ShareOfOne, "A share."], Annotated[ShareOfOne | None, "A share."]] | None,
        "An arrival over the time between two, at least and at most.",
    ]
    energy_j: Annotated[
        tuple[Annotated[Joules, "Energy."], Annotated[Joules | None, "Energy."]] | None,
        "The mode's watts times the arrival's time: an estimate from above, not a measurement.",
    ]
    verdict: Annotated[FitVerdict, "Whether it meets the rate."]


@dataclass(frozen=True, slots=True)
class Budget(Judgement):
    """Holds the verdict whether a bundle fits a board, and the figures predicted for it."""

    schema: SchemaVersion = field(default=1, init=False)
    board: BoardName
    title: BoardTitle
    bundle: BundleFolder
    precision: BundlePrecision
    demand: Demand
    footprint: Footprint
    needed_by: Annotated[
        dict[str, Annotated[Bytes, "Memory."]],
        "What each kind of program needs; the footprint is that of the one that needs more.",
    ]
    steps: StepTimes
    arrival: Annotated[Range, ARRIVAL]
    modes: Annotated[tuple[ModeRow, ...], "The board's power modes."]
    figures: FigureStatuses
    checks: Checks
    keeps: Annotated[Capacity, OPTIONAL] = ""
    flash: Annotated[FlashBudget | None, OPTIONAL] = None

    @property
    @written
    def needed_bytes(self) -> Bytes:
        """With fewer bytes of memory than this, the process is killed."""
        return self.footprint.needed_bytes

    @property
    @written
    def to_run_well_bytes(self) -> Bytes:
        """With fewer bytes of memory than this, the process waits for pages that are read again."""
        return self.footprint.to_run_well_bytes

    @property
    @written
    def looks_like_bytes(self) -> BytesRange:
        """The memory that `top` shows lies between these two numbers of bytes, least and most."""
        return self.footprint.looks_like_bytes


@overload
def judge(
    manifest: Manifest, board: Board, demand: Demand, sizes: CSizes | NoCSizes | None = None
) -> Budget: ...


@overload
def judge(
    manifest: Manifest,
    board: Board | Microcontroller,
    demand: Demand,
    sizes: CSizes | NoCSizes | None = None,
) -> Budget | MicrocontrollerBudget: ...


def judge(
    manifest: Manifest,
    board: Board | Microcontroller,
    demand: Demand,
    sizes: CSizes | NoCSizes | None = None,
) -> Budget | MicrocontrollerBudget:
    """Predict whether a bundle fits a board; return the verdict with all its figures.

    Args:
        manifest: Manifest of the bundle.
        board: A board with Linux; or a microcontroller, which runs the bundle as C.
        demand: Memory, rate and power that are demanded of the board.
        sizes: Sizes of the bundle's C, where that was written, or why it was not; None where the
            answer does not depend on C.

    Raises:
        BundleError: The manifest's plan cannot be read.
    """
    if isinstance(board, Microcontroller):
        return judge_microcontroller(manifest, board, demand, sizes)
    pages = board.memory.page_bytes.value if board.memory.page_bytes else None
    programs = [
        footprint(
            manifest,
            demand.backend,
            architecture=board.architecture,
            page_bytes=int(pages or MEASURED_PAGE_BYTES),
            program=program,
        )
        for program in (RUN, PYTHON)
    ]
    need = max(programs, key=lambda one: one.needed_bytes).of(demand.processes)
    steps = _steps(manifest, board, demand.backend, None)
    arrival = arrival_of(manifest, steps, demand.predict_every)
    modes = tuple(_mode_row(manifest, board, demand, mode) for mode in board.power_modes)
    room = manifest.with_less_room
    checks = [_software(board, demand.backend), *c_checks(sizes)]
    checks.append(_memory(need, board, demand, room))
    has_watts = demand.power_w is not None and any(row.power_w is not None for row in modes)
    if demand.rate_hz is not None and not has_watts:  # else each mode is held against the rate
        checks.append(latency_check(arrival, demand.rate_hz, quicker(manifest, demand)))
    if demand.power_w is not None:
        checks.append(_power(modes, board, demand, quicker(manifest, demand)))
    return Budget(
        board.name,
        board.title,
        str(manifest.path),
        str(manifest.precision["name"]),
        demand,
        need,
        {one.program: one.needed_bytes for one in programs},
        steps,
        arrival,
        modes,
        _figures(manifest, board, demand),
        tuple(checks),
        manifest.keeps,
    )


def _figures(manifest: Manifest, board: Board, demand: Demand) -> dict[str, str]:
    if info_of(demand.backend).device == "cpu":
        used = {"memory bandwidth", "memory clock", "CPU clock", "operations per cycle"}
    else:
        precisions = {graph.precision for graph in manifest.graphs.values()}
        used = {"GPU clock"} | {f"GPU {gpu_precision(name)} rate" for name in precisions}
    used.add("page size")
    if demand.memory_bytes is None:
        used.add("visible memory" if board.memory.visible_bytes.value else "memory")
    statuses = board.statuses()
    return {name: statuses[name] for name in statuses if name in used or name.startswith("mode ")}


def _steps(
    manifest: Manifest, board: Board, backend: str, mode: PowerMode | None
) -> dict[str, Range]:
    one = cpu_range if info_of(backend).device == "cpu" else gpu_range
    return step_times(manifest, lambda work, precision: one(work, board, precision, mode))


def _mode_row(manifest: Manifest, board: Board, demand: Demand, mode: PowerMode) -> ModeRow:
    steps = _steps(manifest, board, demand.backend, mode)
    arrival = arrival_of(manifest, steps, demand.predict_every)
    duty = energy = None
    verdict = UNSURE if arrival.high_s is None else FITS
    if demand.rate_hz is not None:
        duty = (
            arrival.low_s * demand.rate_hz,
            None if arrival.high_s is None else arrival.high_s * demand.rate_hz,
        )
        verdict = verdict_on(arrival, 1 / demand.rate_hz)
    if mode.power_w is not None:
        energy = (
            arrival.low_s * mode.power_w,
            None if arrival.high_s is None else arrival.high_s * mode.power_w,
        )
    return ModeRow(mode.name, mode.power_w, arrival, duty, energy, verdict)


NEEDS_OF_C = (
    "Python 3.10 or later, numpy, and the bundle as C: `edgefold build` compiles it, wheels hold "
    "that of the shipped models"
)


def _software(board: Board, backend: str) -> FitCheck:
    info = info_of(backend)
    on_cpu = info.device == "cpu"
    scope = board.backends[info.board_key]
    name = f"{info.board_key} on the CPU" if on_cpu else backend
    if scope.in_scope and on_cpu and not info.needs_onnxruntime:
        return FitCheck("software", FITS, f"{backend} on the CPU: {NEEDS_OF_C}")
    if scope.in_scope:
        return FitCheck("software", FITS, f"{name}: {scope.note}")
    if on_cpu:
        change = "try `edgefold check BUNDLE` on the board, or take a board of the Orin family"
        return FitCheck("software", UNSURE, f"{name}: {scope.note}", change)
    change = "take --backend onnxruntime, or a board of the Orin family or Thor"
    return FitCheck("software", MISFIT, f"{name}: {scope.note}", change)


def _memory(need: Footprint, board: Board, demand: Demand, room: str) -> FitCheck:
    needed, well = need.needed_bytes, need.to_run_well_bytes
    shown = f"{needed / 1e6:.1f} MB needed, {well / 1e6:.1f} MB to run well"
    if demand.memory_bytes is not None:
        limit, comfortable = demand.memory_bytes, demand.memory_bytes / (1 + MARGIN)
        against = f"the limit of {limit / 1e6:.1f} MB"
    else:
        visible = board.memory.visible_bytes.value
        total = visible or board.memory.total_bytes.value
        if total is None:
            return FitCheck(
                "memory", UNSURE, f"{shown}; the board's memory is unknown", "give --memory"
            )
        limit, comfortable = int(total), total * SHARE
        whose = "that Linux sees" if visible else "of the data sheet; Linux sees less"
        against = f"{limit / 1e6:,.0f} MB {whose}"
    if needed > limit:
        return FitCheck(
            "memory", MISFIT, f"{shown} against {against}", advice(need, limit, MARGIN, room)
        )
    if need.unmeasured:
        names = "; ".join(part.name for part in need.unmeasured)
        finding = f"{shown} and what nobody measured there ({names}), with the most that others "
        finding += f"report {need.most_bytes / 1e6:,.0f} MB, against {against}"
        if need.most_bytes <= comfortable:
            return FitCheck("memory", FITS, finding)
        return FitCheck("memory", UNSURE, finding, MEASURE)
    if well <= comfortable:
        return FitCheck("memory", FITS, f"{shown} against {against}")
    near = "within the prediction's 15 % of" if demand.memory_bytes else "more than half of"
    finding = f"{shown}, {near} {against}"
    if well > limit:
        finding = f"{shown} against {against}: pages of files are dropped and read again"
    change = f"{MEASURE}. {advice(need, limit, MARGIN, room)}"
    return FitCheck("memory", UNSURE, finding, change)


def _power(modes: tuple[ModeRow, ...], board: Board, demand: Demand, quicker: str) -> FitCheck:
    assert demand.power_w is not None
    measured = [row for row in modes if row.power_w is not None]
    if not measured:
        finding = f"{board.title} has no power mode with known watts"
        return FitCheck("power", UNSURE, finding, "measure the board's supply")
    within = [row for row in measured if row.power_w is not None and row.power_w <= demand.power_w]
    if not within:
        least = min(measured, key=lambda row: row.power_w or 0)
        finding = f"no mode stays within {demand.power_w:g} W; the least is {least.name}"
        return FitCheck(
            "power", MISFIT, finding, f"allow {least.power_w:g} W, or take a smaller board"
        )
    best = next((v for v in (FITS, UNSURE) if any(r.verdict == v for r in within)), MISFIT)
    if demand.rate_hz is None:
        best = FITS
    names = ", ".join(row.name for row in within if demand.rate_hz is None or row.verdict == best)
    asked = f" at {demand.rate_hz:g} Hz" if demand.rate_hz else ""
    finding = f"within {demand.power_w:g} W{asked}: {names}"
    if best == MISFIT:
        finding = f"no mode within {demand.power_w:g} W meets {demand.rate_hz:g} Hz: {names}"
    if best == UNSURE:
        reasons = sorted({row.arrival.reason for row in within if row.arrival.reason})
        finding += f"; none is sure{': ' * bool(reasons)}{'; '.join(reasons)}"
    change = "" if best == FITS else f"another power mode; {quicker}"
    if best == UNSURE and all(row.arrival.high_s is None for row in within):
        change = MEASURE
    return FitCheck("power", best, finding, change)
