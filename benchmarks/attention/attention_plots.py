"""Pictures of the benchmarks of attention alone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from benchmarks.attention.attention_tables import OURS
from edgefold.cli.text.numbers import format_bytes, format_time

COLORS = ("#1565c0", "#2e7d32", "#6a1b9a", "#00838f")
OWN, PUBLISHED = "#1565c0", "#b3541e"
PAIRS = (
    ("single", "CoSi", "single output"),
    ("retroactive", "CoRe", "all rows, retroactive"),
    ("nystrom fixed", "CoNySiFix", "Nyström, fixed landmarks"),
    ("nystrom means", "CoNySiCont", "Nyström, continual landmarks"),
    ("hopping", "", "hopping Nyström"),
)
"""Legs of `attention_drift` that compute the same: Edgefold's, the published one, and a title."""
LOST = 1e3
"""Height at which an answer that is not finite is drawn."""
SHOWN = {"4": "queries and keys of deviation 4", "4, outliers": "and one key in 1,000 times 100"}


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"font.size": 11, "font.family": "DejaVu Sans"})
    return plt


def _plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, which="major", color="#ececec", linewidth=0.8)
    axes.minorticks_off()


def draw_speed(data: dict[str, Any], out: Path) -> None:
    """Time of a step and bytes of the state against the window's length."""
    plt = _pyplot()
    from matplotlib.ticker import FuncFormatter, LogLocator

    told = {tuple(k.rsplit(", ", 1)): t for k, t in data["lengths"].items() if k != "noise"}
    kinds = list(dict.fromkeys(kind for kind, _ in told))
    lengths = sorted({int(n) for _, n in told})
    figure, panels = plt.subplots(1, 2, figsize=(12, 4.8), dpi=140)
    parts = (
        ("mean_s", "a step: mean, and dashed without consolidation", format_time),
        ("state_bytes", "state", format_bytes),
    )
    for axes, (part, title, shown) in zip(panels, parts, strict=True):
        for kind, color in zip(kinds, COLORS, strict=False):
            values = [told[kind, str(n)][part] for n in lengths]
            axes.loglog(lengths, values, color=color, linewidth=2.2, marker="o", markersize=4)
            if part == "mean_s" and told[kind, str(lengths[0])]["period"]:
                most = [told[kind, str(n)]["step_s"] for n in lengths]
                axes.loglog(lengths, most, color=color, linewidth=1.2, linestyle=(0, (2, 2)))
            name = OURS[kind].removesuffix(", products folded")
            axes.annotate(
                name, (lengths[-1], values[-1]), (6, 0), textcoords="offset points", color=color,
                va="center", fontsize=9,
            )  # fmt: skip
        axes.set_title(title, loc="left", fontsize=12, fontweight="bold")
        axes.set_xlabel("window, tokens")
        _plain(axes)
        axes.set_xticks(lengths)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _, shown=shown: shown(v)))
        axes.set_xlim(lengths[0] * 0.9, lengths[-1] * 5)
    figure.tight_layout(w_pad=2)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)


def draw_drift(data: dict[str, Any], out: Path) -> None:
    """Draw the error of the answers against tokens: a column for each form, a row for each case.

    An answer that is not finite, or whose error is above `LOST`, is a cross at the top.
    """
    plt = _pyplot()
    rows_of = {leg["leg"]: leg["rows"] for leg in data["legs"]}
    figure, panels = plt.subplots(
        2, len(PAIRS), figsize=(13, 6.4), dpi=140, sharex=True, sharey=True
    )
    for line, (case, title) in zip(panels, SHOWN.items(), strict=True):
        for axes, (own, published, name) in zip(line, PAIRS, strict=True):
            for leg, color in ((own, OWN), (published, PUBLISHED)):
                if leg not in rows_of:
                    continue
                n = [row["n_tokens"] for row in rows_of[leg]]
                errors = [row["error"][case] for row in rows_of[leg]]
                lost = [e is None or e > LOST for e in errors]
                finite = [math.nan if bad else e for bad, e in zip(lost, errors, strict=True)]
                axes.loglog(n, finite, color=color, linewidth=2, marker="o", markersize=4)
                axes.plot(
                    [tokens for tokens, bad in zip(n, lost, strict=True) if bad],
                    [LOST] * sum(lost), "x", color=color, markersize=8, markeredgewidth=2,
                )  # fmt: skip
            axes.axhline(data["bound"], color="#444", linewidth=0.9, linestyle=(0, (5, 4)))
            if axes in panels[0]:
                beside = f"published: {published}" if published else "not compared"
                axes.set_title(f"{name}\n{beside}", loc="left", fontsize=10, pad=10)
            _plain(axes)
        line[0].set_ylabel(f"largest error of an answer\n{title}", fontsize=9.5)
    panels[0][0].set_xlim(100, 2e7)
    panels[0][0].set_ylim(1e-7, LOST * 5)
    figure.supxlabel(
        f"tokens in the stream; blue: Edgefold, brown: as published; a cross: nan, or an error "
        f"above {LOST:,.0f}; dashed: {data['bound']:g}",
        fontsize=10,
    )
    figure.tight_layout(w_pad=1)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)
