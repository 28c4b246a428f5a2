"""Heads that predict targets jointly: their size, their units, and what a mask hides."""

from __future__ import annotations

import pytest
import torch

from edgefold.runtime.predictions import JointGaussian
from edgefold.train.layers.joint_head import RANK, BottleneckAttention, JointHead, TargetAttention

WIDTH, HEADS, OUTPUTS = 16, 2, 2


def heads() -> list[JointHead]:
    torch.manual_seed(0)
    kinds = TargetAttention(WIDTH, HEADS, 24), BottleneckAttention(WIDTH, HEADS, 5, 24)
    cholesky, low_rank = JointGaussian(RANK), JointGaussian(RANK, covariance="low-rank")
    return [
        *(JointHead(attention, WIDTH, cholesky, OUTPUTS, hidden=24) for attention in kinds),
        JointHead(TargetAttention(WIDTH, HEADS, 24), WIDTH, low_rank, OUTPUTS, hidden=24),
    ]


IDS = ["attention", "bottleneck", "low-rank"]


def test_the_published_head_has_its_parameters() -> None:
    head = JointHead(TargetAttention(64, 4), 64, JointGaussian(RANK), 1)
    assert sum(p.numel() for p in head.parameters()) == 119_317
    low_rank = JointGaussian(RANK, covariance="low-rank")
    head = JointHead(TargetAttention(64, 4), 64, low_rank, 1)
    more = (64 + 1) * 128 + 2 * (128 + 1) * 128 + (128 + 1)  # the MLP of the diagonal
    assert sum(p.numel() for p in head.parameters()) == 119_317 + more


@pytest.mark.parametrize("head", heads(), ids=IDS)
@torch.no_grad()
def test_hidden_targets_change_no_other(head: JointHead) -> None:
    targets = torch.randn(3, 6, WIDTH)
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 0, 1, 0, 1, 1], [0, 0, 0, 1, 1, 1]]).bool()
    told = head(targets, mask)
    for stream, kept in enumerate(mask):
        alone = head(targets[stream : stream + 1, kept])
        for name, expected in alone.items():
            # Sums of 24 numbers around 1 in another order.
            torch.testing.assert_close(
                told[name][stream : stream + 1, kept], expected, rtol=0, atol=2e-6
            )


@pytest.mark.parametrize("head", heads()[:2], ids=IDS[:2])
@torch.no_grad()
def test_the_factor_is_that_of_the_paper(head: JointHead) -> None:
    told = head(torch.randn(2, 4, WIDTH))
    rows = told["factor"].flatten(1, 2)
    lower = (rows @ rows.mT).tril() + 1e-4 * torch.eye(4 * OUTPUTS)
    torch.testing.assert_close(head.kind.covariance_factor(told, torch), lower)


@torch.no_grad()
def test_a_published_factor_has_no_least_diagonal() -> None:
    attention = TargetAttention(WIDTH, HEADS, 24)
    head = JointHead(attention, WIDTH, JointGaussian(RANK, least=0.0), OUTPUTS, hidden=24)
    told = head(torch.randn(2, 4, WIDTH))
    rows = told["factor"].flatten(1, 2)
    torch.testing.assert_close(head.kind.covariance_factor(told, torch), (rows @ rows.mT).tril())


@torch.no_grad()
def test_a_low_rank_covariance_is_that_of_the_published_code() -> None:
    head, targets = heads()[2], torch.randn(2, 4, WIDTH)
    told = head(targets)
    assert head.diagonal is not None
    rows = head.projector(head.attention(targets, None)).unflatten(-1, (-1, RANK)).flatten(1, 2)
    own = head.diagonal(targets).exp().flatten(1)
    factor = head.kind.covariance_factor(told, torch)
    torch.testing.assert_close(factor @ factor.mT, rows @ rows.mT + torch.diag_embed(own))


@pytest.mark.parametrize("head", heads(), ids=IDS)
def test_every_parameter_learns_from_the_joint_likelihood(head: JointHead) -> None:
    told = head(torch.randn(2, 4, WIDTH))
    head.kind.log_likelihood(told, torch.randn(2, 4, OUTPUTS), torch).sum().backward()
    for name, parameter in head.named_parameters():
        if name.endswith("k.bias"):  # it shifts all scores of a row alike, which changes nothing
            continue
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name
