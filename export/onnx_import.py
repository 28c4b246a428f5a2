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
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx import NodeProto, ValueInfoProto, helper, numpy_helper, version_converter

from edgefold.export.lowering.graphs import StepGraph, StepGraphs
from edgefold.export.onnx_folding import fold, simplify
from edgefold.export.onnx_interface import ImportConfig, Interface, identifier, read_interface
from edgefold.export.static_graph import Shape, constants_of, dtypes_of, rebuilt, shapes_of
from edgefold.runtime.backends.onnxruntime_session import onnxruntime as ort
from edgefold.runtime.errors import ExportError
from edgefold.runtime.manifest import Tensor
from edgefold.runtime.predictions import Raw

Array = NDArray[Any]
FLOAT = onnx.TensorProto.FLOAT
OLDEST_OPSET = 13  # from here on, Split and Squeeze take their sizes as inputs
MOST_CHECKED = 4096  # elements of the state that are looked at after each step
INNER = "file/"  # before every name of the file, so that none meets a name of the bundle


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


def import_onnx(
    path: Path, config: ImportConfig, progress: Callable[[str], None] = lambda line: None
) -> StepGraphs:
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
    bare = [name for name in names if shapes[name][:1] != (interface.n_streams,)]
    if bare and interface.n_streams > 1:
        raise ExportError(
            f"the prediction {bare[0]} has shape {shapes[bare[0]]}; its first axis must be the "
            f"{interface.n_streams} streams. Import the file with one stream."
        )
    if bare:
        folded = fold(_wrapped(model, interface, bare))
    made = _trimmed(simplify(folded))
    shapes, dtypes = shapes_of(made), dtypes_of(made)
    for name, first in interface.initial.items():
        after = f"next_{name}"
        if (shapes.get(after, first.shape), dtypes.get(after, first.dtype)) != (
            first.shape,
            first.dtype,
        ):
            raise ExportError(
                f"the state {name} is {first.dtype} {first.shape} before a step and "
                f"{dtypes[after]} {shapes[after]} after it; state must keep its shape and type."
            )

    def tensor(name: str, role: str, of: str) -> Tensor:
        return Tensor(name, role, of, shapes[name], str(dtypes[name]))

    inputs = tuple(
        tensor(i.name, "points.x", "x") if i.name == "x" else tensor(i.name, "state", i.name)
        for i in made.graph.input
    )
    roles = {**dict.fromkeys(names, "prediction"), "finite": "finite"}
    outputs = tuple(
        tensor(o.name, roles.get(o.name, "state"), o.name.removeprefix("next_"))
        for o in made.graph.output
    )
    return StepGraphs((StepGraph("step", "step", 1, made, inputs, outputs),), interface.initial)


def prediction_kind(graphs: StepGraphs) -> Raw:
    """The kind of an imported model's predictions: tensors without a meaning known to Edgefold."""
    found = graphs.steps[0].outputs
    return Raw({tensor.name: tensor.shape[1:] for tensor in found if tensor.role == "prediction"})


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
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
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
    """The file's graph between the bundle's inputs and outputs.

    Args:
        model: The file.
        interface: What its inputs and outputs are.
        bare: Predictions without an axis of streams, which get one.
    """
    made = _prefixed(model)
    adapter = _Adapter()
    adapter.feed(interface)
    for pair in interface.state:
        before, after = adapter.carry(identifier(pair.input), pair.shape, pair.dtype)
        adapter.add("Identity", [before], INNER + pair.input)
        adapter.last.append(helper.make_node("Identity", [INNER + pair.output], [after]))
    for output in interface.predictions:
        name = identifier(output)
        cast = f"{name}/float" if name in bare else name
        adapter.last.append(helper.make_node("Cast", [INNER + output], [cast], to=FLOAT))
        if name in bare:
            axis = adapter.constant("streams/axis", np.array([0]))
            adapter.last.append(helper.make_node("Unsqueeze", [cast, axis], [name]))
        adapter.outputs.append(helper.make_tensor_value_info(name, FLOAT, None))
    adapter.check(interface)
    for name, array in interface.constants.items():
        adapter.constant(INNER + name, array)
    graph = made.graph
    nodes = [*adapter.first, *graph.node, *adapter.last]
    del graph.node[:], graph.input[:], graph.output[:], graph.value_info[:]
    graph.node.extend(nodes)
    graph.input.extend(adapter.inputs)
    graph.output.extend(adapter.outputs)
    graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in adapter.constants.items()
    )
    return made


