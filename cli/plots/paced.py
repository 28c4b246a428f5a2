"""Draw a paced profile as SVG: latency, power and clocks while rows arrive at fixed rates."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes

from edgefold.cli.plots.profile import svg
from edgefold.cli.plots.style import BLUE, GREEN, GREY, ORANGE, RED, SAND
from edgefold.cli.text.numbers import format_time

COLOURS = (BLUE, ORANGE, GREEN, RED, SAND)


def latency_by_rate(paced: dict[str, Any]) -> str:
    """Draw p50, p99 and the slowest arrival of each backend over the rate."""

    def draw(axes: Axes) -> None:
        styles = (("p50", "-", 1.8), ("p99", "--", 1.3), ("max", ":", 1.0))
        for (label, runs), colour in zip(_by_backend(paced).items(), COLOURS, strict=False):
            for quantile, style, width in styles:
                points = [
                    (run["rate_hz"], run["latency"]["from_due"][f"{quantile}_s"]) for run in runs
                ]
                shown = [point for point in points if point[1] is not None]
                name = label if quantile == "p50" else None
                axes.plot(
                    [rate_hz for rate_hz, _ in shown],
                    [time_s for _, time_s in shown],
                    style,
                    color=colour,
                    lw=width,
                    marker="o",
                    ms=4,
                    label=name,
                )
        for label, (_, style, width) in zip(("median", "p99", "slowest"), styles, strict=True):
            axes.plot([], [], style, color=GREY, lw=width, label=label)
        _rate_axis(axes, paced)
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_formatter(ticker.NullFormatter())
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda s, _: format_time(s)))
        axes.set_ylabel("answer after due")

    return svg("paced-latency", draw)


def power_by_rate(paced: dict[str, Any]) -> str:
    """Draw power above idle of each backend over the rate, and where two of them cross."""

    def draw(axes: Axes) -> None:
        for (label, runs), colour in zip(_by_backend(paced).items(), COLOURS, strict=False):
            measured = [run for run in runs if run["energy"]]
            rates_hz = [run["rate_hz"] for run in measured]
            powers_w = [run["energy"]["power_above_idle_w"] for run in measured]
            halves_w = [run["energy"]["power_interval_95_w"] for run in measured]
            if measured:  # straight in the rate, as the crossing is found: bent on this axis
                between_hz = np.linspace(rates_hz[0], rates_hz[-1], 500)
                axes.plot(between_hz, np.interp(between_hz, rates_hz, powers_w), color=colour)
                axes.errorbar(
                    *(rates_hz, powers_w, halves_w),
                    color=colour,
                    fmt="o",
                    ms=4,
                    capsize=3,
                    label=label,
                )
        for crossing in paced["crossings"]:
            if crossing["verdict"] == "crossing":
                axes.axvspan(crossing["low_hz"], crossing["high_hz"], color=GREY, alpha=0.2, lw=0)
                axes.axvline(
                    crossing["rate_hz"],
                    color=GREY,
                    ls=(0, (4, 3)),
                    lw=1,
                    label=f"{crossing['rate_hz']:.3g} Hz",
                )
        _rate_axis(axes, paced)
        axes.set_ylabel("W above idle")

    return svg("paced-power", draw)


def clocks(paced: dict[str, Any]) -> str:
    """Draw how often each clock frequency was read, a bar for each backend, rate and device."""
    bars = [
        (f"{run['backend']}, {run['rate_hz']:g} Hz, {device.upper()}", seen)
        for run in paced["runs"]
        for device, seen in run["clocks"].items()
        if seen
    ]
    top_hz = max(clock["frequency_hz"] for _, seen in bars for clock in seen) or 1.0

    def draw(axes: Axes) -> None:
        shades = matplotlib.colormaps["YlGnBu"]
        for row, (_, seen) in enumerate(bars):
            total, left = sum(clock["n"] for clock in seen), 0.0
            for clock in seen:
                share = 100 * clock["n"] / total
                fast = clock["frequency_hz"] / top_hz
                axes.barh(row, share, left=left, color=shades(0.15 + 0.8 * fast), height=0.7)
                if share >= 9:
                    text = f"{clock['frequency_hz'] / 1e6:.0f}" if clock["frequency_hz"] else "off"
                    ink = "white" if fast > 0.5 else "black"
                    axes.text(
                        left + share / 2, row, text, ha="center", va="center", color=ink, size=8.5
                    )
                left += share
        axes.set_yticks(range(len(bars)), [name for name, _ in bars])
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        axes.grid(False, axis="y")
        axes.set_xlim(0, 100)
        axes.set_xlabel("% of the readings; MHz in the bars")

    return svg("paced-clocks", draw, legend=False, height_inch=max(3.3, 0.8 + 0.27 * len(bars)))


def _by_backend(paced: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in paced["runs"]:
        groups.setdefault(run["backend"], []).append(run)
    return groups


def _rate_axis(axes: Axes, paced: dict[str, Any]) -> None:
    axes.set_xscale("log")
    rates_hz = sorted({run["rate_hz"] for run in paced["runs"]})
    axes.set_xticks(rates_hz, [f"{rate_hz:g}" for rate_hz in rates_hz])
    axes.minorticks_off()
    axes.set_xlim(rates_hz[0] / 1.3, rates_hz[-1] * 1.3)
    axes.set_xlabel("arrivals a second")
