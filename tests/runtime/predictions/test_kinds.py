"""The scores, samples and moments of the kinds, against torch.distributions and closed forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from edgefold.runtime.bundle.manifest import Scaling
from edgefold.runtime.predictions import (
    Categorical,
    Gaussian,
    GaussianMixture,
    JointGaussian,
    NextEvent,
    PredictionKind,
    Quantiles,
)

torch = pytest.importorskip("torch", reason="its distributions are the reference")

RANDOM = np.random.default_rng(5)
N_DRAWS = 40_000


def mixture() -> tuple[GaussianMixture, dict[str, Any]]:
    """A prediction of (4, 3) points of two outputs with five components."""
    mean, std = RANDOM.normal(size=(4, 3, 5, 2)), RANDOM.uniform(0.1, 2, (4, 3, 5, 2))
    return GaussianMixture(5), {"mean": mean, "std": std}


def joint(bounded: bool, lead: tuple[int, ...] = (4,)) -> tuple[JointGaussian, dict[str, Any]]:
    """A joint prediction of three targets with two outputs each."""
    return JointGaussian(6, bounded), {
        "mean": RANDOM.normal(size=(*lead, 3, 2)),
        "std": RANDOM.uniform(0.1, 2, (*lead, 3, 2)),
        "factor": RANDOM.normal(size=(*lead, 3, 2, 6)),
    }


def low_rank(lead: tuple[int, ...] = (4,)) -> tuple[JointGaussian, dict[str, Any]]:
    """A joint prediction of three targets with two outputs each, of a low-rank covariance."""
    factor, own = RANDOM.normal(size=(*lead, 3, 2, 4)), RANDOM.uniform(0.1, 2, (*lead, 3, 2))
    std = np.sqrt((factor**2).sum(-1) + own**2)
    return JointGaussian(4, covariance="low-rank"), {
        "mean": RANDOM.normal(size=(*lead, 3, 2)),
        "std": std,
        "factor": factor / std[..., None],
        "own": own,
    }


def in_torch(prediction: dict[str, Any], dtype: Any = None) -> dict[str, Any]:
    return {n: torch.tensor(a, dtype=dtype or torch.float64) for n, a in prediction.items()}


def test_a_mixture_scores_as_torch_does() -> None:
    kind, prediction = mixture()
    y = RANDOM.normal(size=(4, 3, 2))
    told = in_torch(prediction)
    components = torch.distributions.Independent(
        torch.distributions.Normal(told["mean"], told["std"]), 1
    )
    equal = torch.distributions.Categorical(logits=torch.zeros(4, 3, 5).double())
    whole = torch.distributions.MixtureSameFamily(equal, components)
    expected = whole.log_prob(torch.tensor(y)).numpy()
    np.testing.assert_allclose(kind.log_likelihood(prediction, y, np), expected, rtol=1e-12)
    found = kind.log_likelihood(told, torch.tensor(y), torch)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(kind.center(prediction), whole.mean.numpy(), rtol=1e-12)
    deviation = whole.variance.sqrt().numpy()
    np.testing.assert_allclose(kind.deviation(prediction), deviation, rtol=1e-12)


def test_a_mixture_of_one_component_is_a_gaussian() -> None:
    prediction = {"mean": RANDOM.normal(size=(7, 2)), "std": RANDOM.uniform(0.1, 2, (7, 2))}
    y = RANDOM.normal(size=(7, 2))
    as_mixture = {name: array[:, None] for name, array in prediction.items()}
    found = GaussianMixture(1).log_likelihood(as_mixture, y, np)
    np.testing.assert_allclose(found, Gaussian().log_likelihood(prediction, y, np), rtol=1e-12)


def test_a_mixture_far_from_y_keeps_a_finite_score_in_float32() -> None:
    mean = torch.full((1, 4, 1), 300.0).requires_grad_()
    y = torch.zeros(1, 1)
    # Each density is exp(-45,000), which float32 cannot hold.
    score = GaussianMixture(4).log_likelihood({"mean": mean, "std": torch.ones(1, 4, 1)}, y, torch)
    assert score.item() == pytest.approx(-45_000 - 0.5 * math.log(2 * math.pi))
    score.sum().backward()
    assert mean.grad is not None and torch.isfinite(mean.grad).all()


@pytest.mark.parametrize("bounded", [False, True])
def test_a_joint_prediction_scores_as_torch_does(bounded: bool) -> None:
    kind, prediction = joint(bounded)
    y = RANDOM.normal(size=(4, 3, 2))
    told = in_torch(prediction)
    factor = kind.covariance_factor(told, torch)
    np.testing.assert_allclose(
        kind.covariance_factor(prediction, np), factor.numpy(), rtol=1e-12, atol=1e-14
    )
    whole = torch.distributions.MultivariateNormal(told["mean"].flatten(1), scale_tril=factor)
    expected = whole.log_prob(torch.tensor(y).flatten(1)).numpy()[:, None] / 3  # a target's share
    np.testing.assert_allclose(kind.log_likelihood(prediction, y, np), expected, rtol=1e-10)
    found = kind.log_likelihood(told, torch.tensor(y), torch)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10)
    deviation = whole.variance.sqrt().reshape(4, 3, 2).numpy()
    np.testing.assert_allclose(kind.deviation(prediction), deviation, rtol=1e-12)


@pytest.mark.parametrize("bounded", [False, True])
def test_the_factor_is_that_of_the_paper(bounded: bool) -> None:
    kind, prediction = joint(bounded, ())
    rows = prediction["factor"].reshape(6, 6)
    lower = np.tril(rows @ rows.T)
    squares = (rows**2).sum(1)
    np.fill_diagonal(lower, 0.05 + 0.95 * np.tanh(squares) if bounded else squares + 1e-4)
    np.testing.assert_allclose(kind.lower(prediction["factor"], np), lower, rtol=1e-12)
    told = {**prediction, "std": np.sqrt((lower**2).sum(1)).reshape(3, 2)}
    np.testing.assert_allclose(kind.covariance_factor(told, np), lower, rtol=1e-12)


def test_a_low_rank_prediction_scores_as_torch_does() -> None:
    kind, prediction = low_rank()
    y = RANDOM.normal(size=(4, 3, 2))
    told = in_torch(prediction)
    factor = (told["factor"] * told["std"][..., None]).flatten(1, 2)
    whole = torch.distributions.LowRankMultivariateNormal(
        told["mean"].flatten(1), factor, told["own"].flatten(1) ** 2
    )
    expected = whole.log_prob(torch.tensor(y).flatten(1)).numpy()[:, None] / 3
    np.testing.assert_allclose(kind.log_likelihood(prediction, y, np), expected, rtol=1e-10)
    found = kind.log_likelihood(told, torch.tensor(y), torch)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10)
    deviation = whole.variance.sqrt().unflatten(-1, (3, 2)).numpy()
    np.testing.assert_allclose(kind.deviation(prediction), deviation, rtol=1e-12)


def test_a_low_rank_score_in_float32_survives_noise_far_below_the_signal() -> None:
    kind, prediction = low_rank(())
    own = np.full((3, 2), 1e-4)
    rows = prediction["factor"] * prediction["std"][..., None]
    std = np.sqrt((rows**2).sum(-1) + own**2)
    prediction |= {"own": own, "std": std, "factor": rows / std[..., None]}
    y = prediction["mean"] + (rows.reshape(6, 4) @ RANDOM.normal(size=4)).reshape(3, 2)
    expected = kind.log_likelihood(prediction, y, np)
    single = in_torch(prediction, torch.float32)
    factor = kind.covariance_factor(single, torch)
    assert factor.isfinite().all() and factor.dtype == torch.float32
    assert np.isfinite(expected).all()


@pytest.mark.parametrize("prediction_of", [lambda: joint(False, ()), lambda: low_rank(())])
def test_units_of_y_scale_a_joint_prediction_like_any_other(prediction_of: Any) -> None:
    kind, prediction = prediction_of()
    y, scale, shift = RANDOM.normal(size=(3, 2)), np.array([3.0, 0.2]), np.array([7.0, -1.0])
    raw = {
        **prediction,
        "mean": prediction["mean"] * scale + shift,
        **{n: prediction[n] * scale for n in ("std", "own") if n in prediction},
    }
    found = kind.log_likelihood(raw, y * scale + shift, np)
    expected = kind.log_likelihood(prediction, y, np) - np.log(scale).sum()
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_a_joint_prediction_of_one_target_is_a_gaussian() -> None:
    kind, prediction = joint(False, (5,))
    one = {name: array[:, :1, :1] for name, array in prediction.items()}
    y = RANDOM.normal(size=(5, 1, 1))
    expected = Gaussian().log_likelihood(one, y, np)
    np.testing.assert_allclose(kind.log_likelihood(one, y, np), expected, rtol=1e-10)


def test_targets_are_told_in_order() -> None:
    """Rows behind others change nothing of them: a query may be padded at its end."""
    kind, prediction = joint(True, ())
    first = {name: array[:2] for name, array in prediction.items()}
    whole = kind.covariance_factor(prediction, np)
    np.testing.assert_allclose(kind.covariance_factor(first, np), whole[:4, :4], rtol=1e-12)


def test_gradients_of_a_joint_score_are_finite_without_any_correlation() -> None:
    factor = torch.zeros(1, 3, 1, 4).requires_grad_()
    kind = JointGaussian(4)
    std = torch.ones(1, 3, 1)
    told = {"mean": torch.zeros(1, 3, 1), "std": std, "factor": factor}
    kind.log_likelihood(told, torch.ones(1, 3, 1), torch).sum().backward()
    assert factor.grad is not None and torch.isfinite(factor.grad).all()


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("kind", "prediction"),
    [
        (Gaussian(), {"mean": np.array([[1.0, -2.0]]), "std": np.array([[0.5, 2.0]])}),
        (
            GaussianMixture(2),
            {"mean": np.array([[[1.0], [5.0]]]), "std": np.array([[[0.5], [1.0]]])},
        ),
        joint(False, ()),
        low_rank(()),
    ],
    ids=lambda found: found.name if isinstance(found, PredictionKind) else "",
)
def test_samples_have_the_moments_of_the_prediction(
    kind: PredictionKind, prediction: dict[str, Any]
) -> None:
    random = np.random.default_rng(3)
    drawn = np.stack([kind.sample(prediction, random) for _ in range(N_DRAWS)])
    center, deviation = kind.center(prediction), kind.deviation(prediction)
    # Five standard errors of a mean, and as many of a deviation, whose own is at most 1 / sqrt(n).
    bound = 5 * deviation / math.sqrt(N_DRAWS)
    assert (np.abs(drawn.mean(0) - center) < bound).all()
    assert (np.abs(drawn.std(0) - deviation) < bound).all()
    if isinstance(kind, JointGaussian):
        flat = drawn.reshape(N_DRAWS, -1)
        factor = kind.covariance_factor(prediction, np)
        spread = np.outer(deviation.ravel(), deviation.ravel())
        gaps = np.abs(np.cov(flat.T) - factor @ factor.T) / spread
        assert gaps.max() < 5 * math.sqrt(2 / N_DRAWS)  # of a covariance: at most sqrt(2 / n)


def test_classes_are_drawn_as_often_as_their_weights_say() -> None:
    random, weights = np.random.default_rng(4), np.array([0.1, 0.6, 0.3])
    scores = np.log(weights) + 2.0
    drawn = Categorical(3).sample({"scores": np.tile(scores, (N_DRAWS, 1))}, random)
    assert drawn.shape == (N_DRAWS, 1)
    found = np.bincount(drawn[:, 0].astype(int), minlength=3) / N_DRAWS
    assert np.abs(found - weights).max() < 5 * 0.5 / math.sqrt(N_DRAWS)


def test_only_kinds_with_a_distribution_can_be_sampled() -> None:
    assert JointGaussian(2).has_samples and GaussianMixture(2).has_samples
    assert not Quantiles((0.1, 0.5)).has_samples
    assert JointGaussian(2).joint and not GaussianMixture(2).joint


@pytest.mark.parametrize("kind", [GaussianMixture(3), JointGaussian(4, True)])
def test_a_table_tells_a_mean_and_a_deviation(kind: PredictionKind) -> None:
    of_one = {t.name: np.ones(t.shape) for t in kind.tensors(2)}
    told = kind.told(of_one)
    assert {name: array.shape for name, array in told.items()} == {"mean": (2,), "std": (2,)}


def test_a_table_tells_the_next_event_in_columns_of_one_number() -> None:
    kind = NextEvent(3, (0.025, 0.5, 0.9))
    prediction = {
        "gap_quantiles": np.array([[1.0], [2.0], [4.0]]),
        "mark_probabilities": np.array([0.2, 0.5, 0.3]),
        "log_likelihood": np.array([-1.5]),
    }
    told = {name: array.tolist() for name, array in kind.told(prediction).items()}
    assert told == {
        "gap_q2.5": [1.0],
        "gap_q50": [2.0],
        "gap_q90": [4.0],
        "next_mark": [1],
        "next_mark_probability": [0.5],
        "log_likelihood": [-1.5],
    }
    assert kind.center(prediction).tolist() == [2.0]
    assert not kind.has_score and not kind.has_samples
    assert NextEvent(**kind.settings()) == kind


def test_the_density_of_an_event_returns_to_raw_units_by_the_scale_of_time() -> None:
    unscale = {tensor.name: tensor.unscale for tensor in NextEvent(2).tensors(1)}
    scaling = Scaling((5.0,), (4.0,))
    found = scaling.to_raw(np.array([-1.0]), unscale["log_likelihood"])
    assert found == pytest.approx(-1.0 - math.log(4.0))
    gaps = scaling.to_raw(np.array([[1.0], [2.0]]), unscale["gap_quantiles"])
    assert gaps.tolist() == [[4.0], [8.0]]  # a time between two events knows no shift


@pytest.mark.parametrize(
    "kind",
    [
        GaussianMixture(3),
        JointGaussian(4, True),
        JointGaussian(4, least=0.0),
        JointGaussian(4, covariance="low-rank"),
        Gaussian(permuted=True),
    ],
)
def test_settings_rebuild_a_kind(kind: PredictionKind) -> None:
    assert type(kind)(**kind.settings()) == kind


def test_settings_that_older_versions_do_not_know_are_stored_only_where_they_are_used() -> None:
    assert Gaussian().settings() == {}
    assert JointGaussian(4).settings() == {"rank": 4, "bounded": False, "block": 0}
    assert JointGaussian(4, least=0.0).settings()["least"] == 0.0


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"least": -1.0}, "least"),
        ({"least": math.nan}, "least"),
        ({"least": math.inf}, "least"),
        ({"covariance": "diagonal"}, "covariance"),
        ({"covariance": "low-rank", "bounded": True}, "bounded"),
    ],
)
def test_a_joint_kind_refuses_settings_that_mean_nothing(
    settings: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        JointGaussian(4, **settings)


def test_kinds_refuse_sizes_below_one() -> None:
    for kind in (GaussianMixture, JointGaussian, NextEvent):
        with pytest.raises(ValueError, match="at least 1"):
            kind(0)
