"""Poisson and Hawkes processes against their textbook formulas, summed event by event."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

from edgefold.runtime.errors import ModelError
from edgefold.train.contract import advance
from edgefold.train.models.events.event_model import EventModel, event_batch
from edgefold.train.models.events.hawkes import Hawkes, HawkesConfig
from edgefold.train.models.events.poisson import Poisson, PoissonConfig
from edgefold.train.models.registry import create_model
from edgefold.train.states.decayed_sums import decayed_sums

MODELS = {"poisson": {}, "hawkes": {"n_decays": 2}}


def random_events(n: int, n_marks: int = 3, n_streams: int = 2) -> torch.Tensor:
    random = np.random.default_rng(0)
    gaps = random.exponential(size=(n_streams, n)) * random.choice([0.01, 1, 5], (n_streams, n))
    marks = random.integers(0, n_marks, (n_streams, n))
    return torch.tensor(np.stack([gaps, marks], -1)).float()


def scattered_hawkes(n_decays: int) -> Hawkes:
    torch.manual_seed(1)
    model = Hawkes(HawkesConfig(3, n_decays)).eval()
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(torch.randn_like(weights))
    return model


def intensities(model: Hawkes, events: np.ndarray, time: float) -> np.ndarray:
    """(K,), float64, of all events before a time, from their definition."""

    def positive(weights: torch.Tensor) -> np.ndarray:
        return softplus(weights.detach().double()).numpy()

    base, caused = positive(model.raw_base), positive(model.raw_caused)
    decay, found, moment = positive(model.raw_decay), base, 0.0
    for gap, mark in events:
        moment += gap
        if moment < time:
            found = found + (caused[int(mark)] * decay * np.exp(-decay * (time - moment))).sum(-1)
    return found


@pytest.mark.parametrize("n_decays", [1, 2])
def test_the_hawkes_likelihood_is_the_intensity_and_its_integral(n_decays: int) -> None:
    model = scattered_hawkes(n_decays)
    events = random_events(12, n_streams=1)
    found = model.event_log_likelihood(events)[0].detach().numpy()
    rows, moment = events[0].double().numpy(), 0.0
    for index, (gap, mark) in enumerate(rows):
        nodes, weights = np.polynomial.legendre.leggauss(200)
        times = moment + gap * (nodes + 1) / 2
        before = rows[:index]
        integral = sum(
            weight * gap / 2 * intensities(model, before, time).sum()
            for weight, time in zip(weights, times, strict=True)
        )
        moment += gap
        expected = math.log(intensities(model, before, moment)[int(mark)]) - integral
        assert found[index] == pytest.approx(expected, abs=1e-4)  # float32 and quadrature


def test_quantiles_of_a_hawkes_gap_hold_their_share_of_the_probability() -> None:
    model = scattered_hawkes(2)
    events = random_events(30, n_streams=1)
    state = model.initial_state()
    for row in range(30):
        written, told = model.step(state, events[:, row])
        state = advance(model, state, written)
        rows = events[0, : row + 1].double().numpy()
        start, median = rows[:, 0].sum(), told["gap_quantiles"][0, 2, 0].item()
        nodes, weights = np.polynomial.legendre.leggauss(60)
        times = start + 1e-9 + median * (nodes + 1) / 2
        area = sum(
            weight * median / 2 * intensities(model, rows, time).sum()
            for weight, time in zip(weights, times, strict=True)
        )
        assert 1 - math.exp(-area) == pytest.approx(0.5, abs=2e-3)  # quadrature of a steep start
        gaps = told["gap_quantiles"][0, :, 0]
        assert (gaps.diff() > 0).all()


def test_newton_s_steps_suffice_for_parameters_of_any_size() -> None:
    random, n = np.random.default_rng(0), 300
    for _ in range(n):
        model = Hawkes(HawkesConfig(2, 2)).double()
        base, decay = 10 ** random.uniform(-4, 2, 2), 10 ** random.uniform(-2, 1, 2)
        excitation = 10 ** random.uniform(-4, 4, (1, 2, 2))
        model.raw_base.data = torch.tensor(base).expm1().log()
        model.raw_decay.data = torch.tensor(decay).expm1().log()
        gaps = model._predict(torch.tensor(excitation))["gap_quantiles"][0, :, 0].detach().numpy()
        fallen = -np.expm1(-gaps[:, None] * decay) / decay
        area = base.sum() * gaps + (excitation[0].sum(0) * fallen).sum(-1)
        # 2e-8 is the rounding of the levels to float32
        np.testing.assert_allclose(1 - np.exp(-area), model.levels, atol=1e-7)


def test_marks_have_the_shares_of_many_simulated_next_events() -> None:
    model = Hawkes.of(
        torch.tensor([0.2, 0.1]), torch.tensor([[0.1, 0.8], [0.3, 0.2]]), torch.tensor([3.0])
    )
    _, told = model.step(model.initial_state(), torch.tensor([[1.0, 0.0]]))
    # of 0: base 0.2 and 0.3 exp(-3 t) from the event; of 1: base 0.1 and 2.4 exp(-3 t)
    times = np.linspace(0, 60, 600_001)
    both = [0.2 + 0.3 * np.exp(-3 * times), 0.1 + 2.4 * np.exp(-3 * times)]
    survival = np.exp(-(0.3 * times + 0.9 * (1 - np.exp(-3 * times))))
    expected = [np.trapezoid(one * survival, times) for one in both]
    found = told["mark_probabilities"][0].detach().numpy()
    np.testing.assert_allclose(found, expected, atol=2e-3)  # a rule of eight nodes
    assert found.sum() == pytest.approx(1, abs=1e-6)


def test_the_poisson_model_predicts_as_the_gamma_prior_says() -> None:
    model = Poisson(PoissonConfig(2, memory=10**6)).eval()
    events = torch.tensor([[[0.5, 0.0], [1.5, 1.0], [0.1, 0.0]]])
    found = model.event_log_likelihood(events)[0].tolist()
    a, b = [5.0, 5.0], 10.0  # the prior's first values
    for log_density, (gap, mark) in zip(found, events[0].tolist(), strict=True):
        total = sum(a)
        expected = math.log(a[int(mark)]) + total * math.log(b) - (total + 1) * math.log(b + gap)
        assert log_density == pytest.approx(expected, abs=1e-4)
        a[int(mark)] += 1
        b += gap


def test_a_fitted_poisson_process_has_constant_rates() -> None:
    events = random_events(500)[0]
    model = Poisson.fitted(events, 3)
    found = model.event_log_likelihood(events[None])[0]
    rates = torch.bincount(events[:, 1].long()) / events[:, 0].sum()
    expected = rates[events[:, 1].long()].log() - rates.sum() * events[:, 0]
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=1e-4)  # log1p of 1e-9 parts
    better = model.event_log_likelihood(events[None]).mean()
    model.raw_time.data *= 1.1
    assert model.event_log_likelihood(events[None]).mean() < better


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "event", [(-0.1, 0), (1, -1), (1, 3), (math.nan, 0), (1, math.nan), (math.inf, 1)]
)
def test_an_impossible_event_is_refused(name: str, event: tuple[float, float]) -> None:
    model = create_model(name, MODELS[name])
    written, _ = model.step(model.initial_state(), torch.tensor([event]))
    assert not torch.isfinite(written["finite"]).any()


@pytest.mark.parametrize("name", MODELS)
def test_padding_changes_nothing_and_does_not_count(name: str) -> None:
    model = create_model(name, MODELS[name])
    assert isinstance(model, EventModel)
    events, mask = random_events(8), torch.ones(2, 8, dtype=torch.bool)
    mask[1, 5:] = False
    padded = torch.where(mask[..., None], events, 7.7)
    found = model.log_likelihood(event_batch(padded, mask))
    alone = [model.event_log_likelihood(events[:1]), model.event_log_likelihood(events[1:, :5])]
    torch.testing.assert_close(found, torch.cat([part[0] for part in alone]))
    loss = model.loss(event_batch(padded, mask), torch.Generator())
    assert loss.item() == pytest.approx(-found.mean().item())


@pytest.mark.parametrize("name", MODELS)
def test_events_at_the_same_moment_and_long_silences_stay_finite(name: str) -> None:
    model = create_model(name, MODELS[name])
    state, generator = model.initial_state(), torch.Generator().manual_seed(0)
    for row in range(300):
        gap = 0.0 if row < 200 else 1e6
        mark = torch.randint(0, 3, (1,), generator=generator)
        written, told = model.step(state, torch.tensor([[gap, float(mark)]]))
        state = advance(model, state, written)
        assert all(torch.isfinite(tensor).all() for tensor in (*written.values(), *told.values()))
        assert (told["gap_quantiles"] > 0).all()


def test_sums_of_all_events_at_once_are_those_of_a_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.rand(2, 37, 3, 2, generator=generator)
    stays = torch.rand(2, 37, 1, 2, generator=generator)
    total = torch.zeros(2, 3, 2)
    for row, found in enumerate(decayed_sums(values, stays).unbind(1)):
        torch.testing.assert_close(found, total)
        total = stays[:, row] * total + values[:, row]


@pytest.mark.parametrize(
    ("name", "settings"), [("hawkes", {"n_decays": 0}), ("poisson", {"levels": (0.5, 0.1)})]
)
def test_impossible_settings_are_refused(name: str, settings: dict[str, object]) -> None:
    with pytest.raises(ModelError):
        create_model(name, settings)
