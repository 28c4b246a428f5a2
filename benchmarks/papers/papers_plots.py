"""Training curves of a table's rows: the log-likelihood of training batches over the steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.papers.papers_page import value_at
from benchmarks.papers.published_tables import TABLES
from benchmarks.record import Record

COLUMNS = 4


def draw_curves(table: str, records: Sequence[Record], out: Path) -> bool:
    """Draw a panel for each row: our curves by number of steps, and the paper's score as a line.

    The loss of a training batch is minus the log-likelihood of the first column's kind of task, up
    to what the loss adds; the end of each curve is the score on held-out batches, as a dot.

    Returns:
        Whether there was anything to draw.
    """
    from matplotlib.figure import Figure

    of = TABLES[table]
    first = of.columns[0]
    if not records or not first.place.endswith(".log_likelihood"):
        return False
    rows = [row for row in of.rows if any(record["title"] == row.title for record in records)]
    n_lines = -(-len(rows) // COLUMNS)
    figure = Figure(figsize=(3 * min(COLUMNS, len(rows)), 2.6 * n_lines), layout="constrained")
    panels = figure.subplots(n_lines, min(COLUMNS, len(rows)), sharey=True, squeeze=False)
    for panel in panels.flat[len(rows) :]:
        panel.set_axis_off()
    for panel, row in zip(panels.flat, rows, strict=False):
        for record in (record for record in records if record["title"] == row.title):
            steps, losses = zip(*record["curve"], strict=True)
            (line,) = panel.plot(steps, [-loss for loss in losses], linewidth=1.4)
            end = value_at(record["scores"], first.place)
            if end is not None:
                panel.plot([record["steps"]], end[:1], "o", color=line.get_color(), markersize=4)
        cell = row.cells[0]
        if cell is not None:
            panel.axhline(cell[0], color="0.35", linestyle=(0, (4, 3)), linewidth=1)
        panel.set_title(row.title, loc="left", fontsize=9)
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
    lowest = min(cell[0] for row in rows if (cell := row.cells[0]) is not None) - 1
    panels.flat[0].set_ylim(bottom=lowest)  # the first steps fall far below
    figure.supxlabel("steps", fontsize=9)
    figure.supylabel(f"{first.title}, nats a target; dashed: the paper", fontsize=9)
    figure.savefig(out, dpi=130)
    return True
