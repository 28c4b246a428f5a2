"""Write BatchNormalization with constant statistics as one product and one sum."""

from __future__ import annotations

import numpy as np
import onnx

from edgefold.export.graphs.comparisons import NodeWriter
from edgefold.export.graphs.static_graph import attribute, constants_of, shapes_of


def without_batch_norms(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph whose BatchNormalization is a Mul and an Add, else the graph itself.

    y = (x - mean) / sqrt(var + epsilon) * scale + bias = x factor + (bias - mean factor), where
    the factor is computed here in float64 (Ioffe and Szegedy 2015, algorithm 2).
    """
    if not any(node.op_type == "BatchNormalization" for node in model.graph.node):
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    writer, arrays, shapes = NodeWriter(changed), constants_of(model), shapes_of(model)
    for node in list(changed.graph.node):
        constant = all(name in arrays for name in node.input[1:])
        if node.op_type != "BatchNormalization" or not constant or len(node.output) > 1:
            writer.keep(node)
            continue
        x, *names = node.input
        scale, bias, mean, var = (arrays[name].astype(np.float64) for name in names)
        factor = scale / np.sqrt(var + attribute(node, "epsilon", 1e-5))
        axes = (-1, *[1] * (len(shapes[x]) - 2))  # the second axis of x is that of the channels
        factor, shift = (
            writer.constant(array.astype(arrays[names[0]].dtype).reshape(axes))
            for array in (factor, bias - mean * factor)
        )
        scaled = writer.add("Mul", [x, factor], node.output[0])
        writer.add("Add", [scaled, shift], node.output[0], last=True)
    return writer.finish()
