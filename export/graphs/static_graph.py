"""Read ONNX graphs with fixed shapes and without subgraphs, whose constants lie inside.

`edgefold.export.graphs.rewriting` changes such graphs.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, helper, numpy_helper

Array = NDArray[Any]
Shape = tuple[int, ...]


def shapes_of(model: onnx.ModelProto) -> dict[str, Shape]:
    """Return the shape of each value that has one, by name; a length that is not fixed is 0."""
    graph = model.graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for info in (*graph.input, *graph.value_info, *graph.output):
        if info.type.tensor_type.HasField("shape"):
            shapes[info.name] = tuple(d.dim_value for d in info.type.tensor_type.shape.dim)
    return shapes


def dtypes_of(model: onnx.ModelProto) -> dict[str, np.dtype[Any]]:
    """Return the element type of each value that is a tensor, by name."""
    graph = model.graph
    numbers = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for info in (*graph.input, *graph.value_info, *graph.output):
        numbers[info.name] = info.type.tensor_type.elem_type
    return {
        name: helper.tensor_dtype_to_np_dtype(number) for name, number in numbers.items() if number
    }


def constants_of(model: onnx.ModelProto) -> dict[str, Array]:
    """Return the numbers of the graph's initializers (its constants) by name."""
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def attribute(node: NodeProto, name: str, default: Any) -> Any:
    """Return the value of a node's attribute, or the default if the node does not have it."""
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with the shapes of all values, as ONNX infers them.

    ONNX also computes the values of short integer tensors, because shapes may depend on them. It
    takes each for a shape and refuses to subtract (5,) from (2, 1), for example; then shapes are
    inferred without these values.
    """
    infer = partial(onnx.shape_inference.infer_shapes, model, check_type=True, strict_mode=True)
    try:
        return infer(data_prop=True)
    except onnx.shape_inference.InferenceError:
        return infer()


def checked(model: onnx.ModelProto) -> onnx.ModelProto:
    """Check a model with ONNX's checker, and return it with the shapes of all values."""
    model = inferred(model)
    onnx.checker.check_model(model, full_check=True)
    return model
