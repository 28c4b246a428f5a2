from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgefold.export.graphs.static_graph import constants_of, dtypes_of, shapes_of
from edgefold.export.graphs.step_graphs import StepGraph, StepGraphs
from edgefold.export.precision.float16 import narrowed
from edgefold.runtime.backends.onnxruntime_session import onnxruntime as ort
from edgefold.runtime.bundle.manifest import Tensor
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.errors import ExportError
from tests.export.parsed_graphs import parsed

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(0)
CACHE = {"keys": (4, 8), "level": (1, 1)}


def normal(*shape: int) -> Array:
    return RANDOM.normal(size=shape).astype(np.float32)


WEIGHTS = {"w1": normal(6, 8), "w2": normal(8, 8), "w3": normal(8, 8), "w4": normal(8, 1)}
CONSTANTS: dict[str, Array] = {
    **WEIGHTS,
    "tiny": np.array([1e-12], np.float32),
    "axes": np.array([1]),
    "bias": normal(8),
}
CONSTANTS["ones"] = np.ones(6, np.float32)
REFRESH = """refresh (float[4, 6] state) => (float[4, 8] keys, float[1, 1] level, float[1] finite) {
    bounded = Tanh (state)
    first = Gemm (bounded, w1)
    active = Relu (first)
    keys = Gemm (active, w2)
    total = ReduceSum (bounded, axes)
    level = ReduceMax <keepdims=1> (total)
    sums = ReduceSum <keepdims=0> (keys)
    one = Constant <value_ints=[1]> ()
    finite = Reshape (sums, one)
}"""
QUERY = """query (float[2, 8] x, float[4, 8] keys, float[1, 1] level)
    => (float[2, 1] mean, float[2, 1] std) {
    own = Gemm (x, w3, bias)
    across = Transpose <perm=[1, 0]> (keys)
    scores = MatMul (own, across)
    weights = Softmax <axis=-1> (scores)
    read = MatMul (weights, keys)
    added = Add (read, own)
    raised = Add (added, tiny)
    mixed = Gemm (raised, w2)
    active = Relu (mixed)
    mean = Gemm (active, w4)
    wide = Exp (mean)
    std = Mul (wide, level)
}"""


def step_of(text: str, name: str, roles: dict[str, str]) -> StepGraph:
    model = parsed(text, CONSTANTS)
    shapes, dtypes = shapes_of(model), dtypes_of(model)

    def declared(name: str) -> Tensor:
        of = name.removeprefix("next_")
        return Tensor(name, roles[name], of, shapes[name], str(dtypes[name]))

    inputs, outputs = (
        tuple(declared(info.name) for info in part)
        for part in (model.graph.input, model.graph.output)
    )
    return StepGraph(name, name.split("_")[0], 0, model, inputs, outputs)


def learner(refresh: str = REFRESH, query: str = QUERY) -> StepGraphs:
    cache = dict.fromkeys(CACHE, "cache")
    predictions = dict.fromkeys(("mean", "std"), "prediction")
    steps = (
        step_of(refresh, "refresh", {"state": "state", "finite": "finite", **cache}),
        step_of(query, "query", {"x": "targets.x", **cache, **predictions}),
    )
    kinds = {name: (shape, np.dtype(np.float32)) for name, shape in CACHE.items()}
    return StepGraphs(steps, {"state": np.zeros((4, 6), np.float32)}, kinds)


def kinds_of(step: StepGraph) -> dict[str, str]:
    return {name: dtype.name for name, dtype in dtypes_of(step.model).items()}


