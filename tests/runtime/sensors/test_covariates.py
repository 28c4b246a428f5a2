"""Covariates: what they change is learned, and only what helps is believed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edgefold.runtime import DataError, Sensors
from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.sensors.covariates import (
    KNOWN,
    MEMORY,
    UNKNOWN,
    CovariateSensor,
    Effect,
)

pytestmark = pytest.mark.usefixtures("compiled_sensors")

LEVELS = np.array([0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95])


def switched(n: int, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Values (n,) of noise to which a switch adds 8 at irregular times, and the switch, (n, 1)."""
    draw = np.random.default_rng(seed)
    is_on = (np.cumsum(draw.random(n) < 0.02) % 2).astype(float)
    return draw.normal(size=n) + 8 * is_on, is_on[:, None]


def test_an_effect_is_learned_from_errors_and_moves_no_level_by_itself() -> None:
    """An error that is 3 per unit of a new covariate's change, and noise a hundredth of it."""
    draw, effect, level = np.random.default_rng(0), Effect(1), 0.0
    for _ in range(2000):
        covariate = draw.normal()
        before, effect = effect, effect.moved(np.array([covariate]))
        change = effect._change[0, 0]
        assert effect.level - before.level == pytest.approx(
            float((before.weights * effect._change).sum()), abs=1e-9
        )
        level = effect.level
        told = float((effect.weights * effect._change).sum())
        effect.learn(3 * change - told + 0.03 * draw.normal(), 0)
        assert effect.level == level  # a weight that is learned counts from the next change on
    assert effect.weights[0, 0] == pytest.approx(3.0, abs=0.1)
    assert abs(effect.weights[1:, 0]).max() < 0.6  # the slow features have no part in it


def test_an_effect_stays_where_covariates_are_unknown() -> None:
    effect = Effect(2).moved(np.array([1.0, math.nan]))
    effect.weights = np.array([[2.0, 5.0], *[[0.0, 0.0]] * (len(MEMORY) - 1)])
    assert effect.levels(np.array([[2.0, math.nan], [math.nan, 0.0], [3.0, 1.0]])).tolist() == [
        2.0,
        2.0,
        9.0,
    ]
    assert effect.level == 0.0 and effect.weights.shape == (len(MEMORY), 2)


def loss(value: float, quantiles: FloatArray) -> float:
    away = value - quantiles
    return float(np.maximum(LEVELS * away, (LEVELS - 1) * away).mean())


def test_a_switch_explains_its_steps_and_what_is_known_ahead_is_forecast() -> None:
    values, covariates = switched(1500)
    with Sensors.open() as sensors:
        beside = CovariateSensor(sensors, "room", 1)
        losses = np.zeros(2)
        for row, (value, covariate) in enumerate(zip(values, covariates, strict=True)):
            found = beside.step(300.0 * row, value, covariate)
            plain = sensors.step(300.0 * row, value, "alone")
            assert found.value == value
            if row >= 500:
                losses += [
                    loss(value, np.array(list(of.quantiles.values()))) for of in (found, plain)
                ]
        assert losses[0] < 0.9 * losses[1]
        assert beside.is_believed and beside.effect.weights[0, 0] == pytest.approx(8.0, abs=0.8)
        assert beside.weights(np.array([4, 48]), KNOWN).min() > 0.7
        now = covariates[-1, 0]
        coming = np.full((48, 1), now)
        coming[10:] = 1 - now
        path = beside.path(60, coming)
        step = 8 * (1 - 2 * now)
        before, after = path.quantiles[2:10, 3].mean(), path.quantiles[10:48, 3].mean()
        assert after - before == pytest.approx(step, abs=2.5)
        assert (np.diff(path.quantiles, axis=1) >= 0).all() and np.isfinite(path.mean).all()
        assert beside.path(60).quantiles.shape == (60, 7)


@pytest.mark.long
def test_a_wrong_covariate_makes_no_forecast_much_worse() -> None:
    """A sensor of the weather that says -999 or 1e29 for a row, beside the same run without it."""
    values, covariates = switched(1200)
    losses = dict[float, float]()
    for wrong in (math.nan, -999.0, 1e29, math.inf):
        told = covariates.copy()
        told[700] = wrong
        with Sensors.open() as sensors:
            beside, total = CovariateSensor(sensors, "", 1), 0.0
            for row, (value, covariate) in enumerate(zip(values, told, strict=True)):
                found = beside.step(60.0 * row, value, covariate)
                if row > 710:
                    total += loss(value, np.array(list(found.quantiles.values())))
        losses[wrong] = total
    # Without the switch the loss is 1.5 times that with it: at least half of its help is left.
    assert losses[math.inf] == losses[math.nan]
    assert max(losses.values()) < 1.25 * losses[math.nan]


@pytest.mark.long
def test_covariates_that_explain_nothing_are_not_believed() -> None:
    values, _ = switched(900)
    others = np.random.default_rng(5).normal(size=(900, 2))
    with Sensors.open() as sensors:
        beside = CovariateSensor(sensors, "", 2)
        n_believed = 0
        for row, value in enumerate(values):
            found = beside.step(None, value, others[row])
            plain = sensors.step(None, value, "alone")
            n_believed += beside.is_believed
            if found.is_known and not beside.is_believed:
                assert found.q50 == plain.q50 and found.event == plain.event
        assert n_believed < 90


def test_a_refused_row_changes_nothing_and_rows_without_values_pass() -> None:
    values, covariates = switched(200)
    with Sensors.open() as sensors:
        beside = CovariateSensor(sensors, "", 1)
        for row in range(150):
            beside.step(60.0 * row, values[row], covariates[row])
        effect = beside.effect
        with pytest.raises(DataError, match="time"):
            beside.step(60.0 * 149, 1.0, np.array([1.0]))
        assert beside.effect is effect
        found = beside.step(60.0 * 150, math.nan, covariates[150])
        assert math.isnan(found.value) and not found.alarm
        found = beside.step(60.0 * 157, values[157], covariates[157])
        assert found.n_missing == 6
        assert found.ahead(4).is_known
        assert beside.weights(np.array([1.0]), UNKNOWN).shape == (1,)
