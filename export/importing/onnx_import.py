"""Import an ONNX file that keeps its state in its inputs and outputs, whoever made it.

    x ──┬── columns of one input, in its shape ────┐
        └── columns of another, in its shape ──────┤
    constants (a sampling rate, ...) ──────────────┼─> the file's graph ─┬─> predictions
    state ─────────────────────────────────────────┘                     └─> next_<state>

`import_onnx` makes the one graph of a filter, `step`, from all of it; `record_reference` runs the
file as it is, with the same x, so that the two can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, ValueInfoProto, helper, numpy_helper, version_converter

from edgefold.export.graphs.folding import fold
from edgefold.export.graphs.static_graph import (
    Shape,
    constants_of,
    copied,
    dtypes_of,
    rebuilt,
    shapes_of,
)
from edgefold.export.graphs.step_graphs import StepGraph, StepGraphs
from edgefold.export.importing.onnx_interface import (
    ImportConfig,
    Interface,
    identifier,
    read_interface,
)
from edgefold.export.lowering.convolutions import as_products
from edgefold.export.lowering.simplify import simplify
from edgefold.runtime.backends.onnxruntime_session import open_session
from edgefold.runtime.bundle.manifest import Tensor
from edgefold.runtime.errors import ExportError
from edgefold.runtime.predictions import Raw

Array = NDArray[Any]
FLOAT = onnx.TensorProto.FLOAT
OLDEST_OPSET = 13  # from here on, Split and Squeeze take their sizes as inputs
MOST_CHECKED = 4096  # elements of the state that are looked at after each step
OWN = "edgefold."  # before the names of the bundle, so that they never meet those of the file


@dataclass(frozen=True, slots=True)
class Reference:
    """What a file itself answers along a stream.

    Attributes:
        x: (B, N, X), float32.
        predictions: By their names in the bundle, (B, N, *shape), float32.
        state: After the last step, by name in the bundle.
    """

    x: NDArray[np.float32]
    predictions: dict[str, NDArray[np.float32]]
    state: dict[str, Array]


@dataclass(frozen=True, slots=True)
class Imported:
    """A file as a model of the filtering kind.

    Attributes:
        prediction: Tensors whose meaning only the user knows.
    """

    graphs: StepGraphs
    prediction: Raw


def import_onnx(
    path: Path, config: ImportConfig, progress: Callable[[str], None] = lambda line: None
) -> Imported:
    """Make a filter's step graph of a file.

    Args:
        path: The file.
        config: What its inputs and outputs are.
        progress: Called with a line for each decision that the user did not make.

    Raises:
        ExportError: The file cannot be read, is ambiguous, or holds what no static graph can say.
    """
    model = _load(path)
    interface = read_interface(model, config)
    if not config.state:
        pairs = ", ".join(f"{pair.input}={pair.output}" for pair in interface.state)
        progress(f"took as state: {pairs}")
    folded = fold(_wrapped(model, interface, ()))
    shapes = shapes_of(folded)
    names = [identifier(name) for name in interface.predictions]
    bare = [name for name in names if shapes[OWN + name][:1] != (interface.n_streams,)]
    if bare and interface.n_streams > 1:
        raise ExportError(
            f"the prediction {bare[0]} has shape {shapes[OWN + bare[0]]}; its first axis must be "
            f"the {interface.n_streams} streams. Import the file with one stream."
        )
    if bare:
        folded = fold(_wrapped(model, interface, bare))
    ended = _ended(folded)
    declared = _declared(ended, names)
    for tensor in declared.outputs:
        first = interface.initial.get(tensor.of, np.empty(tensor.shape, tensor.dtype))
        if (first.shape, str(first.dtype)) != (tensor.shape, tensor.dtype):
            raise ExportError(
                f"the state {tensor.of} is {first.dtype} {first.shape} before a step and "
                f"{tensor.dtype} {tensor.shape} after it; state must keep its shape and type."
            )
    prediction = Raw({t.of: t.shape[1:] for t in declared.outputs if t.role == "prediction"})
    made = simplify(as_products(ended, config.reorder_sums), declared)
    step = replace(_declared(made, names), name="step")
    if not any(tensor.role == "points.x" for tensor in step.inputs):
        raise ExportError("no output depends on what arrives at a step; choose other --outputs.")
    graphs = StepGraphs((step,), interface.initial, n_streams=interface.n_streams)
    return Imported(graphs, prediction)


def _declared(model: onnx.ModelProto, predictions: Collection[str]) -> StepGraph:
    """A graph's inputs and outputs with their roles, which their names tell."""
    shapes, dtypes = shapes_of(model), dtypes_of(model)
    roles = {"x": "points.x", "finite": "finite", **dict.fromkeys(predictions, "prediction")}

    def declared(info: ValueInfoProto) -> Tensor:
        name = info.name.removeprefix(OWN)
        role, of = roles.get(name, "state"), name.removeprefix("next_")
        return Tensor(name, role, of, shapes[info.name], str(dtypes[info.name]))

    inputs, outputs = (tuple(map(declared, p)) for p in (model.graph.input, model.graph.output))
    return StepGraph(OWN.removesuffix("."), "step", 1, model, inputs, outputs)


