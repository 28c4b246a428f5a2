"""Pictures of `benchmarks.models.family`: growth with N, and what a log-likelihood costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.models.paper_claims import memory, phase_times
from edgefold.cli.text.numbers import format_bytes, format_time

COST_POINTS = 1_000
"""Costs that stand beside scores are those after so many points."""
JOINT = ("tnp-a", "tnp-nd", "lbanp-nd", "lbanp-end", "cmanp-and")
"""Scored by a joint log-likelihood, or given the targets before."""


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"font.size": 11, "font.family": "DejaVu Sans"})
    return plt


def grows(model: dict[str, Any]) -> bool:
    """Return whether the record of a model is of one that keeps its points."""
    return any(cell.get("grows", True) for cell in model["sizes"].values())


def draw_growth(data: dict[str, Any], out: Path) -> None:
    """Update, query and memory against N, in the manner of CMANP's figures 3 and 8."""
    plt = _pyplot()
    from matplotlib.ticker import FuncFormatter, LogLocator

    figure, panels = plt.subplots(1, 3, figsize=(15, 6.4), dpi=130)
    parts: tuple[tuple[str, Callable[[Any], dict[int, float]]], ...] = (
        ("a new point, until a prediction may be asked", partial(phase_times, phase="update")),
        ("a query of 50 targets", partial(phase_times, phase="query")),
        ("memory that the process needs", memory),
    )
    names = list(data["models"])
    grown = [name for name in names if grows(data["models"][name])]
    colors = {
        name: plt.get_cmap("YlOrBr")(0.35 + 0.6 * i / max(1, len(grown) - 1))
        for i, name in enumerate(grown)
    }
    held = [name for name in names if name not in grown]
    colors |= {
        name: plt.get_cmap("PuBu")(0.45 + 0.55 * i / max(1, len(held) - 1))
        for i, name in enumerate(held)
    }
    labels: list[list[tuple[float, int, str]]] = []
    for axes, (title, of) in zip(panels, parts, strict=True):
        ends: list[tuple[float, int, str]] = []
        for name in names:
            values = of(data["models"][name])
            if not values:
                continue
            n = sorted(values)
            axes.loglog(
                n,
                [values[k] for k in n],
                color=colors[name],
                linewidth=2.2,
                marker="o",
                markersize=4,
            )
            ends.append((values[n[-1]], n[-1], name))
        axes.set_title(title, loc="left", fontsize=12, fontweight="bold", pad=10)
        axes.set_xlabel("points in the stream")
        axes.set_xlim(80, 200_000)
        axes.set_xticks([100, 1_000, 10_000])
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(True, which="major", color="#ececec", linewidth=0.8)
        axes.minorticks_off()
        axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
        shown = format_bytes if of is memory else format_time
        low, high = axes.get_ylim()
        axes.set_ylim(low, high * 1.3)  # room for the names
        if high < 100 * low:  # one power of ten alone would be no scale
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _, shown=shown: shown(v)))
        labels.append(ends)
    figure.tight_layout(w_pad=2)
    for axes, ends in zip(panels, labels, strict=True):
        _label(axes, ends, colors)
    _save(figure, out)


def _label(axes: Any, ends: Sequence[tuple[float, float, str]], colors: dict[str, Any]) -> None:
    """Write each name beside its line's end; names that would overlap are pushed apart."""
    axes.figure.canvas.draw()
    step = 11 * axes.figure.dpi / 72
    bottom, top = axes.bbox.y0, axes.bbox.y1
    ends = sorted(ends)
    ys = [axes.transData.transform((n, value))[1] for value, n, _ in ends]
    places: list[float] = []
    for y in ys:
        places.append(max(y, places[-1] + step if places else bottom))
    for index in reversed(range(len(places))):  # what was pushed out at the top comes down again
        above = places[index + 1] - step if index + 1 < len(places) else top
        places[index] = min(places[index], above)
    for (value, n, name), y, place in zip(ends, ys, places, strict=True):
        axes.annotate(
            name,
            (n, value),
            xytext=(26, (place - y) * 72 / axes.figure.dpi),
            textcoords="offset points",
            color=colors[name],
            va="center",
            fontsize=9,
            arrowprops={
                "arrowstyle": "-",
                "color": colors[name],
                "lw": 0.5,
                "shrinkB": 4,
                "relpos": (0, 0.5),
            },
        )


