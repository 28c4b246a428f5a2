"""The papers' evaluation of meta-regression: mean log-likelihood of the targets, per kernel.

Score = mean over batches of the batch's mean log-likelihood, 3,000 batches of 16 by default, RBF
and Matern 5/2 over the same draws of sizes and hyperparameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from tqdm import tqdm

from edgefold.train.models.contract import Gaussian, StreamingModel
from edgefold.train.tasks.contract import Batch
from edgefold.train.tasks.gp import GpTask, Kernel


@dataclass(frozen=True, slots=True)
class Score:
    """Mean log-likelihood in nats a target and its standard error over batches."""

    log_likelihood: float
    standard_error: float
    n_batches: int


@torch.inference_mode()
def score_gp(
    model: StreamingModel, kernel: Kernel, n_batches: int = 3000, batch: int = 16, seed: int = 1
) -> Score:
    """The papers' score of a 1-D model under one kernel; the seed is not one of training's."""
    generator = torch.Generator().manual_seed((seed << 32) + 20240607)
    task = GpTask()
    device = next(model.parameters()).device
    scores = torch.empty(n_batches, dtype=torch.float64)
    for index in tqdm(range(n_batches), desc=f"evaluate {kernel}", leave=False, disable=None):
        tasks = task.evaluation_batch(batch, kernel, generator).to(device)
        scores[index] = _predict(model, tasks).log_likelihood(tasks.y_target).mean()
    error = scores.std().item() / math.sqrt(n_batches) if n_batches > 1 else math.nan
    return Score(scores.mean().item(), error, n_batches)


def _predict(model: StreamingModel, tasks: Batch) -> Gaussian:
    prediction: Gaussian = model(tasks.x_context, tasks.y_context, tasks.x_target, tasks.mask)
    return prediction
