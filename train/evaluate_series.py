"""Stream a whole series through a PyTorch model, as a board does: predict, then learn.

    training part: learned in chunks ──> each held-out row: refresh, query(x), then update(x, y)

The forecasts are in the caller's units. Baselines are in `edgefold.runtime.series.forecasters`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.bundle.manifest import n_that_fit
from edgefold.train.contract import StreamingModel, advance, room_of


@torch.inference_mode()
def stream_forecasts(
    model: StreamingModel,
    task: dict[str, Any],
    x: NDArray[np.floating[Any]],
    y: NDArray[np.floating[Any]],
    n_training: int,
    chunk: int = 32,
) -> tuple[FloatArray, FloatArray]:
    """Forecast every point after the first `n_training`, each before it is learned.

    A model whose state is full and refuses more points goes on to predict and learns no more, as on
    a device.

    Args:
        model: The model, in evaluation mode.
        task: Description of the run's task; its scaling is applied here.
        x: Inputs (n, X), raw units.
        y: Outputs (n, Y), raw units.
        n_training: Number of first points, which are only learned.
        chunk: Number of points that are learned at once in the training part.

    Returns:
        Mean and standard deviation of y, each (n - n_training, Y), raw units.
    """

    def scaled(raw: NDArray[np.floating[Any]], shift: list[float], scale: list[float]) -> Tensor:
        return torch.from_numpy((raw - np.array(shift)) / np.array(scale)).float()[None]

    points_x = scaled(x, task["x_shift"], task["x_scale"])  # (1, n, X)
    points_y = scaled(y, task["y_shift"], task["y_scale"])
    state, room = model.initial_state(), room_of(model)
    n_learned = n_that_fit(room, n_training)
    for start in range(0, n_learned, chunk):
        rows = slice(start, min(start + chunk, n_learned))
        written = model.condition(state, points_x[:, rows], points_y[:, rows])
        state = advance(model, state, written)
    means, stds = [], []
    for row in range(n_training, len(x)):
        here = slice(row, row + 1)
        prediction = model.query(model.refresh(state), points_x[:, here])
        means.append(model.prediction.center(prediction)[0, 0])
        stds.append(model.prediction.deviation(prediction)[0, 0])
        if n_learned != room:
            state = advance(model, state, model.update(state, points_x[:, row], points_y[:, row]))
            n_learned += 1
    scale = np.array(task["y_scale"])
    mean = torch.stack(means).double().numpy() * scale + np.array(task["y_shift"])
    return mean, torch.stack(stds).double().numpy() * scale
