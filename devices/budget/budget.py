"""Does a bundle fit a board? Memory by parts, time of each step, power modes, and a verdict.

    software   is the backend promised on this board
    memory     what the process needs, and what it takes to run well, against the limit: without
               the first it is killed, without the second it waits for a disk
    latency    the time of one arrival against the time between two
    power      a mode within the watts that meets the rate

Each check says FITS, DOES NOT FIT or UNSURE, and the verdict is the worst of them. UNSURE is said
where the range holds the limit, and where a figure is unknown. Nothing here is a measurement; the
energy of an arrival is bounded by a mode's watts times the time, and labelled an estimate.

An arrival is what `edgefold run` does with a row: predict (refresh and a query of one target), then
learn (update, and its share of consolidating); of a model that filters, one step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from edgefold.devices.boards.board import STATUSES, Board, PowerMode
from edgefold.devices.budget.roofline import Range, cpu_range, gpu_precision, gpu_range
from edgefold.runtime.backends.registry import info_of
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.record_fields import (
    OPTIONAL,
    Bytes,
    BytesRange,
    Count,
    Hertz,
    Joules,
    SchemaVersion,
    ShareOfOne,
    Watts,
    as_json,
    one_of,
    written,
)
from edgefold.runtime.series.durations import duration
from edgefold.runtime.stream.memory_estimate import (
    MEASURED_PAGE_BYTES,
    PYTHON,
    RUN,
    Footprint,
    advice,
    footprint,
)

FITS, UNSURE, MISFIT = "FITS", "UNSURE", "DOES NOT FIT"
MEASURE = "measure with `edgefold profile` on the board"
MARGIN = 0.15
"""Relative error that the predicted memory may have: a need closer to a limit is UNSURE."""
SHARE = 0.5
"""Share of the board's memory; if the caller sets no limit, a larger need is UNSURE."""

FitVerdict = Annotated[str, one_of(FITS, UNSURE, MISFIT)]
BoardName = Annotated[str, "Name of the board's profile."]
BoardTitle = Annotated[str, "The board in words."]
BundleFolder = Annotated[str, "Folder of the bundle."]
BundlePrecision = Annotated[str, "Element type of refresh and query."]
StepTimes = Annotated[dict[str, Range], "Time of one call of each graph."]
ARRIVAL = "Time of an arrival: predict, then learn; of a filter, one step."
FigureStatuses = Annotated[
    dict[str, Annotated[str, one_of(*STATUSES), "A status."]],
    "How sure the figures are that the answer rests on.",
]
Capacity = Annotated[
    str,
    "What becomes of points beyond the state's capacity; empty where any number fits, missing in "
    "older records.",
]


@dataclass(frozen=True, slots=True)
class Demand:
    """Demands on the board; null demands nothing."""

    memory_bytes: Annotated[Bytes | None, "Limit of all processes, as a control group has it."] = (
        None
    )
    rate_hz: Annotated[Hertz | None, "Arrivals a second, of each process."] = None
    power_w: Annotated[Watts | None, "Limit of the module."] = None
    backend: Annotated[str, "Name of the backend."] = "onnxruntime"
    predict_every: Annotated[Count, "Arrivals per prediction."] = 1
    processes: Annotated[Count, "Loops that run side by side, a process each."] = 1


@dataclass(frozen=True, slots=True)
class FitCheck:
    """One question and its answer."""

    name: Annotated[str, "What was asked."]
    verdict: Annotated[FitVerdict, "The answer."]
    finding: Annotated[str, "Why."]
    change: Annotated[str, "What would help; empty where nothing is needed."] = ""


Checks = Annotated[tuple[FitCheck, ...], "The questions."]


class Judgement:
    """Properties of a budget for any board: the verdict over its checks."""

    __slots__ = ()
    checks: Checks

    @property
    @written
    def verdict(self) -> FitVerdict:
        """The worst of all checks."""
        return worst([check.verdict for check in self.checks])

    @property
    @written
    def measured(self) -> Literal[False]:
        """A budget is never a measurement."""
        return False

    def to_json(self) -> dict[str, Any]:
        """Everything, for a file."""
        form: dict[str, Any] = as_json(self)
        return form


