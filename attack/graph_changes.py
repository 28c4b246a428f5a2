"""Changes of graphs, weights and golden streams: bytes, nodes, external data, arrays, archives."""

from __future__ import annotations

import functools
import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from attack.drafts import Draft

Random = np.random.Generator
CANARY = "elsewhere.bin"
"""A file beside the bundle, with the bytes of its weights: it would open as well as they do."""
OPERATORS = (
    *("Add", "Mul", "MatMul", "Gemm", "Reshape", "Concat", "Slice", "Gather", "Transpose", "Exp"),
    *("LayerNormalization", "Softmax", "Where", "Identity", "ReduceSum", "Squeeze", "Unsqueeze"),
    *("Split", "Expand", "ConstantOfShape", "Range", "Tile", "Einsum", "Cast", "Pad", "GRU", "If"),
    *("Loop", "Scan", "NonZero", "Resize", "NotAnOperator", ""),
)


def change_bytes(random: Random, content: bytes) -> tuple[bytes, str]:
    """Flip, cut, repeat, remove or insert bytes."""
    data = bytearray(content)
    pick = int(random.integers(7))
    place = int(random.integers(len(data))) if data else 0
    if pick <= 2:
        for _ in range(int(2 ** random.integers(0, 6))):
            if data:
                data[int(random.integers(len(data)))] ^= 1 << int(random.integers(8))
        return bytes(data), "bits flipped"
    if pick == 3:
        return bytes(data[:place]), f"cut to {place} of {len(data)} bytes"
    if pick == 4:
        stop = min(len(data), place + int(random.integers(1, 64)))
        data[place:stop] = b""
        return bytes(data), f"bytes {place} to {stop} removed"
    if pick == 5:
        junk = random.bytes(int(2 ** random.integers(0, 12)))
        data[place:place] = junk
        return bytes(data), f"{len(junk)} bytes inserted at {place}"
    stop = min(len(data), place + int(random.integers(1, 16)))
    data[place:stop] = (b"\xff" if random.random() < 0.5 else b"\0") * (stop - place)
    return bytes(data), f"bytes {place} to {stop} overwritten"


def graph_bytes(random: Random, draft: Draft) -> str:
    """Change bytes of a graph's file."""
    name = _one(random, draft.graphs)
    draft.changed[name], what = change_bytes(random, draft.bytes_of(name))
    return f"{name}: {what}"


def weight_bytes(random: Random, draft: Draft) -> str:
    """Change bytes of the weights' file, or its size."""
    draft.changed["weights.bin"], what = change_bytes(random, draft.bytes_of("weights.bin"))
    return f"weights.bin: {what}"


def golden_bytes(random: Random, draft: Draft) -> str:
    """Change bytes of the golden stream's file."""
    draft.changed["golden.npz"], what = change_bytes(random, draft.bytes_of("golden.npz"))
    return f"golden.npz: {what}"


def graph_nodes(random: Random, draft: Draft) -> str:
    """Change a graph as onnx sees it, once or a few times."""
    name = _one(random, draft.graphs)
    model = onnx.load_model_from_string(draft.bytes_of(name))
    done = []
    for _ in range(1 if random.random() < 0.7 else int(random.integers(2, 5))):
        change = NODE_CHANGES[random.integers(len(NODE_CHANGES))]
        done.append(change(random, model.graph, model, draft))
    draft.changed[name] = model.SerializeToString()
    return f"{name}: {'; '.join(done)}"


def _one(random: Random, items: Any) -> Any:
    return items[int(random.integers(len(items)))]


def _names(graph: onnx.GraphProto) -> list[str]:
    found = [n.name for n in (*graph.input, *graph.initializer)]
    return [*found, *(name for node in graph.node for name in node.output)]


def _node(random: Random, graph: onnx.GraphProto) -> onnx.NodeProto:
    if not graph.node:
        graph.node.append(helper.make_node("Identity", [graph.input[0].name], ["none"]))
    node: onnx.NodeProto = _one(random, graph.node)
    return node


