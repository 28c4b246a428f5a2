"""States of groups in SQL beside those that `edgefold condition` writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.stream.snapshot import read_snapshot
from tests.export.native.postgres.learned import N_ROWS, Learned, equal


def test_groups_have_the_very_states_that_condition_writes(
    learned: Learned, tmp_path: Path
) -> None:
    """`edgefold condition` on the same rows, with the same compiled C."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    from edgefold.fleets import ConditionOptions, condition

    sites = np.arange(N_ROWS) % 40
    table = {"x": learned.x[:, 0], "y": learned.y[:, 0], "site": sites}
    parquet.write_table(arrow.table(table), tmp_path / "points.parquet")
    done = condition(
        learned.bundles["cmanp"],
        tmp_path / "points.parquet",
        x=["x"],
        y=["y"],
        by=["site"],
        out=tmp_path / "states",
        options=ConditionOptions(backend="native", engine=learned.engines["cmanp"]),
    )
    assert len(done.states) == 40
    manifest = load_manifest(learned.bundles["cmanp"])
    for state in done.states[::13]:
        assert state.path is not None
        _, expected, _ = read_snapshot(state.path, manifest)
        site = state.values["site"]
        snapshot = learned.server.state(
            f"SELECT cmanp(x, y ORDER BY row) FROM points WHERE site = {site}"
        )
        found = learned.state_of(snapshot, tmp_path)
        assert found.pop("n_points") == state.n_points == N_ROWS // 40
        assert equal(found, expected)