def run(graphs: StepGraphs, state: Array, x: Array) -> dict[str, Array]:
    """Refresh, then query."""
    values = {"state": state, "x": x}
    for step in graphs.steps:
        session = ort.InferenceSession(
            step.model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        names = [tensor.name for tensor in step.outputs]
        found = session.run(names, {t.name: values[t.name] for t in step.inputs})
        for tensor, array in zip(step.outputs, found, strict=True):
            assert str(array.dtype) == tensor.dtype
            values[tensor.name] = array
    return values


def test_products_run_in_half_and_the_last_one_does_not() -> None:
    refresh, query = narrowed(learner(), {}).steps
    kinds = {**kinds_of(refresh), **kinds_of(query)}
    for name in ("first", "keys", "across", "scores", "weights", "read", "active"):
        assert kinds[name] == "float16", name
    for name in ("state", "x", "own", "mean", "wide", "std", "finite"):
        assert kinds[name] == "float32", name
    constants = constants_of(query.model)
    assert constants["w2.half"].dtype == np.float16
    assert {"w3", "w4"} <= constants.keys()  # before half, and behind it
    assert {refresh.precision, query.precision} == {"float16"}


def test_half_gives_nearly_the_same_prediction() -> None:
    exact = learner()
    state, x = normal(4, 6), normal(2, 8)
    one, other = run(exact, state, x), run(narrowed(exact, {}), state, x)
    for name in ("mean", "std"):
        # Three products in half, of values up to 10 with 11 bits each; std is exp(mean) * level.
        np.testing.assert_allclose(other[name], one[name], rtol=0.1)
        assert (other[name] != one[name]).any()


def test_a_cache_tensor_that_float32_nodes_read_stays_float32() -> None:
    graphs = narrowed(learner(), {})
    assert {name: dtype.name for name, (_, dtype) in graphs.cache.items()} == {
        "keys": "float16",
        "level": "float32",
    }
    for step in graphs.steps:
        for tensor in (*step.inputs, *step.outputs):
            assert tensor.dtype == ("float16" if tensor.of == "keys" else "float32")


@pytest.mark.parametrize("name", ["total", "raised"])
def test_long_sums_and_constants_that_half_cannot_hold_stay_float32(name: str) -> None:
    kinds = [kinds_of(step) for step in narrowed(learner(), {}).steps]
    assert next(own[name] for own in kinds if name in own) == "float32"


def test_values_beyond_half_are_clipped_where_they_enter_it() -> None:
    normalised = "bounded = LayerNormalization (state, ones)"
    exact = learner(REFRESH.replace("bounded = Tanh (state)", normalised))
    state = 1e8 * np.sign(normal(4, 6)).astype(np.float32)
    one, other = run(exact, state, normal(2, 8)), run(narrowed(exact, {}), state, normal(2, 8))
    np.testing.assert_allclose(other["keys"], one["keys"], atol=0.02)  # up to 10, with 11 bits


def test_without_refresh_the_state_stays_float32_and_the_query_casts_it() -> None:
    text = """query (float[2, 6] x, float[2, 6] state) => (float[2, 1] mean) {
        both = Add (x, state)
        first = Gemm (both, w1)
        active = Relu (first)
        mean = Gemm (active, w4)
    }"""
    roles = {"x": "targets.x", "state": "state", "mean": "prediction"}
    update = step_of(
        "update (float[2, 6] state) => (float[2, 6] next_state) { next_state = Relu (state) }",
        "update",
        {"state": "state", "next_state": "state"},
    )
    exact = StepGraphs((update, step_of(text, "query", roles)), {"state": normal(2, 6)})
    graphs = narrowed(exact, {})
    assert graphs.steps[0] is update
    assert kinds_of(graphs.steps[1])["first"] == "float16"
    assert {t.dtype for t in graphs.steps[1].inputs} == {"float32"}


def test_a_model_that_narrowed_itself_is_left_as_it_is() -> None:
    graphs = learner()
    own = replace(graphs, steps=tuple(replace(s, precision="float16") for s in graphs.steps))
    assert narrowed(own, {}) is own


def test_a_model_without_a_product_before_the_last_is_refused() -> None:
    text = "query (float[2, 8] x, float[4, 8] keys, float[1, 1] level) => (float[2, 1] mean)"
    one = learner(query=f"{text} {{ near = Mul (x, level) mean = Gemm (near, w4) }}").steps[1]
    filtering = step_of(
        """step (float[2, 6] x, float[2, 6] h) => (float[2, 8] mean, float[2, 6] next_h) {
            next_h = Add (x, h)
            mean = Gemm (next_h, w1)
        }""",
        "step",
        {"x": "points.x", "h": "state", "next_h": "state", "mean": "prediction"},
    )
    for step in (one, filtering):
        with pytest.raises(ExportError, match="this model has none"):
            narrowed(StepGraphs((step,), {}), {})


def read_graphs(bundle: Path) -> StepGraphs:
    manifest = load_manifest(bundle)
    steps = tuple(
        StepGraph(g.name, g.step, g.width, onnx.load(bundle / g.file), g.inputs, g.outputs)
        for g in manifest.graphs.values()
    )
    cache = {t.name: (t.shape, np.dtype(t.dtype)) for t in manifest.cache}
    return StepGraphs(steps, {}, cache)


def test_a_models_own_narrow_form_has_its_products_in_half_where_this_has_them(
    bundles: Path,
) -> None:
    by_itself = read_graphs(bundles / "tiny-float16")
    exact = read_graphs(bundles / "tiny")
    made = narrowed(exact, {})
    assert made.cache == by_itself.cache
    for name in ("refresh", "query", "query_one"):
        counts = []
        for graphs in (by_itself, made):
            (step,) = (step for step in graphs.steps if step.name == name)
            kinds = kinds_of(step)
            nodes = [n for n in step.model.graph.node if n.op_type in ("Gemm", "MatMul")]
            counts.append(sum(kinds[node.output[0]] == "float16" for node in nodes))
        assert abs(counts[0] - counts[1]) <= 1 and counts[1] > 5  # one that reads x alone
