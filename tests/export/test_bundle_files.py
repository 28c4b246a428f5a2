from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgefold.export.bundle_files import INLINE_BYTES, WeightFile


def test_the_parts_of_a_long_split_stay_in_the_graph(tmp_path: Path) -> None:
    """A refresh over a large buffer is split into many parts; the checker must know their sizes."""
    n = INLINE_BYTES  # parts of one row, of 8 bytes each
    parts = numpy_helper.from_array(np.ones(n, np.int64), "parts")
    weights = numpy_helper.from_array(np.ones((n, 2), np.float32), "weights")
    names = [f"part_{k}" for k in range(n)]
    nodes = [
        helper.make_node("Add", ["x", "weights"], ["sum"]),
        helper.make_node("Split", ["sum", "parts"], names, axis=0),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [n, 2])
    last = helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, [1, 2])
    graph = helper.make_graph(nodes, "split", [x], [last], [parts, weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    file = WeightFile()
    thin = file.without_weights(model)
    file.write(tmp_path)
    onnx.save(thin, tmp_path / "split.onnx")
    onnx.checker.check_model(str(tmp_path / "split.onnx"), full_check=True)
    outside = [t.name for t in thin.graph.initializer if t.data_location == TensorProto.EXTERNAL]
    assert outside == ["weights"]
