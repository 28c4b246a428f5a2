"""Write and read snapshots of a stream's state: replace files as a whole, refuse damaged ones.

A snapshot is an .npz file without pickles. It holds the state's tensors, the caller's own arrays,
and a JSON record with the bundle's hash, the number of points and a SHA-256 over everything else.

The SHA-256 detects damage. It does not prove who wrote the file: anybody can compute a new one. So
every figure in a file is checked before it is used: sizes before anything is read, types and
counts, and that numbers are finite. A finite number that is wrong cannot be detected.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import stat
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.bundle.manifest import Manifest, StateTensor
from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.files import write_atomic
from edgefold.runtime.hashing import sha256
from edgefold.runtime.kept_arrays import part_of
from edgefold.runtime.npz import MOST_MEMBERS, read_npz, write_npz
from edgefold.runtime.stream.state_buffers import initial_value

SCHEMA = 1
ZIP = b"PK\x03\x04"
"""An .npz file begins with these bytes."""
RECORD_BYTES = 1 << 16
MOST_POINTS = 1 << 62
"""The upper limit of a count of points: an int64 holds it together with the waiting points."""
EXTRA_BYTES = 1 << 30
"""The most bytes that the caller's arrays may take: a file that declares more is not a snapshot."""
STREAMS = "streams."
"""The prefix of those of the caller's arrays that are the states of several streams, stacked along
a first axis."""
START_OVER = "use an older copy, or remove it to start over."


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """Holds the facts that a snapshot contains in addition to its arrays.

    Attributes:
        bundle_hash: The hash of the bundle to which the state belongs.
        n_points: The number of points in the state.
        n_recent: The number of points since the step `consolidate` last ran.
        schema: The version of the snapshot's format.
    """

    bundle_hash: str
    n_points: int
    n_recent: int
    schema: int = SCHEMA

    @property
    def is_sound(self) -> bool:
        """Return whether the types and counts are possible for a stream."""
        counts = (self.n_recent, self.n_points)
        integers = all(type(number) is int for number in (*counts, self.schema))
        ordered = integers and 0 <= self.n_recent <= self.n_points < MOST_POINTS
        return ordered and isinstance(self.bundle_hash, str)


def write_snapshot(
    path: Path,
    record: SnapshotRecord,
    state: Mapping[str, Array],
    extra: Mapping[str, Array],
    not_finite: Collection[str] = (),
    durable: bool = True,
) -> None:
    """Write a snapshot file as a whole, in place of an older one.

    Args:
        path: The file.
        record: The facts about the state.
        state: The tensors of the state, by name.
        extra: The caller's own arrays, by name.
        not_finite: The names of tensors that may hold infinity and NaN.
        durable: Whether the file is forced to the disk.

    Raises:
        SnapshotError: The file system refused, or the snapshot could not be read again; the old
            snapshot, if any, is intact.
    """
    if bad := _bad_tensors(state, not_finite):
        raise SnapshotError(
            f"snapshot {path} was not written: the state's {bad[0]} is not finite, so that nothing "
            "good can follow. Any older snapshot is intact: restore it, or start over."
        )
    arrays = {f"state.{name}": array for name, array in state.items()}
    for name, value in sorted(extra.items()):  # in the digest's order: C reads in one pass
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise SnapshotError(f"extra array {name!r} holds Python objects; give plain numbers.")
        arrays[f"extra.{name}"] = array
    n_bytes = sum(array.nbytes for name, array in arrays.items() if name.startswith("extra."))
    if n_bytes > EXTRA_BYTES or len(arrays) >= MOST_MEMBERS:
        raise SnapshotError(
            f"snapshot {path} would hold {len(arrays)} arrays, {n_bytes} bytes of them extra; at "
            f"most {MOST_MEMBERS - 1} and {EXTRA_BYTES} can be read again. Give less."
        )
    text = json.dumps({**asdict(record), "sha256": _digest(asdict(record), arrays)}, sort_keys=True)
    packed = io.BytesIO()
    write_npz(packed, {"record": np.frombuffer(text.encode(), np.uint8), **arrays})
    _require_file(path)
    try:
        write_atomic(path, packed.getbuffer(), durable=durable)
    except OSError as error:
        where = f" ({error.filename})" if error.filename not in (None, str(path)) else ""
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise SnapshotError(
            f"snapshot {path} was not written: {error.strerror}{where}; the state in memory and "
            f"any older snapshot are intact. {'Free space or choose' if full else 'Choose'} "
            "another path, then save again."
        ) from error


