"""A bundle lists an earlier one only if the same predictions follow from its snapshots."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest

from edgefold.export.checks.resumption import _require_same_state, add_resumed
from edgefold.runtime import Stream
from edgefold.runtime.bundle.manifest_file import load_manifest, with_checksum
from edgefold.runtime.errors import ExportError
from edgefold.runtime.hashing import sha256_of
from tests.runtime.stream.subjects import points


def changed(bundle: Path, place: Path, **entries: Any) -> Path:
    """A copy of a bundle whose manifest has other entries."""
    copy = Path(copytree(bundle, place))
    form = json.loads((copy / "manifest.json").read_text()) | entries
    (copy / "manifest.json").write_text(json.dumps(with_checksum(form)))
    return copy


def test_a_bundle_of_the_same_model_resumes_the_snapshots_of_the_earlier_ones(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    second = changed(tiny_bundle, tmp_path / "second", versions={"edgefold": "2"})
    third = changed(tiny_bundle, tmp_path / "third", versions={"edgefold": "3"})
    add_resumed(second, [tiny_bundle])
    add_resumed(third, [second])
    first_hash, second_hash = (load_manifest(b).bundle_hash for b in (tiny_bundle, second))
    assert load_manifest(third).resumes == (second_hash, first_hash)
    with Stream.open(tiny_bundle) as old, Stream.open(third) as new:
        old.update(*points(old, 5))
        old.save(tmp_path / "s.npz")
        new.restore(tmp_path / "s.npz")
        for name, array in old.state().items():
            np.testing.assert_array_equal(new.state()[name], array)


def test_a_bundle_of_other_weights_is_not_listed(tiny_bundle: Path, tmp_path: Path) -> None:
    other = changed(tiny_bundle, tmp_path / "other")
    weights = np.fromfile(other / "weights.bin", np.float32)
    (weights * np.float32(0.5)).tofile(other / "weights.bin")
    entry = load_manifest(tiny_bundle).weights | {"sha256": sha256_of(other / "weights.bin")}
    form = json.loads((other / "manifest.json").read_text()) | {"weights": entry}
    (other / "manifest.json").write_text(json.dumps(with_checksum(form)))
    with pytest.raises(ExportError, match="predictions differ"):
        add_resumed(other, [tiny_bundle])


def test_bundles_of_another_state_or_scaling_are_not_listed(
    bundles: Path, tiny_bundle: Path, tmp_path: Path
) -> None:
    new = changed(tiny_bundle, tmp_path / "new")
    before = (new / "manifest.json").read_bytes()
    with pytest.raises(ExportError, match=r"its (model|streams) differs"):
        add_resumed(new, [changed(tiny_bundle, tmp_path / "same"), bundles / "streams"])
    scaling = json.loads(before)["points"]
    scaling["y"]["scale"][0] *= 2
    with pytest.raises(ExportError, match="its scaling of points differs"):
        add_resumed(new, [changed(tiny_bundle, tmp_path / "scaled", points=scaling)])
    assert (new / "manifest.json").read_bytes() == before


def test_a_bundle_with_a_longer_tensor_is_not_listed(tiny_bundle: Path) -> None:
    """Its end would be unknown; a longer one in the earlier state is cut."""
    new = load_manifest(tiny_bundle)
    tensor = new.state[0]
    *axes, last = tensor.shape
    shorter, longer = (
        replace(new, state=(replace(tensor, shape=(*axes, n)), *new.state[1:]))
        for n in (last - 1, last + 1)
    )
    _require_same_state(longer, new)
    with pytest.raises(ExportError, match=rf"its state's {tensor.name} is of shape .* longer"):
        _require_same_state(shorter, new)
