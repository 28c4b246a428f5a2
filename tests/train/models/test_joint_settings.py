"""Settings of models with joint heads: what training predicts together, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from edgefold.runtime.errors import ModelError
from edgefold.train.batch import Batch
from edgefold.train.models.registry import create_model

TINY = {"width": 16, "n_heads": 2, "feedforward": 16}
JOINT = "tnp-nd", "lbanp-nd", "lbanp-end", "cmanp-and"


def batch(n_targets: int = 7) -> Batch:
    random = torch.Generator().manual_seed(0)
    x, y = (torch.randn(2, 6 + n_targets, 1, generator=random) for _ in range(2))
    return Batch(x[:, :6], y[:, :6], x[:, 6:], y[:, 6:])


@torch.no_grad()
@pytest.mark.parametrize("name", JOINT)
def test_all_targets_are_one_block_and_no_random_number_is_drawn(name: str) -> None:
    torch.manual_seed(0)
    model = create_model(name, {**TINY, "trained_blocks": "all"})
    own, random = batch(), torch.Generator().manual_seed(0)
    before = random.get_state()
    found = model.loss(own, random)
    assert torch.equal(random.get_state(), before)
    prediction = model(own.x_context, own.y_context, own.x_target)
    score = model.prediction.log_likelihood(prediction, own.y_target, torch)
    torch.testing.assert_close(found, -score.mean())


@pytest.mark.parametrize("name", JOINT)
@pytest.mark.parametrize("covariance", ["cholesky", "low-rank"])
def test_every_parameter_is_trained(name: str, covariance: str) -> None:
    torch.manual_seed(0)
    model = create_model(name, {**TINY, "covariance": covariance, "least": 0.0})
    torch.autograd.backward(model.loss(batch(), torch.Generator().manual_seed(1)))
    for parameter, tensor in model.named_parameters():
        assert tensor.grad is not None and tensor.grad.isfinite().all(), parameter


@pytest.mark.parametrize(
    ("name", "settings", "named"),
    [
        *((name, {"least": -0.1}, "least") for name in JOINT),
        *((name, {"covariance": "full"}, "covariance") for name in JOINT),
        *((name, {"covariance": "low-rank", "bounded": True}, "bounded") for name in JOINT),
        *((name, {"trained_blocks": "some"}, "trained_blocks") for name in JOINT),
        *((name, {"trained_blocks": "fixed"}, "trained_blocks") for name in JOINT[:3]),
        ("lbanp-end", {"bottleneck": "none"}, "bottleneck"),
        ("lbanp", {"queries": "first-block"}, "queries"),
        ("tnp-a", {"given_noise": -0.05}, "given_noise"),
        ("tnp-a", {"given_noise": float("nan")}, "given_noise"),
    ],
)
def test_settings_that_mean_nothing_are_refused(
    name: str, settings: dict[str, Any], named: str
) -> None:
    with pytest.raises(ModelError, match=named):
        create_model(name, settings)


@pytest.mark.parametrize(
    ("name", "settings", "size"),
    [
        ("perceiver-io", {}, 583_874),
        ("perceiver-io", {"reads_context": "once"}, 375_234),
        ("lbanp", {"queries": "last"}, 583_874),
        ("lbanp-end", {}, 1_094_613),
        ("lbanp-end", {"bottleneck": "post-norm"}, 1_011_861),
        ("tnp-nd", {"covariance": "low-rank"}, 374_294),
        ("lbanp-nd", {"covariance": "low-rank"}, 944_726),
        ("lbanp-end", {"covariance": "low-rank"}, 1_136_086),
    ],
)
def test_sizes_of_the_preset_paper_are_those_of_the_docs(
    name: str, settings: dict[str, Any], size: int
) -> None:
    model = create_model(name, settings, "paper")
    assert sum(parameter.numel() for parameter in model.parameters()) == size
