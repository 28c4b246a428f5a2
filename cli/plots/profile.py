"""Draw the figures of a profile's record as inline SVG.

Text stays text, and lines that follow the page's colours are drawn in `currentColor`, so that a
figure fits a light page, a dark one and paper.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.patches import Patch

from edgefold.cli.plots.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    LIGHT_BLUE,
    ORANGE,
    PARTS,
    RED,
    STYLE,
)

COUNT = ticker.FuncFormatter(lambda n, _: f"{n:,.0f}")


def latency_over_stream(record: dict[str, Any]) -> str:
    """Draw median, 99th percentile and maximum of an arriving point along the stream."""

    def draw(axes: Axes) -> None:
        line = record["timeline"]
        for name, label, colour, width in (
            ("max_s", "slowest", GREY, 1.0),
            ("p99_s", "99th percentile", ORANGE, 1.3),
            ("p50_s", "median", BLUE, 1.9),
        ):
            times = [value * 1e6 for value in line[name]]
            axes.plot(line["calls"], times, color=colour, label=label, lw=width)
        axes.set_yscale("log")
        axes.set_ylim(min(line["p50_s"]) * 1e6 / 2, None)
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda us, _: f"{us:,g}"))
        axes.xaxis.set_major_formatter(COUNT)
        axes.set_xlabel("updates")
        axes.set_ylabel("µs per update")

    return svg("latency-over-stream", draw)


def latency_distribution(record: dict[str, Any]) -> str:
    """Draw the share of calls slower than a given time, for each call; both axes logarithmic."""
    steps = {step["name"]: step for step in record["latency"]}

    def draw(axes: Axes) -> None:
        for name, label, colour in (
            ("update", "update", BLUE),
            ("update_bare", "its graph alone", LIGHT_BLUE),
            ("step", "step", BLUE),
            ("step_bare", "its graph alone", LIGHT_BLUE),
            ("query", "query", GREEN),
            ("refresh", "refresh", ORANGE),
            ("row", "predict + update", RED),
        ):
            if name not in steps:
                continue
            step = steps[name]
            left, slower = step["n"], []
            for count in step["counts"]:
                slower.append(left / step["n"])
                left -= count
            times = [edge * 1e6 for edge in step["edges_s"][:-1]]
            axes.step(times, slower, color=colour, label=label, where="post")
        deadline_us = 1e6 / record["options"]["rate_hz"]
        axes.axvline(deadline_us, color=GREY, ls=(0, (4, 3)), lw=1, label="deadline")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(0.5 / max(step["n"] for step in steps.values()), 1.15)
        axes.set_xlabel("µs")
        axes.set_ylabel("calls that took longer")
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda us, _: f"{us:,g}"))
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda y, _: f"{y * 100:g} %"))

    return svg("latency-distribution", draw)


def memory_over_stream(record: dict[str, Any]) -> str:
    """Draw the memory needed along the stream, and the resident pages of files on top of it."""

    def draw(axes: Axes) -> None:
        samples = record["memory"]["samples"]
        calls = [sample["n_updates"] for sample in samples]
        needed = [sample["needed_bytes"] / 1e6 for sample in samples]
        resident = [(sample["needed_bytes"] + sample["file_bytes"]) / 1e6 for sample in samples]
        axes.plot(calls, resident, color=LIGHT_BLUE, label="with pages of files")
        axes.plot(calls, needed, color=BLUE, label="needed")
        peak = record["memory"]["resident_peak_bytes"] / 1e6
        axes.axhline(peak, color=GREY, ls=(0, (4, 3)), lw=1, label="looks like (VmHWM)")
        axes.set_ylim(0, peak * 1.15)
        axes.xaxis.set_major_formatter(COUNT)
        axes.set_xlabel("updates")
        axes.set_ylabel("MB")

    return svg("memory-over-stream", draw)


PLANNED = ("weights", "state", "cache", "io", "activations")


def memory_parts(record: dict[str, Any]) -> str:
    """Draw the needed memory stage by stage, and the bundle's part as measured and as planned."""
    stages = record["memory"]["stages"]
    needed = [0, *(stage["needed_bytes"] for stage in stages)]
    process = [
        (stage["name"], max(0, after - before) / 1e6, colour)
        for stage, (before, after), colour in zip(stages, pairwise(needed), PARTS, strict=True)
    ]
    plan = record["memory"]["plan"]
    colours = (BLUE, LIGHT_BLUE, GREEN, RED, ORANGE)
    planned = [
        (name, plan[f"{name}_bytes"] / 1e6, colour)
        for name, colour in zip(PLANNED, colours, strict=True)
    ]
    bars = (("process", process), ("bundle,\nmeasured", process[2:]), ("bundle,\nplanned", planned))

    def draw(axes: Axes) -> None:
        whole = sum(n_mb for _, n_mb, _ in process)
        for row, (_, parts) in enumerate(bars):
            left = 0.0
            for _, n_mb, colour in parts:
                axes.barh(row, n_mb, left=left, color=colour, height=0.36)
                left += n_mb
            axes.text(left + 0.015 * whole, row, f"{left:.1f} MB", va="center", fontweight="bold")
            handles = [
                Patch(color=colour, label=f"{name} {n_mb:.1f}")
                for name, n_mb, colour in parts
                if n_mb >= 0.05
            ]
            axes.add_artist(
                Legend(
                    axes,
                    handles,
                    [str(handle.get_label()) for handle in handles],
                    loc="lower left",
                    bbox_to_anchor=(0, row - 0.2),
                    bbox_transform=axes.transData,
                    ncols=len(handles),
                    borderpad=0,
                    borderaxespad=0.3,
                    handlelength=0.7,
                    handleheight=0.7,
                    handletextpad=0.4,
                    columnspacing=1.1,
                    fontsize=8.5,
                )
            )
        axes.set_yticks(range(3), [name for name, _ in bars])
        axes.set_ylim(2.4, -0.62)
        axes.set_xlim(0, whole * 1.2)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("MB needed")
        axes.grid(False, axis="y")

    return svg("memory-parts", draw, legend=False)


