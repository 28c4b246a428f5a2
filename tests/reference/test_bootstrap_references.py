"""`paper` of BNP and BANP is the paper's: both stages in numpy give the models' predictions."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from edgefold.runtime.errors import ModelError
from edgefold.train.batch import Batch
from edgefold.train.contract import SEED
from edgefold.train.models.registry import create_model
from edgefold.train.states.random_numbers import PRIME
from edgefold.train.states.seeded_draws import bootstrap_counts, bootstrap_places
from tests.reference import bootstrapping
from tests.reference.neural_processes import attentive_encodings, pooling_encodings
from tests.reference.numpy_layers import Weights
from tests.reference.subjects import B, drawn, published, require_equal, streamed

REFERENCES = {"bnp": bootstrapping.bnp, "banp": bootstrapping.banp}
ENCODINGS = {"bnp": pooling_encodings, "banp": attentive_encodings}
K = 4


def draws_of(n_points: int, seed: int, counts: Any = "drawn") -> list[Any]:
    """The draws of both stages for one stream of real points, each (K, n_points)."""
    visible, seeds = torch.ones(1, n_points, dtype=torch.bool), torch.tensor([seed])
    both = bootstrap_counts(visible, seeds, K, counts), bootstrap_places(visible, seeds, K)
    return [numbers[0].long().numpy() for numbers in both]


@pytest.mark.parametrize("counts", ["drawn", "poisson"])
@pytest.mark.parametrize("n_points", [1, 2, 11])
@pytest.mark.parametrize("name", REFERENCES)
def test_the_published_equations_give_the_predictions(
    name: str, n_points: int, counts: str
) -> None:
    model = published(name, counts=counts)
    x, y, targets, mask = drawn(n_points)
    with torch.no_grad():
        found = (model(x, y, targets, mask), mask)
        stream = streamed(model, x, y, targets), torch.ones_like(mask)
    for prediction, real in (found, stream):
        for b in range(B):
            rows = [t.numpy() for t in (x[b][real[b]], y[b][real[b]], targets[b])]
            draws = draws_of(len(rows[0]), 0, counts)
            expected = REFERENCES[name](Weights.of(model), model.config, *rows, *draws)
            require_equal(prediction, b, expected)


@pytest.mark.parametrize("name", REFERENCES)
def test_the_published_equations_give_the_loss(name: str) -> None:
    model: Any = published(name)
    x, y, targets, _ = drawn(9)
    y_targets = torch.randn(*targets.shape, generator=torch.Generator().manual_seed(4)).double()
    found = model.loss(Batch(x, y, targets, y_targets), torch.Generator().manual_seed(5))
    seeds = torch.randint(PRIME, (B,), generator=torch.Generator().manual_seed(5)).tolist()
    losses = []
    for b, seed in enumerate(seeds):
        pairs = ((x[b].numpy(), y[b].numpy()), (targets[b].numpy(), y_targets[b].numpy()))
        arguments = ENCODINGS[name], Weights.of(model), model.config
        losses.append(bootstrapping.loss(*arguments, *pairs, *draws_of(9, seed)))
    assert found.item() == pytest.approx(np.mean(losses), rel=1e-9)


@pytest.mark.parametrize("counts", ["drawn", "poisson"])
@pytest.mark.parametrize("when_full", ["refuse", "overwrite", "reservoir"])
@pytest.mark.parametrize("name", REFERENCES)
def test_the_device_form_follows(name: str, when_full: str, counts: str) -> None:
    settings = {"counts": counts, "when_full": when_full, "capacity": 7}
    model = published(name, **settings).float()
    x, y, targets, _ = (tensor.float() for tensor in drawn(7 if when_full == "refuse" else 9))
    with torch.no_grad():
        trained, device = (streamed(form, x, y, targets) for form in (model, model.for_device(B)))
    for kind, found in device.items():
        # float32 along some 30 layers, values of some units; 4e-6 was found.
        torch.testing.assert_close(found, trained[kind], rtol=1e-4, atol=1e-4)


def test_one_stage_is_another_function_of_the_same_weights() -> None:
    two = published("bnp")
    one: Any = published("bnp", stages=1, counts="poisson")
    one.load_state_dict(two.state_dict())
    x, y, targets, _ = drawn(11)
    with torch.no_grad():
        found, expected = one(x, y, targets), two(x, y, targets)
    assert (found["mean"] - expected["mean"]).abs().max() > 1e-3
    assert (one.capacity, two.capacity) == (0, 16)
    assert type(copy.deepcopy(one)) is type(one)


def test_other_forms_are_refused() -> None:
    for settings in ({"stages": 3}, {"counts": "all"}):
        with pytest.raises(ModelError, match="take one of"):
            create_model("bnp", settings)


# Draws -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_points", [0, 1, 5, 16, 40])
def test_drawn_counts_sum_to_the_number_of_points(n_points: int) -> None:
    counts = bootstrap_counts(torch.arange(40)[None] < n_points, torch.tensor([3]), 50, "drawn")
    assert (counts.sum(2) == n_points).all() and not counts[..., n_points:].any()
    assert (counts == counts.round()).all()


def test_drawn_counts_are_those_of_draws_with_replacement() -> None:
    """Each count has mean 1 and variance 1 - 1/N, two of a bootstrap have covariance -1/N."""
    n, k = 10, 20_000
    visible = torch.ones(1, n, dtype=torch.bool)
    counts = bootstrap_counts(visible, torch.tensor([7]), k, "drawn")[0].double()
    covariance = torch.cov(counts.T)
    expected = torch.eye(n) - 1 / n
    # Five standard errors of 20,000 numbers with variances near 1 and fourth moments near 4.
    assert (counts.mean(0) - 1).abs().max() < 5 / np.sqrt(k)
    assert (covariance - expected).abs().max() < 5 * np.sqrt(3 / k)
    places = bootstrap_places(visible, torch.tensor([7]), k)[0]
    again = (places[..., None] == torch.arange(n)).double().sum(1)  # of the second stage
    both = torch.corrcoef(torch.cat([counts, again], 1).T)[:n, n:]
    assert both.abs().max() < 5 / np.sqrt(k)


def test_the_seed_decides_both_stages() -> None:
    model = published("bnp")
    x, y, targets, _ = drawn(9)

    def mean(seed: int) -> Tensor:
        state = model.initial_state(B)
        state = {n: t.double() if t.is_floating_point() else t for n, t in state.items()}
        state = model.condition(state | {SEED: torch.full((B,), seed)}, x, y)
        return model.query(model.refresh(state), targets)["mean"]

    with torch.no_grad():
        assert torch.equal(mean(1), mean(1)) and (mean(1) - mean(2)).abs().max() > 1e-3
