from __future__ import annotations

from pathlib import Path

import pytest

from edgefold.runtime.golden import check_bundle
from edgefold.runtime.manifest_file import load_manifest


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
def test_every_precision_replays_within_its_tolerance(bundles: Path, precision: str) -> None:
    bundle = bundles / ("tiny" if precision == "float32" else f"tiny-{precision}")
    assert load_manifest(bundle).precision["name"] == precision
    assert check_bundle(bundle).passed
