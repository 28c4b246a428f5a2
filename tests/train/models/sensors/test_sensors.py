"""The general model of sensors: calibration, bounds, and its parts against plain definitions."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from edgefold.runtime import Stream
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from edgefold.train import Batch, load_model
from edgefold.train.contract import StreamingModel, follow
from edgefold.train.models.sensors.expert_weights import Portfolio, first_weights
from edgefold.train.models.sensors.features import N_FEATURES, normal_score
from edgefold.train.models.sensors.mixture import Mixture
from edgefold.train.models.sensors.model import HORIZONS, Sensors, SensorsConfig
from edgefold.train.models.sensors.network import Network, Normals
from edgefold.train.tasks.sensors.sensor_processes import wander

SMALL = SensorsConfig(longest=48, values=192, width=16, n_heads=2, n_latents=4)
SEASON = 24
ROOT = Path(__file__).parents[4]


@cache
def sensors() -> Sensors:
    """A small model whose network has learned nothing."""
    torch.manual_seed(0)
    return Sensors(SMALL).eval()


def rows_of(values: np.ndarray, season: int = 0) -> Tensor:
    """Measured rows of values (B, T): (B, T, 4)."""
    phase = np.arange(values.shape[1]) % max(season, 1)
    columns = (values, np.ones_like(values), np.full_like(values, season), phase + 0 * values)
    return torch.from_numpy(np.stack(columns, -1).astype(np.float32))


def answers(rows: Tensor, model: StreamingModel | None = None) -> dict[str, Tensor]:
    """What the model predicts of each row, (B, T, *shape)."""
    model = model or sensors()
    with torch.inference_mode():
        state, predicted = follow(model, model.initial_state(len(rows)), rows)
    assert all(tensor.isfinite().all() for tensor in state.values())
    return predicted


def made_up(n: int = 900) -> np.ndarray:
    """Three streams: a season with noise, a walk, and noise with outliers."""
    random = np.random.default_rng(0)
    t = np.arange(n)
    season = 3 * np.sin(2 * np.pi * t / SEASON) + 0.3 * random.normal(size=n)
    outliers = 20 * (random.random(n) < 0.01)
    return np.stack(
        [season, np.cumsum(random.normal(size=n)), 7 + (1 + outliers) * random.normal(size=n)]
    )


def side_by_side(streams: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Answers to named batches of rows, run as one: a stream more costs hardly any time.

    Streams do not see each other, and rows that are appended to a shorter one come after its own.
    """
    n = max(rows.shape[1] for rows in streams.values())
    padded = [functional.pad(rows, (0, 0, 0, n - rows.shape[1])) for rows in streams.values()]
    together = answers(torch.cat(padded))
    n_streams = [len(rows) for rows in streams.values()]
    parts = {name: torch.split(tensor, n_streams) for name, tensor in together.items()}
    return {
        stream: {name: part[index][:, : rows.shape[1]] for name, part in parts.items()}
        for index, (stream, rows) in enumerate(streams.items())
    }


HOSTILE = slice(500, 900)
"""Rows among which the streams of the two functions below hold hostile values."""
N_HOSTILE = 1400
BEFORE, AFTER = slice(200, 500), slice(1100, 1400)
"""Rows that are compared: those before, and those that begin 200 rows after the hostile ones."""


def sometimes_hostile() -> np.ndarray:
    """The streams of `made_up` with a tenth of the rows hostile."""
    values, random = made_up(N_HOSTILE), np.random.default_rng(1)
    hit = np.zeros(values.shape, bool)
    hit[:, HOSTILE] = random.random(values[:, HOSTILE].shape) < 0.1
    values[hit] = random.choice([1e18, -1e18, 1e30, -1e30, 1e9, 0.0], hit.sum())
    return values


