"""Muon's steps, and what of a model it moves."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from edgefold.runtime.errors import TrainingError
from edgefold.train.models.registry import create_model
from edgefold.train.muon import Muon, hidden_matrices, orthogonal


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 4, 16), (2, 16, 4)])
def test_singular_values_come_close_to_1_and_vectors_stay(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    left, values, right = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    matrices = (left * values.clamp(min=0.3)[:, None]) @ right
    core = left.mT @ orthogonal(matrices) @ right.mT
    found = core.diagonal(dim1=-2, dim2=-1)
    assert found.min() > 0.6 and found.max() < 1.3  # the quintic's band, 0.7 to 1.2, and float32
    torch.testing.assert_close(core, torch.diag_embed(found), atol=1e-4, rtol=0)


def test_only_matrices_of_hidden_layers_are_muons() -> None:
    model = create_model("cmanp", preset="small")
    names = {id(p): name for name, p in model.named_parameters()}
    found = {names[id(p)] for p in hidden_matrices(model)}
    assert "context_attention.q.weight" in found and "block_ff.0.up.weight" in found
    assert not [name for name in found if "latents" in name or "embedding" in name]
    assert not [name for name in found if "norm" in name or "head_" in name or "bias" in name]


def test_a_resumed_optimiser_takes_the_same_steps() -> None:
    def trained(n_before: int) -> torch.Tensor:
        torch.manual_seed(0)
        model = create_model("cmanp", {"n_latents": 4, "n_blocks": 1}).train()
        optimizer = Muon(model, 1e-2)
        for step in range(4):
            if step == n_before:  # a new optimiser takes over what the first one kept
                kept = optimizer.state_dict()
                optimizer = Muon(model, 1e-2)
                optimizer.load_state_dict(kept)
            x = torch.linspace(-2, 2, 12).reshape(1, 12, 1)
            loss = (model(x[:, :6], x[:, :6].sin(), x)["mean"] - x.sin()).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    assert torch.equal(trained(2), trained(9))


def test_weight_decay_bounds_matrices_that_grow_without_it() -> None:
    """Steps in one direction lead a norm to their size / decay, where it stays."""

    def norms(decay: float) -> list[float]:
        torch.manual_seed(0)
        model = create_model("cmanp", {"n_latents": 4, "n_blocks": 1}).train()
        optimizer = Muon(model, 2e-2, matrix_decay=decay)
        (matrix,) = [p for n, p in model.named_parameters() if n == "context_attention.q.weight"]
        direction, found = torch.eye(*matrix.shape[-2:]).expand_as(matrix), list[float]()
        for _ in range(400):
            optimizer.zero_grad()
            matrix.grad = -direction
            optimizer.step()
            found.append(float(torch.linalg.matrix_norm(matrix.detach(), 2).max()))
        return found

    free, held = norms(0.0), norms(0.5)
    assert free[-1] - free[199] > 2  # 200 steps of 0.02, of at least half that size
    assert held[-1] < 2.5  # Muon's steps are of size 1.2 at most, and 1 / decay is 2
    assert held[-1] == pytest.approx(held[299], rel=0.1)


def test_a_model_without_hidden_layers_is_refused() -> None:
    with pytest.raises(TrainingError, match="hidden"):
        Muon(nn.Linear(2, 2), 1e-3)


def test_a_method_called_hidden_declares_nothing() -> None:
    assert not list(hidden_matrices(create_model("np", {"width": 16})))
