"""Streams of a model's own task: to find the ranges of int8, and to see what a precision costs.

    gp        functions drawn from the task's processes; RBF alone sets ranges, so that Matern 5/2
              is as foreign to them as it was to training
    series    the real series where it is at hand: ranges from the part that training saw, the cost
              from the part that it did not, one row ahead; else the task's made-up maps over
              made-up inputs
    other     nothing to score an untrained model by

Ranges see some smooth functions over the model's whole range of inputs besides, whatever the task:
on series-co2 they take the int8 error at inputs unlike any real row from 0.2 to 0.04 and cost
nothing on the real ones. A trial begins with a reset, as a device does when its stream starts anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from edgefold.export.parity import draw_stream
from edgefold.runtime.errors import ExportError
from edgefold.runtime.manifest import Scaling
from edgefold.train.models.cmanp import Cmanp
from edgefold.train.tasks.gp import GpTask, Kernel, draw_functions
from edgefold.train.tasks.series import SeriesTask

FloatArray = NDArray[np.float64]

KERNELS: tuple[Kernel, ...] = ("rbf", "matern52")
N_CALIBRATED = 12
"""Drawn streams that set the ranges."""
N_SMOOTH = 4
"""Streams of smooth functions that set them too."""
LONG = 512
"""Points of the long stream of a gp: ten times what training showed, as a device meets it."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One stream from its reset on, in the caller's units.

    Attributes:
        x, y: (n, X) and (n, Y): points folded, then points predicted.
        n_context: How many are folded before the first prediction.
        learns: Whether each predicted point is folded before the next prediction.
    """

    x: FloatArray
    y: FloatArray
    n_context: int
    learns: bool = False


@dataclass(frozen=True, slots=True)
class RealSeries:
    """A series' points in raw units, (n, X) and (n, 1); the first `n_training` were trained on."""

    name: str
    x: FloatArray
    y: FloatArray
    n_training: int


@dataclass(frozen=True, slots=True)
class TaskStreams:
    """What a task offers.

    Attributes:
        calibration: Streams that set ranges.
        scored: By name, trials that tell the cost; none for an untrained model.
        calibrated_on, measured_on: What these are, in words.
    """

    calibration: list[Episode]
    scored: dict[str, Iterator[Episode]]
    calibrated_on: str
    measured_on: str


def streams_of(
    model: Cmanp,
    task: dict[str, Any],
    scaling_x: Scaling,
    scaling_y: Scaling,
    series: RealSeries | None = None,
) -> TaskStreams:
    """The streams of a run's task."""
    smooth = [_smooth(model, scaling_x, scaling_y, seed) for seed in range(N_SMOOTH)]
    words = f"{N_SMOOTH} streams of smooth functions"
    if task["name"] == "gp":
        own = _of_gp()
    elif task["name"] == "series":
        own = _of_made_up_series(model, task) if series is None else _of_rows(series)
    else:
        return TaskStreams(smooth, {}, words, "")
    return replace(
        own,
        calibration=own.calibration + smooth,
        calibrated_on=f"{own.calibrated_on}; {words}",
    )


# The papers' regression ---------------------------------------------------------------------------


def _of_gp() -> TaskStreams:
    task, generator = GpTask(), torch.Generator().manual_seed(20240611)
    calibration = [
        _drawn(*draw_functions(1, n + task.n_targets, "rbf", generator), n)
        for n in (*[task.n_context] * N_CALIBRATED, LONG)
    ]
    return TaskStreams(
        calibration,
        {kernel: _gp_trials(task, kernel) for kernel in KERNELS},
        f"{N_CALIBRATED} streams of {task.n_context} points and one of {LONG}, RBF",
        "draws of the gp task by the papers' protocol",
    )


def _gp_trials(task: GpTask, kernel: Kernel) -> Iterator[Episode]:
    generator = torch.Generator().manual_seed(20240612)
    while True:
        batch = task.evaluation_batch(1, kernel, generator)
        x = torch.cat([batch.x_context, batch.x_target], 1)
        y = torch.cat([batch.y_context, batch.y_target], 1)
        yield _drawn(x, y, batch.x_context.shape[1])


def _drawn(x: torch.Tensor, y: torch.Tensor, n_context: int) -> Episode:
    return Episode(x[0].double().numpy(), y[0].double().numpy(), n_context)


# Series -------------------------------------------------------------------------------------------


def _of_rows(series: RealSeries) -> TaskStreams:
    """The real rows: from the start, and from later ones on, as after a reset in mid-life."""
    n, n_rows = series.n_training, len(series.x)
    if not 0 < n < n_rows - 1:
        raise ExportError(
            f"{series.name} has {n} points to set ranges on and {n_rows - n} to be weighed by; "
            "give a longer series."
        )
    random = np.random.default_rng(20240611)
    calibration = []
    for first in (0, n // 4, n // 2, 3 * n // 4):
        seen = np.arange(first, n)
        asked = random.integers(0, n, 64)
        rows = np.concatenate([seen, asked])
        calibration.append(Episode(series.x[rows], series.y[rows], len(seen)))
    held_out = Episode(series.x, series.y, n, learns=True)
    return TaskStreams(
        calibration,
        {"held_out": iter([held_out])},
        f"{len(calibration)} streams of the {n:,} training points of {series.name}",
        f"the last {len(series.x) - n:,} points of {series.name}, one row ahead",
    )


def _of_made_up_series(model: Cmanp, task: dict[str, Any]) -> TaskStreams:
    made_up = _made_up_trials(model, task, 20240611)
    return TaskStreams(
        list(islice(made_up, N_CALIBRATED)),
        {"made_up": _made_up_trials(model, task, 20240612)},
        f"{N_CALIBRATED} made-up maps over normal inputs",
        "made-up maps over normal inputs, for want of the series",
    )


def _made_up_trials(model: Cmanp, task: dict[str, Any], seed: int) -> Iterator[Episode]:
    """The training task over inputs that are normal: of the real ones only the scale is known."""
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(2048, model.n_inputs, generator=generator, dtype=torch.float64)
    shift_x, scale_x = np.array(task["x_shift"]), np.array(task["x_scale"])
    shift_y, scale_y = np.array(task["y_shift"]), np.array(task["y_scale"])
    plain = normal.mean(1, keepdim=True).numpy() * scale_y + shift_y
    source = SeriesTask(normal.numpy() * scale_x + shift_x, plain, task)
    while True:
        batch = source.training_batch(1, generator)
        x = torch.cat([batch.x_context, batch.x_target], 1)[0].double().numpy()
        y = torch.cat([batch.y_context, batch.y_target], 1)[0].double().numpy()
        yield Episode(x * scale_x + shift_x, y * scale_y + shift_y, batch.x_context.shape[1])


# No task ------------------------------------------------------------------------------------------


def _smooth(model: Cmanp, scaling_x: Scaling, scaling_y: Scaling, seed: int) -> Episode:
    stream = draw_stream(model, 1, LONG, 8, seed=100 + seed)
    x = torch.cat([stream.x, stream.targets], 1)[0].numpy()
    y = np.pad(stream.y[0].numpy(), ((0, stream.targets.shape[1]), (0, 0)))
    return Episode(
        x * np.array(scaling_x.scale) + np.array(scaling_x.shift),
        y * np.array(scaling_y.scale) + np.array(scaling_y.shift),
        LONG,
    )
