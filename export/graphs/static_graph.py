"""Read and rebuild ONNX graphs with fixed shapes, without subgraphs, with initializers inside."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, helper, numpy_helper

Array = NDArray[Any]
Shape = tuple[int, ...]


def shapes_of(model: onnx.ModelProto) -> dict[str, Shape]:
    """Shapes of all values that have one; a length that is not fixed is 0."""
    graph = model.graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for info in (*graph.input, *graph.value_info, *graph.output):
        if info.type.tensor_type.HasField("shape"):
            shapes[info.name] = tuple(d.dim_value for d in info.type.tensor_type.shape.dim)
    return shapes


def dtypes_of(model: onnx.ModelProto) -> dict[str, np.dtype[Any]]:
    """Element types of all values that are tensors."""
    graph = model.graph
    found = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for info in (*graph.input, *graph.value_info, *graph.output):
        found[info.name] = info.type.tensor_type.elem_type
    return {
        name: helper.tensor_dtype_to_np_dtype(number) for name, number in found.items() if number
    }


def inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the shapes of all values; integers are followed where that succeeds.

    ONNX takes every short integer tensor for a shape and refuses (2, 1) minus (5,) of them.
    """
    infer = partial(onnx.shape_inference.infer_shapes, model, check_type=True, strict_mode=True)
    try:
        return infer(data_prop=True)
    except onnx.shape_inference.InferenceError:
        return infer()


def constants_of(model: onnx.ModelProto) -> dict[str, Array]:
    """The initializers' values."""
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def attribute(node: NodeProto, name: str, default: Any) -> Any:
    """An attribute's value, or the default."""
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def copied(node: NodeProto, inputs: Sequence[str]) -> NodeProto:
    """The same node with other inputs."""
    made = NodeProto()
    made.CopyFrom(node)
    made.input[:] = inputs
    return made


def nodes_before(
    model: onnx.ModelProto, outputs: Iterable[str], stop: Collection[str] = ()
) -> set[str]:
    """Nodes that outputs depend on, and none before a node of a kind in `stop`.

    A node is told by its first output.
    """
    wanted, found = set(outputs), set()
    for node in reversed(model.graph.node):
        if wanted.intersection(node.output):
            found.add(node.output[0])
            if node.op_type not in stop:
                wanted.update(node.input)
    return found


def rebuilt(
    model: onnx.ModelProto, nodes: Sequence[NodeProto], constants: Mapping[str, Array]
) -> onnx.ModelProto:
    """The graph with other nodes behind the same inputs and outputs, checked, all shapes inferred.

    Nodes and constants that no output depends on are left out.
    """
    read = {info.name for info in model.graph.output}
    kept = []
    for node in reversed(nodes):
        if read.intersection(node.output):
            read.update(node.input)
            kept.append(node)
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    for part in (graph.node, graph.initializer, graph.value_info):
        del part[:]
    graph.node.extend(reversed(kept))
    graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in constants.items() if name in read
    )
    made = inferred(made)
    onnx.checker.check_model(made, full_check=True)
    return made