def power_over_time(record: dict[str, Any]) -> str:
    """Draw the power over the energy measurement, with windows of idleness and work shaded."""
    samples = record["energy"]["samples"]
    colours = {"idle": GREY, "update": BLUE, "step": BLUE, "query": GREEN}

    def draw(axes: Axes) -> None:
        axes.plot(samples["time_s"], samples["power_w"], color=INK, lw=0.8)
        shown: set[str] = set()
        for window in samples["windows"]:
            what = window["what"]
            axes.axvspan(
                window["start_s"],
                window["end_s"],
                color=colours[what],
                alpha=0.22,
                lw=0,
                label=None if what in shown else what,
            )
            shown.add(what)
        low, high = min(samples["power_w"]), max(samples["power_w"])
        if low > 0:
            axes.set_ylim(0, high * 1.1)
        axes.set_xlabel("s")
        axes.set_ylabel("W")

    return svg("power-over-time", draw)


def svg(
    name: str, draw: Callable[[Axes], None], legend: bool = True, height_inch: float = 3.3
) -> str:
    """Call `draw` with one pair of axes; return the picture as an <svg> element with id `name`."""
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(6.2, height_inch), layout="constrained")
        axes = figure.subplots()
        axes.grid(True)
        axes.set_axisbelow(True)
        draw(axes)
        if legend:
            figure.legend(loc="outside upper left", ncols=6, handlelength=1.2, columnspacing=1.2)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' (?:width|height)="[\d.]+pt"', "", text, count=2)
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # numbered in each figure; nothing refers to them
    text = text.replace("<svg", f'<svg id="{name}" role="img"', 1)
    return text.replace(INK, "currentColor")
