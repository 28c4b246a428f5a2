"""`paper` is the paper, for models that predict targets jointly, and for variants by settings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from edgefold.runtime.predictions import JointGaussian
from edgefold.train.batch import Batch
from edgefold.train.contract import Prediction, StreamingModel
from edgefold.train.models.attentive.tnp_a import TnpA
from tests.reference import joint_heads, latent_models, transformers
from tests.reference.joint_heads import Joint, log_density
from tests.reference.numpy_layers import Rows, Weights
from tests.reference.subjects import B, M, drawn, published, require_equal, streamed

LOW_RANK = {"covariance": "low-rank"}


def low_rank(reference: Joint) -> Joint:
    return partial(reference, covariance=joint_heads.low_rank)


JOINT: dict[str, tuple[str, dict[str, Any], Joint]] = {
    "tnp-nd": ("tnp-nd", {}, joint_heads.tnp_nd),
    "tnp-nd, bounded": ("tnp-nd", {"bounded": True}, joint_heads.tnp_nd),
    "tnp-nd, low-rank": ("tnp-nd", LOW_RANK, low_rank(joint_heads.tnp_nd)),
    "lbanp-nd": ("lbanp-nd", {}, joint_heads.lbanp_nd),
    "lbanp-nd, low-rank": ("lbanp-nd", LOW_RANK, low_rank(joint_heads.lbanp_nd)),
    "lbanp-nd, last": ("lbanp-nd", {"queries": "last"}, joint_heads.lbanp_last_nd),
    "lbanp-end": ("lbanp-end", {}, joint_heads.lbanp_end),
    "lbanp-end, low-rank": ("lbanp-end", LOW_RANK, low_rank(joint_heads.lbanp_end)),
    "lbanp-end, equations": (
        *("lbanp-end", {"bottleneck": "post-norm"}),
        joint_heads.lbanp_end_equations,
    ),
    "cmanp-and": ("cmanp-and", {}, joint_heads.cmanp_and),
    "cmanp-and, bounded": ("cmanp-and", {"bounded": True}, joint_heads.cmanp_and),
    "cmanp-and, low-rank": ("cmanp-and", LOW_RANK, low_rank(joint_heads.cmanp_and)),
}
SINGLE: dict[str, tuple[str, dict[str, Any], Callable[..., tuple[Rows, Rows]]]] = {
    "lbanp-l": ("lbanp", {"queries": "last"}, latent_models.lbanp_last),
    "lbanp-l, points": (
        *("lbanp", {"queries": "last", "keep": "points"}),
        latent_models.lbanp_last,
    ),
    "perceiver-io": ("perceiver-io", {}, latent_models.perceiver_io),
    "perceiver-io, once": ("perceiver-io", {"reads_context": "once"}, latent_models.perceiver_once),
    "tnp-a, query": ("tnp-a", {}, transformers.tnp_d),
}
KINDS = {**JOINT, **SINGLE}


def built(kind: str) -> StreamingModel:
    name, settings, _ = KINDS[kind]
    return published(name, **settings)


def covariance_of(model: StreamingModel, prediction: Prediction, b: int) -> Rows:
    assert isinstance(model.prediction, JointGaussian)
    of_stream = {name: tensor[b] for name, tensor in prediction.items()}
    factor: Rows = model.prediction.covariance_factor(of_stream, torch).numpy()
    return factor @ factor.T


def require_joint(
    model: StreamingModel, found: Prediction, b: int, expected: tuple[Rows, Rows]
) -> None:
    mean, covariance = expected
    require_equal(found, b, (mean, np.sqrt(np.diagonal(covariance)).reshape(mean.shape)))
    most = np.abs(covariance).max()  # its entries are sums of numbers of this size
    np.testing.assert_allclose(covariance_of(model, found, b), covariance, rtol=0, atol=1e-9 * most)


@torch.no_grad()
@pytest.mark.parametrize("n_points", [1, 2, 11])
@pytest.mark.parametrize("kind", KINDS)
def test_the_published_equations_give_the_predictions(kind: str, n_points: int) -> None:
    model, reference = built(kind), KINDS[kind][2]
    x, y, targets, mask = drawn(n_points)
    batch = model(x, y, targets, mask), mask
    stream = streamed(model, x, y, targets), torch.ones_like(mask)
    for prediction, real in (batch, stream):
        for b in range(B):
            rows = (t.numpy() for t in (x[b][real[b]], y[b][real[b]], targets[b]))
            expected = reference(Weights.of(model), model.config, *rows)
            if kind in JOINT:
                require_joint(model, prediction, b, expected)
            else:
                require_equal(prediction, b, expected)


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_the_device_form_follows(kind: str) -> None:
    model = built(kind).float()
    x, y, targets, _ = (tensor.float() for tensor in drawn(9))
    trained, device = (streamed(form, x, y, targets) for form in (model, model.for_device(B)))
    for name, found in device.items():
        # float32 along some 30 layers, values of some units; a factor has values of some tens.
        torch.testing.assert_close(found, trained[name], rtol=1e-4, atol=1e-4)


def batch_of(n_points: int) -> Batch:
    x, y, targets, mask = drawn(n_points)
    random = torch.Generator().manual_seed(2)
    return Batch(x, y, targets, torch.randn(B, M, 2, generator=random).double(), mask)


def rows_of(batch: Batch, b: int) -> list[Rows]:
    """Inputs and outputs of the real points of stream b, and its targets."""
    assert batch.mask is not None
    real = batch.mask[b]
    own = batch.x_context[b][real], batch.y_context[b][real], batch.x_target[b], batch.y_target[b]
    return [t.numpy() for t in own]


# The covariance of the last one has a condition of 1e10: a density by its definition has 6 digits.
SCORED = [kind for kind in JOINT if kind != "cmanp-and, bounded"]


@torch.no_grad()
@pytest.mark.parametrize("kind", SCORED)
def test_training_scores_all_targets_as_one_block(kind: str) -> None:
    model, reference, batch = built(kind), JOINT[kind][2], batch_of(11)
    scores = []
    for b in range(B):
        x, y, targets, true = rows_of(batch, b)
        expected = reference(Weights.of(model), model.config, x, y, targets)
        scores.append(log_density(true, *expected) / M)
    found = model.loss(batch, torch.Generator()).item()
    assert found == pytest.approx(-np.mean(scores), rel=1e-9)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["cmanp-and", "cmanp-and, low-rank"])
def test_blocks_are_scored_given_the_blocks_before_them(kind: str) -> None:
    """Feng et al. 2024, section 3.3.1 and appendix: earlier blocks are learned as context."""
    model, reference, batch = built(kind), JOINT[kind][2], batch_of(6)
    found = model.log_likelihood(batch)
    block = model.config.block
    for b in range(B):
        x, y, targets, true = rows_of(batch, b)
        total = 0.0
        for at in range(0, M, block):
            rows = slice(at, at + block)
            expected = reference(Weights.of(model), model.config, x, y, targets[rows])
            total += log_density(true[rows], *expected)
            x, y = np.concatenate([x, targets[rows]]), np.concatenate([y, true[rows]])
        assert found[b].item() == pytest.approx(total / M, rel=1e-9)


@torch.no_grad()
@pytest.mark.parametrize("bounded", [False, True])
def test_tnp_a_predicts_each_target_given_those_before(bounded: bool) -> None:
    model, batch = published("tnp-a", bounded=bounded), batch_of(5)
    found = model.log_likelihood(batch)
    noise = torch.randn(batch.y_target.shape, generator=torch.Generator().manual_seed(7)).double()
    loss = model.loss(batch, torch.Generator().manual_seed(7)).item()
    losses = []
    for b in range(B):
        x, y, targets, true = rows_of(batch, b)
        noisy = true + 0.05 * noise[b].numpy() * bounded
        for given, scores in ((true, found[b].numpy()), (noisy, None)):
            mean, std = transformers.tnp_a(Weights.of(model), model.config, x, y, targets, given)
            densities = -0.5 * ((true - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
            if scores is not None:
                np.testing.assert_allclose(scores, densities.sum(-1), rtol=1e-9, atol=1e-9)
        losses.append(-densities.sum(-1).mean())
    assert loss == pytest.approx(np.mean(losses), rel=1e-9)


@pytest.mark.parametrize("permute", [False, True])
def test_tnp_a_samples_in_an_order_of_each_sample(permute: bool) -> None:
    model, batch = published("tnp-a", permute=permute), batch_of(4)
    assert isinstance(model, TnpA)
    context = batch.x_context, batch.y_context, batch.x_target
    found = model.sample(*context, 2, torch.Generator().manual_seed(3), batch.mask)
    random = torch.Generator().manual_seed(3)
    noise = torch.randn(found.shape, generator=random).double()
    for sample in range(2):
        order = torch.randperm(M, generator=random).tolist() if permute else list(range(M))
        for b in range(B):
            x, y, targets, _ = rows_of(batch, b)
            expected = transformers.tnp_a_sample(
                *(Weights.of(model), model.config, x, y, targets),
                *(noise[sample, b].numpy(), order),
            )
            np.testing.assert_allclose(found[sample, b].numpy(), expected, rtol=1e-9, atol=1e-9)