def costs_and_scores(
    families: Sequence[dict[str, Any]], quality: dict[str, Any]
) -> dict[str, dict[str, float]]:
    """Return the cost and score of each model and preset, where records have both.

    Costs are those after `COST_POINTS`: `arrival_s` and `needed_bytes`; `nats` is the mean
    log-likelihood over seeds and kernels.
    """
    nats: dict[tuple[str, str], list[float]] = {}
    for run in quality["runs"]:
        values = [score["log_likelihood"] for score in run["scores"].values()]
        nats.setdefault((run["model"], run["preset"]), []).append(sum(values) / len(values))
    costs = {
        (name, model["preset"]): model
        for family in families
        for name, model in family["models"].items()
        if str(COST_POINTS) in model["times"]
    }
    found = {}
    for (name, preset), values in nats.items():
        if (name, preset) not in costs:
            continue
        model = costs[name, preset]
        n = str(COST_POINTS)
        found[f"{name}, {preset}"] = {
            "nats": sum(values) / len(values),
            "arrival_s": model["times"][n]["arrival"]["median_s"],
            "needed_bytes": model["sizes"][n]["needed_bytes"],
        }
    return found


def front(points: dict[str, tuple[float, float]]) -> list[str]:
    """The names of points (cost, score) that cost less than every better one, by rising cost."""
    kept: list[str] = []
    for name in sorted(points, key=lambda name: (points[name][0], -points[name][1])):
        if not kept or points[name][1] > points[kept[-1]][1]:
            kept.append(name)
    return kept


def draw_pareto(families: Sequence[dict[str, Any]], quality: dict[str, Any], out: Path) -> bool:
    """Log-likelihood on gp against time of an arrival and memory; False if no model has both."""
    models = costs_and_scores(families, quality)
    if not models:
        return False
    plt = _pyplot()
    from matplotlib.ticker import FuncFormatter, LogLocator

    figure, panels = plt.subplots(1, 2, figsize=(13, 6), dpi=130, sharey=True)
    parts = (
        ("arrival_s", "time of an arrival: predict, then learn", format_time),
        ("needed_bytes", "memory that the process needs", format_bytes),
    )
    held = {
        f"{name}, {model['preset']}"
        for family in families
        for name, model in family["models"].items()
        if not grows(model)
    }
    of_model = {name: name.split(",")[0] for name in models}
    if len(set(of_model.values())) == len(models):  # one preset of each: its name says nothing
        models = {of_model[name]: found for name, found in models.items()}
        held = {name.split(",")[0] for name in held}
        of_model = {name: name for name in models}
    colors = {name: "#2b6cb0" if name in held else "#c05621" for name in models}
    for axes, (cost, title, shown) in zip(panels, parts, strict=True):
        points = {name: (found[cost], found["nats"]) for name, found in models.items()}
        best = [points[name] for name in front(points)]
        axes.step(*zip(*best, strict=True), where="post", color="#a0aec0", linewidth=1.5, zorder=1)
        for name, (x, y) in points.items():
            face = "white" if of_model[name] in JOINT else colors[name]
            axes.plot(x, y, "o", color=colors[name], markersize=6, markerfacecolor=face)
        axes.set_xscale("log")
        low, high = (pick(x for x, _ in points.values()) for pick in (min, max))
        room = (high / low) ** 0.08 * 1.02
        axes.set_xlim(low / room, high * room**5)  # names stand to the right of their points
        axes.set_title(title, loc="left", fontsize=12, fontweight="bold", pad=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(True, which="major", color="#ececec", linewidth=0.8)
        axes.minorticks_off()
        if high < 10 * low:  # one power of ten alone would be no scale
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _, shown=shown: shown(v)))
    panels[0].set_ylabel("log-likelihood on gp, nats a target")
    presets = ", ".join(sorted({run["preset"] for run in quality["runs"]}))
    steps = quality["budget"]["steps"]
    legend = (
        f"preset {presets}, {steps:,} steps; costs after {COST_POINTS:,} points; blue: constant "
        "memory; hollow: scored jointly, or given the targets before; grey: Pareto front"
    )
    figure.text(0.01, 0.01, legend, fontsize=9)
    figure.tight_layout(rect=(0, 0.03, 1, 1), w_pad=2)
    for axes, (cost, _, _) in zip(panels, parts, strict=True):
        ends = [(found["nats"], found[cost], name) for name, found in models.items()]
        _label(axes, ends, colors)
    _save(figure, out)
    return True


def _save(figure: Any, out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)
