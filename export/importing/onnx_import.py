"""Import an ONNX file of any origin that keeps its state in its inputs and outputs.

    x ──┬── columns of one input, in its shape ────┐
        └── columns of another, in its shape ──────┤
    constants (a sampling rate, ...) ──────────────┼─> the file's graph ─┬─> predictions
    state ─────────────────────────────────────────┘                     └─> next_<state>

`import_onnx` makes one graph of all this, the `step` of a filter; `record_reference` runs the file
as it is, with the same x, so that both can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx import ValueInfoProto, version_converter

from edgefold.export.graphs.folding import fold
from edgefold.export.graphs.rewriting import EditableGraph, made_by
from edgefold.export.graphs.static_graph import Shape, dtypes_of, shapes_of
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
from edgefold.runtime.errors import BackendError, ExportError
from edgefold.runtime.predictions import Raw

Array = NDArray[Any]
FLOAT = ir.DataType.FLOAT
OLDEST_OPSET = 13  # from here on, Split and Squeeze take their sizes as inputs
MOST_CHECKED = 4096  # elements of the state that are looked at after each step
OWN = "edgefold."  # before the names of the bundle, so that they never meet those of the file


@dataclass(frozen=True, slots=True)
class Reference:
    """Holds the predictions of an ONNX file itself along a stream.

    Attributes:
        x: Inputs of all steps, (B, N, X), float32.
        predictions: Predictions by their names in the bundle, (B, N, *shape), float32.
        state: State after the last step, by name in the bundle.
    """

    x: NDArray[np.float32]
    predictions: dict[str, NDArray[np.float32]]
    state: dict[str, Array]


@dataclass(frozen=True, slots=True)
class Imported:
    """Holds an imported file as a model of the filtering kind.

    Attributes:
        graphs: The model's step graphs.
        prediction: Kind of the predictions: tensors whose meaning only the user knows.
    """

    graphs: StepGraphs
    prediction: Raw


def import_onnx(
    path: Path, config: ImportConfig, progress: Callable[[str], None] = lambda line: None
) -> Imported:
    """Make the step graph of a filter from an ONNX file.

    Args:
        path: The file.
        config: Meaning of the file's inputs and outputs.
        progress: Function that is called with a line for each decision that the user did not make.

    Raises:
        ExportError: The file cannot be read, is ambiguous, or holds something that a static graph
            cannot do.
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
    simple = simplify(as_products(ended, config.reorder_sums), declared)
    step = replace(_declared(simple, names), name="step")
    if not any(tensor.role == "points.x" for tensor in step.inputs):
        raise ExportError("no output depends on what arrives at a step; choose other --outputs.")
    graphs = StepGraphs((step,), interface.initial, n_streams=interface.n_streams)
    return Imported(graphs, prediction)


def _declared(model: onnx.ModelProto, predictions: Collection[str]) -> StepGraph:
    """Return a graph with the roles of its inputs and outputs, which follow from their names."""
    shapes, dtypes = shapes_of(model), dtypes_of(model)
    roles = {"x": "points.x", "finite": "finite", **dict.fromkeys(predictions, "prediction")}

    def declared(info: ValueInfoProto) -> Tensor:
        name = info.name.removeprefix(OWN)
        role, of = roles.get(name, "state"), name.removeprefix("next_")
        return Tensor(name, role, of, shapes[info.name], str(dtypes[info.name]))

    inputs, outputs = (tuple(map(declared, p)) for p in (model.graph.input, model.graph.output))
    return StepGraph(OWN.removesuffix("."), "step", 1, model, inputs, outputs)


