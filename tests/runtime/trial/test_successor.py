"""An old command learns which bundle has taken over its snapshot."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.loop.sensor_rows import kept_columns
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from edgefold.runtime.trial.successor import refuse_old_bundle


def snapshot(path: Path, bundle_hash: str, loop: Any) -> Path:
    """A file with the two records of a snapshot, and nothing else."""
    texts = {"record": {"bundle_hash": bundle_hash}, "extra.loop": loop}
    arrays = {
        name: np.frombuffer(json.dumps(text).encode(), np.uint8) for name, text in texts.items()
    }
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    return path


def test_the_successor_is_named_before_the_columns_are_read(tmp_path: Path) -> None:
    manifest = load_manifest(shipped_bundle("sensors"), False)
    path = snapshot(tmp_path / "s.npz", "0" * 64, {"successor": "bundles/co2"})
    with pytest.raises(SnapshotError, match="Run bundles/co2 with the same options"):
        kept_columns(path, manifest, {})


@pytest.mark.parametrize("loop", [{}, [], {"successor": 3}, {"successor": None}])
def test_a_snapshot_that_names_no_successor_is_left_to_its_own_explanation(
    tmp_path: Path, loop: Any
) -> None:
    manifest = load_manifest(shipped_bundle("sensors"), False)
    refuse_old_bundle(snapshot(tmp_path / "s.npz", "0" * 64, loop), manifest)
    (tmp_path / "s.npz").write_bytes(b"PK\x03\x04 and no more")
    refuse_old_bundle(tmp_path / "s.npz", manifest)


def test_the_successor_itself_and_what_resumes_it_are_not_refused(tmp_path: Path) -> None:
    manifest = load_manifest(shipped_bundle("sensors"), False)
    later = replace(manifest, resumes=("1" * 64,))
    for bundle_hash in (manifest.bundle_hash, "1" * 64):
        path = snapshot(tmp_path / "s.npz", bundle_hash, {"successor": "bundles/co2"})
        refuse_old_bundle(path, later)
