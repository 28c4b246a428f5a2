"""A stream's state on disk: written whole or not at all, and refused when foreign or damaged.

A snapshot is an .npz without pickles. It carries the state's tensors, the caller's own arrays, and
a JSON record with the bundle's hash, the number of points and a SHA-256 over everything else.

    temporary file beside the target ──> fsync ──> rename over the target ──> fsync of the folder

so a power cut leaves the old snapshot or the new one. A link is followed, and stays a link.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.hashing import sha256

SCHEMA = 1
ZIP = b"PK\x03\x04"
"""How an .npz begins. Numpy takes anything else for a pickle and advises to allow those."""


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """What a snapshot says of itself.

    Attributes:
        n_points: Points folded into the state.
        n_recent: Points folded since the last consolidation.
    """

    bundle_hash: str
    n_points: int
    n_recent: int
    schema: int = SCHEMA


def write_snapshot(
    path: Path, record: SnapshotRecord, state: Mapping[str, Array], extra: Mapping[str, Array]
) -> None:
    """Write atomically; `extra` are the caller's arrays, kept beside the state.

    Raises:
        SnapshotError: The file system refused; the old snapshot, if any, is intact.
    """
    arrays = {f"state.{name}": array for name, array in state.items()}
    for name, value in extra.items():
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise SnapshotError(f"extra array {name!r} holds Python objects; give plain numbers.")
        arrays[f"extra.{name}"] = array
    text = json.dumps({**asdict(record), "sha256": _digest(asdict(record), arrays)}, sort_keys=True)
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, record=np.frombuffer(text.encode(), np.uint8), **arrays)
    place = _place(path)
    beside = Path(f"{place}.tmp")
    try:
        with beside.open("wb") as file:
            file.write(packed.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        beside.replace(place)
        _sync_folder(place.parent)
    except OSError as error:
        if not beside.is_dir():
            with contextlib.suppress(OSError):  # on a broken disk; the first error is the one
                beside.unlink(missing_ok=True)
        where = f" ({error.filename})" if error.filename not in (None, str(path)) else ""
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise SnapshotError(
            f"snapshot {path} was not written: {error.strerror}{where}; the state in memory and "
            f"any older snapshot are intact. {'Free space or choose' if full else 'Choose'} "
            "another path, then save again."
        ) from error


def _place(path: Path) -> Path:
    """The file that a path means, links followed.

    Raises:
        SnapshotError: A folder, a device or a pipe lies there, or the path means nothing.
    """
    try:
        place = Path(os.path.realpath(path))
        if not place.exists() or place.is_file():
            return place
        what = "a folder" if place.is_dir() else "a device or a pipe"
    except (OSError, ValueError) as error:
        raise SnapshotError(f"snapshot {path} names no file: {error}.") from error
    raise SnapshotError(f"snapshot {path} is {what}; name a file.")


def read_snapshot(
    path: Path, bundle_hash: str
) -> tuple[SnapshotRecord, dict[str, Array], dict[str, Array]]:
    """The record, the state and the caller's arrays.

    Raises:
        SnapshotError: Missing, damaged, of another schema, or of another bundle.
    """
    try:
        # Opened here because numpy leaves a file open that turns out not to be an archive.
        with _place(path).open("rb") as file:
            if file.read(len(ZIP)) != ZIP:
                raise SnapshotError(f"{path} is no snapshot; name another file, or remove it.")
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
        form: dict[str, Any] = json.loads(arrays.pop("record").tobytes())
        digest = form.pop("sha256")
        record = SnapshotRecord(**form)
    except FileNotFoundError:
        raise SnapshotError(f"snapshot {path} does not exist; start without it.") from None
    except SnapshotError:
        raise
    except OSError as error:
        reason = error.strerror or error
        raise SnapshotError(f"snapshot {path} cannot be read: {reason}.") from error
    except (
        Exception
    ) as error:  # what numpy and zipfile raise on a damaged archive has no common root
        raise SnapshotError(
            f"snapshot {path} is damaged or is no snapshot ({type(error).__name__}: {error}); "
            "use an older copy, or remove it to start anew."
        ) from error
    if record.schema != SCHEMA:
        raise SnapshotError(
            f"snapshot {path} has schema {record.schema}, this version reads {SCHEMA}; start anew."
        )
    if digest != _digest(asdict(record), arrays):
        raise SnapshotError(
            f"snapshot {path} is damaged: its checksum does not match; "
            "use an older copy, or remove it to start anew."
        )
    if record.bundle_hash != bundle_hash:
        raise SnapshotError(
            f"snapshot {path} belongs to another bundle ({record.bundle_hash[:12]}…, this one is "
            f"{bundle_hash[:12]}…); open that bundle, or remove the snapshot to start anew."
        )
    state = {n.removeprefix("state."): a for n, a in arrays.items() if n.startswith("state.")}
    extra = {n.removeprefix("extra."): a for n, a in arrays.items() if n.startswith("extra.")}
    return record, state, extra


def _digest(record: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    digest = sha256(json.dumps(record, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name}{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
