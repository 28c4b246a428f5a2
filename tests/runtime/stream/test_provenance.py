"""Pieces state which rows a state has learned, and refuse a row that comes twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefold.runtime import OverlapError, Piece, Provenance, SnapshotError
from edgefold.runtime.stream.provenance import MOST_ROWS, Origin, as_array, read_provenances

SITES = ((), (("site", "3"),), (("site", "4"),), (("day", "1"), ("site", "3")), (("day", "2"),))


def rows_of(piece: Piece) -> set[tuple[str, int, str, str]]:
    """The cells (source, row, site, day) that a piece may hold; a column that it does not name may
    have any value, of which two are enough here."""
    where = dict(piece.where)
    return {
        (piece.source, row, site, day)
        for row in range(piece.start, piece.stop)
        for site in ([where["site"]] if "site" in where else ["3", "4"])
        for day in ([where["day"]] if "day" in where else ["1", "2"])
    }


@st.composite
def pieces(draw: Callable[[Any], Any]) -> Piece:
    start, size = draw(st.integers(0, 12)), draw(st.integers(0, 4))
    n_points = draw(st.integers(0, size))
    where = draw(st.sampled_from(SITES))
    return Piece(draw(st.sampled_from("ab")), start, start + size, n_points, where)


def overlaps(first: set[Any], second: set[Any]) -> bool:
    return bool(first & second)


@given(st.lists(pieces(), max_size=8))
def test_pieces_are_refused_exactly_if_a_row_comes_twice(given: list[Piece]) -> None:
    seen, provenance = set[Any](), Provenance()
    accepted: list[Piece] = []
    for piece in given:
        if overlaps(seen, rows_of(piece)):
            with pytest.raises(OverlapError):
                provenance.add(piece)
            with pytest.raises(OverlapError):
                Provenance([*accepted, piece])
            continue
        provenance = provenance.add(piece)
        accepted.append(piece)
        seen |= rows_of(piece)
    assert provenance == Provenance(reversed(accepted))
    assert provenance.n_points == sum(piece.n_points for piece in accepted)
    assert set[Any]().union(*map(rows_of, provenance.pieces)) == seen


@given(st.lists(pieces(), max_size=5), st.lists(pieces(), max_size=5), st.randoms())
def test_joins_are_refused_as_rows_and_their_order_is_not_seen(
    one: list[Piece], other: list[Piece], random: Any
) -> None:
    sides = []
    for mine in (one, other):
        side = Provenance()
        for piece in mine:
            try:
                side = side.add(piece)
            except OverlapError:
                continue
        sides.append(side)
    rows = [set[Any]().union(*map(rows_of, side.pieces)) for side in sides]
    if overlaps(*rows):
        for first, second in (sides, reversed(sides)):
            with pytest.raises(OverlapError):
                first.join(second)
        return
    joined = sides[0].join(sides[1])
    assert joined == sides[1].join(sides[0])
    mixed = [*sides[0].pieces, *sides[1].pieces]
    random.shuffle(mixed)
    assert as_array(Provenance(mixed).to_form()).tobytes() == as_array(joined.to_form()).tobytes()
    (again,) = read_provenances(as_array([joined.to_form()]), [joined.n_points])
    assert again == joined and hash(again) == hash(joined)


def test_adjacent_pieces_are_joined() -> None:
    found = Provenance([Piece("a", 5, 9, 4), Piece("a", 0, 5, 3), Piece("a", 9, 9, 0)])
    assert found.pieces == (Piece("a", 0, 9, 7),)
    assert found.add(Piece("b", 9, 12, 1)).pieces == (Piece("a", 0, 9, 7), Piece("b", 9, 12, 1))


def test_an_overlap_is_named() -> None:
    roof = Provenance([Piece("roof.csv", 0, 10, 10, (("site", "3"),))])
    with pytest.raises(OverlapError, match=r"rows 4 to 9 of roof\.csv \(site=3\) and roof\.csv "):
        roof.add(Piece("roof.csv", 4, 20, 16))
    with pytest.raises(OverlapError, match=r"rows 4 to 9 of roof\.csv \(site=3\) would"):
        roof.add(Piece("roof.csv", 4, 20, 16, (("site", "3"),)))


def test_columns_are_put_in_order_and_named_once() -> None:
    piece = Piece("a", 0, 1, 1, (("site", "3"), ("day", "1")))
    assert piece.where == (("day", "1"), ("site", "3"))
    with pytest.raises(SnapshotError, match="each column once"):
        Piece("a", 0, 1, 1, (("site", "3"), ("site", "4")))


WRONG: list[Any] = [
    ("a", 2, 1, 0),
    ("a", -1, 1, 0),
    ("a", 0, 1, 2),
    ("a", 0, 1, -1),
    ("a", 0, MOST_ROWS, 0),
    ("a", 0.0, 1, 0),
    ("a", False, True, 0),
    ("", 0, 1, 0),
    (3, 0, 1, 0),
    ("\ud800", 0, 1, 0),
    ("a", 0, 1, 0, [("site", 3)]),
    ("a", 0, 1, 0, "site"),
    ("a", 0, 1, 0, 3),
]


@pytest.mark.parametrize("wrong", WRONG)
def test_an_impossible_piece_is_refused(wrong: Any) -> None:
    with pytest.raises(SnapshotError, match="a piece"):
        Piece(*wrong)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b"{}",
        b"[3]",
        b"[[], []]",
        b'[[["a",[],0,5]]]',
        b'[[["a",[],0,5,6]]]',
        b'[[["a",[],5,0,0]]]',
        b'[[["a",[],0,5,4], ["b",[],0,5,4]]]',  # more points than the state, and a blank
        b'[[["a",[],0,3,3],["a",[],3,4,1]]]',  # not joined
        b'[[["b",[],0,3,1],["a",[],0,3,1]]]',  # not in order
        b'[[["a",[],0,3,1],["a",[],2,3,1]]]',
        b'[[["a",[],0,3,3.0]]]',
        b'[[["a",[],0,3,true]]]',
        b'[[["a",[],0,0,0]]]',
        b'[[["a",[["x"]],0,3,1]]]',
        b"[" * 100_000,
    ],
)
def test_damaged_pieces_are_refused(text: bytes) -> None:
    with pytest.raises(SnapshotError, match="pieces"):
        read_provenances(np.frombuffer(text, np.uint8), [5])


def test_text_of_any_script_is_kept_as_utf_8() -> None:
    form = Provenance([Piece("dach-ä.csv", 0, 1, 1, (("Ort", "屋根"),))]).to_form()
    assert json.loads(as_array([form]).tobytes().decode()) == [
        [["dach-ä.csv", [["Ort", "屋根"]], 0, 1, 1]]
    ]
    assert "屋根".encode() in as_array([form]).tobytes()


def test_points_after_the_last_statement_are_of_the_source() -> None:
    stated = Provenance([Piece("roof", 0, 4, 3), Piece("cellar", 0, 9, 9)])
    origin = Origin(stated, 14)  # two of the points are of unknown rows
    assert origin.now(14, "roof") is stated and origin.now(20, None) is stated
    assert origin.now(20, "roof").pieces[-1] == Piece("roof", 0, 10, 9)
    assert origin.now(20, "attic").pieces[0] == Piece("attic", 0, 6, 6)


def test_many_pieces_take_steps_in_proportion_to_sorting(monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 sites that were each learned twice a day: no piece is compared with all others."""
    n, compared = 20_000, []
    monkeypatch.setattr(
        "edgefold.runtime.stream.provenance._sweep", lambda near, same: compared.append(len(near))
    )
    sites = [(("site", str(i)),) for i in range(n)]
    days = [Piece("fleet", 10 * day, 10 * day + 5, 5, site) for site in sites for day in (0, 1)]
    extra = [Piece("fleet", 5, 10, 5, (("day", "1"), *site)) for site in sites]
    joined = Provenance(days).join(Provenance(extra))
    assert len(joined.pieces) == 3 * n
    assert sum(compared) <= 3 * (2 * n + n + 3 * n)