@dataclass(frozen=True, slots=True)
class ModeRow:
    """An arrival in one power mode."""

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
    """The verdict whether a bundle fits a board, predicted from data sheets."""

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

    @property
    @written
    def needed_bytes(self) -> Bytes:
        """Memory without which it is killed."""
        return self.footprint.needed_bytes

    @property
    @written
    def to_run_well_bytes(self) -> Bytes:
        """Memory without which it waits for pages that are read again."""
        return self.footprint.to_run_well_bytes

    @property
    @written
    def looks_like_bytes(self) -> BytesRange:
        """Memory that `top` may show: least and most."""
        return self.footprint.looks_like_bytes


def worst(verdicts: list[str]) -> str:
    """DOES NOT FIT before UNSURE before FITS."""
    return next((v for v in (MISFIT, UNSURE) if v in verdicts), FITS)


def judge(manifest: Manifest, board: Board, demand: Demand) -> Budget:
    """Hold a bundle against a board.

    Raises:
        BundleError: The manifest's plan cannot be read.
    """
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
    checks = [_software(board, demand.backend), _memory(need, board, demand, room)]
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


def step_times(
    manifest: Manifest, time_of: Callable[[Mapping[str, Any], str], Range]
) -> dict[str, Range]:
    """Return the time of one call of each graph, by the counted work and the precision of it."""
    steps = {}
    for name, graph in manifest.graphs.items():
        try:
            work = manifest.memory_plan["graphs"][name]["work"]
            steps[name] = time_of(work, graph.precision)
        except (KeyError, TypeError):
            reason = "the bundle's manifest counts no work; export it again"
            steps[name] = Range(0.0, None, reason)
    return steps


def arrival_of(manifest: Manifest, steps: dict[str, Range], predict_every: int) -> Range:
    """Return the narrowest graphs' time: predict, then learn, which a filter does in one step."""

    def of(step: str) -> Range:
        graphs = manifest.of_step(step)
        return steps[graphs[0].name] if graphs else Range(0.0, 0.0)

    whole = of("update") + of("step")
    if manifest.consolidate_every:
        whole += of("consolidate").times(1 / manifest.consolidate_every)
    return whole + (of("refresh") + of("query")).times(1 / predict_every)


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
        verdict = _against(arrival, 1 / demand.rate_hz)
    if mode.power_w is not None:
        energy = (
            arrival.low_s * mode.power_w,
            None if arrival.high_s is None else arrival.high_s * mode.power_w,
        )
    return ModeRow(mode.name, mode.power_w, arrival, duty, energy, verdict)


def _against(taken: Range, available_s: float) -> str:
    if taken.low_s > available_s:
        return MISFIT
    return FITS if taken.high_s is not None and taken.high_s <= available_s else UNSURE


def _software(board: Board, backend: str) -> FitCheck:
    info = info_of(backend)
    on_cpu = info.device == "cpu"
    scope = board.backends[info.board_key]
    name = f"{info.board_key} on the CPU" if on_cpu else backend
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


def latency_check(arrival: Range, rate_hz: float, quicker: str, measure: str = MEASURE) -> FitCheck:
    """Hold an arrival against the time between two; `quicker` is what would help."""
    available_s = 1 / rate_hz
    verdict = _against(arrival, available_s)
    high = "or more" if arrival.high_s is None else f"to {arrival.high_s * 1e3:.3g} ms"
    finding = (
        f"an arrival takes {arrival.low_s * 1e3:.3g} ms {high}, with "
        f"{duration(available_s)} between two{f' ({arrival.reason})' if arrival.reason else ''}"
    )
    change = "" if verdict == FITS else quicker
    if arrival.high_s is None and verdict == UNSURE:
        change = measure
    return FitCheck("latency", verdict, finding, change)


def quicker(manifest: Manifest, demand: Demand, measure: str = MEASURE) -> str:
    """Return what makes an arrival take less time, or how its time is measured."""
    smaller = manifest.with_less_room or "train a model with fewer or smaller layers"
    return (
        f"predict less often (--predict-every {demand.predict_every * 10}), {smaller}, lower the "
        f"rate, or {measure}"
    )


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
