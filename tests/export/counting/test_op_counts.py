from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgefold.export.counting.activations import activation_bytes, held_bytes
from edgefold.export.counting.op_counts import execution_order, work_of
from edgefold.export.graph import GraphBuilder, WeightFile
from edgefold.runtime.manifest_file import load_manifest


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


def builder() -> tuple[GraphBuilder, str]:
    graph = GraphBuilder("g", WeightFile())
    return graph, graph.input("x", "points.x", (1, 1000))


def test_the_order_walks_back_from_what_nobody_reads_the_last_one_first() -> None:
    graph, x = builder()
    early = graph.call("Exp", x)
    late = graph.call("Sin", x)
    graph.output(early, "early", "prediction", (1, 1000))
    graph.output(late, "late", "prediction", (1, 1000))
    assert [node.op_type for node in execution_order(graph.model().graph)] == ["Sin", "Exp"]


def test_a_value_that_is_read_at_the_end_stays_alive() -> None:
    graph, x = builder()
    first = graph.call("Exp", x)
    value = first
    for _ in range(3):
        value = graph.call("Exp", value)
    graph.output(graph.call("Add", value, first), "y", "prediction", (1, 1000))
    assert held_bytes(graph.model()) == 3 * 4000


def test_a_dead_buffer_is_kept_for_the_next_value_of_its_shape() -> None:
    graph, x = builder()
    value = graph.call("Exp", x)  # dead behind the first product, and taken again at the end
    wide = graph.call("MatMul", value, np.ones((1000, 2000)))
    wide = graph.call("Exp", wide)
    back = graph.call("MatMul", wide, np.ones((2000, 1000)))
    graph.output(graph.call("Exp", back), "y", "prediction", (1, 1000))
    assert held_bytes(graph.model()) == 4000 + 2 * 8000


def test_views_hold_nothing_and_a_selection_needs_scratch() -> None:
    graph, x = builder()
    shown = graph.call("Greater", x, np.array(0.5))
    value = graph.reshape(graph.call("Where", shown, x, np.array(0.0)), 10, 100)
    graph.output(graph.call("Exp", value), "y", "prediction", (10, 100))
    assert held_bytes(graph.model()) == 1000 + 4000 + 4000
    assert activation_bytes(graph.model()) > held_bytes(graph.model())


def chain(kind: int, inner: int = 0) -> onnx.ModelProto:
    """x, Exp, Exp, y; x is of `kind`, what follows of `inner`."""
    nodes = [helper.make_node("Exp", ["a"], ["b"]), helper.make_node("Exp", ["b"], ["y"])]
    first = helper.make_node("Cast", ["x"], ["a"], to=inner or kind)
    x, y = (
        helper.make_tensor_value_info(name, element, [1000])
        for name, element in (("x", kind), ("y", inner or kind))
    )
    graph = helper.make_graph([first, *nodes], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return onnx.shape_inference.infer_shapes(model)


def test_float16_counts_as_the_float32_that_a_cpu_computes_with() -> None:
    full, half = TensorProto.FLOAT, TensorProto.FLOAT16
    assert held_bytes(chain(full)) == held_bytes(chain(full, half)) == 2 * 4000
    assert held_bytes(chain(half)) == 3 * 4000  # the input is converted whole


def test_a_dequantised_operand_holds_nothing_of_its_own() -> None:
    scale, zero = (
        numpy_helper.from_array(np.array(v, t), n) for v, t, n in ((0.1, "f4", "s"), (0, "i1", "z"))
    )
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Exp", ["d"], ["e"]),
        helper.make_node("Exp", ["e"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1000]) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], [scale, zero])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    assert held_bytes(onnx.shape_inference.infer_shapes(model)) == 1000 + 4000
