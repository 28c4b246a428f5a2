"""Print which rows a snapshot has learned."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgefold.runtime.stream.provenance import Provenance

MOST = 20
"""At most this many pieces are listed."""


def piece_lines(provenances: Iterable[Provenance], n_points: int) -> list[str]:
    """Return a table of the pieces of states, and of the points whose rows are unknown.

    Args:
        provenances: The pieces of each state.
        n_points: The number of points of all states together.
    """
    pieces = [piece for each in provenances for piece in each.pieces]
    lines = [
        f"{piece.n_points:>12,}  {piece.origin}, rows {piece.start:,} to {piece.stop - 1:,}"
        for piece in pieces[:MOST]
    ]
    if rest := pieces[MOST:]:
        n = sum(piece.n_points for piece in rest)
        lines.append(f"{n:>12,}  in {len(rest):,} more pieces")
    if unknown := n_points - sum(piece.n_points for piece in pieces):
        lines.append(f"{unknown:>12,}  of unknown rows")
    return ["      points  rows", *lines]
