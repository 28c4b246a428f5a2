"""Translate step functions in PyTorch to ONNX graphs, with torch.export and torch.onnx.

All steps of a model go through one export, because torch's own preparations for an export (its
registry and its decompositions) take longer than most steps. The resulting graph is then cut into
one graph for each step, which is easy, because steps share nothing but constants.
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
"""Version of ONNX's operators: the oldest that torch's exporter writes."""

FOLD = 1 << 26
"""Largest number of elements of a constant that is computed in advance."""


@dataclass(frozen=True, slots=True)
class StepFunction:
    """Holds one step of a model as a function of tensors.

    Attributes:
        name: Name of the step's graph, as "query_one".
        step, width: The step and its number of points or targets, as in `StepGraph`.
        method: The method of the model that the step calls, as "update()".
        call: The function; it takes tensors in the order of `inputs`, and returns tensors in the
            order of `outputs`.
        inputs, outputs: The tensors with their roles.
        examples: One example tensor for each input.
        lines: The line of the model's file that first uses an operator, by operator.
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
    """Runs all steps as one module; its arguments are those of the steps, one after another."""

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
    """Return all steps of a model as one traced program.

    Raises:
        ExportError: PyTorch cannot trace a step; the message has the line of the model's file.
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
    """Translate a traced program to one ONNX graph for each step, by the step's name.

    Inputs and outputs have the shapes that the steps declare.

    Raises:
        ExportError: ONNX lacks a function that the program uses.
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
    """Return the method, as "update()", and the line "file:line" that torch's message is about.

    They are "the model" and "" where the message names no operator that a step uses.
    """
    named = re.search(r"op='\w+\.(\w+)'", message)
    operator = "complex" if "complex-valued" in message else named[1] if named else ""
    for step in steps:
        for name, line in step.lines.items():
            if operator and name.strip("_") == operator.strip("_"):
                return step.method, line
    return "the model", ""


def _cut(whole: onnx.ModelProto, step: StepFunction, values: Sequence[str]) -> onnx.ModelProto:
    """Return the part of a graph that computes `values`, the results of one step.

    Inputs and outputs of the part are named STEP.NAME; `whole` has the inputs' names already.
    """
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
    """Return the names of all values that a node reads, also in its subgraphs."""
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
    """Suppress warnings and log messages of torch in the block; errors are raised as usual."""
    disabled = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(disabled)