def _inputs(random: Random, graph: onnx.GraphProto, model: onnx.ModelProto, draft: Draft) -> str:
    node = _node(random, graph)
    pick = int(random.integers(5))
    other = _one(random, [*_names(graph), "", "nothing"])
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
        node.domain = _one(random, ("com.microsoft", "ai.onnx.ml", "x", "a" * 1000))
        return f"{before} is of the domain {node.domain[:20]}"
    node.op_type = _one(random, OPERATORS)
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
        attribute = _one(random, node.attribute)
        name = attribute.name
        node.attribute.remove(attribute)
    else:
        name = _one(random, ("axis", "axes", "perm", "to", "epsilon", "alpha", "hidden_size", "k"))
    if random.random() < 0.8:
        value = _one(random, values)
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
        model.ir_version = _one(random, (0, 1, 3, 11, 99, 2**40))
        return f"ir_version {model.ir_version}"
    if not model.opset_import or random.random() < 0.2:
        model.opset_import.add(domain="x", version=1)
        return "an opset more"
    model.opset_import[0].version = _one(random, (0, 1, 6, 9, 13, 17, 25, 99, 2**40, -1))
    return f"opset {model.opset_import[0].version}"


def _interface(random: Random, graph: onnx.GraphProto, model: onnx.ModelProto, draft: Draft) -> str:
    value = _one(random, [*graph.input, *graph.output])
    pick = int(random.integers(4))
    if pick == 0:
        value.name = _one(random, (f"{value.name}_", "", "a\0", _one(random, _names(graph))))
        return "an interface's name changed"
    if pick == 1:
        value.type.tensor_type.elem_type = int(random.integers(0, 24))
        return f"{value.name} is of type {value.type.tensor_type.elem_type}"
    if pick == 2:
        shape = value.type.tensor_type.shape
        if shape.dim:
            _one(random, shape.dim).dim_value = _one(random, (0, 1, 2, 9, 2**40, -1))
        else:
            shape.dim.add(dim_value=2)
        return f"{value.name} has another shape"
    group = graph.input if random.random() < 0.5 else graph.output
    if random.random() < 0.5:
        group.append(value)
    elif len(group):
        group.remove(_one(random, group))
    return "an interface's tensor doubled or removed"


def _initializer(
    random: Random, graph: onnx.GraphProto, model: onnx.ModelProto, draft: Draft
) -> str:
    if not graph.initializer:
        graph.initializer.append(numpy_helper.from_array(np.zeros(2, np.float32), "more"))
    tensor = _one(random, graph.initializer)
    pick = int(random.integers(4))
    if pick == 0:
        tensor.data_type = int(random.integers(0, 24))
    elif pick == 1:
        tensor.dims.append(_one(random, (0, 1, 2, 1000, 2**31, 2**62, -1)))
    elif pick == 2 and tensor.dims:
        tensor.dims[int(random.integers(len(tensor.dims)))] = _one(random, (0, 1, 99, 2**40, -1))
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
    tensor = _one(random, graph.initializer)
    size = int(np.prod(tensor.dims)) * 4 if tensor.dims else 4
    if random.random() < 0.6:
        location = _one(random, _locations(draft))
        if location == "extra.bin":
            draft.changed["extra.bin"] = bytes(min(max(size, 4096), 1 << 20))
        elif location == "link.bin":
            draft.special["link.bin"] = "outside"
            draft.changed["link.bin"] = bytes(min(max(size, 4096), 1 << 20))
        _external(tensor, location, 0, size)
        return f"the constant {tensor.name} lies in {location}"
    whole = len(draft.bytes_of("weights.bin"))
    offset = _one(random, (0, 1, 4, whole, whole - 1, whole + 1, 2**40, -1, "x", "", None, 2**63))
    length = _one(random, (size, 0, size - 1, size * 2, whole, 2**40, -1, "x", "", None))
    _external(tensor, "weights.bin", offset, length)
    return f"the constant {tensor.name} lies at {offset!r}, {length!r} bytes"


