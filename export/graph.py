"""A small builder of ONNX graphs with static shapes, whose weights live in one shared file.

It exists so that the step graphs hold exactly the nodes we mean: no exporter's casts, identities or
shape arithmetic. It infers no shapes of its own; `onnx.shape_inference` does, strictly, at the end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edgefold.runtime.manifest import Tensor
from edgefold.train.models.attention import LayerNorm

OPSET = 17  # the newest that TensorRT 10.3's parser takes whole; LayerNormalization came with it
IR_VERSION = 8
ALIGNMENT = 4096  # bytes: onnxruntime maps the file, page by page
INLINE_BYTES = 256  # smaller constants (shapes, scalars) stay inside the graph

Array = NDArray[Any]


class WeightFile:
    """The external data of all graphs, each distinct array stored once."""

    def __init__(self, name: str = "weights.bin"):
        self.name = name
        self._blocks: list[bytes] = []
        self._places: dict[str, tuple[int, int]] = {}
        self.n_bytes = 0

    def place(self, array: Array) -> tuple[int, int]:
        """Offset and length of an array in the file; equal arrays share one place."""
        data = np.ascontiguousarray(array).tobytes()
        key = hashlib.sha256(data).hexdigest()
        if key not in self._places:
            padding = -self.n_bytes % (ALIGNMENT if len(data) >= ALIGNMENT else 64)
            self._blocks += [b"\0" * padding, data]
            self._places[key] = (self.n_bytes + padding, len(data))
            self.n_bytes += padding + len(data)
        return self._places[key]

    def initializer(self, name: str, array: Array) -> TensorProto:
        """A constant of a graph: inside the graph if small, else a place in the file."""
        if array.nbytes <= INLINE_BYTES:
            return numpy_helper.from_array(array, name)
        offset, length = self.place(array)
        proto = TensorProto(
            name=name,
            data_type=helper.np_dtype_to_tensor_dtype(array.dtype),
            dims=array.shape,
            data_location=TensorProto.EXTERNAL,
        )
        for k, v in (("location", self.name), ("offset", str(offset)), ("length", str(length))):
            proto.external_data.add(key=k, value=v)
        return proto

    def write(self, folder: Path) -> None:
        """Write the file into a bundle's folder."""
        (folder / self.name).write_bytes(b"".join(self._blocks))


def constant_name(array: Array) -> str:
    """The name of a constant, by what it holds: equal ones are one."""
    data = np.ascontiguousarray(array).tobytes()
    return "c_" + hashlib.sha256(f"{array.dtype}{array.shape}".encode() + data).hexdigest()[:16]