def _prefixed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph with `INNER` before the name of every value, in branches too."""
    found = ir.from_proto(model)  # onnx.compose.add_prefix misses what branches read from outside
    values = []
    for graph in (found.graph, *found.graph.subgraphs()):
        values += [*graph.inputs, *graph.initializers.values()]
        values += [value for node in graph for value in node.outputs if value.name]
    ir.convenience.rename_values(values, [f"{INNER}{value.name}" for value in values])
    return ir.to_proto(found)


class _Adapter:
    """What is put before and behind a file's graph."""

    def __init__(self) -> None:
        self.first: list[NodeProto] = []
        self.last: list[NodeProto] = []
        self.inputs: list[ValueInfoProto] = []
        self.outputs: list[ValueInfoProto] = []
        self.constants: dict[str, Array] = {}

    def feed(self, interface: Interface) -> None:
        """Fill the file's inputs from x and from the overlaps."""
        shape, parts = interface.sources[0].new_shape, ["x"]
        if len(interface.sources) > 1:
            shape = interface.n_streams, sum(interface.columns)
            parts = [f"x/{source.name}" for source in interface.sources]
            widths = self.constant("x/columns", np.array(interface.columns))
            self.first.append(helper.make_node("Split", ["x", widths], parts, axis=1))
        self.inputs.append(helper.make_tensor_value_info("x", FLOAT, shape))
        for source, part in zip(interface.sources, parts, strict=True):
            new = self.constant(f"{source.name}/shape", np.array(source.new_shape))
            value = self.add("Reshape", [part, new], f"{source.name}/shaped")
            number = helper.np_dtype_to_tensor_dtype(source.dtype)
            value = self.add("Cast", [value], f"{source.name}/cast", to=number)
            if source.overlap:
                before, after = self.carry(source.context, source.context_shape, source.dtype)
                value = self.add("Concat", [before, value], f"{source.name}/joined", axis=-1)
                ends = (-source.overlap, np.iinfo(np.int64).max, -1)
                held = [self.constant(f"{source.name}/{n}", np.array([n])) for n in ends]
                self.add("Slice", [value, *held], after)
            self.add("Identity", [value], INNER + source.name)

    def carry(self, name: str, shape: Shape, dtype: np.dtype[Any]) -> tuple[str, str]:
        """Declare a state tensor; returns its names before and after a step."""
        number = helper.np_dtype_to_tensor_dtype(dtype)
        self.inputs.append(helper.make_tensor_value_info(name, number, shape))
        self.outputs.append(helper.make_tensor_value_info(f"next_{name}", number, None))
        return name, f"next_{name}"

    def check(self, interface: Interface) -> None:
        """Add `finite`: sums of the small state tensors, for each stream.

        Where the streams lie in a state of several is not known; there, predictions are summed.
        """
        chosen = [identifier(name) for name in interface.predictions]
        if interface.n_streams == 1:
            floats = [pair for pair in interface.state if pair.dtype.kind == "f"]
            floats.sort(key=lambda pair: math.prod(pair.shape))
            totals = np.cumsum([math.prod(pair.shape) for pair in floats]).tolist()
            n_chosen = max(1, sum(total <= MOST_CHECKED for total in totals))
            chosen = [f"next_{identifier(pair.input)}" for pair in floats[:n_chosen]]
        if not chosen:
            return
        rows = self.constant("finite/rows", np.array([interface.n_streams, -1]))
        axis = self.constant("finite/axis", np.array([1]))
        sums = [f"finite/{name}" for name in chosen] if len(chosen) > 1 else ["finite"]
        for name, out in zip(chosen, sums, strict=True):
            self.last += [
                helper.make_node("Cast", [name], [f"{name}/cast"], to=FLOAT),
                helper.make_node("Reshape", [f"{name}/cast", rows], [f"{name}/rows"]),
                helper.make_node("ReduceSum", [f"{name}/rows", axis], [out], keepdims=0),
            ]
        if len(chosen) > 1:
            self.last.append(helper.make_node("Sum", sums, ["finite"]))
        self.outputs.append(helper.make_tensor_value_info("finite", FLOAT, (interface.n_streams,)))

    def add(self, op: str, inputs: list[str], out: str, **attributes: Any) -> str:
        self.first.append(helper.make_node(op, inputs, [out], **attributes))
        return out

    def constant(self, name: str, array: Array) -> str:
        self.constants[name] = array
        return name


def _trimmed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The graph without inputs that nobody reads, and without state that no step changes.

    Raises:
        ExportError: Nobody reads x.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    unchanged = {
        node.output[0]
        for node in graph.node
        if node.op_type == "Identity" and node.output[0] == f"next_{node.input[0]}"
    }
    kept = [info for info in model.graph.output if info.name not in unchanged]
    del graph.output[:]
    graph.output.extend(kept)
    made = rebuilt(made, graph.node, constants_of(made))
    read = {name for node in made.graph.node for name in node.input}
    if "x" not in read:
        raise ExportError("no output depends on what arrives at a step; choose other --outputs.")
    inputs = [info for info in model.graph.input if info.name in read]
    del made.graph.input[:]
    made.graph.input.extend(inputs)
    return made


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
