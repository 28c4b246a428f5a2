"""Changes of graphs and weights: bytes, nodes, external data, whole files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from attack.changes.array_changes import Random, change_bytes, one_of
from attack.changes.drafts import Draft

CANARY = "elsewhere.bin"
"""A file next to the bundle, with the bytes of its weights: it would open as well as they do."""
OPERATORS = (
    *("Add", "Mul", "MatMul", "Gemm", "Reshape", "Concat", "Slice", "Gather", "Transpose", "Exp"),
    *("LayerNormalization", "Softmax", "Where", "Identity", "ReduceSum", "Squeeze", "Unsqueeze"),
    *("Split", "Expand", "ConstantOfShape", "Range", "Tile", "Einsum", "Cast", "Pad", "GRU", "If"),
    *("Loop", "Scan", "NonZero", "Resize", "NotAnOperator", ""),
)


def graph_bytes(random: Random, draft: Draft) -> str:
    """Change bytes of a graph's file."""
    name = one_of(random, draft.graphs)
    draft.changed[name], what = change_bytes(random, draft.bytes_of(name))
    return f"{name}: {what}"


def weight_bytes(random: Random, draft: Draft) -> str:
    """Change bytes of the weights' file, or its size."""
    draft.changed["weights.bin"], what = change_bytes(random, draft.bytes_of("weights.bin"))
    return f"weights.bin: {what}"


def graph_nodes(random: Random, draft: Draft) -> str:
    """Change a graph as onnx sees it, once or a few times."""
    name = one_of(random, draft.graphs)
    model = onnx.load_model_from_string(draft.bytes_of(name))
    done = []
    for _ in range(1 if random.random() < 0.7 else int(random.integers(2, 5))):
        change = NODE_CHANGES[random.integers(len(NODE_CHANGES))]
        done.append(change(random, model.graph, model, draft))
    draft.changed[name] = model.SerializeToString()
    return f"{name}: {'; '.join(done)}"


def _names(graph: onnx.GraphProto) -> list[str]:
    names = [n.name for n in (*graph.input, *graph.initializer)]
    return [*names, *(name for node in graph.node for name in node.output)]


def _node(random: Random, graph: onnx.GraphProto) -> onnx.NodeProto:
    if not graph.node:
        graph.node.append(helper.make_node("Identity", [graph.input[0].name], ["none"]))
    node: onnx.NodeProto = one_of(random, graph.node)
    return node


def _inputs(random: Random, graph: onnx.GraphProto, model: onnx.ModelProto, draft: Draft) -> str:
    node = _node(random, graph)
    pick = int(random.integers(5))
    other = one_of(random, [*_names(graph), "", "nothing"])
    if pick == 0:
        node.input.append("")
        return f"an empty input appended to {node.op_type}"
    if pick == 1:
        node.input.append(other)
        return f"an input appended to {node.op_type}"
    if pick == 2 and node.input:
        node.input.pop()
        return f"the last input of {node.op_type} removed"
    if pick == 3 and node.input:
        node.input[int(random.integers(len(node.input)))] = other
        return f"an input of {node.op_type} is {other}"
    if len(node.output):
        node.output[0] = other
    return f"an output of {node.op_type} is {other}"


def _operator(random: Random, graph: onnx.GraphProto, model: onnx.ModelProto, draft: Draft) -> str:
    node = _node(random, graph)
    before = node.op_type
    if random.random() < 0.3:
        node.domain = one_of(random, ("com.microsoft", "ai.onnx.ml", "x", "a" * 1000))
        return f"{before} is of the domain {node.domain[:20]}"
    node.op_type = one_of(random, OPERATORS)
    return f"{before} became {node.op_type}"


def _attribute(random: Random, graph: onnx.GraphProto, model: onnx.ModelProto, draft: Draft) -> str:
    node = _node(random, graph)
    values: tuple[Any, ...] = (
        -1,
        0,
        1,
        2,
        3,
        2**31,
        -(2**63),
        2**62,
        0.5,
        float("nan"),
        "x",
        [0],
        [-1, 5],
        [],
    )
    if node.attribute and random.random() < 0.6:
        attribute = one_of(random, node.attribute)
        name = attribute.name
        node.attribute.remove(attribute)
    else:
        name = one_of(
            random, ("axis", "axes", "perm", "to", "epsilon", "alpha", "hidden_size", "k")
        )
    if random.random() < 0.8:
        value = one_of(random, values)
        typed = onnx.AttributeProto.INTS if value == [] else None
        node.attribute.append(helper.make_attribute(name, value, attr_type=typed))
    return f"the attribute {name} of {node.op_type} changed"