@dataclass(slots=True)
class GraphBuilder:
    """Collects the nodes of one step graph.

    Values are names. `call("Add", a, b)` adds a node and returns the name of its output; arrays may
    stand for names and become constants of the type of the values beside them (or int64).

    Types are strict, as TensorRT wants them: the values of one node agree, and where a graph
    changes its mind it says so by `narrowed` or `widened`, which are nothing where `narrow` is
    float32.

    Attributes:
        narrow: Element type of weights and of what needs no float32.
    """

    name: str
    weights: WeightFile
    narrow: str = "float32"
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    _nodes: list[onnx.NodeProto] = field(default_factory=list)
    _constants: dict[str, onnx.TensorProto] = field(default_factory=dict)
    _renamed: dict[str, str] = field(default_factory=dict)
    _types: dict[str, str] = field(default_factory=dict)
    _n_names: int = 0

    def input(
        self, name: str, role: str, shape: Sequence[int], of: str = "", dtype: str = "float32"
    ) -> str:
        """Declare an input; returns its name."""
        self.inputs.append(Tensor(name, role, of or name, tuple(shape), dtype))
        self._types[name] = dtype
        return name

    def output(self, value: str, name: str, role: str, shape: Sequence[int], of: str = "") -> None:
        """Declare that a value leaves the graph under a name, which it then has everywhere."""
        value = self._renamed.get(value, value)
        if value in {tensor.name for tensor in self.outputs}:
            self._nodes.append(helper.make_node("Identity", [value], [name], f"{name}_out"))
        else:
            for node in self._nodes:
                for names in (node.input, node.output):
                    for index, old in enumerate(names):
                        if old == value:
                            names[index] = name
            self._renamed[value] = name
        self._types[name] = self._types[value]
        self.outputs.append(Tensor(name, role, of or name, tuple(shape), self._types[name]))

    def constant(self, array: Array, dtype: str = "") -> str:
        """A constant: float64 becomes `dtype`, else `narrow`; large ones go to the weight file."""
        array = np.asarray(array)
        if array.dtype == np.float64:
            array = array.astype(dtype or self.narrow)
        name = constant_name(array)
        if name not in self._constants:
            self._constants[name] = self.weights.initializer(name, array)
            self._types[name] = array.dtype.name
        return name

    def call(self, op: str, *operands: str | Array, **attributes: Any) -> str:
        """Add a node with one output."""
        return self.calls(op, 1, *operands, **attributes)[0]

    def calls(self, op: str, n: int, *operands: str | Array, **attributes: Any) -> list[str]:
        """Add a node with n outputs."""
        values = [self._renamed.get(o, o) for o in operands if isinstance(o, str)]
        floating = [t for t in (self._types[v] for v in values) if t.startswith("float")]
        assert len({*floating}) < 2, f"{op} in {self.name} got {floating}: widen or narrow them"
        kind = floating[0] if floating else self._types[values[0]]
        names = [
            self._renamed.get(o, o) if isinstance(o, str) else self.constant(o, kind)
            for o in operands
        ]
        made = []
        for _ in range(n):
            self._n_names += 1
            made.append(f"{op.lower()}_{self._n_names}")
        gives = {"Greater": "bool"}.get(op, kind)
        self._types |= dict.fromkeys(made, gives)
        self._nodes.append(helper.make_node(op, names, made, made[0], **attributes))
        return made

    def _cast(self, x: str, dtype: str) -> str:
        if self._types[self._renamed.get(x, x)] == dtype:
            return x
        to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        value = self.call("Cast", x, to=to)
        self._types[value] = dtype
        return value

    def widened(self, x: str) -> str:
        """The value in float32."""
        return self._cast(x, "float32")

    def narrowed(self, x: str) -> str:
        """The value in the graph's narrow type."""
        return self._cast(x, self.narrow)

    # The few compounds that every step uses

    def reshape(self, x: str, *shape: int) -> str:
        return self.call("Reshape", x, np.array(shape, np.int64))

    def transpose(self, x: str, *order: int) -> str:
        return self.call("Transpose", x, perm=list(order))

    def gemm(self, x: str, weight: Array, bias: str | Array | None = None) -> str:
        """x (rows, D_in) @ weight + bias, where bias may be a whole (rows, D_out) value."""
        return self.call("Gemm", x, weight, *(() if bias is None else (bias,)))

    def normalise(self, x: str, width: int) -> str:
        """Layer normalisation without scale and shift: those are folded into what follows."""
        return self.call("LayerNormalization", x, np.ones(width), axis=-1, epsilon=LayerNorm.eps)

    def gelu(self, x: str) -> str:
        """The exact GELU, in the nodes that onnxruntime fuses into one."""
        inner = self.call("Erf", self.call("Div", x, np.array(np.sqrt(2))))
        return self.call(
            "Mul",
            self.call("Mul", x, self.call("Add", inner, np.array(1.0))),
            np.array(0.5),
        )

    def model(self) -> onnx.ModelProto:
        """The checked model with every intermediate's shape inferred."""

        def info(tensor: Tensor) -> onnx.ValueInfoProto:
            kind = helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype))
            return helper.make_tensor_value_info(tensor.name, kind, tensor.shape)

        graph = helper.make_graph(
            self._nodes,
            self.name,
            [info(t) for t in self.inputs],
            [info(t) for t in self.outputs],
            list(self._constants.values()),
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            producer_name="edgefold",
            ir_version=IR_VERSION,
        )
        return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
