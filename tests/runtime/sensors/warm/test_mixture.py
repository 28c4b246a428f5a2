"""The mixture of forecasts by evidence, against mixtures that are computed directly."""

from __future__ import annotations

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest

from edgefold.runtime.predictions.sensor_forecast import SENSOR_LEVELS
from edgefold.runtime.sensors.warm.mixture import (
    OWN,
    SHARE,
    following,
    mixed_p_value,
    mixed_quantiles,
    prior_of,
    weights_of,
)

LEVELS = np.array(SENSOR_LEVELS)
cdf = np.vectorize(NormalDist().cdf)


def test_the_weights_are_those_of_all_ways_to_switch() -> None:
    """The forward algorithm sums over all sequences of forecasts; here they are listed."""
    densities = np.exp(np.random.default_rng(3).normal(size=(4, 3)))
    prior = np.exp(prior_of(2))
    found, log_weights = 0.0, prior_of(2)
    for row in densities:
        now = weights_of(log_weights)
        found += np.logaddexp.reduce(now + np.log(row))
        log_weights = following(now, np.log(row))
    total = 0.0
    for way in np.ndindex(3, 3, 3, 3):
        chance = prior[way[0]]
        for before, after in itertools.pairwise(way):
            chance *= (1 - SHARE) * (before == after) + SHARE * prior[after]
        total += chance * math.prod(row[k] for row, k in zip(densities, way, strict=True))
    assert found == pytest.approx(math.log(total), abs=1e-12)


def test_a_mixture_loses_little_to_the_own_forecast_whatever_the_others_say() -> None:
    n, lost, log_weights = 300, 0.0, prior_of(8)
    for _ in range(n):
        now, each = weights_of(log_weights), np.array([0.0, *[-1e8] * 8])
        lost -= np.logaddexp.reduce(now + each)
        log_weights = following(now, each)
    bound = -math.log(OWN) - (n - 1) * math.log(1 - SHARE * (1 - OWN))
    assert lost <= bound * (1 + 1e-9)
    assert lost / n < 0.01


def test_a_forecast_that_failed_gets_no_weight_back() -> None:
    log_weights = np.log([0.5, 0.25, 0.25])
    log_weights[1] = -np.inf
    for _ in range(5):
        now = weights_of(log_weights)
        assert np.exp(now).sum() == pytest.approx(1.0)
        assert np.isneginf(now[1])
        log_weights = following(now, np.zeros(3))


def test_p_values_of_a_mixture_of_normals() -> None:
    means, weights = np.array([0.0, 1.0, 5.0]), np.array([0.5, 0.3, 0.2])
    for value in (-1.0, 0.7, 3.0, 9.0):
        below = cdf(value - means)
        p_values = 2 * np.minimum(below, 1 - below)
        share = weights @ below
        found = mixed_p_value(np.log(weights), p_values, means, value)
        assert found == pytest.approx(2 * min(share, 1 - share), abs=1e-12)


def test_quantiles_of_one_forecast_are_its_own() -> None:
    quantiles = np.array([[[1.0, 2, 3, 4, 5, 6, 7], [0, 0, 0, 0, 0, 1, 9]]] * 3)
    found = mixed_quantiles(np.log([0.2, 0.3, 0.5]), quantiles, SENSOR_LEVELS)
    np.testing.assert_array_equal(found, quantiles[0])


def test_quantiles_of_a_mixture_of_normals() -> None:
    means, scales, weights = np.array([0.0, 0.5]), np.array([1.0, 1.5]), np.array([0.6, 0.4])
    quantiles = means[:, None] + scales[:, None] * np.array(
        [NormalDist().inv_cdf(level) for level in SENSOR_LEVELS]
    )
    found = mixed_quantiles(np.log(weights), quantiles, SENSOR_LEVELS)
    level = (weights * cdf((found[:, None] - means) / scales)).sum(-1)
    # Seven quantiles, between which a forecast is taken as even, do not hold all of a normal law.
    np.testing.assert_allclose(level, LEVELS, atol=0.01)


def test_a_value_that_is_forecast_exactly_stays_exact() -> None:
    exact = np.full(7, 12.5)
    wide = np.linspace(10, 20, 7)
    found = mixed_quantiles(np.log([0.9, 0.1]), np.array([exact, wide]), SENSOR_LEVELS)
    assert (found[1:6] == 12.5).all()
    assert (np.diff(found) >= 0).all()


def test_large_and_small_values_give_quantiles_that_are_numbers() -> None:
    for size in (1e-30, 1.0, 1e30):
        quantiles = np.array([np.full(7, size), np.linspace(-size, size, 7)])
        found = mixed_quantiles(np.log([0.5, 0.5]), quantiles, SENSOR_LEVELS)
        assert np.isfinite(found).all() and (np.diff(found) >= 0).all()
        assert -size <= found[0] and found[-1] == size


def test_forecasts_of_no_weight_move_no_quantile() -> None:
    own, other = np.arange(7.0), np.full(7, 1e6)
    found = mixed_quantiles(np.log([0.9995, 0.0005]), np.array([own, other]), SENSOR_LEVELS)
    np.testing.assert_array_equal(found, own)
