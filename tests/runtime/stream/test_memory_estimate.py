from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.runtime import MemoryLimitError
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.errors import BundleError
from edgefold.runtime.series.features import SeriesFeatures
from edgefold.runtime.series.spec import SeriesSpec
from edgefold.runtime.stream.memory_estimate import (
    BASELINES,
    BYTES_PER_GRAPH_BYTE,
    CONVERTED,
    HISTORY_COPIES,
    MEASURED_PAGE_BYTES,
    PYTHON,
    RUN,
    SESSION_BYTES,
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
        *("state", "cache", "io", "activations", "merge"),
    ]
    plan = manifest.memory_plan
    merge, others = plan["graphs"]["merge"], {**plan["graphs"]}
    del others["merge"]
    for name in ("state", "cache"):
        assert found.part(name) == plan[f"{name}_bytes"]
    assert found.part("io") == plan["io_bytes"] - merge["io_bytes"]
    assert found.part("activations") == max(g["activations_bytes"] for g in others.values())
    assert found.part("weights") == sum(g["weights_bytes"] for g in others.values())
    assert found.needed_bytes == sum(part.needed_bytes for part in found.parts)
    assert not found.unmeasured and found.most_bytes == found.to_run_well_bytes
    low, high = found.looks_like_bytes
    assert found.needed_bytes < found.to_run_well_bytes < low < high


def test_the_command_has_more_of_its_own_and_runs_the_steps_of_one_row(manifest: Manifest) -> None:
    python, run = (footprint(manifest, program=program) for program in (PYTHON, RUN))
    assert (python.program, run.program) == (PYTHON, RUN)
    assert run.part("command") == BASELINES["x86_64"].command.needed_bytes
    graphs = manifest.memory_plan["graphs"]
    small = [graph for graph in manifest.graphs.values() if graph.width <= 1]
    rows = [graph.name for graph in small if graph.step != "merge"]  # which a loop never runs
    assert 0 < len(rows) < len(graphs)
    assert run.part("activations") == max(graphs[name]["activations_bytes"] for name in rows)
    for name in ("condition", "query"):  # these are the first one's alone
        plan = graphs[name]
        plan["activations_bytes"] = 10**8
    assert footprint(manifest, program=RUN) == run
    assert footprint(manifest, program=PYTHON).part("activations") == 10**8


def test_a_merge_counts_by_itself_and_only_in_a_program(manifest: Manifest) -> None:
    python, run = (footprint(manifest, program=program) for program in (PYTHON, RUN))
    assert "merge" not in [part.name for part in run.parts]
    plan = manifest.memory_plan["graphs"]["merge"]
    session = SESSION_BYTES + BYTES_PER_GRAPH_BYTE * (manifest.path / "merge.onnx").stat().st_size
    least = plan["io_bytes"] + plan["weights_bytes"]
    beyond = plan["activations_bytes"] - python.part("activations")
    assert python.part("merge") == least + session + max(beyond, 0)
    native = footprint(manifest, "native", program=PYTHON)
    assert native.part("merge") == plan["io_bytes"] + max(beyond, 0)
    plan["activations_bytes"] = python.part("activations") + 1000
    assert footprint(manifest, program=PYTHON).part("merge") == least + session + 1000
    assert footprint(manifest, program=RUN) == run


def test_a_bundle_without_a_merge_has_no_such_part(manifest: Manifest) -> None:
    del manifest.graphs["merge"]
    assert "merge" not in [part.name for part in footprint(manifest).parts]


def test_several_processes_share_their_files(manifest: Manifest) -> None:
    one, four = footprint(manifest), footprint(manifest).of(4)
    assert four.needed_bytes == 4 * one.needed_bytes
    assert four.to_run_well_bytes - four.needed_bytes == one.to_run_well_bytes - one.needed_bytes
    for many, single in zip(four.looks_like_bytes, one.looks_like_bytes, strict=True):
        assert many - four.needed_bytes == single - one.needed_bytes
    gpu = footprint(manifest, "tensorrt")
    assert gpu.of(2).most_bytes == 2 * gpu.most_bytes - (gpu.to_run_well_bytes - gpu.needed_bytes)
    assert one.of(1) == one


def test_what_the_caller_has_loaded_beside_us_counts(manifest: Manifest) -> None:
    alone = footprint(manifest, architecture="x86_64")
    assert footprint(manifest, present_bytes=10**6, architecture="x86_64") == alone
    crowded = footprint(manifest, present_bytes=10**9, architecture="x86_64")
    assert crowded.needed_bytes == alone.needed_bytes + 10**9 - X86_64.process.needed_bytes
    files = [found.to_run_well_bytes - found.needed_bytes for found in (alone, crowded)]
    assert files[0] == files[1]


