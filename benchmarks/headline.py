"""The README's block of results: from the records, the few figures that readers look for."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.record import Record
from benchmarks.table import KERNELS, Table, describe, error, megabytes
from edgefold.cli.text.numbers import format_time
from edgefold.runtime.stream.memory_estimate import RUN

SHOWN = {"series-co2, float32": "series-co2", "paper, untrained, float32": "the paper's size"}
FIGURES = ("needed", "to run well", "looks like")
FIGURES_NOTE = (
    "Needed: with less it is killed. To run well: with less it reads its libraries again and "
    "again; a limit (`MemoryMax=`) should be 15 % above. Looks like: what `top` shows, by how the "
    "libraries lie in the page cache. Measured in three states of it."
)


def headline(records: dict[str, Record]) -> str:
    """Tables beside PyTorch, along the stream, and of accuracy; without a record, no row."""
    parts = []
    if beside := _beside(records):
        header = [
            "the paper's size, same weights, float32, one thread",
            "as C",
            "on ONNX Runtime",
            "PyTorch eager",
            "ratio to the first",
        ]
        parts.append(Table(header, beside).markdown())
    if along := _along(records):
        parts.append(Table(["along the stream", "measured"], along).markdown())
    if memory := _memory(records):
        header = ["memory of `edgefold run`", *FIGURES]
        parts.append(Table(header, memory, FIGURES_NOTE).markdown())
    if before := _before(records):
        parts.append(Table(["known before deployment", "measured"], before).markdown())
    if accuracy := _accuracy(records):
        parts.append(Table(["accuracy", "Edgefold's model", "beside it"], accuracy).markdown())
    if records:
        first = records.get("step_latency") or next(iter(records.values()))
        parts.append(
            f"{describe(first)} Medians; spread, conditions and commands are in "
            "[docs/results.md](docs/results.md)."
        )
    return "\n\n".join(parts)


def _beside(records: dict[str, Record]) -> list[list[str]]:
    """Return rows of the work as C, on ONNX Runtime and in PyTorch; equal work stands first."""
    rows = []
    if "step_latency" in records:
        times = records["step_latency"]["data"]["times"]
        sides = [times.get("native", {}), times["edgefold"], times["pytorch"]]
        for what, mine, other in (
            ("learn one point", "update", "update"),
            ("learn one point, refresh", "update and refresh", "update and refresh"),
            ("predict one target", "query, 1 target", "query, 1 target"),
            ("learn points that may wait, each", "128 waiting updates", ""),
            (
                "learn one point; PyTorch refreshes each time, as in the paper",
                "update",
                "update and refresh",
            ),
        ):
            found = [
                side[name]["median_s"] / (side[name]["n_points"] if name.startswith("128") else 1)
                if name in side
                else None
                for side, name in zip(sides, (mine, mine, other), strict=True)
            ]
            rows.append([what, *_compared(found, format_time)])
    if "process" in records:
        by_name = records["process"]["data"]["contenders"]
        ours, theirs = by_name["edgefold"], by_name["pytorch"]
        for what, key, shown in (
            ("memory that the process needs", "needed_bytes", megabytes),
            ("start to first prediction", "first_s", format_time),
        ):
            rows.append([what, *_compared([None, ours[key], theirs[key]], shown)])
    if "native_process" in records:
        found = records["native_process"]["data"]["gp-paper"]
        peaks = [found[side]["peak_bytes"] for side in ("native", "onnxruntime")]
        rows.append(["peak memory of `edgefold run`", *_compared([*peaks, None], megabytes)])
        peak = found["program"]["peak_bytes"]
        rows.append(
            ["peak memory of the program without Python", *_compared([peak, None, None], megabytes)]
        )
    return rows


def _compared(found: list[float | None], shown: Callable[[float], str]) -> list[str]:
    """Return the figures of all sides, and PyTorch's over the first of ours."""
    *ours, theirs = found
    cells = ["" if figure is None else shown(figure) for figure in found]
    best = next((figure for figure in ours if figure is not None), None)
    return [*cells, f"{theirs / best:.3g}x" if theirs and best else ""]


