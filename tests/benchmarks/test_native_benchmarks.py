"""What the benchmarks of bundles as C judge, and how they tell it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks.native import comparisons
from benchmarks.native.native_host_tables import comparisons as comparisons_table
from benchmarks.native.native_host_tables import native_others, native_process, native_speed
from benchmarks.native.native_process import read_status, watch_run
from benchmarks.native.native_process import requirements as required_of_processes
from benchmarks.native.native_speed import ratio, requirements, take_turns
from benchmarks.record import spread
from edgefold.runtime.bundle.manifest_file import load_manifest

TIMES = spread([1000, 2000, 3000])
FLOOR = {
    **{"flops": 3e8, "weight_bytes": 4e6, "flops_per_s": 1e11, "bytes_per_s": 2e10},
    **{"floor_s": 3.2e-3, "over_floor": 1.3},
}


def graph(*ratios: float) -> dict[str, Any]:
    """A graph's times, with a ratio for each build."""
    own = dict(zip(("AVX2", "own"), ratios, strict=False))
    native = {
        build: {**TIMES, "ratio": value, "ratio_p10": 0.0, "ratio_p90": 1.0}
        for build, value in own.items()
    }
    shares = {"onnxruntime": 1e-7, "native": 1e-7}
    return {"difference": 1e-7, "onnxruntime": TIMES, "native": native, "python_s": shares}


@pytest.fixture
def speed() -> dict[str, Any]:
    steps = {"update": 0.22, "query_one": 0.3, "condition": 0.6, "refresh": 0.7}
    graphs = {step: graph(value, 0.1) for step, value in steps.items()}
    for build in ("AVX2", "own"):
        graphs["refresh"]["native"][build]["floor"] = FLOOR
    bundles = {
        "gp-paper": {"compiled_s": {"AVX2": 1.0}, "graphs": graphs},
        "gru": {
            "compiled_s": {"AVX2": 1.0},
            "graphs": {"a": graph(0.1, 0.1), "b": graph(0.51, 0.1)},
        },
    }
    return {"compilers": {"AVX2": ["gcc 12", "-mavx2"], "own": ["gcc 12", ""]}, "bundles": bundles}


def test_steps_are_judged_on_each_build_and_examples_on_the_first(speed: dict[str, Any]) -> None:
    met = {r.what: r.met for r in requirements(speed)}
    own = ("update", "query_one", "condition", "refresh")
    assert met == {
        "gp-paper, update, AVX2": True,
        "gp-paper, query_one, AVX2": True,
        "gp-paper, condition, AVX2": False,
        "gp-paper, refresh, AVX2": True,
        "goal: gp-paper, update, AVX2": False,
        "goal: gp-paper, refresh over its floor, AVX2": False,
        **{f"gp-paper, {step}, own": True for step in own},
        "goal: gp-paper, update, own": True,
        "goal: gp-paper, refresh over its floor, own": False,
        "gru, all graphs, AVX2: the worst is b": False,
    }


def test_every_graph_of_every_bundle_has_a_row(speed: dict[str, Any]) -> None:
    times, floors = native_speed(json.loads(json.dumps(speed)))
    assert [row[0] for row in times.rows][-2:] == ["gru, a", "gru, b"]
    assert all(len(row) == len(times.header) for row in times.rows)
    assert [row[0] for row in floors.rows] == ["gp-paper, AVX2", "gp-paper, own"]
    assert all(len(row) == len(floors.header) for row in floors.rows)


def test_a_graph_before_comparisons_has_the_operators_that_lose_nan(tmp_path: Path) -> None:
    kinds = {}
    for compares in (False, True):
        bundle = comparisons.write_bundle("poisson", tmp_path, compares)
        nodes = onnx.load(bundle / load_manifest(bundle).graphs["step"].file).graph.node
        kinds[compares] = {node.op_type for node in nodes}
    assert "Clip" in kinds[False] - kinds[True] and "Less" in kinds[True]


def test_each_graph_has_a_row_of_both_backends() -> None:
    time = spread([1000, 2000])
    both = {"before": time, "after": time, "ratio": 1.0}
    data = {
        "compiler": ["gcc", "-O3"],
        "models": {"a": {"step": {"onnxruntime": both, "native": both}}},
    }
    (table,) = comparisons_table(data)
    assert len(table.rows) == 1 and len(table.rows[0]) == len(table.header) == 7


def test_contenders_take_turns_in_blocks() -> None:
    called: list[tuple[str, int]] = []
    contenders = {name: (lambda n, name=name: called.append((name, n))) for name in "abc"}
    taken = take_turns(contenders, 4)  # type: ignore[arg-type]
    rounds = [name for name, n in called[-12:] if n > 3]
    assert "".join(rounds) == "abc" + "bca" + "cab" + "abc"
    assert all(len(times) == 4 for times in taken.values())


def test_a_ratio_is_the_median_of_the_rounds_and_not_of_the_times() -> None:
    ours, theirs = np.array([1.0, 10.0, 100.0]), np.array([4.0, 20.0, 1000.0])
    assert ratio(ours, theirs)["ratio"] == pytest.approx(0.25)


def test_a_process_is_watched_to_its_end() -> None:
    code = "import time; a = bytearray(30_000_000); time.sleep(0.3)"
    found = watch_run([sys.executable, "-c", code])
    assert 30e6 < found["anonymous_bytes"] <= found["peak_bytes"] <= found["mapped_bytes"]
    assert found["growth_bytes"] >= 0
    with pytest.raises(RuntimeError, match="ended with 3"):
        watch_run([sys.executable, "-c", "raise SystemExit(3)"])


def test_the_status_of_a_process_that_has_ended_is_zero(tmp_path: Path) -> None:
    assert set(read_status(tmp_path).values()) == {0}
    assert min(read_status(Path(f"/proc/{os.getpid()}")).values()) > 0


def test_a_program_that_grows_or_asks_for_memory_is_not_within_its_bounds() -> None:
    used = {"peak_bytes": 5e6, "anonymous_bytes": 1e6, "mapped_bytes": 8e6, "growth_bytes": 4096}
    own = {"n_rows": 10, "file_bytes": 3e6, "asked": "asked 1 times"}
    data = {"gp-small": {**own, **dict.fromkeys(("program", "onnxruntime", "native"), used)}}
    assert [r.met for r in required_of_processes(data)] == [True, False, False]
    (table,) = native_process(data)
    assert len(table.rows) == 3 and all(len(row) == len(table.header) for row in table.rows)


def test_what_was_left_out_is_told() -> None:
    own = {"native": {**TIMES, "ratio": 1.0}, "IREE": {**TIMES, "ratio": 5.0}}
    data = {
        "compiler": ["gcc 12", "-O2"],
        "versions": {"iree-base-compiler": "3.13.0"},
        "left_out": ["executorch"],
        "steps": {"update": own, "refresh": own},
    }
    (table,) = native_others(data)
    assert [row[0] for row in table.rows] == ["native", "IREE"]
    assert "Left out: executorch." in table.note
