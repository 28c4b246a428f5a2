"""Draw images as a model completes them from some known pixels."""

from __future__ import annotations

import io
from typing import Protocol

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from edgefold.runtime.errors import DataError
from edgefold.train.contract import StreamingModel
from edgefold.train.tasks.images.image_sources import Images, ImageSet

KNOWN = 0.02, 0.1, 0.3
"""Shares of the pixels that are known, one for each block of three columns of the picture."""
N_IMAGES = 3
PART = 256
"""Number of pixels that are predicted at once."""
UNKNOWN = (0.25, 0.35, 0.55)
"""Colour of pixels that are not known."""


class DrawnImages(Protocol):
    """Names the attributes and the method of an `ImageTask` that a picture needs."""

    images: ImageSet
    size: int

    def points(self, images: Images) -> tuple[Tensor, Tensor]: ...


@torch.inference_mode()
def draw_completions(
    task: DrawnImages, model: StreamingModel, format: str, seed: int, title: str
) -> bytes:
    """Draw for some held-out images the known pixels, the predicted mean and std, and the truth.

    Args:
        task: The task of the model.
        model: The model, in evaluation mode.
        format: File format: png, svg or pdf.
        seed: Seed that chooses the images and the known pixels.
        title: Title of the picture.

    Returns:
        The content of the picture file.

    Raises:
        DataError: The model's predictions have no mean and deviation.
    """
    generator = torch.Generator().manual_seed(seed)
    some = list(task.images.held_out.values())[-1]  # unseen classes, where there are any
    chosen = torch.randperm(len(some), generator=generator)[:N_IMAGES]
    x, y = task.points(np.asarray(some[chosen.numpy()]))
    columns = ("known", "mean", "std")
    n_columns = len(columns) * len(KNOWN) + 1
    figure = Figure(figsize=(1.35 * n_columns, 1.5 * len(chosen) + 0.4))
    grid = figure.subplots(len(chosen), n_columns, squeeze=False)
    truth = _shown(y + 0.5, task.size)
    for block, share in enumerate(KNOWN):
        n = max(1, round(share * len(x)))
        order = torch.rand(len(chosen), len(x), generator=generator).argsort(-1)[:, :n]
        values = y.gather(1, order[..., None].expand(-1, -1, y.shape[-1]))
        mean, std = _predict(model, x[order], values, x)
        is_shown = torch.zeros(len(chosen), len(x), 1).scatter(1, order[..., None], 1.0)
        pictures = (
            np.where(_shown(is_shown, task.size) > 0, truth, UNKNOWN),
            _shown(mean + 0.5, task.size),
            _shown(std.mean(-1, keepdim=True) / std.mean(-1).amax(), task.size),
        )
        for column, some_pictures in enumerate(pictures, len(columns) * block):
            for row, picture in enumerate(some_pictures):
                grid[row, column].imshow(picture)
            title_of = f"{n} known" if column == len(columns) * block else columns[column % 3]
            grid[0, column].set_title(title_of, fontsize=10)
    for row, picture in enumerate(truth):
        grid[row, -1].imshow(picture)
    grid[0, -1].set_title("truth", fontsize=10)
    for axes in grid.flat:
        axes.set_axis_off()
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.02, top=0.84, wspace=0.06, hspace=0.06)
    file = io.BytesIO()
    figure.savefig(file, format=format, dpi=130)
    return file.getvalue()


def _predict(
    model: StreamingModel, x_context: Tensor, y_context: Tensor, x: Tensor
) -> tuple[Tensor, Tensor]:
    """Predict all pixels of some images from the known ones.

    Args:
        model: The model, in evaluation mode.
        x_context: Places of the known pixels, (B, N, 2), scaled.
        y_context: Values of the known pixels, (B, N, C), scaled.
        x: Places of all pixels, (P, 2), scaled.

    Returns:
        Mean and std of all pixels, (B, P, C) each, in scaled units.
    """
    means, stds = [], []
    for part in x.split(PART):
        prediction = model(x_context, y_context, part.expand(len(x_context), -1, -1))
        means.append(model.prediction.center(prediction))
        stds.append(model.prediction.deviation(prediction))
    if means[0] is None or stds[0] is None:
        raise DataError(
            f"predictions of the kind {model.prediction.name} have no mean and deviation to draw."
        )
    return torch.cat(means, 1), torch.cat(stds, 1)


def _shown(values: Tensor, size: int) -> NDArray[np.float64]:
    """Turn values from 0 to 1, (B, P, C), into colour pictures (B, size, size, 3)."""
    pictures = values.double().clamp(0, 1).reshape(len(values), size, size, -1).numpy()
    return np.broadcast_to(pictures, (*pictures.shape[:3], 3))
