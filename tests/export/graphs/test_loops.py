"""A CumSum is written without a loop, and gives the same numbers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from edgefold.export.graphs.loops import without_loops
from edgefold.export.graphs.static_graph import inferred
from edgefold.export.native.program.extremes import with_extremes

LARGE = 2**40
"""Sums of such integers are not exact in float32."""


def run(model: onnx.ModelProto, values: dict[str, Any]) -> list[Any]:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, values))


def a_sum(kind: str, shape: str, axis: int) -> onnx.ModelProto:
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        g ({kind}[{shape}] x) => ({kind}[{shape}] y)
        <int64 axis = {{{axis}}}> {{ y = CumSum (x, axis) }}"""
    return inferred(onnx.parser.parse_model(text))


@pytest.mark.parametrize("n", [1, 2, 5, 32, 64])
@pytest.mark.parametrize("kind", ["float", "int64"])
def test_a_cumulative_sum_is_the_same_without_a_loop(kind: str, n: int) -> None:
    model = a_sum(kind, f"3,{n},2", 1)
    made = without_loops(model)
    values = np.random.default_rng(0).integers(-LARGE, LARGE, (3, n, 2))
    x = values if kind == "int64" else values.astype(np.float32)
    (expected,), (found,) = run(model, {"x": x}), run(made, {"x": x})
    # In float32, 64 terms in another order: 64 roundings of 6e-8 of the largest partial sum.
    tolerance = 0 if kind == "int64" else 64 * 6e-8 * np.abs(values).sum(1).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
    kinds = Counter(node.op_type for node in made.graph.node)
    assert "CumSum" not in kinds and kinds["Add"] == int(np.ceil(np.log2(n)))


def test_infinity_reaches_only_the_sums_after_it() -> None:
    model = a_sum("float", "1,5,1", 1)
    x = np.array([1, 2, np.inf, 4, 5], np.float32).reshape(1, 5, 1)
    assert np.array_equal(run(without_loops(model), {"x": x})[0], run(model, {"x": x})[0])


def test_a_count_of_truth_values_is_a_product() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (bool[2,9] x) => (int64[2,9] y)
        <int64 axis = {1}> { n = Cast <to = 7> (x) y = CumSum (n, axis) }"""
    model = inferred(onnx.parser.parse_model(text))
    made = without_loops(model)
    x = np.random.default_rng(0).integers(0, 2, (2, 9)).astype(bool)
    assert np.array_equal(run(made, {"x": x})[0], x.cumsum(1))
    assert "MatMul" in {node.op_type for node in made.graph.node}


@pytest.mark.parametrize("form", ["65", "reverse"])
def test_other_cumulative_sums_stay(form: str) -> None:
    model = a_sum("float", f"1,{65 if form == '65' else 4}", 1)
    if form == "reverse":
        model.graph.node[0].attribute.append(onnx.helper.make_attribute("reverse", 1))
    assert "CumSum" in {node.op_type for node in without_loops(model).graph.node}


def test_a_sum_of_one_term_is_no_work_in_generated_c() -> None:
    made = with_extremes(without_loops(a_sum("int64", "2,1", 1)))
    assert [node.op_type for node in made.graph.node] == ["Identity"]
