"""Models whose state is a sum over points: CNP, NP, BNP and ConvCNP, and the sums themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from edgefold.export.checks.laws import Law
from edgefold.export.checks.model_laws import MODEL_CHECKS, TorchSubject
from edgefold.train.batch import Batch
from edgefold.train.contract import FINITE, State, StreamingModel, advance
from edgefold.train.models.neural_processes.convcnp import ConvCnp, ConvCnpConfig
from edgefold.train.models.registry import model_class
from edgefold.train.states.running_sums import (
    CONSOLIDATE_EVERY,
    RECENT,
    consolidated,
    empty_sums,
    total_of,
)
from edgefold.train.states.seeded_draws import SeededNoise, bootstrap_weights
from tests.contract import Contract, Subject, hold
from tests.pairwise import leave_out

TINY: dict[str, dict[str, Any]] = {
    "cnp": {"n_inputs": 2, "width": 12},
    "np": {"n_inputs": 2, "n_outputs": 2, "width": 12, "n_samples": 3},
    "bnp": {"n_inputs": 2, "width": 12, "n_samples": 3, "stages": 1, "counts": "poisson"},
    "convcnp": {"points_per_unit": 4, "n_halvings": 2, "n_outputs": 2},
}
PLANE = ConvCnpConfig(2, 2, points_per_unit=4, n_halvings=2, channels=4)


def tiny(name: str, seed: int = 0, **settings: Any) -> Any:
    torch.manual_seed(seed)
    cls: Any = model_class(name)
    model = cls(replace(cls.presets["paper"], **{**TINY[name], **settings})).eval()
    with torch.no_grad():  # untrained encoders hardly hear their points
        for encoder in getattr(model, "encoders", ()):
            encoder.of_mean[0].weight.mul_(30)
    return model


def draw(n: int, model: StreamingModel, n_streams: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    x = torch.rand(n_streams, n, model.n_inputs, generator=generator) * 4 - 2
    y = torch.sin(2 * x.sum(-1, keepdim=True)).expand(-1, -1, model.n_outputs)
    return x, y + 0.1 * torch.randn(y.shape, generator=generator)


class TestContract(Contract):
    n_steps = 5 * CONSOLIDATE_EVERY

    @pytest.fixture(params=leave_out([*TINY, "plane"], ["cnp", "bnp", "convcnp"]))
    def subject(self, request: pytest.FixtureRequest) -> Subject:
        name = request.param
        return TorchSubject(ConvCnp(PLANE).eval() if name == "plane" else tiny(name), 2)

    @pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.name)
    def test_the_model_keeps_the_contract(self, subject: Subject, check: Law) -> None:
        hold(check, subject)


@pytest.mark.parametrize(("name", "n"), [("cnp", 215_682), ("np", 232_194), ("bnp", 248_450)])
def test_paper_presets_have_the_published_number_of_parameters(name: str, n: int) -> None:
    cls: Any = model_class(name)
    assert sum(p.numel() for p in cls(cls.presets["paper"]).parameters()) == n


def test_convcnp_has_the_published_unet() -> None:
    """Weights and biases of layers 5 wide: 8, 8, 16, 16, 32, 32, 64 channels down, and back up."""
    unet = ConvCnp(ConvCnp.presets["paper"]).unet
    widths = [(8, 8), (8, 16), (16, 16), (16, 32), (32, 32), (32, 64)]
    widths += [(64, 32), (64, 32), (64, 16), (32, 16), (32, 8), (16, 8)]
    expected = sum(before * after * 5 + after for before, after in widths)
    assert sum(p.numel() for p in unet.parameters()) == expected


@pytest.mark.parametrize("name", TINY)
def test_gradients_of_the_loss_reach_every_parameter_and_repeat(name: str) -> None:
    model = tiny(name)
    x, y = draw(11, model)
    mask = torch.ones(2, 7, dtype=torch.bool)
    mask[0, 4:] = False
    hidden_x, hidden_y = (torch.where(mask[..., None], t[:, :7], torch.nan) for t in (x, y))
    batch = Batch(hidden_x, hidden_y, x[:, 7:], y[:, 7:], mask)
    losses = [model.loss(batch, torch.Generator().manual_seed(5)) for _ in range(2)]
    assert losses[0] == losses[1]
    losses[0].backward()
    silent = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not silent


@pytest.mark.parametrize("name", TINY)
def test_a_point_that_is_not_a_number_is_reported_by_a_device(name: str) -> None:
    model = tiny(name).for_device(2)
    x, y = draw(3, model)
    x[1, 2] = torch.nan
    written = model.condition(model.initial_state(2), x, y)
    found = written.get(FINITE, written[RECENT].flatten(1).sum(1))
    assert torch.isfinite(found).tolist() == [True, False]


# Sums ------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_mean_over_two_million_points_is_right_to_a_millionth() -> None:
    n_chunks = 1 << 14
    values = np.random.default_rng(0).uniform(0, 2, (n_chunks, CONSOLIDATE_EVERY))
    values = values.astype(np.float32)
    recent = torch.zeros(n_chunks, 2)
    for column in torch.tensor(values).T:  # as updates add them, all chunks at once
        recent = recent + torch.stack([column, torch.ones(n_chunks)], 1)
    state = empty_sums(1, 2)
    plain = torch.zeros(2)
    for chunk in recent:
        state = consolidated({**state, RECENT: chunk[None]})
        plain = plain + chunk
    total, count = total_of(state)[0].double()
    assert count == values.size
    expected = values.mean(dtype=np.float64)
    assert abs(total / count - expected) < 1e-6 * expected
    assert not state[RECENT].any()


def test_a_count_goes_on_where_float32_stops_counting() -> None:
    state: State = empty_sums(1, 1)
    state["base_sums"] = state["base_sums"] + 2.0**30
    for _ in range(1000):
        state = consolidated({**state, RECENT: torch.ones(1, 1)})
    exact = state["base_sums"].double() + state["rest_sums"].double()
    assert exact.item() == 2**30 + 1000
    assert (torch.tensor(2.0**30) + 1) == 2.0**30


# Draws -----------------------------------------------------------------------------------------


def test_bootstrap_weights_are_poisson_and_do_not_depend_on_the_chunk() -> None:
    place, seed = torch.arange(20_000)[None], torch.tensor([7])
    weights = bootstrap_weights(place, seed, 10)
    assert (weights[..., 0] == 1).all()
    drawn = weights[0, :, 1:].double()
    # Five standard errors of 200,000 numbers: of a mean 1.1e-2, of a variance 2e-2.
    assert abs(drawn.mean() - 1) < 1.1e-2 and abs(drawn.var() - 1) < 2e-2
    assert abs((drawn == 0).double().mean() - np.exp(-1)) < 6e-3
    assert torch.corrcoef(drawn.T).fill_diagonal_(0).abs().max() < 0.04  # 5.5 / sqrt(20,000)
    torch.testing.assert_close(bootstrap_weights(place[:, 50:], seed, 10), weights[:, 50:])
    other = bootstrap_weights(place, seed + 1, 10)[0, :, 1:].double()
    assert abs(torch.corrcoef(torch.stack([other.flatten(), drawn.flatten()]))[0, 1]) < 0.012


def test_noise_is_normal_for_each_seed_and_uncorrelated_between_seeds() -> None:
    noise = SeededNoise(64, 512)(torch.tensor([0, 1, 1]))
    torch.testing.assert_close(noise[1], noise[2], rtol=0, atol=0)
    one, two = noise[0].flatten(), noise[1].flatten()
    # Five standard errors of 32,768 numbers; the angles of 512 columns correlate the seeds.
    assert abs(one.mean()) < 0.028 and abs(one.var() - 1) < 0.04
    assert abs(torch.corrcoef(torch.stack([one, two]))[0, 1]) < 5 * 0.71 / np.sqrt(512)


@pytest.mark.parametrize("name", ["np", "bnp"])
def test_the_seed_chooses_the_samples(name: str) -> None:
    model = tiny(name).for_device(2)
    x, y = draw(9, model)
    x, y = x[:1].expand(2, -1, -1), y[:1].expand(2, -1, -1)
    state = model.initial_state(2)
    state["seed"] = torch.tensor([3, 4])
    with torch.inference_mode():
        state = advance(model, state, model.condition(state, x, y))
        mean = model.query(model.refresh(state), x)["mean"]
    assert (mean[0] - mean[1]).abs().max() > 1e-4


def test_a_bootstrap_without_points_is_the_context() -> None:
    model = tiny("bnp", n_samples=8)
    x, y = draw(1, model, 1)
    with torch.inference_mode():
        state = advance(
            model, model.initial_state(1), model.update(model.initial_state(1), x[:, 0], y[:, 0])
        )
        assert (state["count"][:, 1:] == 0).any()
        told = model.query(model.refresh(state), x)["mean"][0, 0]
        empty = state["count"][0, 1:] == 0
        context, encoders = model.context_of(state), model.encoders
        base, each = model.first_layers(context, encoders.pooled(*context))
        means = state["sums"][:, 0]
        encoded = torch.cat([encoders.first(means), encoders.pooled(means)], -1)[:, 0]
        expected = (base[0] + model.decoder.part(encoded, bootstrapped=True)).expand(
            int(empty.sum()), -1
        )
    torch.testing.assert_close(each[0, empty], expected)
    assert torch.isfinite(told).all()


# ConvCNP ---------------------------------------------------------------------------------------


def test_shifting_points_and_targets_by_whole_halvings_shifts_the_prediction() -> None:
    """Translation equivariance, away from the grid's ends."""
    torch.manual_seed(0)
    model = ConvCnp(ConvCnpConfig(points_per_unit=8, n_halvings=2, margin=4.0)).eval()
    x, y = draw(6, model, 1)
    x, asked = x / 4, torch.linspace(-0.5, 0.5, 5)[None, :, None]
    shift = 4 / 8  # four nodes
    with torch.inference_mode():
        here, there = model(x, y, asked), model(x + shift, y, asked + shift)
    for name in here:
        torch.testing.assert_close(here[name], there[name], rtol=0, atol=1e-5)


def test_a_grid_has_one_or_two_axes() -> None:
    with pytest.raises(ValueError, match="n_inputs"):
        ConvCnpConfig(n_inputs=3)
