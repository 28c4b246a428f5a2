"""Draw a sweep: a row for each board, a column for each bundle, a colour for each verdict."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from edgefold.cli.plots.style import GREEN, GREY, INK, ORANGE, RED, STYLE, content_of
from edgefold.cli.text.budget import show_range
from edgefold.devices.budget.budget import Budget

if TYPE_CHECKING:
    from edgefold.cli.text.budget import Answers
    from edgefold.devices.budget.microcontroller import MicrocontrollerBudget

COLOURS = {"FITS": GREEN, "UNSURE": ORANGE, "DOES NOT FIT": RED}
TINT = 0.28  # of the cells' colour, so that text stays readable on it
CELL = (2.15, 0.44)  # inches
NARROWEST = 6.4  # inches: the legend and the boards' names
CHARACTERS_PER_INCH = 12
NOTE = (
    "In a cell: memory that is needed and memory to run well, predicted, and an arrival's time, at "
    "least to at most; of a microcontroller RAM and flash. "
    "From data sheets: no board was measured."
)


def draw_sweep(format: str, answers: Answers, asked: str) -> bytes:
    """Draw the verdicts of a sweep and return the content of a picture file.

    Args:
        format: Format of the file: png, svg or pdf.
        answers: Budgets by board and bundle, the same bundles for each board.
        asked: The demand on the boards, in words.
    """
    boards, bundles = list(answers), list(next(iter(answers.values())))
    size = (max(NARROWEST, 3.0 + CELL[0] * len(bundles)), 1.7 + CELL[1] * len(boards))
    style = {**STYLE, "text.color": "#1c1f24", "axes.labelcolor": "#1c1f24"}
    style |= {"xtick.labelcolor": "#1c1f24", "ytick.labelcolor": "#1c1f24"}
    assert INK not in style.values()  # that colour is replaced only in the report's figures
    with matplotlib.rc_context(style):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        for row, board in enumerate(boards):
            for column, bundle in enumerate(bundles):
                _cell(axes, column, row, answers[board][bundle])
        axes.set_xlim(0, len(bundles))
        axes.set_ylim(len(boards), 0)
        axes.set_xticks([i + 0.5 for i in range(len(bundles))], bundles)
        axes.set_yticks([i + 0.5 for i in range(len(boards))], boards)
        axes.tick_params(length=0, labeltop=True, labelbottom=False)
        for spine in axes.spines.values():
            spine.set_visible(False)
        columns = max(40, int(size[0] * CHARACTERS_PER_INCH))
        title = fill(f"Which bundles fit which boards?  {asked}", columns)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        note = fill(NOTE, columns)
        figure.supxlabel(note, x=0.01, ha="left", color=GREY, fontsize=9)
        keys = [Patch(color=colour, alpha=TINT, label=name) for name, colour in COLOURS.items()]
        axes.legend(handles=keys, loc="upper left", bbox_to_anchor=(0, 0), ncols=len(keys))
        return content_of(figure, format, dpi=130, facecolor="white")


def _cell(axes: Axes, column: int, row: int, budget: Budget | MicrocontrollerBudget) -> None:
    gap = 0.02
    axes.add_patch(
        Rectangle(
            (column + gap, row + gap * 2),
            1 - 2 * gap,
            1 - 4 * gap,
            color=COLOURS[budget.verdict],
            alpha=TINT,
            lw=0,
        )
    )
    if isinstance(budget, Budget):
        needed, well = budget.footprint.needed_bytes, budget.footprint.to_run_well_bytes
        text = f"{needed / 1e6:.0f}, {well / 1e6:.0f} MB   {show_range(budget.arrival)}"
    else:
        ram, flash = budget.ram_bytes / 1e3, budget.flash_bytes / 1e3
        text = f"{ram:.0f}, {flash:.0f} kB   {show_range(budget.arrival)}"
    axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=8.5)