def _ended(model: onnx.ModelProto) -> onnx.ModelProto:
    """The graph with an Identity before each output, and without state that no step changes."""
    graph = model.graph
    made_by = {node.output[0]: node for node in graph.node}
    ended = onnx.ModelProto()
    ended.CopyFrom(model)
    del ended.graph.output[:]
    for info in graph.output:
        node, before = made_by.get(info.name), info.name.replace(f"{OWN}next_", OWN)
        if node is None or node.op_type != "Identity" or [before] != node.input:
            ended.graph.output.append(info)
    ends = {info.name: f"{info.name}.value" for info in ended.graph.output}
    nodes = []
    for node in graph.node:
        nodes.append(copied(node, [ends.get(name, name) for name in node.input]))
        nodes[-1].output[:] = [ends.get(name, name) for name in node.output]
    nodes += [helper.make_node("Identity", [value], [name]) for name, value in ends.items()]
    constants = {ends.get(name, name): array for name, array in constants_of(model).items()}
    return rebuilt(ended, nodes, constants)


def record_reference(
    path: Path, config: ImportConfig, n_steps: int, x: NDArray[np.float32] | None = None
) -> Reference:
    """Run the file itself in ONNX Runtime, fed by hand.

    Args:
        path: The file.
        config: As for `import_onnx`.
        n_steps: N, where no x is given; then numbers from a normal distribution are drawn, and
            whole numbers 0 and 1 for inputs that are not floating.
        x: (B, N, X), the new elements of all inputs side by side.
    """
    interface = read_interface(_load(path), config)
    x = _drawn(interface, n_steps) if x is None else x
    session = open_session(path)
    state = dict(interface.initial)
    asked = [*interface.predictions, *(pair.output for pair in interface.state)]
    answers: list[list[Array]] = []
    for row in np.moveaxis(x, 1, 0):
        feeds = {**interface.constants}
        for source, new in zip(interface.sources, _split(interface, row), strict=True):
            if source.overlap:
                new = np.concatenate([state[source.context], new], axis=-1)
                state[source.context] = new[..., -source.overlap :]
            feeds[source.name] = new
        feeds |= {pair.input: state[identifier(pair.input)] for pair in interface.state}
        found = session.run(asked, feeds)
        answers.append(found[: len(interface.predictions)])
        following = found[len(interface.predictions) :]
        for pair, array in zip(interface.state, following, strict=True):
            state[identifier(pair.input)] = array
    predictions = {}
    for name, arrays in zip(interface.predictions, zip(*answers, strict=True), strict=True):
        stacked = np.stack(arrays).astype(np.float32)
        if stacked.shape[1:2] != (interface.n_streams,):
            stacked = stacked[:, None]
        predictions[identifier(name)] = np.moveaxis(stacked, 0, 1)
    return Reference(x, predictions, state)


def _load(path: Path) -> onnx.ModelProto:
    try:
        model = onnx.load(path)
        version = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    except Exception as error:  # a parser's errors, of no common class
        raise ExportError(f"{path} cannot be read as an ONNX file: {error}") from error
    if version < OLDEST_OPSET:
        return version_converter.convert_version(model, OLDEST_OPSET)
    return model


def _wrapped(
    model: onnx.ModelProto, interface: Interface, bare: Collection[str]
) -> onnx.ModelProto:
    """The file's graph between the bundle's inputs and outputs, whose names begin with `OWN`.

    Args:
        model: The file.
        interface: What its inputs and outputs are.
        bare: Predictions without an axis of streams, which get one.
    """
    first, last = _Nodes(), _Nodes()
    _feed(first, interface)
    for pair in interface.state:
        before, after = first.state(identifier(pair.input), pair.shape, pair.dtype)
        first.add("Identity", [before], pair.input)
        last.add("Identity", [pair.output], after)
    for output in interface.predictions:
        name = OWN + identifier(output)
        cast = last.add("Cast", [output], f"{name}.cast", to=FLOAT)
        axis = [last.constant(f"{name}.axis", 0)] if identifier(output) in bare else []
        last.add("Unsqueeze" if axis else "Identity", [cast, *axis], name)
        last.outputs.append(helper.make_tensor_value_info(name, FLOAT, None))
    _check(last, interface)
    for name, array in interface.constants.items():
        first.constants[name] = array
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    del graph.node[:], graph.input[:], graph.output[:], graph.value_info[:]
    graph.node.extend([*first.nodes, *model.graph.node, *last.nodes])
    graph.input.extend(first.inputs)
    graph.output.extend([*first.outputs, *last.outputs])
    constants = {**first.constants, **last.constants}
    graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in constants.items())
    return made


