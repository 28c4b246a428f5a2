"""A stream learns what a snapshot has learned: all of it, or nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.runtime import BackendError, BundleError, CapacityError, SnapshotError, Stream
from edgefold.runtime.errors import StepRefusedError
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from edgefold.runtime.stream.snapshot import MOST_POINTS, read_snapshot, write_snapshot
from edgefold.runtime.stream.state_slots import StateSlots
from tests.contract import Array
from tests.runtime.stream.interruptions import interruptions
from tests.runtime.stream.subjects import points

N_OWN, N_OTHER = 150, 70
"""Numbers of points of the stream, which has recent and older sums, and of the snapshot."""


@pytest.fixture
def other(stream: Stream, tmp_path: Path) -> Path:
    """A snapshot of the points after the first N_OWN ones; the stream knows nothing."""
    x, y = points(stream, N_OWN + N_OTHER)
    stream.update(x[N_OWN:], y[N_OWN:])
    stream.save(tmp_path / "other.npz", {"row": np.array(17)})
    stream.reset()
    return tmp_path / "other.npz"


def answer(stream: Stream) -> Array:
    return stream.query(points(stream, 4)[0]).mean.copy()


def assert_unchanged(stream: Stream, before: dict[str, Array], n_points: int) -> None:
    assert stream.n_points == n_points
    for name, array in stream.state().items():
        np.testing.assert_array_equal(array, before[name])


def test_a_merged_stream_knows_the_points_of_both(stream: Stream, other: Path) -> None:
    x, y = points(stream, N_OWN + N_OTHER)
    stream.update(x, y)
    expected = answer(stream)
    stream.reset()
    stream.update(x[:N_OWN], y[:N_OWN])
    assert stream.merge(other, disjoint=True)["row"] == 17
    assert stream.n_points == N_OWN + N_OTHER
    np.testing.assert_allclose(answer(stream), expected, rtol=0, atol=1e-5)


def test_the_points_since_a_consolidation_are_none_after_a_merge(
    stream: Stream, other: Path, tmp_path: Path
) -> None:
    """All sums are older ones then: the next consolidation is due after as many points as ever."""
    stream.update(*points(stream, N_OWN))
    stream.merge(other, disjoint=True)
    stream.save(tmp_path / "merged.npz")
    record, state, _ = read_snapshot(tmp_path / "merged.npz", stream.manifest)
    assert (record.n_points, record.n_recent) == (N_OWN + N_OTHER, 0)
    assert not state["recent_sums"].any()
    calls: list[int] = []
    consolidate = stream._steps["consolidate"]
    run = consolidate.run

    def counted(sides: int) -> None:
        calls.append(sides)
        run(sides)

    consolidate.run = counted  # type: ignore[method-assign]
    every = stream.manifest.consolidate_every
    x, y = points(stream, every + 1)
    for row in range(every):
        stream.update(x[row : row + 1], y[row : row + 1])
    assert calls == []
    stream.update(x[every:], y[every:])
    assert len(calls) == 1


def test_a_stream_without_points_takes_over_what_it_merges(stream: Stream, other: Path) -> None:
    stream.restore(other)
    expected = answer(stream)
    stream.reset()
    stream.merge(other, disjoint=True)
    assert stream.n_points == N_OTHER
    np.testing.assert_allclose(answer(stream), expected, rtol=0, atol=1e-6)  # sums in two levels


def test_waiting_points_still_wait_and_count(tiny_bundle: Path, other: Path) -> None:
    with Stream.open(tiny_bundle, buffered=True) as waiting:
        x, y = points(waiting, N_OWN + N_OTHER)
        waiting.update(x[:3], y[:3])
        waiting.merge(other, disjoint=True)
        assert waiting.n_points == 3 + N_OTHER
        waiting.update(x[3:N_OWN], y[3:N_OWN])
        found = answer(waiting)
        assert waiting.n_points == N_OWN + N_OTHER
    with Stream.open(tiny_bundle) as whole:
        whole.update(*points(whole, N_OWN + N_OTHER))
        np.testing.assert_allclose(found, answer(whole), rtol=0, atol=1e-5)


def test_each_stream_of_a_batch_joins_the_same_stream(bundles: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    with Stream.open(bundles / "streams") as stream:
        x, y = random.uniform(-2, 2, (3, 60, 2)), random.normal(size=(3, 60, 2))
        stream.update(x[:, 20:], y[:, 20:])
        stream.save(tmp_path / "other.npz")
        stream.reset()
        stream.update(x, y)
        expected = stream.query(x[:, :4]).mean.copy()
        stream.reset()
        stream.update(x[:, :20], y[:, :20])
        stream.merge(tmp_path / "other.npz", disjoint=True)
        np.testing.assert_allclose(stream.query(x[:, :4]).mean, expected, rtol=0, atol=1e-5)


def test_a_state_in_a_slot_merges_as_a_snapshot_does(stream: Stream, other: Path) -> None:
    slots = StateSlots(stream.manifest, 2)
    stream.restore(other)
    stream.take(slots, 1)
    x, y = points(stream, N_OWN)
    states = []
    for merge in (
        lambda: stream.merge(other, disjoint=True),
        lambda: stream.merge_slot(slots, 1, disjoint=True),
    ):
        stream.reset()
        stream.update(x, y)
        merge()
        states.append(stream.state())
    for name, array in states[0].items():
        np.testing.assert_array_equal(array, states[1][name])
    with pytest.raises(SnapshotError, match="slot 2"):
        stream.merge_slot(slots, 2)


def test_a_snapshot_that_is_refused_changes_nothing(
    stream: Stream, other: Path, bundles: Path, tmp_path: Path
) -> None:
    with Stream.open(bundles / "foreign") as foreign:
        foreign.save(tmp_path / "foreign.npz")
    (tmp_path / "damaged.npz").write_bytes(other.read_bytes()[:-9])
    stream.update(*points(stream, 20))
    before = stream.state()
    for name in ("foreign.npz", "damaged.npz", "missing.npz"):
        with pytest.raises(SnapshotError):
            stream.merge(tmp_path / name)
    assert_unchanged(stream, before, 20)


def test_numbers_that_overflow_together_change_nothing(stream: Stream, other: Path) -> None:
    """Each state may be finite and their sum not."""
    record, state, extra = read_snapshot(other, stream.manifest)
    state["base_sums"] = np.full_like(state["base_sums"], 3e38)
    state["base_peak"] = np.full_like(state["base_peak"], 1e3)  # above all scores
    write_snapshot(other, record, state, extra)
    stream.restore(other)
    before = stream.state()
    with pytest.raises(StepRefusedError, match="merge"):
        stream.merge(other, disjoint=True)
    assert_unchanged(stream, before, N_OTHER)


def test_the_graph_is_opened_by_the_first_merge(stream: Stream, other: Path) -> None:
    backend: Any = stream._backend
    before = stream.buffer_bytes
    assert "merge" not in stream._steps and "merge" not in backend._sessions
    stream.update(*points(stream, 20))
    stream.merge(other, disjoint=True)
    after, session = stream.buffer_bytes, backend._sessions["merge"]
    state = sum(array.nbytes for array in stream.state().values())
    assert state <= after - before <= 2 * state  # the other state, and one number a stream
    for _ in range(4):  # from either side of the state
        stream.update(*points(stream, 20))
        stream.merge(other, disjoint=True)
    assert stream.buffer_bytes == after and backend._sessions["merge"] is session


@pytest.mark.parametrize("name", ["merge.onnx", "weights.bin"])
def test_a_bundle_that_was_replaced_meanwhile_is_not_opened(
    bundles: Path, tmp_path: Path, name: str
) -> None:
    copy = shutil.copytree(bundles / "tiny", tmp_path / "copy")
    with Stream.open(copy) as stream:
        stream.update(*points(stream, 20))
        stream.save(tmp_path / "other.npz")
        before = stream.state()
        content = (copy / name).read_bytes()
        (copy / name).unlink()  # the open stream has the old file mapped
        with pytest.raises(BundleError, match=name):
            stream.merge(tmp_path / "other.npz", disjoint=True)
        (copy / name).write_bytes(content[:-1] + b"x")
        with pytest.raises(BundleError, match=name):
            stream.merge(tmp_path / "other.npz", disjoint=True)
        assert_unchanged(stream, before, 20)
        (copy / name).write_bytes(content)
        stream.merge(tmp_path / "other.npz", disjoint=True)
        assert stream.n_points == 40


def test_a_step_that_fails_changes_nothing(stream: Stream, other: Path) -> None:
    def fail(sides: int) -> None:
        raise BackendError("injected")

    stream.update(*points(stream, 20))
    before = stream.state()
    stream.run_step("merge")  # opens it
    stream._steps["merge"].run = fail  # type: ignore[method-assign]
    with pytest.raises(BackendError, match="injected"):
        stream.merge(other, disjoint=True)
    assert_unchanged(stream, before, 20)


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_an_interrupt_at_any_line_of_a_merge_leaves_the_state_before_or_after(
    stream: Stream, other: Path
) -> None:
    def prepare() -> None:
        stream.reset()
        stream.update(*points(stream, 20))

    states = {}
    prepare()
    states[20] = stream.state()
    stream.merge(other, disjoint=True)
    states[20 + N_OTHER] = stream.state()
    ends = set()
    for _, was_interrupted in interruptions(prepare, lambda: stream.merge(other, disjoint=True)):
        ends.add((stream.n_points, was_interrupted))
        assert_unchanged(stream, states[stream.n_points], stream.n_points)
    assert ends == {(20, True), (20 + N_OTHER, True), (20 + N_OTHER, False)}


@pytest.mark.long
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_an_interrupt_at_any_line_of_the_first_merge_leaves_it_to_the_next(
    tiny_bundle: Path, other: Path
) -> None:
    streams: list[Stream] = []

    def prepare() -> None:
        for stream in streams:
            stream.close()
        streams[:] = [Stream.open(tiny_bundle)]
        streams[0].update(*points(streams[0], 20))

    ends = set()
    for _, was_interrupted in interruptions(prepare, lambda: streams[0].merge(other, True)):
        (stream,) = streams
        ends.add((stream.n_points, was_interrupted))
        if stream.n_points == 20:
            stream.merge(other, disjoint=True)
        assert stream.n_points == 20 + N_OTHER
    streams[0].close()
    assert ends == {(20, True), (20 + N_OTHER, True), (20 + N_OTHER, False)}


def test_more_points_than_a_stream_counts_are_refused(stream: Stream, other: Path) -> None:
    record, state, extra = read_snapshot(other, stream.manifest)
    many = type(record)(record.bundle_hash, MOST_POINTS - 1, 0)
    write_snapshot(other, many, state, extra)
    stream.update(*points(stream, 20))
    before = stream.state()
    with pytest.raises(SnapshotError, match="together count"):
        stream.merge(other, disjoint=True)
    assert_unchanged(stream, before, 20)


def test_a_stream_has_no_room_for_more_than_its_capacity(
    stream: Stream, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.update(*points(stream, 20))
    before = stream.state()
    monkeypatch.setattr(type(stream.manifest), "room", property(lambda _: 20 + N_OTHER - 1))
    with pytest.raises(CapacityError):
        stream.merge(other, disjoint=True)
    assert_unchanged(stream, before, 20)


def test_a_bundle_without_a_graph_for_it_says_so(tmp_path: Path) -> None:
    with Stream.open(shipped_bundle()) as stream:
        stream.save(tmp_path / "s.npz")
        with pytest.raises(BundleError, match="no graph merge"):
            stream.merge(tmp_path / "s.npz")
