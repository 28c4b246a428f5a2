"""NVIDIA's real parser and builder take every graph of every model; nothing is executed."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import onnx
import pytest

from edgefold.export.graphs.portable import WRITTEN, portable
from edgefold.export.graphs.static_graph import dtypes_of
from edgefold.export.graphs.step_graphs import Sizes, StepGraph
from edgefold.export.lowering.steps import lower
from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.backends.tensorrt.builder import build_plan
from edgefold.runtime.backends.tensorrt.variant import find_variant
from edgefold.runtime.errors import BackendError
from edgefold.train.models.registry import MODELS
from tests.export.test_all_models import OVERWRITING, tiny

pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed (x86-64 only)")
pytestmark = pytest.mark.slow

STOPPED_BY: dict[str, str] = {}
"""Models with a graph that does not build, and the operator that stops it."""
CASES = [(name, "") for name in MODELS] + [(name, "reservoir") for name in OVERWRITING]
FLOAT_CALL = re.compile(r"__myln_([a-z]+)_\w*float\w*\(")
DEFINITION = "__forceinline__ __device__ __myln"
REDUCES = {"ReduceMax", "ReduceMin", "Softmax"}
"""Operators whose own sweep over an axis is written with max and min."""


def steps_of(name: str, when_full: str) -> tuple[StepGraph, ...]:
    return portable(lower(tiny(name, when_full), Sizes(4, 3, 1))).steps


def plan_of(graph: StepGraph, folder: Path) -> bytes:
    path = folder / f"{graph.name}.onnx"
    onnx.save(graph.model, path)
    options = EngineOptions(compute_capabilities=("8.6",))
    return build_plan(find_variant("tensorrt_rtx"), path, options).plan


def calls_of(plan: bytes) -> Counter[str]:
    """Count the calls on float32 in the source of an engine's kernels, by operation."""
    lines = plan.decode("latin-1").split("\n")
    written = [line for line in lines if not line.lstrip().startswith(DEFINITION)]
    return Counter(call for line in written for call in FLOAT_CALL.findall(line))


@pytest.mark.parametrize(("name", "when_full"), CASES)
def test_every_graph_of_a_model_builds(name: str, when_full: str, tmp_path: Path) -> None:
    for graph in steps_of(name, when_full):
        if name in STOPPED_BY:
            with pytest.raises(BackendError, match=STOPPED_BY[name]):
                plan_of(graph, tmp_path)
        else:
            assert plan_of(graph, tmp_path)


@pytest.mark.parametrize(("name", "when_full"), CASES)
def test_kernels_that_write_state_compare_as_their_graph_does(
    name: str, when_full: str, tmp_path: Path
) -> None:
    """No comparison was folded, or became a max or min, which would lose NaN on the way."""
    for graph in steps_of(name, when_full):
        if WRITTEN.isdisjoint(tensor.role for tensor in graph.outputs):
            continue
        plan = plan_of(graph, tmp_path)
        if b"__myln_" not in plan:
            pytest.skip("this version of TensorRT-RTX does not hold its kernels as source")
        calls, dtypes = calls_of(plan), dtypes_of(graph.model)
        comparisons = [
            node
            for node in graph.model.graph.node
            if node.op_type in ("Less", "Greater") and dtypes[node.input[0]].kind == "f"
        ]
        assert calls["lt"] + calls["gtr"] >= len(comparisons), graph.name
        assert not calls["clamp"], graph.name
        if REDUCES.isdisjoint(node.op_type for node in graph.model.graph.node):
            assert not calls["max"] and not calls["min"], graph.name