def mostly_hostile() -> tuple[np.ndarray, np.ndarray]:
    """A season, a walk and a constant with noise, and the same with up to 0.9 hostile rows."""
    n = 1500
    values = np.concatenate([made_up(n)[:2], np.full((1, n), 7.0)])
    random = np.random.default_rng(2)
    values[2] += random.normal(size=n)
    hostile = values.copy()
    share = np.array([0.3, 0.9, 0.9])[:, None]
    hit = random.random(values.shape) < share
    hit &= (np.arange(n) >= HOSTILE.start) & (np.arange(n) < HOSTILE.stop)
    garbage = random.choice([1e18, -1e18, 1e30, -3e4, 0.0], hit.sum())
    hostile[hit] = garbage * 10 ** random.uniform(-20, 0, hit.sum())
    return values[:, :N_HOSTILE], hostile[:, :N_HOSTILE]


@cache
def predictions() -> dict[str, dict[str, Tensor]]:
    """Answers to the streams of several tests, by name."""
    missing = rows_of(made_up()[:1], SEASON)
    missing[:, 600:640, 0], missing[:, 600:640, 1] = 1e6, 0.0  # what they hold is not read
    shifted = made_up(700)[:1]
    shifted[:, 500:] += 40
    short = made_up(400)
    return side_by_side(
        {
            "sometimes hostile": rows_of(sometimes_hostile(), SEASON),
            "mostly hostile": rows_of(mostly_hostile()[1], SEASON),
            "whole": rows_of(made_up(), SEASON),
            "missing": missing,
            "shifted": rows_of(shifted, SEASON),
            "short": rows_of(short, SEASON),
            "in another unit": rows_of(1e-3 * short, SEASON),
            "at another level": rows_of(short + 50, SEASON),
        }
    )


@pytest.mark.long
def test_forecasts_beat_persistence_and_bands_hold_what_they_state() -> None:
    values = made_up()
    told = predictions()["whole"]
    late = slice(300, None)
    median = told["quantiles"][:, late, 3].numpy()
    error = np.abs(median - values[:, late]).mean(1)
    persistence = np.abs(np.diff(values)[:, 299:]).mean(1)
    assert (error < np.array([0.65, 1.05, 0.85]) * persistence).all()
    for level, column in ((0.9, (0, 6)), (0.5, (2, 4))):
        low, high = (told["quantiles"][:, late, at].numpy() for at in column)
        held = ((values[:, late] >= low) & (values[:, late] <= high)).mean(1)
        assert (np.abs(held - level) < 0.06).all()


@pytest.mark.long
def test_forecasts_further_ahead_are_of_the_slots_they_name() -> None:
    values = made_up()[:1]
    told = predictions()["whole"]
    for at, horizon in enumerate((*HORIZONS, SEASON)):
        median = told["ahead_quantiles"][0, 300:-horizon, at, 3].numpy()
        error = np.abs(median - values[0, 300 + horizon :]).mean()
        assert error < 0.45  # the noise alone has 0.24; the season's swing is 6
    following = told["quantiles"][0, 301:]
    assert torch.equal(told["ahead_quantiles"][0, 300:-1, 0], following)


@pytest.mark.long
def test_unit_and_level_of_a_stream_change_nothing() -> None:
    unchanged, other, moved = (
        predictions()[name]["p_value"][:, 50:]
        for name in ("short", "in another unit", "at another level")
    )
    assert (unchanged - other).abs().quantile(0.99) < 0.02
    assert (unchanged - moved).abs().quantile(0.95) < 0.05  # 32-bit numbers near 50 are coarser


@pytest.mark.long
def test_missing_slots_teach_nothing_and_keep_the_season() -> None:
    values, told = made_up()[:1], predictions()["missing"]
    assert (told["p_value"][:, 600:640] == 1).all()
    assert (told["log_density"][:, 600:640] == 0).all()
    median = told["quantiles"][0, 605:640, 3].numpy()
    assert np.abs(median - values[0, 605:640]).mean() < 0.6
    after = np.abs(told["quantiles"][0, 641:700, 3].numpy() - values[0, 641:700]).mean()
    assert after < 0.6


