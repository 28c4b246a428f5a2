"""Read a bundle's graphs for the C generator, and believe nothing that was not checked.

    graph's file ──hash──> model ──< bytes of the weight file, hashed once
                             │
                             ├─> inputs and outputs are the manifest's
                             └─> shapes of all other values are inferred, not read from the file

A shape that is wrong would become an index in C that reaches outside of its array. So the shapes
that the file states for its intermediate values are dropped, and ONNX infers them again.
"""

from __future__ import annotations

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import helper, numpy_helper

from edgefold.export.graphs.static_graph import checked, dtypes_of, shapes_of
from edgefold.runtime.bundle.graph_interface import require_same_tensors
from edgefold.runtime.bundle.manifest import Graph, Manifest
from edgefold.runtime.bundle.onnx_file import read_graph
from edgefold.runtime.errors import BundleError
from edgefold.runtime.hashing import sha256
from edgefold.runtime.plain_files import open_plain

CHECK_ERRORS = (
    *(onnx.checker.ValidationError, onnx.shape_inference.InferenceError, DecodeError),
    *(ValueError, TypeError, KeyError, IndexError, AttributeError, RuntimeError),
)
"""Lists the exceptions by which onnx refuses a damaged graph."""


def read_weights(manifest: Manifest) -> bytes:
    """Return the content of a bundle's weight file; raises BundleError if its hash is another."""
    path, n_bytes = manifest.path / manifest.weights["file"], manifest.weights["n_bytes"]
    try:
        with open_plain(path) as file:
            weights = file.read(n_bytes + 1)
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}.") from error
    if sha256(weights).hexdigest() != manifest.weights["sha256"]:
        raise BundleError(f"{path} was changed: its SHA-256 is not the manifest's.")
    return weights


def verified_graph(manifest: Manifest, graph: Graph, weights: bytes) -> onnx.ModelProto:
    """Return a graph with its weights inside and the shapes of all values, as ONNX infers them.

    Args:
        manifest: The bundle's manifest.
        graph: The graph in the manifest.
        weights: Content of the weight file, as `read_weights` returns it.

    Raises:
        BundleError: The file is damaged or not valid ONNX, or its inputs and outputs are not those
            of the manifest.
    """
    content = read_graph(manifest, graph)
    try:
        model = onnx.load_model_from_string(content)
        _require_interface(graph, model)
        if any(type(node.name) is bytes for node in model.graph.node):  # protobuf's word for it
            raise ValueError("a node's name is not UTF-8")
        for tensor in model.graph.initializer:
            _fill(tensor, weights)
        del model.graph.value_info[:]
        model = checked(model)
        _require_fixed_shapes(model)
    except CHECK_ERRORS as error:
        raise BundleError(
            f"{manifest.path / graph.file} is not a graph as edgefold exports it "
            f"({type(error).__name__}: {error}); export the bundle again."
        ) from error
    return model


def _require_interface(graph: Graph, model: onnx.ModelProto) -> None:
    def listed(infos: list[onnx.ValueInfoProto]) -> list[tuple[str, list[int], str]]:
        tensors = []
        for info in infos:
            kind = info.type.tensor_type
            dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type).name
            lengths = [d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim]
            tensors.append((info.name, lengths, dtype))
        return tensors

    require_same_tensors(graph, listed([*model.graph.input]), listed([*model.graph.output]))


def _fill(tensor: onnx.TensorProto, weights: bytes) -> None:
    """Put the bytes of a constant that lies in the weight file into the constant itself."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        place = {entry.key: entry.value for entry in tensor.external_data}
        offset = int(place["offset"])
        tensor.raw_data = weights[offset : offset + int(place["length"])]
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    numpy_helper.to_array(tensor)  # raises ValueError if the bytes are not those of its shape


def _require_fixed_shapes(model: onnx.ModelProto) -> None:
    """Raise ValueError if a value has no fixed shape or no type, or two shapes."""
    shapes, dtypes = shapes_of(model), dtypes_of(model)
    constants = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    for node in model.graph.node:
        for name in filter(None, node.output):
            if min(shapes.get(name, (-1,)), default=1) < 1 or name not in dtypes:
                raise ValueError(f"{name!r} has no fixed shape")
    for info in (*model.graph.input, *model.graph.output):
        if info.name in constants and constants[info.name] != shapes[info.name]:
            raise ValueError(f"{info.name!r} has two shapes")