def _subgraph(random: Random, graph: onnx.GraphProto, model: onnx.ModelProto, draft: Draft) -> str:
    """Add an If or a Loop whose body reads external data, or turns often."""
    constant = TensorProto(name="inner", data_type=TensorProto.FLOAT, dims=[2])
    location = _one(random, (*_locations(draft), "weights.bin"))
    if location == "extra.bin":
        draft.changed["extra.bin"] = bytes(4096)
    if location == "link.bin":
        draft.special["link.bin"] = "outside"
        draft.changed["link.bin"] = bytes(4096)
    _external(constant, location, 0, 8)
    place = int(random.integers(3))
    made = helper.make_tensor_value_info("made", TensorProto.FLOAT, [2])
    body = helper.make_graph(
        [helper.make_node("Identity", ["inner"], ["made"])], "body", [], [made]
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


# The golden stream ------------------------------------------------------------------------------


def read_arrays(content: bytes) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of an .npz in memory."""
    with np.load(io.BytesIO(content)) as archive:
        return dict(archive)


def packed(arrays: dict[str, Any]) -> bytes:
    """Arrays as an .npz."""
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def change_array(random: Random, array: np.ndarray[Any, Any]) -> tuple[Any, str]:
    """Another shape, type or content of an array."""
    pick = int(random.integers(11))
    if pick == 0:
        return array.reshape(-1), "made flat"
    if pick == 1:
        return array[None], "given an axis more"
    if pick == 2 and array.ndim:
        return array[:0], "emptied"
    if pick == 3 and array.ndim:
        return np.concatenate([array, array]), "doubled"
    if pick == 4:
        names = (
            "float16",
            "float64",
            "int8",
            "int64",
            "complex64",
            "bool",
            "S3",
            "U2",
            "M8[s]",
            ">f4",
        )
        dtype = _one(random, names)
        try:
            return array.astype(dtype), f"made {dtype}"
        except (ValueError, TypeError):
            return np.zeros(array.shape, dtype), f"made {dtype}"
    if pick == 5 and array.dtype.kind == "f":
        return np.full_like(array, np.nan), "filled with NaN"
    if pick == 6:
        value = _one(random, (-1, 0, 10**15, 2**62, -(2**63), 3))
        return np.full_like(array, value, dtype=np.int64), f"filled with {value}"
    if pick == 7 and array.dtype.kind in "fiub":
        return array.astype(float) + float(_one(random, (1e-3, 5.0, 1e30, np.inf))), "moved"
    if pick == 8 and array.ndim:
        return array[::-1].copy(), "reversed"
    if pick == 9 and array.ndim and array.shape[-1]:
        return array[..., :-1], "without its last column"
    return np.full(int(random.integers(1, 6)), 1.5), "another array"


@functools.cache
def zeros_deflated(n_bytes: int) -> bytes:
    """That many zero bytes, deflated as a member of a zip."""
    made = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = bytes(1 << 20)
    parts = [made.compress(block) for _ in range(n_bytes >> 20)]
    return b"".join([*parts, made.compress(bytes(n_bytes & 0xFFFFF)), made.flush()])


@functools.cache
def zeros_crc(n_bytes: int) -> int:
    """The CRC of that many zero bytes."""
    crc = 0
    for _ in range(n_bytes >> 20):
        crc = zlib.crc32(bytes(1 << 20), crc)
    return zlib.crc32(bytes(n_bytes & 0xFFFFF), crc)


def header_of(shape: tuple[int, ...], dtype: str = "<f4") -> bytes:
    """The header of an .npy file; padded as numpy writes it."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


BOMB_BYTES = 1 << 27


def bomb(name: str) -> bytes:
    """A zip of an eighth of a megabyte whose only member inflates to 128 MiB."""
    body = zeros_deflated(BOMB_BYTES)
    crc = zeros_crc(BOMB_BYTES)
    label = f"{name}.npy".encode()
    fields = (0, 8, 0, 33, crc, len(body), BOMB_BYTES, len(label))
    local = struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 20, *fields, 0) + label + body
    central = struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 20, 20, *fields, 0, 0, 0, 0, 0, 0)
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 1, 1, len(central) + len(label), len(local), 0)
    return local + central + label + end


