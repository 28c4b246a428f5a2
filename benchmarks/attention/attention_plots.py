"""Pictures of the benchmarks of attention alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.attention.attention_tables import OURS
from edgefold.cli.text.numbers import format_bytes, format_time

COLORS = ("#1565c0", "#2e7d32", "#6a1b9a", "#00838f")
THEIRS = ("#b3541e", "#c98a2b", "#7d838c", "#8d6e63")
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
    """Error of the answers against tokens, with and without outliers."""
    plt = _pyplot()
    figure, panels = plt.subplots(1, 2, figsize=(13, 5.2), dpi=140, sharey=True)
    for axes, (case, title) in zip(panels, SHOWN.items(), strict=True):
        ours, theirs = iter(COLORS), iter(THEIRS)
        for leg in data["legs"]:
            if leg["leg"].endswith("retroactive") or leg["leg"].startswith("CoNyRe"):
                continue  # as those of the newest token alone
            own = leg["leg"] in OURS
            color = next(ours if own else theirs)
            n = [row["n_tokens"] for row in leg["rows"]]
            errors = [row["error"][case] for row in leg["rows"]]
            lost = [LOST if e is None or e > LOST else e for e in errors]
            axes.loglog(
                n, lost, color=color, linewidth=2.2 if own else 1.6, marker="o", markersize=4,
                linestyle="-" if own else (0, (4, 2)),
                label=OURS[leg["leg"]] if own else f"published {leg['leg']}",
            )  # fmt: skip
        axes.axhline(data["bound"], color="#444", linewidth=0.9, linestyle=(0, (5, 4)))
        axes.set_title(title, loc="left", fontsize=12, fontweight="bold")
        axes.set_xlabel("tokens in the stream")
        axes.set_ylim(1e-7, LOST * 3)
        _plain(axes)
    panels[0].set_ylabel(f"largest error of an answer; {LOST:,.0f} stands for more, and nan")
    panels[1].legend(fontsize=8.5, frameon=False, loc="center right", bbox_to_anchor=(1.0, 0.62))
    panels[0].set_xlim(100, 2e7)
    panels[1].set_xlim(100, 2e7)
    figure.tight_layout(w_pad=2)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)
