"""A stream knows which rows it has learned, through every call that changes its state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.runtime import (
    BackendError,
    OverlapError,
    Piece,
    Provenance,
    SnapshotError,
    StateSlots,
    Stream,
)
from edgefold.runtime.stream.provenance import PROVENANCE, as_array
from edgefold.runtime.stream.snapshot import read_snapshot, write_snapshot
from tests.contract import Array
from tests.runtime.stream.interruptions import interruptions
from tests.runtime.stream.subjects import points


def learn(stream: Stream, n: int) -> None:
    stream.update(*points(stream, n))


def open_as(bundle: Path, source: str | None, **options: Any) -> Stream:
    return Stream.open(bundle, source=source, **options)


@pytest.mark.parametrize("buffered", [False, True])
def test_all_points_of_a_source_are_its_rows(tiny_bundle: Path, buffered: bool) -> None:
    with open_as(tiny_bundle, "roof", buffered=buffered) as stream:
        assert stream.provenance == Provenance()
        learn(stream, 1)
        learn(stream, 300)  # chunks, and consolidations
        assert stream.provenance.pieces == (Piece("roof", 0, 301, 301),)
        stream.reset()
        assert stream.provenance == Provenance()


def test_a_step_that_fails_states_nothing(tiny_bundle: Path) -> None:
    def fail(sides: int) -> None:
        raise BackendError("injected")

    with open_as(tiny_bundle, "roof") as stream:
        learn(stream, 2)
        stream._one.run = fail  # type: ignore[method-assign]
        with pytest.raises(BackendError):
            learn(stream, 1)
        with pytest.raises(BackendError):  # after a whole chunk of 8
            learn(stream, 9)
        assert stream.n_points == 10
        assert stream.provenance.pieces == (Piece("roof", 0, 10, 10),)


def test_a_snapshot_keeps_the_pieces_and_its_caller_does_not_see_them(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    path = tmp_path / "s.npz"
    with open_as(tiny_bundle, "roof") as stream:
        learn(stream, 5)
        stream.save(path, {"own": np.arange(3)})
        learn(stream, 5)
        assert [*stream.restore(path)] == ["own"]
        assert stream.provenance.pieces == (Piece("roof", 0, 5, 5),)
        learn(stream, 2)
        assert stream.provenance.pieces == (Piece("roof", 0, 7, 7),)
    with open_as(tiny_bundle, None) as stream:
        stream.restore(path)
        learn(stream, 2)  # of unknown rows
        assert stream.provenance.pieces == (Piece("roof", 0, 5, 5),) and stream.n_points == 7
        stream.save(path)
    with open_as(tiny_bundle, "roof") as stream:
        stream.restore(path)
        learn(stream, 1)
        assert stream.provenance.pieces == (Piece("roof", 0, 6, 6),) and stream.n_points == 8


def test_a_snapshot_without_pieces_has_no_further_array(stream: Stream, tmp_path: Path) -> None:
    learn(stream, 5)
    stream.save(tmp_path / "s.npz")
    assert read_snapshot(tmp_path / "s.npz", stream.manifest)[2] == {}


def test_the_same_rows_give_the_same_bytes_in_any_order(tiny_bundle: Path, tmp_path: Path) -> None:
    texts = []
    for order in ((0, 1), (1, 0)):
        with open_as(tiny_bundle, None) as stream:
            for part in order:
                learn(stream, 4)
                stream.learned(Piece("roof.csv", 4 * part, 4 * part + 4, 4))
            stream.save(tmp_path / "s.npz")
            extra = read_snapshot(tmp_path / "s.npz", stream.manifest)[2]
            texts.append(extra[PROVENANCE].tobytes())
    assert texts[0] == texts[1] == b'[[["roof.csv",[],0,8,8]]]'


def test_reserved_names_of_arrays_are_refused(stream: Stream, tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="choose another name"):
        stream.save(tmp_path / "s.npz", {PROVENANCE: np.zeros(1)})
    assert not (tmp_path / "s.npz").exists()


@pytest.mark.parametrize(
    "form",
    [
        [[["roof", [], 0, 6, 6]]],  # more points than the state has
        [[["roof", [], 6, 0, 0]]],
        [[["roof", [], 0, 3, 3]], []],
        [[["roof", [], 0, 3, 3], ["roof", [], 2, 4, 1]]],
        {"roof": 3},
    ],
)
@pytest.mark.parametrize("call", ["restore", "merge"])
def test_forged_pieces_are_refused_and_change_nothing(
    stream: Stream, tmp_path: Path, form: Any, call: str
) -> None:
    path = tmp_path / "s.npz"
    learn(stream, 5)
    stream.save(path)
    record, state, _ = read_snapshot(path, stream.manifest)
    write_snapshot(path, record, state, {PROVENANCE: as_array(form)})
    before = stream._state.at
    with pytest.raises(SnapshotError, match="pieces"):
        getattr(stream, call)(path)
    assert stream._state.at is before


@pytest.mark.parametrize("array", [np.zeros(0), np.zeros((2, 2)), np.arange(9, dtype=np.int64)])
def test_arrays_of_another_type_are_no_pieces(stream: Stream, tmp_path: Path, array: Array) -> None:
    path = tmp_path / "s.npz"
    stream.save(path)
    record, state, _ = read_snapshot(path, stream.manifest)
    write_snapshot(path, record, state, {PROVENANCE: array})
    with pytest.raises(SnapshotError, match="pieces"):
        stream.restore(path)


# Stating rows -------------------------------------------------------------------------------------


def test_a_program_states_rows_after_they_were_learned(tiny_bundle: Path) -> None:
    site = (("site", "3"),)
    with open_as(tiny_bundle, None, buffered=True) as stream:
        learn(stream, 6)
        stream.learned(Piece("roof.csv", 0, 10, 6, site))  # four rows have nulls or other sites
        learn(stream, 3)
        stream.learned(Piece("roof.csv", 10, 13, 3, site))
        learn(stream, 2)  # never stated
        assert stream.provenance.pieces == (Piece("roof.csv", 0, 13, 9, site),)
        assert stream.n_points == 11


def test_a_statement_that_cannot_be_true_changes_nothing(stream: Stream) -> None:
    with pytest.raises(SnapshotError, match="once, after its points were learned"):
        stream.learned(Piece("roof.csv", 0, 5, 5))
    learn(stream, 5)
    stream.learned(Piece("roof.csv", 0, 5, 5))
    with pytest.raises(SnapshotError, match="0 points of unknown rows"):
        stream.learned(Piece("roof.csv", 5, 10, 5))
    learn(stream, 5)
    with pytest.raises(OverlapError, match=r"rows 4 to 4 of roof\.csv"):
        stream.learned(Piece("roof.csv", 4, 9, 5))
    assert stream.provenance.pieces == (Piece("roof.csv", 0, 5, 5),)


def test_a_stream_of_a_source_states_its_points_itself(tiny_bundle: Path) -> None:
    with open_as(tiny_bundle, "roof") as stream:
        learn(stream, 5)
        with pytest.raises(SnapshotError, match="0 points of unknown rows"):
            stream.learned(Piece("roof.csv", 0, 5, 5))
    with pytest.raises(SnapshotError, match="name the source"):
        open_as(tiny_bundle, "")


def test_a_statement_changes_no_prediction(stream: Stream) -> None:
    x, y = points(stream, 20)
    stream.update(x, y)
    before = stream.query(x[:2]).mean.copy()
    state = stream.state()
    stream.learned(Piece("roof.csv", 0, 20, 20))
    np.testing.assert_array_equal(stream.query(x[:2]).mean, before)
    for name, array in stream.state().items():
        np.testing.assert_array_equal(array, state[name])


# Merging ------------------------------------------------------------------------------------------


@pytest.fixture
def cellar(tiny_bundle: Path, tmp_path: Path) -> Path:
    """A snapshot of 30 points of the source cellar."""
    with open_as(tiny_bundle, "cellar") as stream:
        learn(stream, 30)
        stream.save(tmp_path / "cellar.npz")
    return tmp_path / "cellar.npz"


def test_streams_of_two_sources_merge_and_keep_the_pieces_of_both(
    tiny_bundle: Path, cellar: Path, tmp_path: Path
) -> None:
    both = (Piece("cellar", 0, 30, 30), Piece("roof", 0, 20, 20))
    with open_as(tiny_bundle, "roof") as stream:
        learn(stream, 20)
        assert stream.merge(cellar) == {}
        assert stream.provenance.pieces == both
        learn(stream, 4)
        assert stream.provenance.pieces[1] == Piece("roof", 0, 24, 24)
        stream.save(tmp_path / "merged.npz")
        for path in (cellar, tmp_path / "merged.npz"):
            before = stream._state.at
            with pytest.raises(OverlapError, match="rows 0 to 29 of cellar"):
                stream.merge(path)
            with pytest.raises(OverlapError, match="rows 0 to 29 of cellar"):
                stream.merge(path, disjoint=True)
            assert stream._state.at is before


def test_points_of_unknown_rows_merge_only_if_the_caller_vouches_for_them(
    stream: Stream, cellar: Path, tmp_path: Path
) -> None:
    stream.merge(cellar)  # an empty state has nothing in common with any other
    assert stream.provenance.pieces == (Piece("cellar", 0, 30, 30),)
    stream.reset()
    learn(stream, 20)
    stream.save(tmp_path / "unknown.npz")
    with pytest.raises(OverlapError, match="20 points of this state and of 0 points"):
        stream.merge(cellar)
    stream.merge(cellar, disjoint=True)
    assert stream.n_points == 50
    assert stream.provenance.pieces == (Piece("cellar", 0, 30, 30),)
    stream.restore(cellar)
    with pytest.raises(OverlapError, match="0 points of this state and of 20 points"):
        stream.merge(tmp_path / "unknown.npz")


def test_states_of_other_sites_over_the_same_rows_merge(stream: Stream, tmp_path: Path) -> None:
    for site in "34":
        stream.reset()
        learn(stream, 10)
        stream.learned(Piece("fleet.csv", 0, 20, 10, (("site", site),)))
        stream.save(tmp_path / f"{site}.npz")
    stream.merge(tmp_path / "3.npz")
    assert len(stream.provenance.pieces) == 2 and stream.provenance.n_points == 20


def test_waiting_points_are_stated_too(tiny_bundle: Path, cellar: Path) -> None:
    with open_as(tiny_bundle, "roof", buffered=True) as stream:
        learn(stream, 3)
        stream.merge(cellar)
        learn(stream, 2)
        assert stream.provenance.pieces == (Piece("cellar", 0, 30, 30), Piece("roof", 0, 5, 5))


# Slots --------------------------------------------------------------------------------------------


def test_a_slot_keeps_its_pieces(tiny_bundle: Path) -> None:
    with open_as(tiny_bundle, "roof") as stream:
        slots = StateSlots(stream.manifest, 2)
        learn(stream, 4)
        stream.take(slots, 0)
        stream.put(slots, 1)
        assert stream.provenance == Provenance()
        learn(stream, 2)
        with pytest.raises(OverlapError, match="rows 0 to 1 of roof"):
            stream.merge_slot(slots, 0)
        stream.put(slots, 0)
        assert stream.provenance.pieces == (Piece("roof", 0, 4, 4),)


def test_slots_keep_pieces_as_arrays(stream: Stream) -> None:
    slots = StateSlots(stream.manifest, 3)
    assert "pieces" not in slots.arrays(3)
    for slot in (0, 2):
        learn(stream, 4)
        stream.take(slots, slot)
        slots.learned(slot, Piece("roof.csv", 0, 9, 4, (("sensor", str(slot)),)))
    with pytest.raises(SnapshotError, match="4 points of unknown rows"):
        slots.learned(2, Piece("roof.csv", 9, 99, 5))
    again = StateSlots(stream.manifest, 3)
    again.load(slots.arrays(3), 3)
    stream.put(again, 2)
    assert stream.provenance.pieces == (Piece("roof.csv", 0, 9, 4, (("sensor", "2"),)),)
    stream.put(again, 1)
    assert stream.provenance == Provenance()
    damaged = {**slots.arrays(3), "pieces": as_array([[["roof", [], 0, 5, 5]], [], []])}
    with pytest.raises(SnapshotError, match="more points"):
        again.load(damaged, 3)
    stream.put(again, 2)
    assert stream.provenance.n_points == 4


# Interrupts ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_an_interrupt_never_states_points_that_were_not_learned(
    tiny_bundle: Path, cellar: Path
) -> None:
    """Pieces and points change at once, and a program's own statement comes after its points."""
    roof, other = Piece("roof", 0, 20, 20), Piece("cellar", 0, 30, 30)
    for source in ("roof", None):
        with open_as(tiny_bundle, source) as stream:

            def prepare(stream: Stream = stream, source: str | None = source) -> None:
                stream.reset()
                learn(stream, 20)
                if source is None:
                    stream.learned(roof)

            calls = {
                "merge": lambda stream=stream: stream.merge(cellar),
                "restore": lambda stream=stream: stream.restore(cellar),
                "reset": stream.reset,
            }
            whole = {20: (roof,), 50: (other, roof), 30: (other,), 0: ()}
            for call in calls.values():
                for _ in interruptions(prepare, call):
                    assert stream.provenance.pieces == whole[stream.n_points]

    with open_as(tiny_bundle, None) as stream:

        def learn_and_state() -> None:
            learn(stream, 20)
            stream.learned(roof)

        ends = set()
        for _ in interruptions(stream.reset, learn_and_state):
            ends.add((stream.n_points, stream.provenance.n_points))
        assert ends >= {(0, 0), (20, 0), (20, 20)} and all(n <= points for points, n in ends)


def test_a_sample_leaves_the_pieces(tiny_bundle: Path) -> None:
    with open_as(tiny_bundle, "roof") as stream:
        x, y = points(stream, 20)
        stream.update(x, y)
        stream.sample(x[:4], block=1, seed=0)
        assert stream.provenance.pieces == (Piece("roof", 0, 20, 20),)
        assert json.loads(as_array(stream.provenance.to_form()).tobytes())
