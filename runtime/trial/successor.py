"""Name the bundle that has taken over a loop, where the command still names the one before.

take-over ──> the snapshot's record keeps the candidate's path ──> later snapshots keep it too
old command ──> the snapshot is of another bundle ──> the error names that path
"""

from __future__ import annotations

import json
from pathlib import Path

from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.loop.record import DAMAGE, RECORD
from edgefold.runtime.npz import read_npz
from edgefold.runtime.stream.snapshot import RECORD_BYTES


def refuse_old_bundle(path: Path, manifest: Manifest) -> None:
    """Raise SnapshotError if the snapshot belongs to a candidate that took over from a bundle.

    It is called after the snapshot was refused; one that cannot be read is explained there.

    Args:
        path: The snapshot.
        manifest: The manifest of the bundle that the command names.
    """
    try:
        arrays = read_npz(path, 2 * path.stat().st_size + RECORD_BYTES)
        of_bundle = json.loads(arrays["record"].tobytes())["bundle_hash"]
        successor = json.loads(arrays[f"extra.{RECORD}"].tobytes())["successor"]
    except (*DAMAGE, OSError, EOFError, SnapshotError):
        return
    if isinstance(successor, str) and of_bundle not in (manifest.bundle_hash, *manifest.resumes):
        raise SnapshotError(
            f"snapshot {path} does not belong to {manifest.path}: a candidate took over, and "
            f"{successor} is in service now. Run {successor} with the same options, or name "
            "another --snapshot and --output to begin again."
        )
