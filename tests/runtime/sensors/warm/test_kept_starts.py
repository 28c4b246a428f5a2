"""The arrays of sensors that start warm, of several sensors with different siblings."""

from __future__ import annotations

import numpy as np
import pytest

from edgefold.runtime import Stream
from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.kept_arrays import part_of
from edgefold.runtime.sensors.alarms.alarms import Watch
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from edgefold.runtime.sensors.warm.fleet import Fleet
from edgefold.runtime.sensors.warm.kept_starts import restored_starts, warm_arrays
from edgefold.runtime.sensors.warm.siblings import Sibling
from edgefold.runtime.sensors.warm.warm_start import WarmStart
from edgefold.runtime.stream.state_slots import StateSlots

pytestmark = pytest.mark.usefixtures("compiled_sensors")


def test_sensors_with_different_siblings_stand_in_one_snapshot() -> None:
    with Stream.open(shipped_bundle()) as stream:
        empty = {name: a[0] for name, a in StateSlots(stream.manifest, 1).arrays(1).items()}
        siblings = [Sibling(str(n), empty, Watch().arrays()) for n in range(3)]
        fleets = [Fleet(stream, siblings[:n]) for n in (1, 3)]
        starts = [WarmStart.begin(fleet, 1e-4) for fleet in fleets]
        for warm in starts:
            warm.n_rows = 7
        kept = warm_arrays([None, starts[0], None, starts[1]])
        again = restored_starts(kept, 4, fleets[1], 1e-4)
        assert [warm and warm.n_siblings for warm in again] == [None, 1, None, 3]
        copied = warm_arrays(again)
        assert kept.keys() == copied.keys()
        assert all(kept[name].tobytes() == copied[name].tobytes() for name in kept)
        assert part_of(kept, "warm.")["sensors"].tolist() == [1, 3]
        with pytest.raises(SnapshotError, match="give the siblings again"):
            restored_starts(kept, 4, None, 1e-4)
        with pytest.raises(SnapshotError):
            restored_starts(kept, 3, fleets[0], 1e-4)
        with pytest.raises(SnapshotError):
            restored_starts({**kept, "warm.rows": np.array([7])}, 4, fleets[0], 1e-4)


def test_sensors_that_go_by_themselves_leave_nothing_in_a_snapshot() -> None:
    assert warm_arrays([None, None]) == {}
    assert restored_starts({}, 2, None, 1e-4) == [None, None]


def test_a_fleet_lends_memory_and_takes_it_back() -> None:
    with Stream.open(shipped_bundle()) as stream:
        empty = {name: a[0] for name, a in StateSlots(stream.manifest, 1).arrays(1).items()}
        fleet = Fleet(stream, [Sibling("one", empty, Watch().arrays())])
        lent, begun = fleet.spare(1), fleet.begun()
        assert fleet.spare(1) is lent and begun is not lent
        fleet.take_back(begun)
        assert fleet.spare(1) is begun
        assert fleet.n_bytes >= sum(array.nbytes for array in empty.values())
