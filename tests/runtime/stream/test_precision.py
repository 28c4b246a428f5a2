from __future__ import annotations

from pathlib import Path

import pytest

from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.checking.golden import check_bundle


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
def test_every_precision_replays_within_its_tolerance(bundles: Path, precision: str) -> None:
    bundle = bundles / ("tiny" if precision == "float32" else f"tiny-{precision}")
    assert load_manifest(bundle).precision["name"] == precision
    assert check_bundle(bundle).passed
