"""Write a table with a column for each board, in blocks of as many columns as fit the width."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping, Sequence

GAP = 3
WIDEST = 40
"""Characters of a column at most; longer cells are wrapped."""


def side_by_side(names: Sequence[str], rows: Mapping[str, Sequence[str]], width: int) -> str:
    """Return a table: a column for each board, a row for each label.

    Args:
        names: Names of the boards, which head the columns.
        rows: A cell for each board, by the row's label.
        width: Characters of a line at most; a single column may be wider.
    """
    label_width = max((len(label) for label in rows), default=0)
    columns = []
    for index, name in enumerate(names):
        cells = [_wrapped(row[index]) for row in rows.values()]
        widest = max(len(name), *(len(line) for cell in cells for line in cell), 0)
        columns.append((name, cells, widest))
    blocks, left = [], columns
    while left:
        n, used = 1, label_width + GAP + left[0][2]
        while n < len(left) and used + GAP + left[n][2] <= width:
            used += GAP + left[n][2]
            n += 1
        blocks.append(_block(list(rows), label_width, left[:n]))
        left = left[n:]
    return "\n\n".join(blocks)


def _wrapped(cell: str) -> list[str]:
    return textwrap.wrap(cell, WIDEST, break_on_hyphens=False) or [""]


def _block(
    labels: Sequence[str], label_width: int, columns: Sequence[tuple[str, list[list[str]], int]]
) -> str:
    gap = " " * GAP
    lines = [gap.join([" " * label_width, *(f"{name:<{size}}" for name, _, size in columns)])]
    for index, label in enumerate(labels):
        for number in range(max(len(cells[index]) for _, cells, _ in columns)):
            words = [f"{label if number == 0 else '':<{label_width}}"]
            for _, cells, size in columns:
                cell = cells[index]
                words.append(f"{cell[number] if number < len(cell) else '':<{size}}")
            lines.append(gap.join(words))
    return "\n".join(line.rstrip() for line in lines)


def terminal_width() -> int:
    """Return the columns of the terminal of stdout, or 100 for a pipe or a file."""
    try:
        return max(60, os.get_terminal_size().columns)
    except OSError:
        return 100
