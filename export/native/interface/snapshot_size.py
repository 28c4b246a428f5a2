"""Compute how many bytes a snapshot of the C code takes, before anything runs.

A snapshot is a zip of arrays that are not compressed (c/npz_write.c, c/snapshot.c):

    each array     30 bytes, its name, its header of whole 64 bytes, its data
    directory      46 bytes and the name for each array
    end            22 bytes
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np

from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.stream.snapshot import MOST_POINTS, SnapshotRecord

MEMBER_BYTES, ENTRY_BYTES, END_BYTES = 30, 46, 22


def snapshot_bytes(manifest: Manifest) -> int:
    """Return the largest number of bytes that `edgefold_NAME_save` writes.

    Arrays that the caller adds are not counted. A snapshot may be smaller only because two counts
    of points have fewer digits.
    """
    n_record = _record_bytes(manifest)
    arrays = [("record", "|u1", f"({n_record},)", n_record)]
    for tensor in manifest.state:
        numpy_type = np.dtype(tensor.dtype)
        n_bytes = math.prod(tensor.shape) * numpy_type.itemsize
        arrays.append((f"state.{tensor.name}", numpy_type.str, f"{tensor.shape}", n_bytes))
    return END_BYTES + sum(array_bytes(*array) for array in arrays)


def array_bytes(name: str, kind: str, shape: str, n_bytes: int) -> int:
    """Return the bytes that an array takes in a snapshot, with its place in the directory.

    Args:
        name: The array's name in the file.
        kind: numpy's text of its type, as "<f8".
        shape: Its shape as Python writes it.
        n_bytes: The bytes of its data.
    """
    form = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    header = -64 * (-(10 + len(form) + 1) // 64)
    n_name = len(f"{name}.npy".encode())
    return MEMBER_BYTES + ENTRY_BYTES + 2 * n_name + header + n_bytes


def _record_bytes(manifest: Manifest) -> int:
    """Return the bytes of the snapshot's record in JSON, with the largest counts of points."""
    most = MOST_POINTS - 1 if manifest.room is None else manifest.room
    record = SnapshotRecord(manifest.bundle_hash, most, most)
    return len(json.dumps({**asdict(record), "sha256": "0" * 64}))
