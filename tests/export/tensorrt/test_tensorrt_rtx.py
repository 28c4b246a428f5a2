"""NVIDIA's real parser and builder take every graph that export writes.

TensorRT-RTX builds without a GPU, so this runs wherever its wheel installs (x86-64). Nothing is
executed: that needs the GPU. Untrained presets are enough, since a builder looks at shapes and
types; every graph is built at TensorRT's own optimisation level for one capability at a time.
`make test` takes the bundles that tests share, `make test-all` every preset, precision, graph and
capability, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from edgefold.export.bundle import ExportConfig, export_bundle
from edgefold.export.precision.precisions import PRECISIONS
from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.backends.tensorrt.builder import (
    build_plan,
    parse_graph,
    supported_capabilities,
)
from edgefold.runtime.backends.tensorrt.engine_facts import kernels_of, products_of
from edgefold.runtime.backends.tensorrt.variant import Variant, find_variant
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.errors import BackendError
from edgefold.train.models.constant_memory.cmanp import PRESETS, Cmanp
from tests.made_once import made_once

pytest.importorskip(
    "tensorrt_rtx",
    reason="TensorRT-RTX is not installed; pip install tensorrt-rtx (x86-64 only)",
)

CAPABILITIES = ("8.6", "8.9")
GRAPHS = ("condition", "update", "consolidate", "merge", "refresh", "query", "query_one")

SHARED = {"float32": "tiny", "float16": "tiny-float16", "int8": "tiny-int8"}
"""The tests' shared bundles by their precision; among the presets they are called "shared"."""


def sources() -> list[Any]:
    """Preset and precision of the shared bundles, then of those that an export makes first."""
    exported = [
        pytest.param(*source, marks=(pytest.mark.product, pytest.mark.together("-".join(source))))
        for source in product(PRESETS, PRECISIONS)
    ]
    return [("shared", precision) for precision in PRECISIONS] + exported


SOURCES = pytest.mark.parametrize(("preset", "precision"), sources())
Bundles = Callable[[str, str], Manifest]


@pytest.fixture(scope="module")
def rtx() -> Variant:
    return find_variant("tensorrt_rtx")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, bundles: Path) -> Bundles:
    """Bundles of untrained presets by name and precision, each exported once."""

    def export(preset: str, precision: str) -> Manifest:
        if preset == "shared":
            return load_manifest(bundles / SHARED[precision])

        def make(folder: Path) -> None:
            torch.manual_seed(0)
            # What narrow types cost random weights is not asked here.
            config = ExportConfig(parity_steps=128, precision=precision, accept_loss=True)
            model = Cmanp(PRESETS[preset]).eval()
            export_bundle(model, {"name": "untrained"}, folder / "bundle", config)

        name = f"preset-{preset}-{precision}"
        return load_manifest(made_once(tmp_path_factory, name, make) / "bundle")

    return export


def no_graphs(preset: str) -> set[str]:
    """The graphs that a preset has not: a state that forgets does not merge."""
    return {"merge"} if preset == "forgetting" else set()


def graph_file(manifest: Manifest, preset: str, name: str) -> Path:
    if name in no_graphs(preset):
        pytest.skip("a state that forgets does not merge")
    return manifest.path / manifest.graphs[name].file


@pytest.mark.one_case
@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("name", GRAPHS)
@SOURCES
def test_every_graph_builds_for_each_capability(
    exported: Bundles, rtx: Variant, preset: str, precision: str, name: str, capability: str
) -> None:
    manifest = exported(preset, precision)
    assert set(manifest.graphs) == set(GRAPHS) - no_graphs(preset)
    options = EngineOptions(compute_capabilities=(capability,))
    build = build_plan(rtx, graph_file(manifest, preset, name), options)
    assert len(build.plan) > 10_000 and build.timing == b""


@pytest.mark.one_case
@pytest.mark.parametrize("name", GRAPHS)
@SOURCES
def test_each_capability_gets_an_engine_of_its_own(
    exported: Bundles, rtx: Variant, preset: str, precision: str, name: str
) -> None:
    graph = graph_file(exported(preset, precision), preset, name)
    plans = {
        build_plan(rtx, graph, EngineOptions(compute_capabilities=(capability,))).plan
        for capability in CAPABILITIES
    }
    assert len(plans) == len(CAPABILITIES)


