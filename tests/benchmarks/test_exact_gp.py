from __future__ import annotations

import math

import pytest
import torch

from benchmarks.accuracy.exact_gp import draw_known, joint_log_likelihood, log_likelihood
from edgefold.train.tasks.gp import NOISE_STD, Kernel, covariance


@pytest.mark.parametrize("kernel", ["rbf", "matern52"])
def test_the_posteriors_of_one_target_and_of_all_are_ratios_of_joint_densities(
    kernel: Kernel,
) -> None:
    known = draw_known(4, kernel, torch.Generator().manual_seed(5))
    batch, n = known.batch, known.batch.x_context.shape[1]
    found = log_likelihood(known, kernel)

    def joint(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        noise = NOISE_STD**2 * torch.eye(x.shape[1], dtype=torch.float64)
        cov = covariance(x, known.length, known.signal_std, kernel) + noise
        solved = torch.linalg.solve(cov, y)
        log_det = torch.linalg.slogdet(cov).logabsdet
        constant = x.shape[1] * math.log(2 * math.pi)
        return torch.add((y * solved).sum((1, 2)), log_det + constant).mul(-0.5)

    context = batch.x_context.double(), batch.y_context.double()

    def after_context(n_targets: int) -> torch.Tensor:
        targets = batch.x_target[:, :n_targets].double(), batch.y_target[:, :n_targets].double()
        both = (torch.cat(pair, 1) for pair in zip(context, targets, strict=True))
        return joint(*both) - joint(*context)

    n_targets = batch.x_target.shape[1]
    assert n >= 3 and n_targets >= 3
    torch.testing.assert_close(found[:, 0], after_context(1), rtol=1e-6, atol=1e-6)
    share = joint_log_likelihood(known, kernel)[:, 0]
    torch.testing.assert_close(n_targets * share, after_context(n_targets), rtol=1e-6, atol=1e-6)
