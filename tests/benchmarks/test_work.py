from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.work import Work, work_of


def test_work_counts_products_elements_and_traffic(tmp_path: Path) -> None:
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
    onnx.save(onnx.shape_inference.infer_shapes(model), tmp_path / "g.onnx")
    found = work_of(tmp_path / "g.onnx")
    assert found.flops == 2 * 5 * 8 * 3 + 15
    assert found.n_bytes == 4 * (5 * 8 + 8 * 3 + 15) + 8


def test_every_graph_of_a_bundle_can_be_counted(tiny_bundle: Path) -> None:
    for path in tiny_bundle.glob("*.onnx"):
        found = work_of(path)
        assert found.flops > 0 and found.n_bytes > 0, path.name


def test_the_floor_is_the_longer_of_both() -> None:
    assert Work(100, 1000).floor_s(100, 2000) == pytest.approx(1.0)
    assert Work(100, 1000).floor_s(1000, 2000) == pytest.approx(0.5)
