"""The bundles in the package are those of their checkpoints, as export writes them today."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefold.export.bundle import ExportConfig, export_bundle
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from edgefold.train import load_model

CHECKPOINTS = Path(__file__).parents[2] / "checkpoints"


@pytest.mark.long
def test_the_shipped_gp_tiny_is_that_of_the_checkpoint(tmp_path: Path) -> None:
    model, run = load_model(CHECKPOINTS / "gp-tiny")
    sizes = ExportConfig(chunk=8, targets=8, parity_steps=40)
    export_bundle(model, run["task"], tmp_path / "b", sizes)
    shipped = shipped_bundle("gp-tiny")
    names = {path.name for path in shipped.iterdir()}
    assert names == {path.name for path in (tmp_path / "b").iterdir()}
    for name in names:
        if name.endswith(".bin"):
            assert (shipped / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
