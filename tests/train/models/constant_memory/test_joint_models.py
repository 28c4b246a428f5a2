"""Models with joint predictions: their size, and CMANP-AND's likelihood block by block."""

from __future__ import annotations

import pytest
import torch

from edgefold.train.batch import Batch
from edgefold.train.layers.joint_head import drawn_block
from edgefold.train.models.constant_memory.cmanp_and import CmanpAnd, CmanpAndConfig
from edgefold.train.models.registry import create_model

TINY = CmanpAndConfig(n_blocks=2, width=16, n_heads=2, n_latents=6, feedforward=12)
PREDICTOR = 8_578  # of the plain models, which the authors' joint ones hold and do not use


@pytest.mark.parametrize(
    ("name", "settings", "published"),
    [
        ("lbanp-nd", {}, 911_831),
        ("cmanp-and", {"embedding": "mlp", "latents": "normal"}, 1_460_951),
    ],
)
def test_the_published_size_has_its_parameters(
    name: str, settings: dict[str, str], published: int
) -> None:
    model = create_model(name, settings, "paper")
    assert sum(p.numel() for p in model.parameters()) == published - PREDICTOR


def drawn(n_targets: int) -> tuple[CmanpAnd, Batch]:
    torch.manual_seed(3)
    model, x, y = CmanpAnd(TINY).eval(), torch.randn(2, 20, 1), torch.randn(2, 20, 1)
    mask = torch.ones(2, 8, dtype=torch.bool)
    mask[0, 5:] = False
    return model, Batch(x[:, :8], y[:, :8], x[:, 8 : 8 + n_targets], y[:, 8 : 8 + n_targets], mask)


@torch.no_grad()
def test_blocks_are_predicted_given_the_true_values_of_earlier_ones() -> None:
    model, batch = drawn(12)
    total, start = torch.zeros(2), 8
    x = torch.cat([batch.x_context, batch.x_target], 1)
    y = torch.cat([batch.y_context, batch.y_target], 1)
    seen = torch.ones(2, 20, dtype=torch.bool)
    seen[0, 5:8] = False
    for n in (5, 5, 2):
        rows = slice(start, start + n)
        told = model(x[:, :start], y[:, :start], x[:, rows], seen[:, :start])
        share = model.prediction.log_likelihood(told, y[:, rows], torch)
        total, start = total + n * share[:, 0], start + n
    found = model.log_likelihood(batch)
    assert found.shape == (2, 1)
    # The running attention sums in another order: some float32 roundings of scores around 1.
    torch.testing.assert_close(found[:, 0], total / 12, rtol=1e-5, atol=1e-5)


def test_training_and_one_block_score_all_targets_jointly() -> None:
    model, batch = drawn(5)
    loss = model.loss(batch, torch.Generator())
    torch.autograd.backward(loss)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    torch.testing.assert_close(-loss, model.log_likelihood(batch).mean(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["tnp-nd", "lbanp-nd", "lbanp-end"])
@pytest.mark.parametrize("seed", [0, 1, 2])
@torch.no_grad()
def test_a_step_trains_blocks_of_targets_each_given_the_context_alone(name: str, seed: int) -> None:
    torch.manual_seed(seed)
    model = create_model(name).eval()
    _, batch = drawn(7)
    block = drawn_block(7, torch.Generator().manual_seed(seed))
    total = 0.0
    for first in range(0, 7, block):
        rows = slice(first, first + block)
        x, y = batch.x_target[:, rows], batch.y_target[:, rows]
        part = Batch(batch.x_context, batch.y_context, x, y, batch.mask)
        total += x.shape[1] * model.log_likelihood(part).mean().item()
    found = model.loss(batch, torch.Generator().manual_seed(seed)).item()
    assert found == pytest.approx(-total / 7, rel=1e-5)


def test_blocks_of_all_sizes_are_drawn_and_small_ones_as_often_as_large_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = [drawn_block(48, generator) for _ in range(4000)]
    assert set(sizes) == set(range(1, 49))
    small = sum(size < 7 for size in sizes) / len(sizes)  # 7 is the root of 49
    assert small == pytest.approx(0.5, abs=0.03)  # four standard errors
