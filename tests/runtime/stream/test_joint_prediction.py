"""Targets predicted together on a copy of the state: against a joint distribution that is known."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.runtime import BackendError, CapacityError, Quantiles, ShapeError, Stream
from edgefold.runtime.errors import ValueRefusedError
from edgefold.runtime.stream.state_buffers import Step
from tests.contract import Array

pytest.importorskip("torch", reason="exporting needs the train extra")

from edgefold.export.bundle import ExportConfig, export_bundle
from edgefold.train.contract import StreamingModel
from tests.export.lowering.small_models import Window
from tests.runtime.stream.exact_models import Line, LowRank, Pairs, Permuted, exact_joint

TASK = {"name": "none", "x_shift": [1.0], "x_scale": [2.0], "y_shift": [10.0], "y_scale": [3.0]}
MODELS = {"line": Line(), "pairs": Pairs(), "low-rank": LowRank(), "permuted": Permuted()}
ATOL = 1e-4  # nats of 5 targets: float32 Kalman updates of variances around 1
N_DRAWS = 1000


def exported(
    model: StreamingModel, folder: Path, task: Mapping[str, Any], targets: int = 2, streams: int = 1
) -> Path:
    config = ExportConfig(parity_steps=128, targets=targets, streams=streams)
    export_bundle(model.eval(), dict(task), folder, config)
    return folder


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("joint")
    for name, model in MODELS.items():
        exported(model, folder / name, TASK)
    return folder


@pytest.fixture(params=MODELS)
def stream(request: pytest.FixtureRequest, lines: Path) -> Iterator[Stream]:
    with Stream.open(lines / request.param) as opened:
        yield opened


def drawn(n: int, seed: int = 0) -> tuple[Array, Array]:
    """Points in raw units: x (n, 1) around 1, y (n, 1) around 10."""
    random = np.random.default_rng(seed)
    x = 1 + 2 * random.uniform(-2, 2, (n, 1))
    return x, 10 + 3 * (0.7 * (x - 1) / 2 - 0.4 + 0.3 * random.normal(size=(n, 1)))


def exact(x: Array, y: Array, targets: Array) -> tuple[Array, Array]:
    """Mean (M,) and covariance (M, M) in raw units."""
    mean, covariance = exact_joint((x - 1) / 2, (y - 10) / 3, (targets - 1) / 2)
    return 10 + 3 * mean, 9 * covariance


def density(values: Array, mean: Array, covariance: Array) -> float:
    error = values.ravel() - mean
    _, log_volume = np.linalg.slogdet(2 * math.pi * covariance)
    return float(-0.5 * (error @ np.linalg.solve(covariance, error) + log_volume))


def test_the_chain_of_predictions_is_the_exact_joint_density(stream: Stream) -> None:
    """For the independent predictions one by one, for the joint ones in blocks of 2, 2 and 1."""
    x, y = drawn(12)
    stream.condition(x[:7], y[:7])
    expected = density(y[7:], *exact(x[:7], y[:7], x[7:]))
    found = stream.joint_log_likelihood(x[7:], y[7:])
    assert found.shape == ()
    assert found == pytest.approx(expected, abs=ATOL)
    backwards = stream.joint_log_likelihood(x[7:][::-1], y[7:][::-1])
    assert backwards == pytest.approx(expected, abs=ATOL)
    assert stream.joint_log_likelihood(x[7:], y[7:], block=1) == pytest.approx(expected, abs=ATOL)


def test_a_block_of_independent_predictions_is_the_product_of_its_targets(lines: Path) -> None:
    x, y = drawn(9)
    with Stream.open(lines / "line") as stream:
        stream.condition(x[:7], y[:7])
        mean, covariance = exact(x[:7], y[:7], x[7:])
        expected = density(y[7:], mean, np.diag(np.diag(covariance)))
        found = stream.joint_log_likelihood(x[7:], y[7:], block=2)
        assert found == pytest.approx(expected, abs=ATOL)


def test_samples_have_the_exact_joint_moments(stream: Stream) -> None:
    x, y = drawn(8)
    stream.condition(x[:5], y[:5])
    mean, covariance = exact(x[:5], y[:5], x[5:])
    samples = stream.sample(x[5:], N_DRAWS, seed=1)
    assert samples.shape == (N_DRAWS, 3, 1)
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), (samples[..., 0] - mean).T)
    # Five standard errors: 1 / sqrt(n) of a mean, sqrt(2 / n) of a variance.
    assert np.abs(whitened.mean(1)).max() < 5 / math.sqrt(N_DRAWS)
    assert np.abs(np.cov(whitened) - np.eye(3)).max() < 5 * math.sqrt(2 / N_DRAWS)


def test_a_seed_repeats_the_draws(stream: Stream) -> None:
    x, _ = drawn(5)
    first = stream.sample(x, 3, seed=7)
    np.testing.assert_array_equal(stream.sample(x, 3, seed=7), first)
    assert len(np.unique(np.concatenate([first, stream.sample(x, 3), stream.sample(x, 3)]))) == 45
    assert not np.array_equal(first[0], first[1])


def test_draws_take_permuted_targets_in_an_order_of_their_own(
    lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned: list[tuple[Array, Array]] = []
    update = Stream.update

    def recorded(stream: Stream, x: Array, y: Array) -> None:
        learned.append((np.array(x), np.array(y)))
        update(stream, x, y)

    x, _ = drawn(3)
    with Stream.open(lines / "permuted") as stream:
        monkeypatch.setattr(Stream, "update", recorded)
        samples = stream.sample(x, 20, seed=2)
    orders = set()
    for sample, draw in enumerate(samples):
        of_sample = learned[2 * sample : 2 * sample + 2]  # the last target is not learned
        places = [int(np.flatnonzero(x == given)[0]) for given, _ in of_sample]
        orders.add(tuple(places))
        for at, (_, value) in zip(places, of_sample, strict=True):
            assert draw[at] == value
    assert len(orders) > 3  # of 6


@pytest.mark.parametrize("n_waiting", [0, 3])
def test_the_state_the_counts_and_the_cache_stay_as_they_were(
    tiny_bundle: Path, n_waiting: int
) -> None:
    with Stream.open(tiny_bundle, buffered=True) as stream:
        random = np.random.default_rng(0)
        x, y = random.normal(size=(12, stream.manifest.n_inputs)), random.normal(size=(12, 1))
        stream.condition(x[: 12 - n_waiting], y[: 12 - n_waiting])
        stream.flush()
        stream.update(x[12 - n_waiting :], y[12 - n_waiting :])
        before, told = stream.state(), stream.query(x[:2]).copy()
        at, n_bytes = stream._state.at, stream.buffer_bytes
        samples = stream.sample(x, 2, seed=0)
        density = stream.joint_log_likelihood(x, y)
        assert samples.shape == (2, 12, 1) and np.isfinite(density)
        assert stream._state.at is at and stream.n_points == 12
        for name, tensor in stream.state().items():
            np.testing.assert_array_equal(tensor, before[name], name)
        np.testing.assert_array_equal(stream.query(x[:2]).mean, told.mean)
        assert stream.buffer_bytes > n_bytes
        grown = stream.buffer_bytes
        stream.sample(x, 2)
        assert stream.buffer_bytes == grown  # the copy is allocated once


def test_an_error_on_the_way_leaves_the_state(lines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = drawn(6)
    with Stream.open(lines / "line") as stream:
        stream.condition(x, y)
        before, told = stream.state(), stream.query(x[:1]).copy()
        expected = stream.sample(x, 2, seed=0)
        runs = iter(range(100))

        def failing(step: Step, sides: int, run: object = Step.run) -> None:
            if next(runs) == 3:
                raise BackendError("injected")
            assert callable(run)
            run(step, sides)

        with monkeypatch.context() as context:
            context.setattr(Step, "run", failing)
            with pytest.raises(BackendError, match="injected"):
                stream.sample(x, 2, seed=0)
        for name, tensor in stream.state().items():
            np.testing.assert_array_equal(tensor, before[name], name)
        np.testing.assert_array_equal(stream.query(x[:1]).mean, told.mean)
        np.testing.assert_array_equal(stream.sample(x, 2, seed=0), expected)


def test_several_streams_are_predicted_side_by_side(tmp_path: Path) -> None:
    x, y = (np.stack(pair) for pair in zip(drawn(9, 1), drawn(9, 2), strict=True))
    bundle = exported(Pairs(), tmp_path / "two", TASK, streams=2)
    with Stream.open(bundle) as stream:
        stream.condition(x[:, :6], y[:, :6])
        found = stream.joint_log_likelihood(x[:, 6:], y[:, 6:])
        assert found.shape == (2,)
        for b in range(2):
            expected = density(y[b, 6:], *exact(x[b, :6], y[b, :6], x[b, 6:]))
            assert found[b] == pytest.approx(expected, abs=ATOL)
        samples = stream.sample(x[:, 6:], 4)
        assert samples.shape == (4, 2, 3, 1)
        assert len(np.unique(samples)) == samples.size  # the streams' draws are independent


def test_a_model_of_y_alone_forecasts_any_number_of_steps(tmp_path: Path) -> None:
    with Stream.open(
        exported(Window(), tmp_path / "window", {"name": "none"}, targets=1)
    ) as stream:
        y = np.random.default_rng(0).normal(size=(8, 2))
        stream.update(y=y[:6])
        before = stream.state()
        assert stream.sample(np.empty((5, 0)), 3).shape == (3, 5, 2)
        assert stream.sample(n_samples=2).shape == (2, 1, 2)
        expected = 0.0
        found = stream.joint_log_likelihood(None, y[6:])
        np.testing.assert_array_equal(stream.state()["past"], before["past"])
        for row in y[6:]:  # the chain rule, by hand
            told = stream.query()
            expected += stream.manifest.prediction.log_likelihood(told.tensors, row[None], np)[0]
            stream.update(y=row[None])
        assert found == pytest.approx(expected, abs=ATOL)


def test_what_cannot_be_asked_is_refused(lines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = drawn(4)
    with Stream.open(lines / "pairs") as stream:
        stream.condition(x, y)
        for block in (0, 3):
            with pytest.raises(ShapeError, match="blocks"):
                stream.sample(x, block=block)
        with pytest.raises(ShapeError):
            stream.sample(x, 0)
        with pytest.raises(ShapeError):
            stream.joint_log_likelihood(x, y[:3])
        with pytest.raises(ShapeError):
            stream.sample(np.ones((4, 2)))
        with pytest.raises(ValueRefusedError):
            stream.sample(np.full((4, 1), np.nan))
        with pytest.raises(ValueRefusedError):
            stream.joint_log_likelihood(x, np.array([[1.0], [1.0], [1.0], [np.nan]]))
        assert stream.n_points == 4
        object.__setattr__(stream.manifest, "prediction", Quantiles((0.1, 0.9)))
        with pytest.raises(BackendError, match="quantiles"):
            stream.sample(x)
        with pytest.raises(BackendError, match="quantiles"):
            stream.joint_log_likelihood(x, y)


class Small(Line):
    """A line that learns six points."""

    capacity = 6


def test_a_full_state_takes_no_drawn_points(tmp_path: Path) -> None:
    x, y = drawn(9)
    with Stream.open(exported(Small(), tmp_path / "small", TASK)) as stream:
        stream.condition(x[:5], y[:5])
        assert stream.sample(x[:2]).shape == (1, 2, 1)  # the last one is not learned
        with pytest.raises(CapacityError, match=r"all blocks but the last .* room for"):
            stream.sample(x[:3])
        assert stream.n_points == 5