def _nodes(random: Random, graph: onnx.GraphProto, model: onnx.ModelProto, draft: Draft) -> str:
    node = _node(random, graph)
    pick = int(random.integers(3))
    if pick == 0:
        graph.node.remove(node)
        return f"{node.op_type} removed"
    if pick == 1:
        graph.node.append(node)
        return f"{node.op_type} doubled"
    graph.node.insert(0, node)
    return f"{node.op_type} also comes first"


def _opset(random: Random, graph: onnx.GraphProto, model: onnx.ModelProto, draft: Draft) -> str:
    if random.random() < 0.3:
        model.ir_version = one_of(random, (0, 1, 3, 11, 99, 2**40))
        return f"ir_version {model.ir_version}"
    if not model.opset_import or random.random() < 0.2:
        model.opset_import.add(domain="x", version=1)
        return "an opset more"
    model.opset_import[0].version = one_of(random, (0, 1, 6, 9, 13, 17, 25, 99, 2**40, -1))
    return f"opset {model.opset_import[0].version}"


def _interface(random: Random, graph: onnx.GraphProto, model: onnx.ModelProto, draft: Draft) -> str:
    value = one_of(random, [*graph.input, *graph.output])
    pick = int(random.integers(4))
    if pick == 0:
        value.name = one_of(random, (f"{value.name}_", "", "a\0", one_of(random, _names(graph))))
        return "an interface's name changed"
    if pick == 1:
        value.type.tensor_type.elem_type = int(random.integers(0, 24))
        return f"{value.name} is of type {value.type.tensor_type.elem_type}"
    if pick == 2:
        shape = value.type.tensor_type.shape
        if shape.dim:
            one_of(random, shape.dim).dim_value = one_of(random, (0, 1, 2, 9, 2**40, -1))
        else:
            shape.dim.add(dim_value=2)
        return f"{value.name} has another shape"
    group = graph.input if random.random() < 0.5 else graph.output
    if random.random() < 0.5:
        group.append(value)
    elif len(group):
        group.remove(one_of(random, group))
    return "an interface's tensor doubled or removed"


def _initializer(
    random: Random, graph: onnx.GraphProto, model: onnx.ModelProto, draft: Draft
) -> str:
    if not graph.initializer:
        graph.initializer.append(numpy_helper.from_array(np.zeros(2, np.float32), "more"))
    tensor = one_of(random, graph.initializer)
    pick = int(random.integers(4))
    if pick == 0:
        tensor.data_type = int(random.integers(0, 24))
    elif pick == 1:
        tensor.dims.append(one_of(random, (0, 1, 2, 1000, 2**31, 2**62, -1)))
    elif pick == 2 and tensor.dims:
        tensor.dims[int(random.integers(len(tensor.dims)))] = one_of(random, (0, 1, 99, 2**40, -1))
    else:
        tensor.raw_data = random.bytes(int(random.integers(0, 64)))
    return f"the constant {tensor.name} changed"


