"""Write the graphs of a model in operators that give the same numbers on every target.

This comes last, when the graphs have their precision, so that no other part of the exporter has to
know these forms.
"""

from __future__ import annotations

from dataclasses import replace

from edgefold.export.graphs.batch_norms import without_batch_norms
from edgefold.export.graphs.comparisons import compared
from edgefold.export.graphs.loops import without_loops
from edgefold.export.graphs.step_graphs import StepGraph, StepGraphs

WRITTEN = {"state", "row", "slot", "finite"}
"""Roles of outputs that decide whether and how a stream changes."""


def portable(graphs: StepGraphs) -> StepGraphs:
    """Return the graphs of a model as each target can run them, with the same tensors.

    No graph has a loop that its operators allow to avoid, and in those that write state, NaN passes
    through extremes on every target.
    """
    return replace(graphs, steps=tuple(_portable(step) for step in graphs.steps))


def _portable(step: StepGraph) -> StepGraph:
    writes = any(tensor.role in WRITTEN for tensor in step.outputs)
    model = without_batch_norms(without_loops(step.model))
    return replace(step, model=compared(model) if writes else model)