@pytest.mark.long
def test_hostile_values_leave_a_finite_state_that_recovers() -> None:
    told = predictions()["sometimes hostile"]  # `answers` requires a finite state
    assert all(tensor.isfinite().all() for tensor in told.values())
    error = np.abs(told["quantiles"][..., 3].numpy() - made_up(N_HOSTILE))
    assert (error[:, AFTER].mean(1) < 2 * error[:, BEFORE].mean(1)).all()


@pytest.mark.long
def test_errors_and_bands_come_back_200_rows_after_mostly_hostile_ones() -> None:
    values, told = mostly_hostile()[0], predictions()["mostly hostile"]
    quantiles = told["quantiles"].numpy()
    error, width = np.abs(quantiles[..., 3] - values), quantiles[..., 6] - quantiles[..., 0]
    assert (error[:, AFTER].mean(1) < 1.5 * error[:, BEFORE].mean(1)).all()
    assert (width[:, AFTER].mean(1) < 2 * width[:, BEFORE].mean(1)).all()
    counted = told["p_value"][:, AFTER, 0]
    assert ((counted < 0.1).float().mean(1) < 0.2).all()  # 0.1 where bands are right


def test_a_value_that_comes_exactly_is_each_quantile_whose_level_it_holds() -> None:
    """A narrow normal with 0.4 of all at 7, between 0.3 below and 0.3 above it."""
    mean = torch.tensor([[-1.5, 1.5, 0.0]])
    std, weight = torch.tensor([[0.3, 0.3, 0.02]]), torch.tensor([[0.3, 0.3, 0.4]])
    log_weight = torch.tensor([[-40.0, 0.0]])  # but for its share, the network's alone
    portfolio = Portfolio.of(log_weight, Normals(mean, std.log(), weight.log()))
    levels = torch.tensor([0.05, 0.25, 0.4, 0.5, 0.6, 0.75, 0.95])
    told = torch.tensor([[5.0, 6.0, 6.9, 7.01, 7.1, 8.0, 9.0]])
    found = portfolio.exact(told, levels, torch.tensor([[7.0]]))
    assert found.tolist() == [[5.0, 6.0, 7.0, 7.0, 7.0, 8.0, 9.0]]
    wide = Portfolio.of(log_weight, Normals(mean, (10 * std).log(), weight.log()))
    assert torch.equal(wide.exact(told, levels, torch.tensor([[7.0]])), told)
    crossed = portfolio.exact(told + 3, levels, torch.tensor([[7.0]]))
    assert crossed[0, 0] <= 7 <= crossed[0, -1]  # no quantile is on the wrong side of the value


@pytest.mark.long
def test_a_level_shift_is_learned() -> None:
    p_value = predictions()["shifted"]["p_value"][0, :, 0]
    assert p_value[500] < 1e-3
    assert (p_value[530:600] > 0.01).float().mean() > 0.9


def test_what_the_network_watches_is_what_the_step_scores() -> None:
    rows = rows_of(made_up(200), SEASON)
    watched = sensors().watched(rows.transpose(0, 1))
    log_density = answers(rows)["floor"][..., 1].T
    counted = watched.counts > 0
    assert counted[60:].all()
    torch.testing.assert_close(
        watched.log_density[counted], log_density[counted], atol=1e-3, rtol=1e-3
    )


def test_the_network_follows_rows_as_it_takes_them_one_by_one() -> None:
    torch.manual_seed(0)
    network = Network(9, 16, 2, 4)
    with torch.no_grad():
        network.head[-1].get_parameter("weight").normal_()
    features, z = torch.randn(130, 3, 9), torch.randn(130, 3)
    counts = torch.ones(130, 3)
    followed = network.follow(features, z, counts, torch.ones(3, 1)).packed()
    memory, found = torch.zeros(3, 6, 4, 4), []
    for row in range(130):
        encoded, attention = network.encode(features[row])
        read = network.read(attention, memory)
        found.append(network.normals(encoded, read, features[row]).packed())
        memory = network.fold(memory, attention, z[row, :, None], counts[row, :, None])
    torch.testing.assert_close(torch.stack(found), followed, atol=1e-5, rtol=1e-4)


