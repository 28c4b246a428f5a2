"""The rows of recorded streams are such as sensors send."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgefold.export.checks.laws import draw
from edgefold.export.checks.model_laws import TorchSubject
from edgefold.export.checks.parity import draw_stream
from edgefold.train.contract import StreamingModel
from edgefold.train.models.sensors.model import Sensors, SensorsConfig
from edgefold.train.models.sensors.plausible_rows import N_WHOLE, RUN, plausible_rows

N_STREAMS, N_ROWS = 4, 1000


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    drawn = np.random.default_rng(0).random((N_STREAMS, N_ROWS, 4))
    return plausible_rows(drawn, 1440)


def test_streams_have_one_season_each_and_count_its_slots(rows: np.ndarray) -> None:
    length, phase = rows[..., 2], rows[..., 3]
    assert (length == length[:, :1]).all()
    assert length[:, 0].tolist() == [24, 168, 0, 24]
    period = np.maximum(length, 1)
    assert (phase[:, 1:] == (phase[:, :-1] + 1) % period[:, 1:]).all()
    assert ((phase >= 0) & (phase < period)).all()
    assert len({*phase[[0, 3], 0]}) == 2  # they begin in different slots


def test_a_season_that_the_model_does_not_know_is_left_out() -> None:
    few = plausible_rows(np.random.default_rng(0).random((3, 5, 4)), 48)
    assert few[:, 0, 2].tolist() == [24, 0, 24]


def test_some_later_rows_are_missing_by_themselves_and_some_in_runs(rows: np.ndarray) -> None:
    measured = rows[..., 1]
    assert np.isin(measured, (0, 1)).all()
    assert (measured[:, :N_WHOLE] == 1).all()
    assert (np.abs(1 - measured[:, N_WHOLE:].mean(1) - 0.1) < 0.05).all()
    for stream in measured:
        runs = [len(run) for run in "".join(map(str, stream.astype(int))).split("1") if run]
        assert min(runs) == 1
        assert max(runs) >= RUN


def test_values_have_noise_repeats_and_a_jump(rows: np.ndarray) -> None:
    values = rows[..., 0]
    changes = np.abs(np.diff(values, axis=1))
    assert (np.abs((changes == 0).mean(1) - 0.05) < 0.03).all()
    assert (changes[:, : N_WHOLE - 1] > 0).all()
    assert np.abs(values).max() < 10
    around = slice(N_ROWS // 2 - 50, N_ROWS // 2), slice(N_ROWS // 2, N_ROWS // 2 + 50)
    before, after = (values[2, part].mean() for part in around)  # without a season
    assert after - before > 0.5


def test_the_model_draws_its_recorded_streams_and_checks_so() -> None:
    model = Sensors(SensorsConfig(longest=200, values=512, width=8, n_heads=1, n_latents=2))
    for x in (draw_stream(model, 3, 100, 8).x.numpy(), draw(TorchSubject(model, 3), 100)[0]):
        assert x.shape == (3, 100, 4)
        assert x[:, 0, 2].tolist() == [24, 168, 0]
        assert (x[:, 0, 1] == 1).all()


def test_other_models_draw_as_they_did() -> None:
    drawn = torch.rand(2, 3, 4).numpy()
    assert StreamingModel().plausible_inputs(drawn) is drawn
