from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgefold.runtime import MemoryLimitError
from edgefold.runtime.errors import BundleError
from edgefold.runtime.manifest import Manifest
from edgefold.runtime.manifest_file import load_manifest
from edgefold.runtime.memory_estimate import (
    BASELINES,
    CONVERTED,
    MEASURED_PAGE_BYTES,
    X86_64,
    advice,
    footprint,
    require_within,
)


@pytest.fixture
def manifest(tiny_bundle: Path) -> Manifest:
    return load_manifest(tiny_bundle)


def test_the_parts_are_those_of_the_plan_and_sum_up(manifest: Manifest) -> None:
    found = footprint(manifest, architecture="x86_64")
    assert [part.name for part in found.parts] == [
        *("process", "runtime", "graphs", "weights"),
        *("state", "cache", "io", "activations"),
    ]
    plan = manifest.memory_plan
    for name in ("state", "cache", "io", "activations"):
        assert found.part(name) == plan[f"{name}_bytes"]
    assert found.part("weights") == sum(g["weights_bytes"] for g in plan["graphs"].values())
    assert found.owned_bytes == sum(part.owned_bytes for part in found.parts)
    assert not found.unmeasured and found.most_bytes == found.wanted_bytes
    touched, mapped = found.file_bytes
    assert 0 < touched < mapped
    assert mapped == 83_000_000 + manifest.weights["n_bytes"]  # the libraries' files
    assert found.wanted_bytes == found.owned_bytes + touched


def test_what_the_caller_has_loaded_beside_us_counts(manifest: Manifest) -> None:
    alone = footprint(manifest, architecture="x86_64")
    assert footprint(manifest, present_bytes=10**6, architecture="x86_64") == alone
    crowded = footprint(manifest, present_bytes=10**9, architecture="x86_64")
    assert crowded.owned_bytes == alone.owned_bytes + 10**9 - X86_64.process.owned_bytes
    assert crowded.file_bytes == alone.file_bytes


def test_an_architecture_that_was_not_measured_is_said(manifest: Manifest) -> None:
    for name in BASELINES:
        found = footprint(manifest, architecture=name, page_bytes=MEASURED_PAGE_BYTES)
        assert found.baseline == BASELINES[name].measured
        larger = footprint(manifest, architecture=name, page_bytes=16384)
        assert "16 KiB" in larger.baseline and larger.owned_bytes == found.owned_bytes
    other = footprint(manifest, architecture="riscv64")
    assert "not measured on riscv64" in other.baseline


def test_a_gpus_backend_has_parts_that_nobody_measured(manifest: Manifest) -> None:
    found = footprint(manifest, "tensorrt")
    assert any("CUDA" in part.name for part in found.unmeasured)
    assert found.most_bytes - found.owned_bytes > 10**9
    assert found.part("runtime") == found.part("graphs") == 0  # onnxruntime is not loaded
    assert footprint(manifest, "onnxruntime-cuda").part("runtime") > 0


def test_float16_weights_are_converted_on_a_cpu_and_kept_beside(manifest: Manifest) -> None:
    refresh = dataclasses.replace(manifest.graphs["refresh"], precision="float16")
    half = dataclasses.replace(manifest, graphs={**manifest.graphs, "refresh": refresh})
    narrow = manifest.memory_plan["graphs"]["refresh"]["weights_bytes"]
    kept = footprint(manifest).part("weights")
    assert footprint(half).part("weights") == kept + (CONVERTED - 1) * narrow
    assert footprint(half, "tensorrt").part("weights") == kept


def test_a_limit_that_is_too_low_is_refused_with_the_parts_and_a_way_out(
    manifest: Manifest,
) -> None:
    fits = require_within(manifest, 10**10)
    assert fits.owned_bytes <= 10**10
    limit = fits.owned_bytes - 10**6  # a megabyte: the next call may find a little less owned
    expected = r"the limit is .* MB: process .*, activations .*Raise the limit to .* MB, or "
    with pytest.raises(MemoryLimitError, match=expected):
        require_within(manifest, limit)


def test_a_limit_that_holds_what_is_owned_and_not_the_touched_files_is_a_warning(
    manifest: Manifest,
) -> None:
    fits = require_within(manifest, 10**10)
    with pytest.warns(RuntimeWarning, match=r"own .* MB, which leaves too little .* read again"):
        require_within(manifest, fits.owned_bytes + fits.file_bytes[0] // 2)


def test_a_limit_below_the_libraries_says_that_no_bundle_fits(manifest: Manifest) -> None:
    with pytest.raises(MemoryLimitError, match=r"Python and onnxruntime alone own .* no bundle"):
        require_within(manifest, 1000)


def test_following_the_advice_is_enough(manifest: Manifest) -> None:
    found = footprint(manifest)
    text = advice(found, found.owned_bytes - 1)
    limit_mb = float(text.split("Raise the limit to ")[1].split(" MB")[0])
    assert found.wanted_bytes <= limit_mb * 1e6 <= found.wanted_bytes + 2e5


def test_what_onnxruntime_loaded_once_counts_once(tiny_bundle: Path) -> None:
    """Else a bundle that was opened and closed is refused at the limit that it met before."""
    program = (
        "import sys\n"
        "from edgefold.runtime import Stream\n"
        "from edgefold.runtime.memory_estimate import require_within\n"
        "from edgefold.runtime.manifest_file import load_manifest\n"
        "manifest = load_manifest(sys.argv[1])\n"
        "needed = []\n"
        "for _ in range(3):\n"
        "    needed.append(require_within(manifest, 10**10).owned_bytes)\n"
        "    with Stream.open(sys.argv[1], backend='onnxruntime') as stream:\n"
        "        stream.update([[0.1, 0.2]], [[0.3]])\n"
        "        stream.query([[0.1, 0.2]])\n"
        "print(*needed, max(needed) / needed[0])\n"
    )
    command = [sys.executable, "-c", program, str(tiny_bundle)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(done.stdout.split()[-1]) < 1.05


def test_a_plan_without_its_figures_is_refused(manifest: Manifest) -> None:
    plans: list[dict[str, Any]] = [{}, {"graphs": {"update": {}}}, {"graphs": []}]
    for plan in plans:
        with pytest.raises(BundleError, match=r"has no complete memory plan.*export it again"):
            footprint(dataclasses.replace(manifest, memory_plan=plan))


def test_a_graph_that_is_gone_is_refused(manifest: Manifest, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"\.onnx cannot be read"):
        footprint(dataclasses.replace(manifest, path=tmp_path))