class _Nodes:
    """Nodes before or behind a file's graph, and what they declare."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.inputs: list[ValueInfoProto] = []
        self.outputs: list[ValueInfoProto] = []
        self.constants: dict[str, Array] = {}

    def add(self, op: str, inputs: Sequence[str], out: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [out], **attributes))
        return out

    def constant(self, name: str, *numbers: int) -> str:
        self.constants[name] = np.array(numbers)
        return name

    def state(self, name: str, shape: Shape, dtype: np.dtype[Any]) -> tuple[str, str]:
        """Declare a state tensor; returns its names before and after a step."""
        number = helper.np_dtype_to_tensor_dtype(dtype)
        before, after = OWN + name, f"{OWN}next_{name}"
        self.inputs.append(helper.make_tensor_value_info(before, number, shape))
        self.outputs.append(helper.make_tensor_value_info(after, number, None))
        return before, after


def _feed(made: _Nodes, interface: Interface) -> None:
    """Fill the file's inputs from x and from what overlaps."""
    x, sources = f"{OWN}x", interface.sources
    shape, parts = sources[0].new_shape, [x]
    if len(sources) > 1:
        shape = interface.n_streams, sum(interface.columns)
        parts = [f"{x}.{source.name}" for source in sources]
        widths = made.constant(f"{x}.columns", *interface.columns)
        made.nodes.append(helper.make_node("Split", [x, widths], parts, axis=1))
    made.inputs.append(helper.make_tensor_value_info(x, FLOAT, shape))
    for source, part in zip(sources, parts, strict=True):
        own = f"{OWN}{source.name}"
        new = made.constant(f"{own}.shape", *source.new_shape)
        value = made.add("Reshape", [part, new], f"{own}.shaped")
        number = helper.np_dtype_to_tensor_dtype(source.dtype)
        value = made.add("Cast", [value], f"{own}.cast", to=number)
        if source.overlap:
            before, after = made.state(source.context, source.context_shape, source.dtype)
            value = made.add("Concat", [before, value], f"{own}.joined", axis=-1)
            ends = (-source.overlap, np.iinfo(np.int64).max, -1)
            made.add("Slice", [value, *(made.constant(f"{own}.{n}", n) for n in ends)], after)
        made.add("Identity", [value], source.name)


def _check(made: _Nodes, interface: Interface) -> None:
    """Add `finite`: the sum of the small state tensors, for each stream.

    Where the streams lie in a state of several is not known; there, predictions are summed.
    """
    chosen = [identifier(name) for name in interface.predictions]
    if interface.n_streams == 1:
        floats = [pair for pair in interface.state if pair.dtype.kind == "f"]
        floats.sort(key=lambda pair: math.prod(pair.shape))
        totals = np.cumsum([math.prod(pair.shape) for pair in floats])
        n_chosen = max(1, int((totals <= MOST_CHECKED).sum()))
        chosen = [f"next_{identifier(pair.input)}" for pair in floats[:n_chosen]]
    if not chosen:
        return
    own = f"{OWN}finite"
    rows = made.constant(f"{own}.rows", interface.n_streams, -1)
    axis = made.constant(f"{own}.axis", 1)
    sums = []
    for name in chosen:
        value = made.add("Cast", [OWN + name], f"{own}.{name}.cast", to=FLOAT)
        value = made.add("Reshape", [value, rows], f"{own}.{name}.rows")
        sums.append(made.add("ReduceSum", [value, axis], f"{own}.{name}", keepdims=0))
    made.add("Sum" if len(sums) > 1 else "Identity", sums, own)
    made.outputs.append(helper.make_tensor_value_info(own, FLOAT, (interface.n_streams,)))


def _split(interface: Interface, row: NDArray[np.float32]) -> list[Array]:
    """One step's x (B, X) as the new elements of each source."""
    parts = np.split(row, np.cumsum(interface.columns)[:-1], axis=1)
    return [
        part.reshape(source.new_shape).astype(source.dtype)
        for source, part in zip(interface.sources, parts, strict=True)
    ]


def _drawn(interface: Interface, n_steps: int) -> NDArray[np.float32]:
    """Made-up x, (B, N, X)."""
    random = np.random.default_rng(0)
    parts = []
    for source, n_columns in zip(interface.sources, interface.columns, strict=True):
        shape = (interface.n_streams, n_steps, n_columns)
        floating = np.issubdtype(source.dtype, np.floating)
        parts.append(random.normal(size=shape) if floating else random.integers(0, 2, shape))
    return np.concatenate(parts, axis=-1).astype(np.float32)
