"""The bound of the `gp` task: the exact posterior with each task's own hyperparameters.

Scored as the models are: log density of each target by its own normal distribution, or of all
targets by their joint one, mean over targets, tasks and batches of the papers' protocol, on the
very batches that the models are given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from edgefold.train.batch import Batch
from edgefold.train.tasks.gp import NOISE_STD, GpTask, Kernel, covariance


@dataclass(frozen=True, slots=True)
class KnownTask:
    """A batch of the protocol, and what its functions were drawn with, each (B, 1, 1)."""

    batch: Batch
    length: Tensor
    signal_std: Tensor


def draw_known(n_tasks: int, kernel: Kernel, generator: torch.Generator) -> KnownTask:
    """One evaluation batch, and its hyperparameters by repeating the draw's first numbers.

    Raises:
        RuntimeError: The task draws in another order than this function repeats.
    """
    again = torch.Generator()
    again.set_state(generator.get_state())
    batch = GpTask().evaluation_batch(n_tasks, kernel, generator)
    n_points = batch.x_context.shape[1] + batch.x_target.shape[1]
    for high in (47, 50 - batch.x_context.shape[1]):
        torch.randint(3, high, (), generator=again)
    shapes = ((n_tasks, n_points, 1), (n_tasks, 1, 1), (n_tasks, 1, 1))
    x, length, signal = (torch.rand(s, generator=again, dtype=torch.float64) for s in shapes)
    if not torch.equal((4 * x - 2).float(), torch.cat([batch.x_context, batch.x_target], 1)):
        raise RuntimeError("GpTask.evaluation_batch draws otherwise than exact_gp.py repeats.")
    return KnownTask(batch, 0.1 + 0.5 * length, 0.1 + 0.9 * signal)


def posterior(known: KnownTask, kernel: Kernel) -> tuple[Tensor, Tensor]:
    """Error (B, M) of the exact posterior's mean, and its covariance (B, M, M), noise included."""
    batch = known.batch
    n = batch.x_context.shape[1]
    x = torch.cat([batch.x_context, batch.x_target], 1).double()
    prior = covariance(x, known.length, known.signal_std, kernel)
    noise = NOISE_STD**2 * torch.eye(x.shape[1], dtype=torch.float64)
    factor = torch.linalg.cholesky(prior[:, :n, :n] + noise[:n, :n])
    across = prior[:, :n, n:]  # (B, N, M)
    mean = across.mT @ torch.cholesky_solve(batch.y_context.double(), factor)
    explained = across.mT @ torch.cholesky_solve(across, factor)
    error = batch.y_target.double()[..., 0] - mean[..., 0]
    return error, prior[:, n:, n:] - explained + noise[n:, n:]


def log_likelihood(known: KnownTask, kernel: Kernel) -> Tensor:
    """Log density of every target under its exact posterior, (B, M), in nats."""
    error, matrix = posterior(known, kernel)
    variance = matrix.diagonal(dim1=1, dim2=2)
    return -0.5 * (error**2 / variance + torch.log(variance) + math.log(2 * math.pi))


def joint_log_likelihood(known: KnownTask, kernel: Kernel) -> Tensor:
    """Each target's mean share of the joint log density of all targets, (B, 1), in nats."""
    error, matrix = posterior(known, kernel)
    factor = torch.linalg.cholesky(matrix)
    whitened = torch.linalg.solve_triangular(factor, error[..., None], upper=False)[..., 0]
    log_determinant = 2 * torch.log(factor.diagonal(dim1=1, dim2=2))
    shares: Tensor = -0.5 * (whitened**2 + log_determinant + math.log(2 * math.pi))
    return shares.mean(1, keepdim=True)


def score(kernel: Kernel, n_batches: int, seed: int = 1, joint: bool = False) -> dict[str, float]:
    """Mean and standard error over batches; the seed of `edgefold evaluate` by default."""
    generator = torch.Generator().manual_seed(20240606 + seed)  # as in train/tasks/contract.py
    scored = joint_log_likelihood if joint else log_likelihood
    means = torch.stack(
        [scored(draw_known(16, kernel, generator), kernel).mean() for _ in range(n_batches)]
    )
    error = means.std().item() / math.sqrt(n_batches)
    return {"log_likelihood": means.mean().item(), "standard_error": error, "n_batches": n_batches}
