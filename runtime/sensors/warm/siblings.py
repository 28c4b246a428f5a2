"""Read the states of sibling sensors from snapshots, and choose those by which new sensors start.

fleet/*.npz, of `Sensors.save` or `edgefold run sensors --snapshot` ──> the K longest-learned
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.kept_arrays import part_of
from edgefold.runtime.rows.csv_fields import plain
from edgefold.runtime.sensors.alarms.alarms import Watch
from edgefold.runtime.sensors.warm.votes import Votes
from edgefold.runtime.stream.snapshot import STREAMS, path_of, read_any, read_snapshot
from edgefold.runtime.stream.state_slots import POINTS, StateSlots

MOST = 8
"""The most siblings of a new sensor: each costs a state and the time of a step."""
LEAST_SLOTS = 300
"""The least number of slots that a sibling has learned; a younger one knows too little itself."""
WATCH = "watch_"
RECORDS = ("sensors", "loop")
"""The names of the arrays in which snapshots of `Sensors` and of a loop name their sensors."""
Paths = str | Path | Sequence[str | Path]


@dataclass(frozen=True, slots=True)
class Sibling:
    """Holds what a sensor has learned.

    Attributes:
        name: The snapshot's path, with the sensor's name if it has one.
        state: The tensors of the model's state and its counts, as `StateSlots.arrays` names them.
        watch: The arrays of the watch that gives its alarms.
    """

    name: str
    state: Mapping[str, Array]
    watch: Mapping[str, Array]

    @property
    def n_slots(self) -> int:
        """Return how many slots it has learned."""
        return int(self.state[POINTS[0]])

    def copied(self) -> Sibling:
        """Return the same with copies of all arrays."""
        state, watch = (
            {name: array.copy() for name, array in arrays.items()}
            for arrays in (self.state, self.watch)
        )
        return Sibling(self.name, state, watch)


def read_siblings(paths: Paths, manifest: Manifest) -> list[Sibling]:
    """Return the `MOST` sensors that have learned most slots, the first of equal ones by name.

    Args:
        paths: A snapshot, or a folder of which all files `*.npz` are read, or several of these. A
            warning names the files of a folder that are left out, as they are of another bundle.
        manifest: The manifest of the bundle that goes on from the states.

    Raises:
        SnapshotError: There is no snapshot or no sensor that has learned enough, or a snapshot is
            damaged or of another bundle.
    """
    files = [file for path in _listed(paths) for file in _files(path)]
    named = {path_of(path) for path in _listed(paths)}
    siblings, foreign = list[Sibling](), list[Path]()
    n_young = 0
    for file in files:
        try:
            found = [*_read(file, manifest)]
        except SnapshotError:
            if file in named or not _is_foreign(file, manifest):
                raise
            foreign.append(file)
            continue
        for sibling in found:
            if sibling.n_slots < LEAST_SLOTS:
                n_young += 1
                continue
            siblings.append(sibling)
            siblings.sort(key=lambda one: (-one.n_slots, one.name))
            del siblings[MOST:]
        # Memory for a few states, however large the fleet is: views would keep whole files.
        siblings = [sibling.copied() for sibling in siblings]
    if foreign:
        warnings.warn(
            f"{foreign[0].parent} holds {len(foreign)} snapshots of another bundle, which are left "
            f"out: {', '.join(file.name for file in foreign[:3])}{', ..' * (len(foreign) > 3)}",
            stacklevel=2,
        )
    if not siblings:
        raise SnapshotError(
            f"{len(files)} snapshots hold no sibling with {LEAST_SLOTS} rows or more ({n_young} "
            "have fewer); give snapshots of sensors that have run for longer, or start cold."
        )
    for sibling in siblings:
        _require_sound(sibling, manifest)
    return siblings


def _listed(paths: Paths) -> list[str | Path]:
    return [paths] if isinstance(paths, (str, Path)) else [*paths]


def _files(path: str | Path) -> list[Path]:
    """Return the snapshots at a path; raise SnapshotError if there are none."""
    place = path_of(path)
    if not place.is_dir():
        if not place.exists() and place.suffix != ".npz":
            raise SnapshotError(f"the folder of siblings {place} does not exist; name another one.")
        return [place]
    files = sorted(place.glob("*.npz"))
    if not files:
        raise SnapshotError(
            f"{place} holds no snapshots (*.npz); name a folder of files that `edgefold run "
            "sensors --snapshot` or Sensors.save wrote."
        )
    return files


def _is_foreign(file: Path, manifest: Manifest) -> bool:
    """Return whether a file is a sound snapshot of a bundle that the manifest does not resume."""
    try:
        record, _ = read_any(file)
    except SnapshotError:
        return False  # reading it gives the reason
    return record.bundle_hash not in (manifest.bundle_hash, *manifest.resumes)


def _read(file: Path, manifest: Manifest) -> Iterator[Sibling]:
    """Yield the sensors of a snapshot."""
    record, state, extra = read_snapshot(file, manifest, [t.name for t in manifest.state])
    many = part_of(extra, STREAMS)
    if not many:
        own = {f"state.{name}": tensor for name, tensor in state.items()}
        own |= {name: np.array(getattr(record, name), np.int64) for name in POINTS}
        yield Sibling(str(file), own, _watch(extra, file))
        return
    names = _names(extra, file)
    own_names = [*(f"state.{tensor.name}" for tensor in manifest.state), *POINTS]
    n = (len(names),)
    stacked = {key: array for key, array in many.items() if array.shape[:1] == n}
    for name in own_names:
        if name not in stacked or (name in POINTS and stacked[name].shape != n):
            raise _damaged(file, f"its {name} does not fit {len(names)} sensors")
    for number, name in enumerate(names):
        one = {key: array[number] for key, array in stacked.items()}
        state = {key: one[key] for key in own_names}
        title = f"{file} {plain(name)}" if name else str(file)
        yield Sibling(title, state, _watch(one, file))


def _watch(arrays: Mapping[str, Array], file: Path) -> dict[str, Array]:
    """Return the arrays of a sensor's watch, as this version keeps them."""
    watch = part_of(arrays, WATCH)
    if "watch" not in watch:
        raise SnapshotError(
            f"{file} is a snapshot of no sensor; name one that `edgefold run sensors --snapshot` "
            "or Sensors.save wrote."
        )
    try:
        return Watch.converted(watch)
    except (KeyError, IndexError, ValueError) as error:
        raise _damaged(file, f"its alarms: {error!r}") from None