def change_archive(
    random: Random, arrays: dict[str, Any], compress: bool = False
) -> tuple[bytes, str]:
    """Write arrays as a zip that no numpy writes."""
    name = _one(random, sorted(arrays))
    pick = int(random.integers(9))
    if pick == 0:
        return bomb(name), f"a bomb called {name}"
    file = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    what = ""
    with zipfile.ZipFile(file, "w", method) as archive:
        for key, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
            content = member.getvalue()
            if key == name:
                shapes = ((10**9,), (2**62,), (2**40, 2**40), (-1,), (0, 10**18), ())
                if pick == 1:
                    shape = _one(random, shapes)
                    content, what = header_of(shape), f"{key} declares the shape {shape}"
                elif pick == 2:
                    content, what = header_of((4,), "|O") + b"\x80\x04N.", f"{key} is a pickle"
                elif pick == 3:
                    content, what = content[: int(random.integers(len(content)))], f"{key} is cut"
                elif pick == 4:
                    content, what = change_bytes(random, content)[0], f"bytes of {key} changed"
                elif pick == 5:
                    archive.writestr(f"{key}.npy", content)
                    what = f"{key} is there twice"
                elif pick == 6:
                    archive.writestr("../../x.npy", content)
                    archive.writestr("y" * 60_000, b"")
                    what = "members with odd names"
                elif pick == 7:
                    header = header_of((2,), f"({2**30},)f4")
                    content, what = header, f"{key} is of a type of 4 GiB"
            archive.writestr(f"{key}.npy", content)
        if pick == 8:
            for index in range(700):
                archive.writestr(f"m{index}.npy", b"")
            what = "700 empty members"
    return file.getvalue(), what


def golden_fields(random: Random, draft: Draft) -> str:
    """Change arrays of the golden stream, or how they are packed."""
    arrays = read_arrays(draft.bytes_of("golden.npz"))
    if random.random() < 0.3:
        draft.changed["golden.npz"], what = change_archive(random, arrays, random.random() < 0.5)
        return f"golden: {what}"
    done = []
    for _ in range(1 if random.random() < 0.7 else 2):
        name = _one(random, sorted(arrays))
        pick = int(random.integers(8))
        if pick == 0:
            del arrays[name]
            done.append(f"{name} removed")
        elif pick == 1:
            arrays[f"{name}_"] = arrays[name]
            done.append(f"{name} doubled")
        elif pick == 2:
            arrays["moments"] = np.array(
                _one(
                    random,
                    ([10**15], [5, 3], [-1], [], [2.5], [np.nan], [2**62, 1], [[1]], [1] * 99),
                )
            )
            done.append(f"moments = {arrays['moments'].tolist()[:3]}")
        elif pick == 3:
            value = _one(random, (1e9, np.nan, np.inf, -1.0, 0.0, 1e-30, "x", [1.0], [[1e-4]]))
            arrays["tolerance"] = np.array(value)
            done.append(f"tolerance = {value}")
        elif pick == 4:
            value = _one(random, (-1, 10**15, 0, 1, 2**62, 2.5, np.nan, [1], "x"))
            arrays["n_condition"] = np.array(value)
            done.append(f"n_condition = {value}")
        else:
            arrays[name], what = change_array(random, arrays[name])
            done.append(f"{name} {what}")
        if not arrays:
            break
    draft.changed["golden.npz"] = packed(arrays)
    return f"golden: {'; '.join(done)}"


def files(random: Random, draft: Draft) -> str:
    """Put something else in a file's place, or add files."""
    name = _one(random, draft.files)
    what = _one(
        random, ("missing", "fifo", "folder", "link", "outside", "loop", "device", "socket", "more")
    )
    if what == "more":
        draft.changed["more.bin"] = b"more"
    else:
        draft.special[name] = what
    return f"{name}: {what}"
