"""How a node of a graph is taken out of it, and which graphs must keep the bound."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.speed.floors import (
    all_values,
    key_of,
    node_alone,
    requirements,
    session_of,
    without_work,
)

MODEL = helper.make_model(
    helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["hidden"]),
            helper.make_node("Split", ["hidden"], ["left", "right"], axis=1, num_outputs=2),
            helper.make_node("Add", ["left", "right"], ["y"]),
            helper.make_node("Add", ["right", "left"], ["z"]),
        ],
        "steps",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3))],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 2)) for name in "yz"],
        [numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(3, 4), "w")],
    ),
    opset_imports=[helper.make_opsetid("", 18)],
    ir_version=9,
)
X = {"x": np.array([[1.0, 2.0, -1.0]], np.float32)}


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_node_alone_gives_what_it_gives_in_its_graph(index: int) -> None:
    values = all_values(MODEL, X)
    node = MODEL.graph.node[index]
    alone = node_alone(MODEL, node, values, 3)
    session = session_of(alone)
    found = session.run(None, {one.name: values[one.name] for one in session.get_inputs()})
    assert [one.op_type for one in alone.graph.node] == 3 * [node.op_type]
    for array, name in zip(found, node.output, strict=True):
        assert np.array_equal(array, values[name])


def test_nodes_of_equal_shapes_are_measured_once() -> None:
    values = all_values(MODEL, X)
    keys = [key_of(node, values) for node in MODEL.graph.node]
    assert keys[2] == keys[3] and len(set(keys)) == 3


def test_only_graphs_of_many_small_nodes_must_keep_the_bound() -> None:
    small = {"n_nodes": 10, "nodes_s": 9e-6, "call_s": 1e-6, "graph_s": 12e-6}
    large = {"n_nodes": 10, "nodes_s": 9e-3, "call_s": 1e-6, "graph_s": 12e-3}
    found = requirements({"lbanp": {"update": small, "refresh": large}})
    assert [(r.what, r.met) for r in found] == [("lbanp, update: graph over floor", False)]


def test_a_call_without_work_has_the_inputs_and_outputs_of_the_graph() -> None:
    values = all_values(MODEL, X)
    session = session_of(without_work(MODEL, values))
    assert [one.name for one in session.get_inputs()] == ["x"]
    for array, output in zip(session.run(None, X), session.get_outputs(), strict=True):
        assert np.array_equal(array, values[output.name])
