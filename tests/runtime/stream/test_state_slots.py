"""Several sensors take turns on one stream, as if each had one of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.runtime import BackendError, SnapshotError, StateSlots, Stream
from tests.runtime.stream.subjects import points

Change = Callable[[dict[str, Any]], Any]


def rows_of(stream: Stream, n: int) -> list[tuple[Any, Any]]:
    x, y = points(stream, n)
    return [(x[i : i + 1], y[i : i + 1]) for i in range(n)]


@pytest.mark.parametrize("buffered", [False, True])
def test_sensors_in_turn_equal_sensors_alone(tiny_bundle: Path, buffered: bool) -> None:
    """300 rows of three sensors, in runs of 1 to 7, pass two consolidations of one of them."""
    order = np.repeat([0, 1, 0, 2, 0, 0, 1], [1, 7, 5, 2, 3, 1, 4])
    with Stream.open(tiny_bundle, buffered=buffered) as stream:
        slots, present = StateSlots(stream.manifest, 3), 0
        alone = [Stream.open(tiny_bundle, buffered=buffered) for _ in range(3)]
        for number, (x, y) in zip(np.resize(order, 300), rows_of(stream, 300), strict=True):
            if number != present:
                stream.take(slots, present)
                stream.put(slots, number)
                present = number
            stream.update(x, y)
            alone[number].update(x, y)
            if not buffered:
                assert stream.query(x).mean.item() == alone[number].query(x).mean.item()
                assert stream.n_points == alone[number].n_points
        stream.take(slots, present)
        for number, other in enumerate(alone):
            # The order of the swaps decides where a buffer of points is cut into chunks.
            tolerance = 2e-5 if buffered else 0.0
            for name, tensor in other.state().items():
                np.testing.assert_allclose(
                    slots.state(number)[name], tensor, tolerance, tolerance, err_msg=name
                )
            other.close()


def test_a_new_slot_holds_the_state_that_has_seen_nothing(stream: Stream) -> None:
    slots = StateSlots(stream.manifest, 2)
    x, y = points(stream, 20)
    first = stream.query(x[:1]).mean.item()
    stream.update(x, y)
    stream.put(slots, 1)
    assert stream.n_points == 0 and stream.query(x[:1]).mean.item() == first


def test_a_failure_while_states_change_leaves_the_present_one(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = points(stream, 20)
    slots = StateSlots(stream.manifest, 1)
    stream.update(x, y)
    before, n_points = stream.state(), stream.n_points
    pairs: Any = stream._state.pairs

    def fails(*_: object) -> None:
        raise BackendError("the device is gone")

    for name in pairs:
        for call in ("read", "write"):
            with monkeypatch.context() as patched:
                for buffer in {id(b): b for b in pairs[name]}.values():
                    patched.setattr(type(buffer), call, fails)
                    break
                with pytest.raises(BackendError):
                    stream.put(slots, 0) if call == "write" else stream.take(slots, 0)
            assert stream.n_points == n_points and slots.n_points[0] == 0
            assert all(np.array_equal(before[n], a) for n, a in stream.state().items())


def test_slots_of_another_bundle_are_refused(bundles: Path, stream: Stream) -> None:
    with Stream.open(bundles / "foreign") as foreign:
        slots = StateSlots(foreign.manifest, 1)
    with pytest.raises(SnapshotError):
        stream.put(slots, 0)
    with pytest.raises(SnapshotError):
        stream.take(slots, 0)


@pytest.mark.parametrize("index", [-1, 2, 99])
def test_a_slot_that_does_not_exist_is_refused(stream: Stream, index: int) -> None:
    slots = StateSlots(stream.manifest, 2)
    for call in (stream.take, stream.put):
        with pytest.raises(SnapshotError):
            call(slots, index)


def test_a_state_that_begins_with_infinity_is_kept_and_loaded(stream: Stream) -> None:
    first, *others = stream.manifest.state
    state = (replace(first, initial=float("-inf")), *others)
    manifest = replace(stream.manifest, state=state)
    slots, again = StateSlots(manifest, 1), StateSlots(manifest, 1)
    again.load(slots.arrays(1), 1)
    assert np.isinf(again.state(0)[first.name]).all()


def test_kept_slots_are_restored(stream: Stream) -> None:
    x, y = points(stream, 20)
    slots, others = StateSlots(stream.manifest, 3), StateSlots(stream.manifest, 2)
    stream.update(x, y)
    stream.take(slots, 1)
    others.load(slots.arrays(2), 2)
    stream.reset()
    stream.put(others, 1)
    assert stream.n_points == 20
    assert all(np.array_equal(slots.state(1)[n], a) for n, a in stream.state().items())


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: arrays.popitem(),
        lambda arrays: arrays.update(n_points=np.array([3, -1])),
        lambda arrays: arrays.update(n_points=np.array([3, (1 << 63) - 1])),
        lambda arrays: arrays["n_recent"].fill(21),  # of 20 points and of none
        lambda arrays: arrays.update(n_points=np.array([1.0, 2.0])),
        lambda arrays: arrays.update(n_recent=np.array(["a", "b"])),
        lambda arrays: arrays.update(n_recent=np.zeros(3, np.int64)),
        lambda arrays: next(a for a in arrays.values() if a.dtype.kind == "f").fill(np.nan),
        lambda arrays: next(a for a in arrays.values() if a.dtype.kind == "f").fill(np.inf),
    ],
)
def test_what_no_state_can_be_is_refused_and_changes_nothing(
    stream: Stream, change: Change
) -> None:
    x, y = points(stream, 20)
    slots = StateSlots(stream.manifest, 2)
    arrays = {name: array.copy() for name, array in slots.arrays(2).items()}
    stream.update(x, y)
    stream.take(slots, 0)
    before = {name: array.copy() for name, array in slots.arrays(2).items()}
    change(arrays)
    with pytest.raises(SnapshotError):
        slots.load(arrays, 2)
    assert all(np.array_equal(before[name], array) for name, array in slots.arrays(2).items())