def _external(tensor: onnx.TensorProto, location: str, offset: object, length: object) -> None:
    tensor.ClearField("raw_data")
    tensor.ClearField("float_data")
    tensor.ClearField("external_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    if offset is not None:
        tensor.external_data.add(key="offset", value=str(offset))
    if length is not None:
        tensor.external_data.add(key="length", value=str(length))


def _locations(draft: Draft) -> tuple[str, ...]:
    """Places of data other than the weights' file; all would open."""
    outside = draft.source.parent / CANARY
    return (
        *(f"../{CANARY}", str(outside), "golden.npz", "extra.bin", "link.bin", "manifest.json"),
        *(
            "./golden.npz",
            f"sub/../../{CANARY}",
            f"file://{outside}",
            "/dev/zero",
            "/proc/self/mem",
        ),
        *(draft.graphs[0], ""),
    )


def _moved(random: Random, graph: onnx.GraphProto, model: onnx.ModelProto, draft: Draft) -> str:
    """Take a constant from another file, or from another place of the weights' file."""
    if not graph.initializer:
        graph.initializer.append(numpy_helper.from_array(np.zeros(4, np.float32), "more"))
    tensor = one_of(random, graph.initializer)
    size = int(np.prod(tensor.dims)) * 4 if tensor.dims else 4
    if random.random() < 0.6:
        location = one_of(random, _locations(draft))
        if location == "extra.bin":
            draft.changed["extra.bin"] = bytes(min(max(size, 4096), 1 << 20))
        elif location == "link.bin":
            draft.special["link.bin"] = "outside"
            draft.changed["link.bin"] = bytes(min(max(size, 4096), 1 << 20))
        _external(tensor, location, 0, size)
        return f"the constant {tensor.name} lies in {location}"
    whole = len(draft.bytes_of("weights.bin"))
    offset = one_of(random, (0, 1, 4, whole, whole - 1, whole + 1, 2**40, -1, "x", "", None, 2**63))
    length = one_of(random, (size, 0, size - 1, size * 2, whole, 2**40, -1, "x", "", None))
    _external(tensor, "weights.bin", offset, length)
    return f"the constant {tensor.name} lies at {offset!r}, {length!r} bytes"


def _subgraph(random: Random, graph: onnx.GraphProto, model: onnx.ModelProto, draft: Draft) -> str:
    """Add an If or a Loop whose body reads external data, or turns often."""
    constant = TensorProto(name="inner", data_type=TensorProto.FLOAT, dims=[2])
    location = one_of(random, (*_locations(draft), "weights.bin"))
    if location == "extra.bin":
        draft.changed["extra.bin"] = bytes(4096)
    if location == "link.bin":
        draft.special["link.bin"] = "outside"
        draft.changed["link.bin"] = bytes(4096)
    _external(constant, location, 0, 8)
    place = int(random.integers(3))
    output = helper.make_tensor_value_info("made", TensorProto.FLOAT, [2])
    body = helper.make_graph(
        [helper.make_node("Identity", ["inner"], ["made"])], "body", [], [output]
    )
    if place == 0:
        body.initializer.append(constant)
    elif place == 1:
        body.node[0].CopyFrom(helper.make_node("Constant", [], ["made"], value=constant))
    else:
        body.sparse_initializer.add().values.CopyFrom(constant)
        body.node[0].CopyFrom(helper.make_node("Constant", [], ["made"], value_floats=[0.0, 1.0]))
    if random.random() < 0.5:
        graph.initializer.append(numpy_helper.from_array(np.array(True), "always"))
        node = helper.make_node("If", ["always"], ["chosen"], then_branch=body, else_branch=body)
        what = "If"
    else:
        turns = int(10 ** random.integers(0, 4))
        graph.initializer.append(numpy_helper.from_array(np.array(turns), "turns"))
        graph.initializer.append(numpy_helper.from_array(np.array(True), "always"))
        body.input.append(helper.make_tensor_value_info("turn", TensorProto.INT64, []))
        body.input.append(helper.make_tensor_value_info("go_in", TensorProto.BOOL, []))
        body.node.append(helper.make_node("Identity", ["go_in"], ["go"]))
        body.output.insert(0, helper.make_tensor_value_info("go", TensorProto.BOOL, []))
        node = helper.make_node("Loop", ["turns", "always"], ["chosen"], body=body)
        what = f"Loop of {turns} turns"
    graph.node.append(node)
    if random.random() < 0.7:  # used, so that no optimizer drops it
        outputs = {o.name for o in graph.output}
        last = next((n for n in graph.node if set(n.output) & outputs), graph.node[0])
        if last.output:
            name = last.output[0]
            last.output[0] = "kept"
            graph.node.append(helper.make_node("ReduceMax", ["chosen"], ["most"], keepdims=0))
            graph.node.append(helper.make_node("Mul", ["most", "nil"], ["little"]))
            graph.initializer.append(numpy_helper.from_array(np.zeros((), np.float32), "nil"))
            graph.node.append(helper.make_node("Add", ["kept", "little"], [name]))
    return f"{what} with data in {location}"


def _grown(random: Random, graph: onnx.GraphProto, model: onnx.ModelProto, draft: Draft) -> str:
    """Write a whole copy of a section again, or very many small nodes."""
    pick = int(random.integers(3))
    if pick == 0:
        for index in range(int(random.integers(1, 300))):
            graph.node.append(helper.make_node("Identity", [graph.input[0].name], [f"n{index}"]))
        return "many nodes more"
    if pick == 1:
        model.functions.append(
            helper.make_function(
                "x",
                "f",
                ["a"],
                ["b"],
                [helper.make_node("f", ["a"], ["b"], domain="x")],
                [helper.make_opsetid("", 17), helper.make_opsetid("x", 1)],
            )
        )
        model.opset_import.add(domain="x", version=1)
        graph.node.append(helper.make_node("f", [graph.input[0].name], ["again"], domain="x"))
        return "a function that calls itself"
    model.metadata_props.add(key="k" * 9, value="v" * 100_000)
    return "metadata"


NODE_CHANGES: tuple[Callable[[Random, onnx.GraphProto, onnx.ModelProto, Draft], str], ...] = (
    *(_inputs, _inputs, _inputs, _operator, _attribute, _attribute, _nodes, _opset),
    *(_interface, _initializer, _initializer, _moved, _moved, _subgraph, _grown),
)


def files(random: Random, draft: Draft) -> str:
    """Put something else in a file's place, or add files."""
    name = one_of(random, draft.files)
    what = one_of(
        random, ("missing", "fifo", "folder", "link", "outside", "loop", "device", "socket", "more")
    )
    if what == "more":
        draft.changed["more.bin"] = b"more"
    else:
        draft.special[name] = what
    return f"{name}: {what}"
