"""Heads that predict targets jointly: their size, their units, and what a mask hides."""

from __future__ import annotations

import pytest
import torch

from edgefold.train.layers.joint_head import BottleneckAttention, JointHead, TargetAttention

WIDTH, HEADS, OUTPUTS = 16, 2, 2


def heads() -> list[JointHead]:
    torch.manual_seed(0)
    kinds = TargetAttention(WIDTH, HEADS, 24), BottleneckAttention(WIDTH, HEADS, 5, 24)
    return [JointHead(attention, WIDTH, OUTPUTS, hidden=24) for attention in kinds]


def test_the_published_head_has_its_parameters() -> None:
    head = JointHead(TargetAttention(64, 4), 64, 1)
    assert sum(p.numel() for p in head.parameters()) == 119_317


@pytest.mark.parametrize("head", heads(), ids=["attention", "bottleneck"])
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


@pytest.mark.parametrize("head", heads(), ids=["attention", "bottleneck"])
@torch.no_grad()
def test_the_factor_is_that_of_the_paper(head: JointHead) -> None:
    told = head(torch.randn(2, 4, WIDTH))
    rows = told["factor"].flatten(1, 2)
    lower = (rows @ rows.mT).tril() + 1e-4 * torch.eye(4 * OUTPUTS)
    torch.testing.assert_close(head.kind.covariance_factor(told, torch), lower)


@pytest.mark.parametrize("head", heads(), ids=["attention", "bottleneck"])
def test_every_parameter_learns_from_the_joint_likelihood(head: JointHead) -> None:
    told = head(torch.randn(2, 4, WIDTH))
    head.kind.log_likelihood(told, torch.randn(2, 4, OUTPUTS), torch).sum().backward()
    for name, parameter in head.named_parameters():
        if name.endswith("k.bias"):  # it shifts all scores of a row alike, which changes nothing
            continue
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name
