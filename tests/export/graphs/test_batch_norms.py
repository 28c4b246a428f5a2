"""BatchNormalization is written as a product and a sum, and gives the same numbers."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from edgefold.export.graphs.batch_norms import without_batch_norms
from edgefold.export.graphs.static_graph import inferred


def a_norm(shape: str) -> onnx.ModelProto:
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[{shape}] x) => (float[{shape}] y)
        {{ y = BatchNormalization <epsilon = 0.01> (x, scale, bias, mean, var) }}"""
    model = onnx.parser.parse_model(text)
    random = np.random.default_rng(0)
    for name in ("scale", "bias", "mean", "var"):
        array = random.uniform(0.5, 2, 3).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return inferred(model)


@pytest.mark.parametrize("shape", ["2,3", "2,3,4", "1,3,4,5"])
def test_a_product_and_a_sum_give_the_same(shape: str) -> None:
    model = a_norm(shape)
    made = without_batch_norms(model)
    assert [node.op_type for node in made.graph.node] == ["Mul", "Add"]
    x = np.random.default_rng(1).normal(size=[int(n) for n in shape.split(",")])
    expected, found = (
        onnxruntime.InferenceSession(m.SerializeToString()).run(None, {"x": x.astype(np.float32)})
        for m in (model, made)
    )
    # Values of some units: a handful of float32 roundings of 6e-8 each, in another order.
    np.testing.assert_allclose(found[0], expected[0], rtol=0, atol=4e-6)
