from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgefold.export.counting.activations import SLACK, activation_bytes
from edgefold.export.counting.op_counts import work_of
from edgefold.runtime.bundle.manifest_file import load_manifest


def test_work_counts_products_elements_and_traffic() -> None:
    weight = numpy_helper.from_array(np.ones((8, 3), np.float32), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Reshape", ["p", "shape"], ["r"]),
        helper.make_node("Exp", ["r"], ["y"]),
    ]
    shape = numpy_helper.from_array(np.array([15], np.int64), "shape")
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [15])],
        [weight, shape],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    found = work_of(onnx.shape_inference.infer_shapes(model))
    assert found.flops == 2 * 5 * 8 * 3 + 15
    assert found.n_bytes == 4 * (5 * 8 + 8 * 3 + 15) + 8
    assert found.moved_bytes == 4 * (5 * 8 + 8 * 3 + 15) + 4 * (15 + 15)
    assert found.n_nodes == 2


def test_the_manifest_carries_the_work_of_every_graph(tiny_bundle: Path) -> None:
    plan = load_manifest(tiny_bundle).memory_plan["graphs"]
    for path in tiny_bundle.glob("*.onnx"):
        found = work_of(onnx.load(path, load_external_data=False))
        assert plan[path.stem]["work"] == found.to_json()
        assert found.moved_bytes >= found.n_bytes - plan[path.stem]["weights_bytes"] > 0


def chain(*nodes: tuple[str, list[str], str]) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node(kind, inputs, [output]) for kind, inputs, output in nodes],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1000])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1000])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    return onnx.shape_inference.infer_shapes(model)


def test_a_chain_holds_two_values_and_a_late_reader_keeps_a_third() -> None:
    short = chain(
        ("Exp", ["x"], "a"), ("Exp", ["a"], "b"), ("Exp", ["b"], "c"), ("Exp", ["c"], "y")
    )
    assert activation_bytes(short) == int(2 * 4000 * SLACK)
    late = chain(
        ("Exp", ["x"], "a"), ("Exp", ["a"], "b"), ("Exp", ["b"], "c"), ("Add", ["c", "a"], "y")
    )
    assert activation_bytes(late) == int(3 * 4000 * SLACK)


def test_a_recurrent_layer_counts_each_weight_and_row() -> None:
    weights = [
        numpy_helper.from_array(np.ones(shape, np.float32), name)
        for name, shape in (("w", (1, 12, 3)), ("r", (1, 12, 4)))
    ]
    graph = helper.make_graph(
        [helper.make_node("GRU", ["x", "w", "r"], ["", "h"], hidden_size=4)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 2, 3])],
        [helper.make_tensor_value_info("h", TensorProto.FLOAT, [1, 2, 4])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    assert work_of(onnx.shape_inference.infer_shapes(model)).flops == 2 * 5 * 2 * (36 + 48)
