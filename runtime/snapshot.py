"""A stream's state on disk: replaced as a whole, and refused when foreign or damaged.

A snapshot is an .npz without pickles. It holds the state's tensors, the caller's own arrays, and
a JSON record with the bundle's hash, the number of points and a SHA-256 over everything else.
"""

from __future__ import annotations

import errno
import io
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.files import write_atomic
from edgefold.runtime.hashing import sha256

SCHEMA = 1
ZIP = b"PK\x03\x04"
"""The first bytes of an .npz. Numpy reads any other file as a pickle."""
START_OVER = "use an older copy, or remove it to start over."


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """The facts that a snapshot holds beside its arrays.

    Attributes:
        n_points: Points in the state.
        n_recent: Points since the last consolidation.
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
    _require_file(path)
    try:
        write_atomic(path, packed.getbuffer())
    except OSError as error:
        where = f" ({error.filename})" if error.filename not in (None, str(path)) else ""
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise SnapshotError(
            f"snapshot {path} was not written: {error.strerror}{where}; the state in memory and "
            f"any older snapshot are intact. {'Free space or choose' if full else 'Choose'} "
            "another path, then save again."
        ) from error


def _require_file(path: Path) -> None:
    """Refuse a folder, a device, a pipe, or a path that cannot exist."""
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
    path: Path, bundle_hash: str
) -> tuple[SnapshotRecord, dict[str, Array], dict[str, Array]]:
    """Read the record, the state and the caller's arrays.

    Raises:
        SnapshotError: Missing, damaged, of another schema, or of another bundle.
    """
    _require_file(path)
    try:
        # Opened here because numpy leaves a file open that turns out not to be an archive.
        with path.open("rb") as file:
            if file.read(len(ZIP)) != ZIP:
                raise SnapshotError(f"{path} is not a snapshot; name another file, or remove it.")
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
    except Exception as error:  # numpy and zipfile raise many kinds on a damaged archive
        raise SnapshotError(
            f"snapshot {path} is damaged or is not a snapshot ({type(error).__name__}: {error}); "
            f"{START_OVER}"
        ) from error
    if record.schema != SCHEMA:
        raise SnapshotError(
            f"snapshot {path} has schema {record.schema}, this version reads {SCHEMA}; {START_OVER}"
        )
    if digest != _digest(asdict(record), arrays):
        raise SnapshotError(
            f"snapshot {path} is damaged: its checksum does not match; {START_OVER}"
        )
    if record.bundle_hash != bundle_hash:
        raise SnapshotError(
            f"snapshot {path} belongs to another bundle ({record.bundle_hash[:12]}…, this one is "
            f"{bundle_hash[:12]}…); open that bundle, or remove the snapshot to start over."
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