def _along(records: dict[str, Record]) -> list[list[str]]:
    rows = []
    if "constancy" in records:
        data = records["constancy"]["data"]
        last, memory = data["times"][-1], data["memory"]
        grown = (memory[-1]["needed_bytes"] - memory[0]["needed_bytes"]) / 1024
        n = f"{last['n_points']:,}"
        rows.append([f"time of an update after {n} points, beside 100", f"{last['ratio']:.3f}"])
        rows.append([f"needed memory grown over {n} points", f"{grown:.0f} KiB"])
    if "drift" in records:
        for leg in records["drift"]["data"]["legs"]:
            last = leg["rows"][-1]
            n = f"{last['n_points']:,}"
            names = {"folded": "Edgefold", "plain": "plain sums", "paper": "the paper's form"}
            if leg["leg"] in names:
                what = f"error of the state after {n} points, {names[leg['leg']]}"
                rows.append([what, error(last["error"]["norm"])])
    return rows


def _memory(records: dict[str, Record]) -> list[list[str]]:
    """The three figures of the shipped series model and of the paper's size."""
    rows = []
    subjects = records["memory_states"]["data"]["subjects"] if "memory_states" in records else []
    for subject in subjects:
        if subject["name"] not in SHOWN:
            continue
        predicted = subject["predicted"][RUN]
        runs = [state[RUN] for state in subject["states"].values()]
        spans = []
        for key in ("needed_bytes", "looks_bytes"):
            found = [n_bytes / 1e6 for run in runs for n_bytes in run[key]]
            spans.append((min(found), max(found)))
        low, high = (n_bytes / 1e6 for n_bytes in predicted["looks_like_bytes"])
        rows.append(
            [
                SHOWN[subject["name"]],
                f"{megabytes(predicted['needed_bytes'])}; measured {_span(*spans[0], 2)}",
                megabytes(predicted["to_run_well_bytes"]),
                f"{_span(low, high)}; measured {_span(*spans[1])}",
            ]
        )
    return rows


def _span(low: float, high: float, digits: int = 0) -> str:
    return f"{low:.{digits}f} to {high:.{digits}f} MB"


def _before(records: dict[str, Record]) -> list[list[str]]:
    """Return rows on the error of a budget's memory, and on the cost of narrow precisions."""
    rows = []
    if "memory_states" in records:
        data = records["memory_states"]["data"]
        n = len(data["subjects"]) - len(data["fitted"])
        worst = records["memory_states"]["requirements"][0]["measured"]
        what = f"`edgefold budget`: needed memory of {n} bundles on x86-64, off by at most"
        rows.append([what, worst])
    if "precision" in records:
        subjects = records["precision"]["data"]["subjects"]
        for name in ("float16", "int8"):
            narrow = [s for s in subjects if s["precision"] == name]
            changes = [c for s in narrow for c in s["found"]["log_likelihood_change"].values()]
            what = f"{name}: change in log-likelihood, worst of {len(narrow)} models"
            worst = round(min(changes), 3) + 0.0  # no sign of nothing
            rows.append([what, f"{worst:+.3f} nats"])
    return rows


def _accuracy(records: dict[str, Record]) -> list[list[str]]:
    if "accuracy" not in records:
        return []
    data = records["accuracy"]["data"]
    rows = []
    for name, run in data["runs"].items():
        if run["task"] == "gp":
            for kernel, label in KERNELS.items():
                index = list(KERNELS).index(kernel)
                papers = run["published"].items()
                paper = "; ".join(f"{row} {v[index]:.2f}" for row, v in papers)
                value = f"{run['scores'][kernel]['log_likelihood']:.2f}"
                rows.append([f"{name}: log-likelihood, {label}", value, paper])
        else:
            ours = run["scores"][name]
            others = sorted((s["rmse"], n) for n, s in run["scores"].items() if n != name)
            beside = "; ".join(f"{n} {rmse:.3f}" for rmse, n in others)
            rows.append([f"{name}: RMSE one step ahead", f"{ours['rmse']:.3f}", beside])
            inside = f"{100 * ours['coverage_90']:.1f} %"
            rows.append([f"{name}: inside the 90 % band", inside, "90 % is right"])
    return rows
