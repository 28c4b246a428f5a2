"""The tables of `benchmarks.sensors.sensor_paths`, and the picture of what bands hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.record import Record
from benchmarks.sensors.path_scores import BANDS, GROUPS, within
from benchmarks.table import Table

TITLES = {"m4_hourly": "M4-Hourly", "us_births": "births in the USA"}


def sensor_paths(data: Record) -> list[Table]:
    """All tables of a record."""
    return [over_all(data), each(data["series"]["series"]), *tasks(data["tasks"])]


def sets(data: Record) -> dict[str, Record]:
    """Scores of the series together, and of each task, by title."""
    over = data["series"]["over_all"]
    found = {f"{over['n_series']} series": over}
    for name, scores in data["tasks"].items():
        title, often = TITLES.get(name, name), scores["often"]
        found |= {title: scores, f"{title}, {often['n_origins']:,} origins": often}
    return found


def over_all(data: Record) -> Table:
    """Bands of each set, at some rows ahead."""
    rows = []
    for title, scores in sets(data).items():
        for band in BANDS:
            shares = scores["holds"][band]
            cells = {h: f"{100 * shares[h - 1]:.1f} %" for h in within(len(shares))}
            rows.append([f"{title}, {band} % band", *(cells.get(h, "") for h in within(48))])
    over = data["series"]["over_all"]
    near = [str(over["near_80"].get(str(h), "")) for h in within(48)]
    rows.append([f"of {over['n_series']} series, 80 % band within 6 points", *near])
    header = ["share of values inside, by rows ahead", *map(str, within(48))]
    note = "Of the series the mean over series; of a task all values together."
    return Table(header, rows, note)


def each(series: Record) -> Table:
    """Bands and medians of each series."""
    groups = [group for group in GROUPS if group != "17 to 48"]
    rows = []
    for name, of in series.items():
        shares = of["holds"]["80"]
        holds = [f"{100 * shares[h - 1]:.0f} %" for h in within(len(shares))]
        ratios = [_ratio(of["medians"][group]) for group in groups]
        rows.append([name, f"{of['n_origins']:,}", *holds, *ratios])
    header = ["", "origins", *(f"80 % at {h}" for h in within(48)), *(f"rows {g}" for g in groups)]
    note = (
        "Rows: error of the medians beside that of persistence or of the season before, whichever "
        "is better on the series. Empty: that forecast never errs."
    )
    return Table(header, rows, note)


def tasks(of: Record) -> list[Table]:
    """Scores of the published tasks."""
    if not of:
        return []
    rows = []
    for name, one in of.items():
        counts = [f"{one['n_series']:,}", f"{one['n_origins']:,}"]
        scores = [f"{one['weighted_quantile_loss']:.4f}", f"{one['mase']:.3f}"]
        rows.append([TITLES.get(name, name), *counts, *scores])
    note = (
        "GIFT-Eval's m4_hourly/H/short and us_births/D/short (Aksu et al. 2024), without the times "
        "of the first. Its table of 2026 has 0.0203 and 0.0276 for Chronos-Bolt small, 0.0337 and "
        "0.0738 for AutoARIMA, and 0.0266 on the first for Toto-2 of 4 million parameters."
    )
    return [Table(["task", "series", "windows", "weighted quantile loss", "MASE"], rows, note)]


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def draw_holds(data: dict[str, Any], out: Path) -> None:
    """Draw what the bands hold at each row ahead: of the series, and of tasks from many origins."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    published = {TITLES.get(name, name) for name in data["tasks"]}
    drawn = {title: of for title, of in sets(data).items() if title not in published}
    width = 4.2 * len(drawn)
    figure, panels = plt.subplots(
        1, len(drawn), sharey=True, squeeze=False, figsize=(width, 3.2), layout="constrained"
    )
    for axes, (title, scores) in zip(panels[0], drawn.items(), strict=True):
        for color, band in (("C0", "80"), ("C1", "90")):
            shares = [100 * share for share in scores["holds"][band]]
            axes.axhline(float(band), color=color, linewidth=0.8, linestyle="--")
            axes.plot(range(1, len(shares) + 1), shares, color=color, label=f"{band} % band")
        axes.set(title=title, xlabel="rows ahead", ylim=(60, 100))
        axes.spines[["top", "right"]].set_visible(False)
    panels[0, 0].set_ylabel("% of values inside")
    panels[0, 0].legend(frameon=False, loc="lower left")
    figure.savefig(out, dpi=120)
    plt.close(figure)