@pytest.mark.one_case
@SOURCES
def test_tensorrt_sees_the_tensors_that_the_manifest_lists(
    exported: Bundles, rtx: Variant, preset: str, precision: str
) -> None:
    manifest = exported(preset, precision)
    for graph in manifest.graphs.values():
        network = parse_graph(rtx, manifest.path / graph.file).network
        for listed, n_found, tensor_at in (
            (graph.inputs, network.num_inputs, network.get_input),
            (graph.outputs, network.num_outputs, network.get_output),
        ):
            found = [tensor_at(index) for index in range(n_found)]
            dtypes = [np.dtype(rtx.module.nptype(tensor.dtype)).name for tensor in found]
            assert {
                (tensor.name, tuple(tensor.shape), dtype)
                for tensor, dtype in zip(found, dtypes, strict=True)
            } == {(tensor.name, tensor.shape, tensor.dtype) for tensor in listed}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_precision_is_what_the_graph_says(exported: Bundles, rtx: Variant, precision: str) -> None:
    """Strongly typed: types inside the network are the graph's own, not TensorRT's choice."""
    trt = rtx.module
    kept = parse_graph(rtx, exported("shared", precision).path / "refresh.onnx")
    layers = [kept.network.get_layer(index) for index in range(kept.network.num_layers)]
    types = {
        layer.get_output(0).dtype for layer in layers if layer.type == trt.LayerType.MATRIX_MULTIPLY
    }
    quantised = any(layer.type == trt.LayerType.QUANTIZE for layer in layers)
    assert (trt.float16 in types) == (precision == "float16")
    assert quantised == (precision == "int8")


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_build_tells_its_kernels_and_what_became_of_narrow_products(
    exported: Bundles, rtx: Variant, precision: str
) -> None:
    """The words of NVIDIA's real log are those that `inspection` reads."""
    refresh = exported("shared", precision).path / "refresh.onnx"
    facts = build_plan(rtx, refresh, EngineOptions(compute_capabilities=("8.6",))).facts
    kernels, products = kernels_of(facts), products_of(facts)
    assert "kernels_missing" not in facts and facts["seconds"] > 0
    assert all(kernel.kind and kernel.writes for kernel in kernels)
    assert "unknown" not in {word for k in kernels for word in (*k.reads, *k.weights, *k.writes)}
    assert {asked for asked, _ in products.values()} == {precision} - {"float32"}
    real = {found for _, found in products.values()}
    assert real <= {precision, "float32"} and (precision == "float32" or precision in real)
    names = {node.name for node in onnx.load(refresh, load_external_data=False).graph.node}
    assert set(products) <= names
    assert {node for kernel in kernels for node in kernel.nodes} <= names


def test_one_engine_can_serve_several_capabilities(exported: Bundles, rtx: Variant) -> None:
    update = exported("shared", "float32").path / "update.onnx"
    both = build_plan(rtx, update, EngineOptions(compute_capabilities=CAPABILITIES))
    one = build_plan(rtx, update, EngineOptions(compute_capabilities=CAPABILITIES[:1]))
    assert len(both.plan) > len(one.plan)


def test_every_capability_from_ampere_on_can_be_built_for(exported: Bundles, rtx: Variant) -> None:
    update = exported("shared", "float32").path / "update.onnx"
    offered = supported_capabilities(rtx)
    assert set(CAPABILITIES) <= set(offered)
    for capability in offered:
        assert build_plan(rtx, update, EngineOptions(compute_capabilities=(capability,))).plan


def test_building_twice_gives_the_same_engine(exported: Bundles, rtx: Variant) -> None:
    """So an engine can be told by what it was built from."""
    query = exported("shared", "float32").path / "query_one.onnx"
    options = EngineOptions(compute_capabilities=("8.6",))
    assert build_plan(rtx, query, options).plan == build_plan(rtx, query, options).plan


@pytest.mark.long
def test_the_optimisation_level_changes_nothing_in_rtx(exported: Bundles, rtx: Variant) -> None:
    """What EngineOptions says of it."""
    query = exported("shared", "float32").path / "query_one.onnx"
    plans = {
        build_plan(rtx, query, EngineOptions(None, None, level, ("8.6",))).plan
        for level in (None, 0, 5)
    }
    assert len(plans) == 1


def write_graph(path: Path, op: str) -> Path:
    """Neg, then an operator that onnx knows and TensorRT does not, or that nobody knows."""
    shape = [2, 3, 3]
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], "first"),
        helper.make_node(op, ["a"], ["y"], "strange_one"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape[:1])],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


@pytest.mark.parametrize("op", ["Det", "Frobnicate"])
def test_an_operator_that_tensorrt_does_not_know_is_named_with_its_node(
    tmp_path: Path, rtx: Variant, op: str
) -> None:
    graph = write_graph(tmp_path / "strange.onnx", op)
    with pytest.raises(BackendError, match=rf"node strange_one \({op}\): ") as refused:
        build_plan(rtx, graph, EngineOptions(compute_capabilities=("8.6",)))
    assert "\n" not in str(refused.value) and str(graph) in str(refused.value)


def test_missing_weights_and_too_small_a_workspace_are_told(
    exported: Bundles, tmp_path: Path, rtx: Variant
) -> None:
    source = exported("shared", "float32").path / "refresh.onnx"
    alone = tmp_path / "refresh.onnx"
    alone.write_bytes(source.read_bytes())
    options = EngineOptions(compute_capabilities=("8.6",))
    with pytest.raises(BackendError, match=r"Failed to open file: .*weights\.bin"):
        build_plan(rtx, alone, options)
    narrow = dataclasses.replace(options, workspace_bytes=1 << 10)
    with pytest.raises(BackendError, match="Give more than the 1024 bytes of workspace"):
        build_plan(rtx, source, narrow)


def test_a_machine_without_a_gpu_is_told_to_name_a_capability(
    exported: Bundles, rtx: Variant
) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    update = exported("shared", "float32").path / "update.onnx"
    with pytest.raises(BackendError, match="No GPU answers here: name a compute capability"):
        build_plan(rtx, update, EngineOptions())