def test_an_architecture_that_was_not_measured_is_said(manifest: Manifest) -> None:
    for name in BASELINES:
        found = footprint(manifest, architecture=name, page_bytes=MEASURED_PAGE_BYTES)
        assert found.baseline == BASELINES[name].measured
        larger = footprint(manifest, architecture=name, page_bytes=16384)
        assert "16 KiB" in larger.baseline and larger.needed_bytes == found.needed_bytes
    other = footprint(manifest, architecture="riscv64")
    assert "not measured on riscv64" in other.baseline


def test_a_gpus_backend_has_parts_that_nobody_measured(manifest: Manifest) -> None:
    found = footprint(manifest, "tensorrt")
    assert any("CUDA" in part.name for part in found.unmeasured)
    assert found.most_bytes - found.needed_bytes > 10**9
    assert found.part("runtime") == found.part("graphs") == 0  # onnxruntime is not loaded
    assert footprint(manifest, "onnxruntime-cuda").part("runtime") > 0


def test_native_loads_no_library_and_reads_its_weights_where_they_lie(manifest: Manifest) -> None:
    """Measured for gp-small in `edgefold run`: 15.6 MB less than with onnxruntime."""
    compiled, other = (footprint(manifest, name) for name in ("native", "onnxruntime"))
    assert all(compiled.part(name) == 0 for name in ("runtime", "graphs", "weights"))
    assert not compiled.unmeasured
    for name in ("process", "state", "cache", "io", "activations"):
        assert compiled.part(name) == other.part(name)
    n_weights = manifest.weights["n_bytes"]
    assert compiled.to_run_well_bytes >= compiled.needed_bytes + n_weights


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
    assert fits.needed_bytes <= 10**10
    limit = fits.needed_bytes - 10**6  # a megabyte: the next call may find a little less needed
    expected = r"the limit is .* MB: process .*, activations .*Raise the limit to .* MB, or "
    with pytest.raises(MemoryLimitError, match=expected):
        require_within(manifest, limit)


def test_a_limit_that_holds_what_is_needed_and_less_than_to_run_well_is_a_warning(
    manifest: Manifest,
) -> None:
    fits = require_within(manifest, 10**10)
    between = (fits.needed_bytes + fits.to_run_well_bytes) // 2
    with pytest.warns(RuntimeWarning, match=r"to run well"):
        require_within(manifest, between)


def test_a_limit_below_the_libraries_says_that_no_bundle_fits(manifest: Manifest) -> None:
    with pytest.raises(MemoryLimitError, match=r"Python and onnxruntime alone need .* no bundle"):
        require_within(manifest, 1000)


def test_following_the_advice_is_enough(manifest: Manifest) -> None:
    found = footprint(manifest)
    text = advice(found, found.needed_bytes - 1)
    limit_mb = float(text.split("Raise the limit to ")[1].split(" MB")[0])
    assert 0 <= limit_mb * 1e6 - found.to_run_well_bytes <= 2e5


@pytest.mark.parametrize(("capacity", "way"), [(0, "a smaller state"), (256, "--set capacity=N")])
def test_the_advice_names_the_capacity_where_points_are_kept(
    manifest: Manifest, capacity: int, way: str
) -> None:
    kept = dataclasses.replace(manifest, capacity=capacity)
    found = footprint(kept)
    parts = tuple(
        dataclasses.replace(p, needed_bytes=10**9 * (p.name == "state")) for p in found.parts
    )
    assert way in advice(
        dataclasses.replace(found, parts=parts), 10**6, with_less_room=kept.with_less_room
    )


@pytest.mark.parametrize("imported", ["edgefold.runtime", "edgefold.runtime, onnxruntime"])
def test_what_onnxruntime_loaded_once_counts_once(tiny_bundle: Path, imported: str) -> None:
    """Else a bundle that was opened and closed is refused at the limit that it met before."""
    program = (
        f"import sys, {imported}\n"
        "from edgefold.runtime import Stream\n"
        "from edgefold.runtime.stream.memory_estimate import require_within\n"
        "from edgefold.runtime.bundle.manifest_file import load_manifest\n"
        "manifest = load_manifest(sys.argv[1])\n"
        "needed = []\n"
        "for _ in range(3):\n"
        "    needed.append(require_within(manifest, 10**10).needed_bytes)\n"
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


def test_each_sensor_counts_with_its_state_and_the_history_of_its_rows(manifest: Manifest) -> None:
    def sensor_bytes(task: dict[str, Any]) -> int:
        found = dataclasses.replace(manifest, task=task)
        three, one = (footprint(found, slots=n).part("slots") for n in (3, 1))
        assert three == 3 * one
        return one

    state = sum(math.prod(t.shape) * np.dtype(t.dtype).itemsize for t in manifest.state)
    points = sensor_bytes({"name": "gp"})
    assert points > state
    for season in (None, 8760.0):
        spec = SeriesSpec("number", 1.0, season)
        rows = sum(array.nbytes for array in SeriesFeatures(spec).arrays().values())
        series = sensor_bytes({"name": "series", "features": spec.to_json()})
        assert series - points == HISTORY_COPIES * rows
