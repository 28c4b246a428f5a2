"""Define demands, checks and times that budgets of boards and microcontrollers have in common.

Each check says FITS, DOES NOT FIT or UNSURE, and the verdict is the worst of them. A check is
UNSURE where the limit lies within the predicted range, and where a figure is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from edgefold.devices.boards.board import STATUSES
from edgefold.devices.budget.roofline import Range
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.record_fields import Bytes, Count, Hertz, Watts, as_json, one_of, written
from edgefold.runtime.series.durations import duration

FITS, UNSURE, MISFIT = "FITS", "UNSURE", "DOES NOT FIT"
MEASURE = "measure with `edgefold profile` on the board"

FitVerdict = Annotated[str, one_of(FITS, UNSURE, MISFIT)]
BoardName = Annotated[str, "Name of the board's profile."]
BoardTitle = Annotated[str, "The board in words."]
BundleFolder = Annotated[str, "Folder of the bundle."]
BundlePrecision = Annotated[str, "Element type of refresh and query."]
StepTimes = Annotated[
    dict[str, Range], "Time of one call of each graph, and of a sensor's search for seasons."
]
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
    """Holds the demands on a board, such as memory and rate; a null field demands nothing."""

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
    """Holds one question on the board, its answer (FITS, UNSURE or DOES NOT FIT) and the reason."""

    name: Annotated[str, "What was asked."]
    verdict: Annotated[FitVerdict, "The answer."]
    finding: Annotated[str, "Why."]
    change: Annotated[str, "What would help; empty where nothing is needed."] = ""


Checks = Annotated[tuple[FitCheck, ...], "The questions."]


class Judgement:
    """Adds to a budget, as its base class, the verdict over its `checks` and its form as JSON."""

    __slots__ = ()
    checks: Checks

    @property
    @written
    def verdict(self) -> FitVerdict:
        """The verdict is the worst of all checks."""
        return worst([check.verdict for check in self.checks])

    @property
    @written
    def measured(self) -> Literal[False]:
        """This is always false, because a budget is never a measurement."""
        return False

    def to_json(self) -> dict[str, Any]:
        """Return the whole budget as plain JSON, for a file."""
        form: dict[str, Any] = as_json(self)
        return form


def worst(verdicts: list[str]) -> str:
    """Return the worst of some verdicts: DOES NOT FIT before UNSURE before FITS."""
    return next((v for v in (MISFIT, UNSURE) if v in verdicts), FITS)


def step_times(
    manifest: Manifest, time_of: Callable[[Mapping[str, Any], str], Range]
) -> dict[str, Range]:
    """Return the time of one call of each graph, by the graph's name.

    `time_of` predicts it from the graph's counted work (operations, bytes, nodes) and precision.
    """
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
    """Return the time of one arrival: predict and learn, or the one step of a model that filters.

    Args:
        manifest: Manifest of the bundle.
        steps: Time of one call of each graph, by name; of several graphs that do the same step,
            the one that takes the fewest rows counts.
        predict_every: Arrivals per prediction, over which its time is spread.
    """

    def of(step: str) -> Range:
        graphs = manifest.of_step(step)
        return steps[graphs[0].name] if graphs else Range(0.0, 0.0)

    whole = of("update") + of("step")
    if manifest.consolidate_every:
        whole += of("consolidate").times(1 / manifest.consolidate_every)
    return whole + (of("refresh") + of("query")).times(1 / predict_every)


def verdict_on(taken: Range, available_s: float) -> str:
    """Return whether a predicted time FITS, DOES NOT FIT or is UNSURE to fit into `available_s`."""
    if taken.low_s > available_s:
        return MISFIT
    return FITS if taken.high_s is not None and taken.high_s <= available_s else UNSURE


def latency_check(arrival: Range, rate_hz: float, quicker: str, measure: str = MEASURE) -> FitCheck:
    """Check that an arrival takes less than the time between two, 1 / rate_hz.

    Args:
        arrival: Predicted time of an arrival.
        rate_hz: Arrivals a second.
        quicker: Advice in words, for an arrival that takes too long.
        measure: Advice in words, for a time that has no upper bound.
    """
    available_s = 1 / rate_hz
    verdict = verdict_on(arrival, available_s)
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
    """Return advice on what shortens the time of an arrival; `measure` says how to measure it."""
    smaller = manifest.with_less_room or "train a model with fewer or smaller layers"
    return (
        f"predict less often (--predict-every {demand.predict_every * 10}), {smaller}, lower the "
        f"rate, or {measure}"
    )
