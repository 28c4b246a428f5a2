"""Define the precisions of a bundle and what each may cost, and refuse a bundle that costs more.

    float32   everything; the graphs agree with PyTorch up to rounding
    float16   refresh, query and the cache between them, and a filter's step: as the model's
              `for_device` narrows them, else as `float16` does
    int8      the weights and inputs of the matrix products of refresh, query and step (`int8`)

What learns (update, condition, consolidate) and the state are float32 in all of them.

Every bundle must have a small parity error, the largest error compared with PyTorch along the
golden stream (recorded points that go through every graph). Whether a narrow bundle is good enough
is measured on its task: by the mean change in log-likelihood from the float32 graphs of the same
model, which agree with PyTorch, on the same draws. An untrained model has no task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgefold.export.checks.parity import TOLERANCE, ParityRow
from edgefold.export.graphs.step_graphs import StepGraphs
from edgefold.export.precision import float16, int8
from edgefold.export.precision.accuracy_loss import LikelihoodChange
from edgefold.export.precision.int8 import Samples
from edgefold.runtime.errors import ExportError


@dataclass(frozen=True, slots=True)
class Precision:
    """Describes a precision: how graphs are narrowed to it, and the bounds that a bundle must keep.

    Attributes:
        parity_steps: Length of the golden stream (recorded points), unless the user gives another.
        max_parity: Largest error along the golden stream that passes, in scaled units of y.
        max_loss: Largest loss of log-likelihood compared with float32 that passes, nats a target.
        margin: Tolerance of `edgefold check` divided by the measured error; 0 if it is `TOLERANCE`.
        narrowed: Function that narrows step graphs; it also takes samples of what products read, by
            the name of the graph.
        in_torch: Whether the model is first asked for a narrow form of its own.
        calibrates: Whether `narrowed` needs samples.
    """

    parity_steps: int
    max_parity: float
    max_loss: float
    margin: float
    narrowed: Callable[[StepGraphs, Mapping[str, Samples]], StepGraphs]
    in_torch: bool = False
    calibrates: bool = False


# The margins: another backend rounds elsewhere. onnxruntime's CPU computes much of float16 in
# float32; with every node rounded, errors are up to 2.2 times as large. int8 it computes as the
# graph says, but a value on the edge between two levels falls either way; versions 1.23 and 1.31
# differ by 8 %. That gives tolerances of 1e-3 to 7e-3 and of 0.04 to 0.1 for the shipped models,
# where scores that are 10 % off show as 0.02 to 0.16, and ReLU for GELU as 0.14 to 0.22.
PRECISIONS = {
    "float32": Precision(1000, TOLERANCE, 0.0, 0, lambda graphs, samples: graphs),
    "float16": Precision(10_000, 2e-2, 0.02, 6, float16.narrowed, in_torch=True),
    "int8": Precision(10_000, 3e-1, 0.05, 2, int8.narrowed, calibrates=True),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Holds the measured cost of one export.

    Attributes:
        name: Name of the precision.
        parity: Errors compared with PyTorch along the golden stream.
        changes: Changes in log-likelihood by the name of the kind of episodes; empty where none
            could be measured.
        measured_on, calibrated_on: Descriptions in words of the streams by which the loss was
            measured and the ranges were set; empty where there are none.
    """

    name: str
    parity: tuple[ParityRow, ...]
    changes: dict[str, LikelihoodChange]
    measured_on: str
    calibrated_on: str

    @property
    def worst_parity(self) -> float:
        """Return the largest error from PyTorch in float32 or float64; NaN if any error is NaN."""
        return float(np.max(list(map(_error, self.parity))))

    @property
    def worst_loss(self) -> float:
        """Return the largest mean loss of any kind of episodes, nats a target; NaN if any is."""
        return float(np.max([-change.mean for change in self.changes.values()]))

    @property
    def is_finite(self) -> bool:
        """Return whether all measured errors and changes are finite numbers."""
        means = [change.mean for change in self.changes.values()]
        return all(map(math.isfinite, (self.worst_parity, *means)))

    def to_json(self, tolerance: float) -> dict[str, Any]:
        last = self.parity[-1]
        form: dict[str, Any] = {
            "name": self.name,
            "parity": {
                "n_points": last.n_points,
                "worst": self.worst_parity,
                "tolerance": tolerance,
            },
        }
        if self.measured_on:
            form["measured_on"] = self.measured_on
        if self.changes:
            form["log_likelihood_change"] = {k: c.mean for k, c in self.changes.items()}
            form["standard_error"] = {k: c.standard_error for k, c in self.changes.items()}
            form["n"] = {k: c.n for k, c in self.changes.items()}
        if self.calibrated_on:
            form["calibrated_on"] = self.calibrated_on
        return form


def _error(row: ParityRow) -> float:
    """Return the larger of the graphs' errors from float32 and float64 PyTorch; NaN if any is."""
    return float(np.max((row.graphs_to_float32, row.graphs_to_float64)))


def checked_tolerance(cost: Cost) -> float:
    """Return the tolerance of `edgefold check` for an exported bundle, in scaled units of y."""
    return PRECISIONS[cost.name].margin * cost.worst_parity or TOLERANCE


def require_acceptable(cost: Cost, max_loss: float | None = None) -> None:
    """Refuse a bundle whose errors are too large, or whose loss on the task is.

    Args:
        cost: Measured cost of the bundle.
        max_loss: Largest loss that passes, nats a target; the precision's own where it is None.

    Raises:
        ExportError: An error or a loss is larger than its bound, or is NaN.
    """
    bounds = PRECISIONS[cost.name]
    worst = cost.worst_parity
    if not worst <= bounds.max_parity:
        moment = cost.parity[int(np.argmax(list(map(_error, cost.parity))))]
        of_torch = moment.torch_to_float64
        advice = (
            f" PyTorch in float32 itself is off by {of_torch:.1e} from float64: bound what the "
            "state sums up, or keep it in float64."
        ) * (of_torch > bounds.max_parity)
        raise ExportError(
            f"the {cost.name} graphs are off by {worst:.1e} from PyTorch, tolerance "
            f"{bounds.max_parity:.0e}; nothing was written. The worst moment is after "
            f"{moment.n_points:,} points.{advice}"
        )
    if not cost.changes:
        return
    loss = cost.worst_loss
    bound = bounds.max_loss if max_loss is None else max_loss
    if not loss <= bound:
        raise ExportError(
            f"{cost.name} costs {loss:.2g} nats of log-likelihood a target on {cost.measured_on}, "
            f"and {bound:g} are allowed; nothing was written. Take a wider --precision, a larger "
            "--max-loss, or --accept-loss."
        )