def _names(extra: Mapping[str, Array], file: Path) -> list[str]:
    """Return the names of a snapshot's sensors."""
    try:
        texts = [json.loads(extra[name].tobytes()) for name in RECORDS if name in extra]
        names = texts[0]["names"] if isinstance(texts[0], dict) else texts[0]
        return [str(name) for name in names]
    except (IndexError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise _damaged(file, f"its names are missing: {error!r}") from None


def _require_sound(sibling: Sibling, manifest: Manifest) -> None:
    """Refuse a state or a watch of other shapes, or with numbers that none has."""
    try:
        StateSlots(manifest, 1).load(_as_stack(sibling), 1)
        Votes.of([sibling.watch], 1e-4)
    except (SnapshotError, KeyError, IndexError, ValueError) as error:
        raise _damaged(Path(sibling.name), str(error)) from None


def _as_stack(sibling: Sibling) -> dict[str, Array]:
    return {name: array[None] for name, array in sibling.state.items()}


def slots_of(siblings: Sequence[Sibling], manifest: Manifest) -> StateSlots:
    """Return slots that hold the siblings' states."""
    slots = StateSlots(manifest, len(siblings))
    stacks = [_as_stack(sibling) for sibling in siblings]
    joined = {name: np.concatenate([stack[name] for stack in stacks]) for name in stacks[0]}
    slots.load(joined, len(siblings))
    return slots


def _damaged(file: Path, reason: str) -> SnapshotError:
    return SnapshotError(
        f"the sibling {file} is damaged ({reason}); use an older copy of its snapshot, or leave "
        "it out."
    )