def test_the_network_trains_where_its_weights_are() -> None:
    model = Sensors(SMALL).to("meta")
    features = torch.empty(3, 70, N_FEATURES, device="meta")
    z, mask = features[..., :1], torch.ones(3, 70, dtype=torch.bool, device="meta")
    batch = Batch(features, z, features[:, :0], z, mask)
    torch.autograd.backward(model.loss(batch, torch.Generator()))
    gradients = [p.grad for p in model.parameters()]
    assert all(gradient is not None and gradient.device.type == "meta" for gradient in gradients)


def test_the_shipped_bundle_is_that_of_the_checkpoint() -> None:
    model, _ = load_model(ROOT / "checkpoints" / "sensors")
    rows = rows_of(made_up(60)[:1], SEASON)
    told = answers(rows, model)
    with Stream.open(shipped_bundle(), "onnxruntime") as stream:
        for row, x in enumerate(rows[0].numpy()):
            answer = stream.step(x[None])
            for name in ("quantiles", "log_density"):
                expected = told[name][0, row].numpy()
                np.testing.assert_allclose(getattr(answer, name)[0], expected, atol=1e-3)


@pytest.mark.long
def test_a_wrong_network_costs_the_portfolio_little() -> None:
    torch.manual_seed(1)
    wrong = Sensors(SMALL).eval()
    with torch.no_grad():
        wrong.network.head[-1].get_parameter("bias")[:5] = 2.5  # all mass far above
    told = answers(rows_of(made_up(500), SEASON), wrong)
    lost = told["floor"][..., 1] - told["log_density"][..., 0]
    assert lost[:, 100:].mean() < 0.05


def test_the_normal_score_inverts_the_normal_distribution() -> None:
    mass = torch.logspace(-7, np.log10(0.5), 300)
    exact = torch.special.ndtri(mass.double()).float()
    assert (normal_score(mass, 1 - mass) - exact).abs().max() < 5e-4
    assert (normal_score(1 - mass, mass) + exact).abs().max() < 5e-4


def test_quantiles_of_a_mixture_have_the_masses_asked_for() -> None:
    random = torch.Generator().manual_seed(0)
    mean, std = torch.randn(2, 3, 64, generator=random), torch.rand(2, 3, 64, generator=random)
    weight = torch.rand(2, 3, 64, generator=random).softmax(-1)
    mixture = Mixture(mean, std + 0.05, weight, weight)
    masses = torch.tensor([0.05, 0.25, 0.5, 0.9]).expand(2, 3, -1)
    below, above = mixture.tails(mixture.quantiles(masses))
    torch.testing.assert_close(below, masses, atol=3e-3, rtol=0)
    torch.testing.assert_close(below + above, torch.ones_like(below))


def test_levels_of_the_portfolio_are_masses_of_the_floor() -> None:
    levels = torch.tensor([0.05, 0.25, 0.5, 0.9])
    normals = Normals(torch.tensor([[0.4, -1.0]]), torch.zeros(1, 2), torch.full((1, 2), -0.6931))
    portfolio = Portfolio.of(first_weights(1), normals)
    masses = portfolio.floor_masses(levels)
    below, _ = portfolio.tails(masses, 1 - masses)
    torch.testing.assert_close(below[0], levels, atol=2e-3, rtol=0)


@pytest.mark.long
def test_days_after_quiet_nights_are_forecast_better_than_by_persistence() -> None:
    """As of a solar plant: half of the changes are a thousandth of the others."""
    season, n = 96, 2000
    random = np.random.default_rng(0)
    clouds = 0.7 / (1 + np.exp(-2 * wander(random, n, 0.9)))
    day = np.maximum(np.sin(2 * np.pi * np.arange(n) / season), 0)
    value = (4000 * day * (1 - clouds) + random.normal(0, 0.5, n))[: 12 * season]
    model = Sensors(SensorsConfig(longest=season, values=280)).eval()
    told = answers(rows_of(value[None], season), model)["floor"][0, :, 0].numpy()
    error, change = np.abs(told - value)[1:], np.abs(np.diff(value))
    assert error[4 * season :].mean() < 0.97 * change[4 * season :].mean()