def path_of(path: object) -> Path:
    """Return the path of a snapshot; raise SnapshotError for what is no path."""
    if isinstance(path, (str, os.PathLike)):
        return Path(path)
    raise SnapshotError(
        f"the snapshot's path is {path!r:.40} of type {type(path).__name__}; give a text or a Path."
    )


def _require_file(path: Path) -> None:
    """Raise SnapshotError for a folder, a device, a pipe, or a path that cannot exist."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, ValueError) as error:
        raise SnapshotError(f"snapshot {path} cannot be a file: {error}.") from error
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
        raise SnapshotError(f"snapshot {path} is {what}; name a file.")


def read_snapshot(
    path: Path, manifest: Manifest, not_finite: Collection[str] = ()
) -> tuple[SnapshotRecord, dict[str, Array], dict[str, Array]]:
    """Read a snapshot, and return its record, the state's tensors and the caller's arrays by name.

    Args:
        path: The file, which anybody may have made.
        manifest: The manifest of the bundle that will continue from the state.
        not_finite: The names of tensors that may hold infinity and NaN.

    Raises:
        SnapshotError: The file is missing, damaged, of another schema or of a bundle that the
            manifest does not resume, or holds values that no state has. No content of a file
            causes another error.
    """
    record, arrays = _read(path, RECORD_BYTES + sum(map(_n_bytes, manifest.state)))
    state = part_of(arrays, "state.")
    extra = part_of(arrays, "extra.")
    if record.bundle_hash not in (manifest.bundle_hash, *manifest.resumes):
        raise SnapshotError(
            f"snapshot {path} belongs to another bundle ({record.bundle_hash[:12]}…, this one is "
            f"{manifest.bundle_hash[:12]}…); open that bundle, or name another snapshot: "
            "removing this one loses what it has learned."
        )
    if record.bundle_hash != manifest.bundle_hash:
        state = _in_layout(manifest, state)
        if (counts := extra.get(f"{STREAMS}n_points")) is not None:
            extra |= _in_layout(manifest, extra, f"{STREAMS}state.", counts.shape)
    if manifest.room is not None and record.n_points > manifest.room:
        raise SnapshotError(
            f"snapshot {path} counts {record.n_points} points, and the bundle holds at most "
            f"{manifest.room}; {START_OVER}"
        )
    expected = {t.name: (t.shape, t.dtype) for t in manifest.state}
    if expected != {name: (array.shape, array.dtype.name) for name, array in state.items()}:
        raise SnapshotError(
            f"snapshot {path} holds other tensors than the manifest lists; {START_OVER}"
        )
    if bad := _bad_tensors(state, not_finite):
        raise SnapshotError(
            f"snapshot {path} holds infinity or NaN in the state's {bad[0]}, which no sound state "
            f"has; {START_OVER}"
        )
    return record, state, extra


def read_any(path: Path) -> tuple[SnapshotRecord, dict[str, Array]]:
    """Read a snapshot of any bundle, and return its record and the caller's arrays by name.

    Raises:
        SnapshotError: The file is missing, damaged or of another schema. Its state is not checked.
    """
    record, arrays = _read(path, RECORD_BYTES + EXTRA_BYTES)
    return record, part_of(arrays, "extra.")


def _read(path: Path, own_bytes: int) -> tuple[SnapshotRecord, dict[str, Array]]:
    """Read the record and all arrays of a snapshot, and check what does not depend on the bundle.

    Args:
        path: The file, which anybody may have made.
        own_bytes: The most bytes that the record and the state take.

    Raises:
        SnapshotError: The file is missing, damaged or of another schema.
    """
    _require_file(path)
    try:
        with path.open("rb") as file:
            if file.read(len(ZIP)) != ZIP:
                raise SnapshotError(f"{path} is not a snapshot; name another file, or remove it.")
            n_bytes = os.fstat(file.fileno()).st_size
        # Nothing in a snapshot is compressed, so arrays take no more than the file; by now another
        # process may have replaced it by a longer one.
        arrays = read_npz(path, min(2 * n_bytes + own_bytes, own_bytes + EXTRA_BYTES))
        arrays.pop("allow_pickle", None)  # was written by mistake with NumPy < 2.2
        form: dict[str, Any] = json.loads(arrays.pop("record").tobytes())
        digest = form.pop("sha256")
        record = SnapshotRecord(**form)
        if digest != _digest(form, arrays):
            raise ValueError("its checksum does not match")
    except FileNotFoundError:
        raise SnapshotError(f"snapshot {path} does not exist; start without it.") from None
    except SnapshotError:
        raise
    except OSError as error:
        reason = error.strerror or error
        raise SnapshotError(f"snapshot {path} cannot be read: {reason}.") from error
    except Exception as error:  # JSON and what it holds raise many kinds
        raise SnapshotError(
            f"snapshot {path} is damaged or is not a snapshot ({type(error).__name__}: {error}); "
            f"{START_OVER}"
        ) from error
    if record.schema != SCHEMA:
        raise SnapshotError(
            f"snapshot {path} has schema {record.schema!r}, this version reads {SCHEMA}; "
            f"{START_OVER}"
        )
    if not record.is_sound:
        raise SnapshotError(
            f"snapshot {path} counts {record.n_points!r} points, {record.n_recent!r} of them since "
            f"the last consolidation, which no state has; {START_OVER}"
        )
    return record, arrays


def bundle_of(path: Path) -> str:
    """Return the hash of the bundle to which a snapshot belongs; "" if it cannot be read."""
    try:
        arrays = read_npz(path, 2 * path.stat().st_size + RECORD_BYTES)
        return str(json.loads(arrays["record"].tobytes())["bundle_hash"])
    except Exception:  # JSON and what it holds raise many kinds; `read_snapshot` explains them
        return ""


def _in_layout(
    manifest: Manifest,
    arrays: Mapping[str, Array],
    head: str = "",
    lead: tuple[int, ...] = (),
) -> dict[str, Array]:
    """Return a state of an earlier bundle, which the manifest resumes, as this bundle lays it out.

    Of a tensor that was longer the beginning is kept, one that was not there begins anew, and one
    that is no longer there is left out. What fits none of this is kept, and refused later.

    Args:
        manifest: The manifest of the bundle that will go on.
        arrays: The arrays of the state, of several streams stacked along a first axis.
        head: Prefix of their names.
        lead: The length of this first axis; empty for one state.
    """
    found = dict[str, Array]()
    for tensor in manifest.state:
        name, shape = f"{head}{tensor.name}", (*lead, *tensor.shape)
        array = arrays.get(name)
        if array is None:
            array = np.broadcast_to(initial_value(manifest, tensor), shape).copy()
        elif array.ndim == len(shape):
            array = np.ascontiguousarray(array[tuple(map(slice, shape))])
        found[name] = array
    return found


def _n_bytes(tensor: StateTensor) -> int:
    return math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize


def _bad_tensors(state: Mapping[str, Array], not_finite: Collection[str]) -> list[str]:
    """Return the names of tensors that hold infinity or NaN although they must not."""
    names = (name for name in sorted(state) if name not in not_finite)
    return [name for name in names if not np.isfinite(state[name]).all()]


def _digest(record: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    digest = sha256(json.dumps(record, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name}{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
