"""From step functions in PyTorch to ONNX graphs, through torch.export and torch.onnx.

All steps of a model go through one export: what torch prepares for each (its registry and its
decompositions) takes longer than most steps. The one graph that comes back is then cut into one for
each step, which is easy, because steps share nothing but constants.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import onnx
import torch
from onnx_ir.passes import common
from onnxscript import optimizer
from torch import Tensor, nn

from edgefold.export.graphs.rewriting import IR_VERSION
from edgefold.export.lowering.refusals import refusal
from edgefold.runtime.bundle import manifest
from edgefold.runtime.errors import ExportError

OPSET = 18
"""The oldest that torch's exporter writes."""

FOLD = 1 << 26
"""Elements up to which constants are computed in advance."""


@dataclass(frozen=True, slots=True)
class StepFunction:
    """A step as a function of tensors.

    Attributes:
        name, step, width: As in `StepGraph`.
        method: The model's method that it calls, as "update()".
        call: Takes tensors in the order of `inputs`, and gives tensors in that of `outputs`.
        examples: A tensor for each input.
        lines: Where the model first uses each operator.
    """

    name: str
    step: str
    width: int
    method: str
    call: Callable[..., Sequence[Tensor]]
    inputs: tuple[manifest.Tensor, ...]
    outputs: tuple[manifest.Tensor, ...]
    examples: tuple[Tensor, ...]
    lines: Mapping[str, str]


class _Steps(nn.Module):
    """All steps as one module, whose arguments and results are those of all steps in turn."""

    def __init__(self, model: nn.Module, steps: Sequence[StepFunction]):
        super().__init__()
        self.model, self.steps = model, steps

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        results: list[Tensor] = []
        remaining = iter(tensors)
        for step in self.steps:
            try:
                results += step.call(*(next(remaining) for _ in step.inputs))
            except ExportError:
                raise
            except Exception as error:
                raise refusal(error, step.method) from error
        return tuple(results)


def trace(model: nn.Module, steps: Sequence[StepFunction]) -> torch.export.ExportedProgram:
    """All steps as one program.

    Raises:
        ExportError: PyTorch cannot trace one; the message has the line of the model's file.
    """
    examples = tuple(tensor.clone() for step in steps for tensor in step.examples)
    try:
        with torch.no_grad(), quiet():
            return torch.export.export(_Steps(model, steps).eval(), examples, strict=False)
    except ExportError:
        raise
    except Exception as error:
        raise refusal(error, f"{type(model).__name__}") from error


def translate(
    program: torch.export.ExportedProgram, steps: Sequence[StepFunction]
) -> dict[str, onnx.ModelProto]:
    """The program as one ONNX graph for each step, by name; shapes as declared.

    Raises:
        ExportError: ONNX lacks a function.
    """
    names = [f"{step.name}.{tensor.name}" for step in steps for tensor in step.inputs]
    try:
        with torch.no_grad(), quiet():
            onnx_program = torch.onnx.export(
                program,
                (),
                dynamo=True,
                opset_version=OPSET,
                input_names=names,
                verbose=False,
                optimize=False,  # takes as long as the rest, and folds no large constants
            )
            assert onnx_program is not None
            common.InlinePass()(onnx_program.model)
            optimizer.fold_constants(
                onnx_program.model,
                onnx_shape_inference=True,
                input_size_limit=FOLD,
                output_size_limit=FOLD,
            )
            whole = onnx_program.model_proto
    except torch.onnx.errors.OnnxExporterError as error:
        method, place = _origin(steps, str(error))
        raise refusal(error, method, place=place) from error
    values = iter(whole.graph.output)
    return {
        step.name: _cut(whole, step, [next(values).name for _ in step.outputs]) for step in steps
    }


def _origin(steps: Sequence[StepFunction], message: str) -> tuple[str, str]:
    """The method and the line of the model that torch's message is about."""
    named = re.search(r"op='\w+\.(\w+)'", message)
    operator = "complex" if "complex-valued" in message else named[1] if named else ""
    for step in steps:
        for name, line in step.lines.items():
            if operator and name.strip("_") == operator.strip("_"):
                return step.method, line
    return "the model", ""


def _cut(whole: onnx.ModelProto, step: StepFunction, values: Sequence[str]) -> onnx.ModelProto:
    """The part of a graph that gives some values; its inputs and outputs are STEP.NAME."""
    needed = set(values)
    nodes: list[onnx.NodeProto] = []
    for node in reversed(whole.graph.node):
        if needed & set(node.output):
            nodes.append(node)
            needed |= reads(node)
    graph = onnx.GraphProto(name=step.name)
    graph.input.extend(_info(step, declared) for declared in step.inputs)
    graph.initializer.extend(t for t in whole.graph.initializer if t.name in needed)
    graph.node.extend(reversed(nodes))
    for value, declared in zip(values, step.outputs, strict=True):
        info = _info(step, declared)  # a node of its own: the same value may be two results
        graph.node.append(onnx.helper.make_node("Identity", [value], [info.name]))
        graph.output.append(info)
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def reads(node: onnx.NodeProto) -> set[str]:
    """Values that a node reads, also in its subgraphs."""
    names = set(node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                names |= reads(inner)
            names |= {value.name for value in graph.output}
    return names - {""}


def _info(step: StepFunction, declared: manifest.Tensor) -> onnx.ValueInfoProto:
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(declared.dtype))
    name = f"{step.name}.{declared.name}"
    return onnx.helper.make_tensor_value_info(name, kind, declared.shape)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence what torch and its helpers say on the way; errors still come as exceptions."""
    disabled = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(disabled)