def _ended(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the graph with an Identity before each output, without outputs of unchanged state."""
    graph = EditableGraph.of(model)
    outputs = list(graph.ir.outputs)
    graph.ir.outputs.clear()
    for output in outputs:
        copy, before = made_by(output, "Identity"), str(output.name).replace(f"{OWN}next_", OWN)
        if copy is None or copy.inputs[0] is None or copy.inputs[0].name != before:
            name, output.name = output.name, f"{output.name}.value"
            (end,) = graph.insert(None, "Identity", [output], [name])
            end.type, end.shape = output.type, output.shape
            graph.ir.outputs.append(end)
    return graph.checked()


def record_reference(
    path: Path, config: ImportConfig, n_steps: int, x: NDArray[np.float32] | None = None
) -> Reference:
    """Run the ONNX file itself in ONNX Runtime, with the state passed from step to step.

    Args:
        path: The file.
        config: Meaning of the file's inputs and outputs, as for `import_onnx`.
        n_steps: Number of steps (N) if no x is given; then numbers are drawn from a normal
            distribution, and whole numbers 0 and 1 for inputs that are not floating.
        x: The new elements of all inputs at each step, side by side, (B, N, X).
    """
    interface = read_interface(_load(path), config)
    x = _drawn(interface, n_steps) if x is None else x
    try:
        session = open_session(path)
    except BackendError as error:  # the file is at fault, not the machine
        raise ExportError(str(error)) from error
    state = dict(interface.initial)
    outputs = [*interface.predictions, *(pair.output for pair in interface.state)]
    answers: list[list[Array]] = []
    for row in np.moveaxis(x, 1, 0):
        feeds = {**interface.constants}
        for source, new in zip(interface.sources, _split(interface, row), strict=True):
            if source.overlap:
                new = np.concatenate([state[source.context], new], axis=-1)
                state[source.context] = new[..., -source.overlap :]
            feeds[source.name] = new
        feeds |= {pair.input: state[identifier(pair.input)] for pair in interface.state}
        try:
            results = session.run(outputs, feeds)
        except Exception as error:  # onnxruntime raises many kinds, none documented
            raise ExportError(f"{path} fails in onnxruntime: {error}") from error
        answers.append(results[: len(interface.predictions)])
        following = results[len(interface.predictions) :]
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
        if version < OLDEST_OPSET:
            model = version_converter.convert_version(model, OLDEST_OPSET)
    except Exception as error:  # a parser's errors, of no common class
        raise ExportError(f"{path} cannot be read as an ONNX file: {error}") from error
    newest = onnx.defs.onnx_opset_version()
    if version > newest:
        raise ExportError(
            f"{path} uses version {version} of ONNX's operators; the installed onnx "
            f"{onnx.__version__} knows {newest}. Write the file for an older version."
        )
    return model


def _wrapped(model: onnx.ModelProto, interface: Interface, bare: Collection[str]) -> ir.Model:
    """Return the file's graph with nodes that connect it to inputs and outputs of a bundle.

    The names of the bundle's inputs and outputs begin with `OWN`.

    Args:
        model: The file.
        interface: Meaning of the file's inputs and outputs.
        bare: Names of predictions without an axis of streams, to which one is added.
    """
    try:
        wrapped = ir.from_proto(model)
    except ir.serde.SerdeError as error:
        raise ExportError(f"the graph is not valid ONNX: {error.__cause__ or error}") from error
    wrapper = _Wrapper(wrapped)
    wrapper.feed(interface)
    for name, array in interface.constants.items():
        wrapper.fill(name, wrapper.constant(array))
    for pair in interface.state:
        name, kind = identifier(pair.input), ir.DataType.from_numpy(pair.dtype)
        wrapper.fill(pair.input, wrapper.take(name, kind, pair.shape))
        wrapper.give(f"next_{name}", kind, wrapper.outputs[pair.output])
    for output in interface.predictions:
        value = wrapper.last("Cast", [wrapper.outputs[output]], to=FLOAT)
        if identifier(output) in bare:
            value = wrapper.last("Unsqueeze", [value, wrapper.numbers(0)])
        wrapper.give(identifier(output), FLOAT, value)
    wrapper.check(interface)
    return wrapped


class _Wrapper:
    """Puts nodes before and after a file's graph, to connect it with a bundle's inputs and outputs.

    Attributes:
        graph: The graph that is changed.
        outputs: The file's own outputs by name.
    """

    def __init__(self, model: ir.Model):
        self.graph = EditableGraph(model)
        graph = model.graph
        self.outputs = {str(value.name): value for value in graph.outputs}
        self._inputs = {str(value.name): value for value in graph.inputs}
        self._start = next(iter(graph), None)
        graph.inputs.clear()
        graph.outputs.clear()
        for node in graph:
            for value in node.outputs:
                value.type = None  # perhaps that of inputs of other types

    def first(self, kind: str, inputs: Sequence[ir.Value], **settings: Any) -> ir.Value:
        """Add a node before the file's graph, and return its first output."""
        return self.graph.insert(self._start, kind, inputs, **settings)[0]

    def last(self, kind: str, inputs: Sequence[ir.Value], **settings: Any) -> ir.Value:
        """Add a node after the file's graph, and return its first output."""
        return self.graph.insert(None, kind, inputs, **settings)[0]

    def constant(self, array: Array) -> ir.Value:
        """Add a constant array to the graph, and return its value."""
        return self.graph.constant(array, f"{OWN}constant_{len(self.graph.ir.initializers)}")

    def numbers(self, *numbers: int) -> ir.Value:
        """Add a constant array of whole numbers to the graph, and return its value."""
        return self.constant(np.array(numbers))

    def take(self, name: str, dtype: ir.DataType, shape: Shape) -> ir.Value:
        """Add an input to the bundle's graph, and return its value."""
        value = ir.Value(name=OWN + name, type=ir.TensorType(dtype), shape=ir.Shape(shape))
        self.graph.ir.inputs.append(value)
        return value

    def fill(self, name: str, value: ir.Value) -> None:
        """Let the file's graph read a value instead of its input `name`."""
        old = self._inputs[name]
        ir.convenience.replace_all_uses_with(old, value)
        self.outputs |= {n: value for n, output in self.outputs.items() if output is old}

    def give(
        self, name: str, dtype: ir.DataType, value: ir.Value, shape: Shape | None = None
    ) -> None:
        """Add an output to the bundle's graph that copies a value."""
        (end,) = self.graph.insert(None, "Identity", [value], [OWN + name])
        end.type, end.shape = ir.TensorType(dtype), None if shape is None else ir.Shape(shape)
        self.graph.ir.outputs.append(end)

    def feed(self, interface: Interface) -> None:
        """Add nodes that cut the file's data inputs out of the bundle's input x.

        An input with an overlap begins with the last elements of the step before: a state tensor
        keeps them.
        """
        sources = interface.sources
        if len(sources) > 1:
            x = self.take("x", FLOAT, (interface.n_streams, sum(interface.columns)))
            widths, names = self.numbers(*interface.columns), [None] * len(sources)
            parts = self.graph.insert(self._start, "Split", [x, widths], names, axis=1)
        else:
            parts = [self.take("x", FLOAT, sources[0].new_shape)]
        for source, part in zip(sources, parts, strict=True):
            value = self.first("Reshape", [part, self.numbers(*source.new_shape)])
            kind = ir.DataType.from_numpy(source.dtype)
            value = self.first("Cast", [value], to=kind)
            if source.overlap:
                before = self.take(source.context, kind, source.context_shape)
                value = self.first("Concat", [before, value], axis=-1)
                ends = map(self.numbers, (-source.overlap, np.iinfo(np.int64).max, -1))
                self.give(f"next_{source.context}", kind, self.first("Slice", [value, *ends]))
            self.fill(source.name, value)

    def check(self, interface: Interface) -> None:
        """Add the output `finite`, (B,), which is NaN or infinite if a step's arithmetic failed.

        For one stream it is the sum of the small float tensors of the state; there is no output if
        the state has none. For several streams it is the sum of the predictions of each, because
        the state's axis of streams is not known.
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
        outputs = {value.name: value for value in self.graph.ir.outputs}
        rows, axis = self.numbers(interface.n_streams, -1), self.numbers(1)
        sums = []
        for name in chosen:
            value = self.last("Cast", [outputs[OWN + name]], to=FLOAT)
            value = self.last("Reshape", [value, rows])
            sums.append(self.last("ReduceSum", [value, axis], keepdims=0))
        total = self.last("Sum", sums) if len(sums) > 1 else sums[0]
        self.give("finite", FLOAT, total, (interface.n_streams,))


def _split(interface: Interface, row: NDArray[np.float32]) -> list[Array]:
    """Cut one step's x (B, X) into the new elements of each source, an input of the file."""
    parts = np.split(row, np.cumsum(interface.columns)[:-1], axis=1)
    return [
        part.reshape(source.new_shape).astype(source.dtype)
        for source, part in zip(interface.sources, parts, strict=True)
    ]


def _drawn(interface: Interface, n_steps: int) -> NDArray[np.float32]:
    """Draw random inputs x, (B, N, X)."""
    random = np.random.default_rng(0)
    parts = []
    for source, n_columns in zip(interface.sources, interface.columns, strict=True):
        shape = (interface.n_streams, n_steps, n_columns)
        floating = np.issubdtype(source.dtype, np.floating)
        parts.append(random.normal(size=shape) if floating else random.integers(0, 2, shape))
    return np.concatenate(parts, axis=-1).astype(np.float32)
