"""Define the colours, fonts and axes that all pictures of the command line have in common."""

from __future__ import annotations

import io
from typing import Any

from matplotlib import dates
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK = "#010203"  # stands for the page's text colour until the SVG is written
BLUE, ORANGE, GREEN, RED, GREY = "#3b7dd8", "#d9822b", "#2e9e6b", "#cf4a4a", "#8a8f98"
LIGHT_BLUE, SAND = "#7db3f2", "#b9a26a"
PARTS = (GREY, SAND, BLUE, LIGHT_BLUE, GREEN)
STYLE: dict[Any, Any] = {  # matplotlib's stubs list every key
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica Neue", "Arial", "Liberation Sans", "DejaVu Sans"],
    "font.size": 10,
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.7,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "grid.color": GREY,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.6,
}


def finish_axes(axes: Axes, is_dated: bool) -> None:
    """Label times as dates, leave little room at both ends, and draw a grid behind everything."""
    if is_dated:
        locator = dates.AutoDateLocator()  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        formatter = dates.ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_formatter(formatter)
    axes.margins(x=0.01)
    axes.grid(True)
    axes.set_axisbelow(True)


def content_of(figure: Figure, format: str, **options: Any) -> bytes:
    """Return a picture file (`format` png, svg or pdf) of a figure; `options` as for savefig."""
    file = io.BytesIO()
    figure.savefig(file, format=format, **options)
    return file.getvalue()
