"""Lower any streaming model to step graphs: find its steps, then translate each to ONNX.

    model.for_device() -> step functions of tensors -> guards -> one traced program -> graphs

Everything that is special about a model is written in the model; this code only follows the
contract.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import onnx

from edgefold.export.graphs.static_graph import shapes_of
from edgefold.export.graphs.step_graphs import Sizes, StepGraph, StepGraphs
from edgefold.export.lowering.cache import GraphCache, key_of
from edgefold.export.lowering.checks import DTYPES
from edgefold.export.lowering.declare import StepDeclarer
from edgefold.export.lowering.simplify import simplify
from edgefold.export.lowering.trace import StepFunction, trace, translate
from edgefold.runtime.bundle import manifest
from edgefold.runtime.errors import ExportError
from edgefold.train.contract import StreamingModel, can_merge

Progress = Callable[[str], None]


def lower(
    model: StreamingModel,
    sizes: Sizes,
    dtype: str = "float32",
    progress: Progress | None = None,
    cache: GraphCache | None = None,
) -> StepGraphs:
    """Return the graph of every step of a model, in the model's form for a device.

    Args:
        model: Any streaming model.
        sizes: Sizes of the graphs; a model without inputs is queried for one target.
        dtype: Type for the model's `for_device`: "float32" or "float16".
        progress: Function that is called with a line of text before each stage.
        cache: Folder of finished graphs; by default the one in the user's cache.

    Raises:
        ExportError: The model breaks the contract, or computes something that a graph cannot.
    """
    say = progress or (lambda text: None)
    cache = cache or GraphCache()
    device = model.for_device(sizes.streams, dtype)
    if can_merge(model) and not can_merge(device):
        raise ExportError(
            f"the model has merge(), and its device form {type(device).__name__} has none; add it "
            "there, too, or say in `no_merge` why its states do not join."
        )
    was_training = device.training
    device.eval()
    try:
        say("looking at the model")
        declarer = StepDeclarer(device, sizes)
        steps = declarer.steps()
        say("tracing the model")
        program = trace(device, steps)
        key = key_of(program, steps)
        graphs = cache.read(key)
        if graphs is None:
            say("translating the model to ONNX")
            translated = translate(program, steps)
            say("simplifying the graphs")
            graphs = {step.name: simplify(translated[step.name], step) for step in steps}
            cache.write(key, graphs)
    finally:
        device.train(was_training)
    return StepGraphs(
        steps=tuple(_declared(step, graphs[step.name]) for step in steps),
        state={name: tensor.numpy() for name, tensor in declarer.state.items()},
        cache={
            name: (tuple(tensor.shape), np.dtype(DTYPES[tensor.dtype]))
            for name, tensor in declarer.cache.items()
        },
        rings={name: ring.axis for name, ring in device.rings.items()},
        slots={name: ring.slot for name, ring in device.rings.items() if ring.slot},
        consolidate_every=device.consolidate_every,
        capacity=model.capacity,
        when_full=model.when_full,
        n_streams=sizes.streams,
    )


def _declared(step: StepFunction, model: onnx.ModelProto) -> StepGraph:
    """Return a finished graph as a StepGraph, with the declared tensors that it still has."""
    shapes = shapes_of(model)

    def found(
        values: Iterable[onnx.ValueInfoProto], declared: tuple[manifest.Tensor, ...]
    ) -> tuple[manifest.Tensor, ...]:
        by_name = {tensor.name: tensor for tensor in declared}
        return tuple(replace(by_name[v.name], shape=shapes[v.name]) for v in values)

    types = {value.type.tensor_type.elem_type for value in model.graph.value_info}
    precision = "float16" if onnx.TensorProto.FLOAT16 in types else "float32"
    inputs = found(model.graph.input, step.inputs)
    outputs = found(model.graph.output, step.outputs)
    return StepGraph(step.name, step.step, step.width, model, inputs, outputs, precision)
