from __future__ import annotations

import math

import pytest
import torch

from benchmarks.exact_gp import draw_known, log_likelihood
from edgefold.train.tasks.gp import NOISE_STD, Kernel, covariance


@pytest.mark.parametrize("kernel", ["rbf", "matern52"])
def test_the_posterior_of_one_target_is_a_ratio_of_joint_densities(kernel: Kernel) -> None:
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
    both = (
        torch.cat([a, b[:, :1].double()], 1)
        for a, b in zip(context, (batch.x_target, batch.y_target), strict=True)
    )
    expected = joint(*both) - joint(*context)
    assert n >= 3
    torch.testing.assert_close(found[:, 0], expected, rtol=1e-6, atol=1e-6)
