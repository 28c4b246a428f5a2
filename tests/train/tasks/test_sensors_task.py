"""The task of sensors: made-up streams, pieces of real ones, shards, a run, scores."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgefold.cli.main import main
from edgefold.runtime.errors import DataError, TrainingError
from edgefold.train.batch import Batch
from edgefold.train.checkpoints import load_model
from edgefold.train.models.registry import create_model
from edgefold.train.models.sensors.model import Sensors
from edgefold.train.tasks.sensors import sensor_shards
from edgefold.train.tasks.sensors import sensors as sensors_module
from edgefold.train.tasks.sensors.sensor_corpus import REAL, draw_piece, draw_stream, read_corpus
from edgefold.train.tasks.sensors.sensor_prior import (
    FAMILIES,
    MEASURED,
    PHASE,
    SEASON,
    VALUE,
    draw_sensor,
    told_season,
)
from edgefold.train.tasks.sensors.sensor_processes import BURN_IN, autoregression, filtered
from edgefold.train.tasks.sensors.sensor_scores import (
    answers_of,
    by_steps,
    one_ahead,
    score_of,
    scores_by_family,
    table,
)
from edgefold.train.tasks.sensors.sensor_shards import Shards, StreamSet
from edgefold.train.tasks.sensors.sensors import SensorsOptions, SensorsTask, held_out
from edgefold.train.training_loop import FitConfig, fit

TINY = StreamSet(n_streams=6, n_slots=64, seed=3)


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def quiet(_: str) -> None:
    """Say nothing."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of six streams."""
    folder = tmp_path_factory.mktemp("streams")
    Shards(folder, TINY).complete(quiet)
    return folder


# The streams --------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gives_finite_rows_of_any_length(family: str) -> None:
    for seed, n in ((0, 64), (1, 300), (2, 1500)):
        rows = draw_sensor(random(seed), n, family).rows
        assert rows.shape == (n, 4) and rows.dtype == np.float32
        assert np.isfinite(rows).all()


def test_a_seed_names_a_corpus() -> None:
    corpus = read_corpus()
    one, same, other = (
        [draw_stream(rng, 200, corpus) for _ in range(40)] for rng in map(random, (0, 0, 1))
    )
    assert all(np.array_equal(a.rows, b.rows) for a, b in zip(one, same, strict=True))
    assert [a.family for a in one] == [b.family for b in same] != [b.family for b in other]


def test_rows_say_what_the_model_reads() -> None:
    corpus = read_corpus()
    drawn = [draw_stream(random(seed), 400, corpus) for seed in range(150)]
    n_missing, n_late = 0, 0
    for stream in drawn:
        rows = stream.rows
        measured, season, phase = rows[:, MEASURED], rows[:, SEASON], rows[:, PHASE]
        assert set(measured.tolist()) <= {0.0, 1.0}
        assert (rows[measured == 0, VALUE] == 0).all()
        told = season > 0
        assert (phase[~told] == 0).all() and (phase[told] < season[told]).all()
        assert len(set(season[told].tolist())) <= 1
        steps = np.diff(phase[told])
        assert np.isin(steps, (1, 1 - season.max())).all()
        n_missing += bool((measured == 0).any())
        n_late += bool(told.any() and not told[0])
    assert n_missing > 10 and n_late > 3
    assert {stream.family for stream in drawn} > {REAL, "kernels"}


def test_a_season_is_told_mostly_but_not_of_streams_too_short_for_it() -> None:
    found = [told_season(random(seed), 600, 24)[0][-1] for seed in range(300)]
    assert 0.6 < np.mean(np.array(found) == 24) < 0.9
    assert all(told_season(random(seed), 600, 365)[0][-1] * 3 < 600 for seed in range(100))


def test_pieces_of_real_series_keep_their_gaps_and_repeat_with_the_seed() -> None:
    corpus = read_corpus()
    assert len(corpus) == 13 and all(np.isfinite(series.values).any() for series in corpus)
    one, same = (draw_piece(random(4), 900, corpus) for _ in range(2))
    assert np.array_equal(one.rows, same.rows)
    gaps = [draw_piece(random(seed), 900, corpus[4:5]).rows[:, MEASURED] for seed in range(5)]
    assert all(0.2 < 1 - measured.mean() < 0.9 for measured in gaps)  # the road: 57 %


def test_filters_in_blocks_equal_the_recursion() -> None:
    noise, pole = random().normal(size=BURN_IN + 200), complex(0.9 * np.exp(0.4j))
    held, found = 0.0, []
    for value in noise:
        held = 0.97 * held + value
        found.append(held)
    np.testing.assert_allclose(filtered(noise, 0.97), found, atol=1e-10)  # float64 sums
    past = [0.0, 0.0]
    for value in noise:
        past.append(value + 2 * pole.real * past[-1] - abs(pole) ** 2 * past[-2])
    np.testing.assert_allclose(autoregression(noise, [pole]), past[2 + BURN_IN :], atol=1e-10)


# Shards -------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_batch_holds_rows_as_the_experts_saw_them(cache: Path) -> None:
    shards = Shards(cache, TINY)
    shards.complete(quiet)
    features, answers = shards.batch(np.array([5, 0]), np.array([7, 0]), 20)
    watched = Sensors().watched(torch.from_numpy(TINY.rows(0)))
    np.testing.assert_allclose(features[0], watched.features[7:27, 5], atol=5e-3, rtol=1e-3)
    assert np.array_equal(answers[1, :, 0], watched.z[:20, 0].numpy())  # half precision above


@pytest.mark.long
def test_what_is_missing_is_made_again_to_the_same_bits(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensor_shards, "SHARD", 4)
    whole, said = tmp_path / "streams", list[str]()
    Shards(whole, TINY).complete(said.append)
    assert len(said) == 1 and "6 streams" in said[0]
    before = {path.name: path.read_bytes() for path in whole.glob("*.npy")}
    assert len(before) == 4
    (whole / "00001-2-answers.npy").unlink()
    Shards(whole, TINY).complete(said.append)
    assert len(said) == 2 and "2 streams" in said[1]
    assert before == {path.name: path.read_bytes() for path in whole.glob("*.npy")}


@pytest.mark.long
def test_files_of_other_streams_or_other_experts_are_refused(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TrainingError, match="data-cache"):
        Shards(cache, StreamSet(n_streams=6, n_slots=64, seed=4)).complete(quiet)
    more = Shards(cache, StreamSet(n_streams=7, n_slots=64, seed=3))
    kept = set(cache.iterdir())
    more.complete(quiet)  # other numbers of streams live side by side
    for path in set(cache.iterdir()) - kept:
        path.unlink()
    rows = sensor_shards._probe_rows()
    monkeypatch.setattr(sensor_shards, "_probe_rows", lambda: rows[::-1].copy())
    with pytest.raises(TrainingError, match="experts"):
        Shards(cache, TINY).complete(quiet)
    (tmp_path / "made-of.json").write_text("{")
    with pytest.raises(DataError):
        Shards(tmp_path, TINY).complete(quiet)


# A run --------------------------------------------------------------------------------------------


class StopsAfterOne(SensorsTask):
    """Asks the training to stop, as Ctrl-C would, while drawing the batch of the first step."""

    n_drawn = 0

    def training_batch(self, n_tasks: int, generator: torch.Generator) -> Batch:
        self.n_drawn += 1
        if self.n_drawn == 2:  # the first one scales the features
            os.kill(os.getpid(), signal.SIGINT)
        return super().training_batch(n_tasks, generator)


@pytest.mark.long
def test_a_run_of_two_steps_resumes_to_the_same_bits(cache: Path, tmp_path: Path) -> None:
    config = FitConfig(steps=2, batch=2, warmup=1, log_every=1)

    def fresh() -> Any:
        torch.manual_seed(0)
        return create_model("sensors")

    start = {name: tensor.clone() for name, tensor in fresh().state_dict().items()}
    task = SensorsTask(cache, TINY, n_rows=32)
    assert fit(fresh(), task, config, tmp_path / "whole")
    assert not fit(fresh(), StopsAfterOne(cache, TINY, 32), config, tmp_path / "cut")
    assert fit(fresh(), SensorsTask(cache, TINY, 32), config, tmp_path / "cut", resume=True)
    whole, cut = (load_model(tmp_path / name)[0].state_dict() for name in ("whole", "cut"))
    assert all(torch.equal(whole[name], cut[name]) for name in whole)
    assert not all(torch.equal(whole[name], start[name]) for name in whole)


def test_batches_begin_at_the_start_of_a_stream_or_anywhere(cache: Path) -> None:
    task = SensorsTask(cache, TINY, n_rows=32)
    one, same = (task.training_batch(64, torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(one.x_context, same.x_context)
    assert one.x_context.shape[:2] == (64, 32) and one.y_context.shape == (64, 32, 1)
    assert one.mask is not None and one.mask.shape == (64, 32)
    from_start = (one.x_context[:, 0] == 0).all(1)  # nothing is known before the first row
    assert 16 < from_start.sum() < 48  # half of them, five standard deviations


@pytest.mark.long
def test_the_command_keeps_its_streams_and_refuses_others(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    words = ["train", "sensors", "--out", str(out)]
    sizes = ["--series", "2", "--slots", "64", "--rows", "24", "--steps", "1", "--batch", "1"]
    assert main([*words, *sizes]) == 0
    assert (out / "streams" / "00000-2-answers.npy").exists()
    assert "experts go over 2 streams" in capfd.readouterr().err
    assert main([*words, "--resume", "--series", "3"]) != 0
    assert "--series" in capfd.readouterr().err
    assert main([*words, "--resume"]) == 0


def test_options_that_make_no_sense_are_refused() -> None:
    runs = Path("runs")
    for wrong in (
        SensorsOptions(series=0, out=runs),
        SensorsOptions(slots=3, out=runs),
        SensorsOptions(rows=0, out=runs),
    ):
        with pytest.raises(TrainingError):
            SensorsTask.from_options(wrong)


# Scores -------------------------------------------------------------------------------------------


def test_a_model_without_training_scores_as_its_experts_nearly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sensors_module, "EVALUATED_SLOTS", 48)
    monkeypatch.setattr(sensors_module, "MOST_STREAMS", 3)
    model = create_model("sensors").eval()
    scores, text = SensorsTask().evaluate(model, 1, 0, ("mine", "0 steps"))
    found = scores["sensors"]["all"]
    assert found["n_streams"] == 3 and 0 < found["n_rows"] <= 3 * 48
    assert abs(found["gain"]) < 0.3  # fresh weights are almost neutral
    assert "mine, 0 steps" in text and "nats" in text
    assert len(scores["sensors"]) == 1 + len({s.family for s in held_out(3, 48, 0)})


@pytest.mark.long
def test_the_quick_way_to_answers_is_that_of_the_steps() -> None:
    torch.manual_seed(0)
    model = Sensors().eval()
    last = model.network.head[-1]
    assert isinstance(last, torch.nn.Linear)
    torch.nn.init.normal_(last.weight, std=0.05)
    whole = [stream for stream in held_out(20, 120, 0) if stream.rows[:, MEASURED].all()]
    rows = torch.from_numpy(np.stack([stream.rows for stream in whole[:4]]))
    with torch.inference_mode():
        quick, slow = one_ahead(model, rows), by_steps(model, rows)
    assert torch.equal(quick.isnan(), slow.isnan()) and not slow[:, 40:].isnan().any()
    # float32; tails beyond 5.2 deviations are held in z
    torch.testing.assert_close(quick.nan_to_num(), slow.nan_to_num(), atol=2e-3, rtol=2e-3)
    assert (slow[:, 40:, 2] - slow[:, 40:, 0]).abs().max() > 0.05  # the network says something


def test_scores_are_means_over_streams_of_the_rows_that_count() -> None:
    told = np.full((2, 4, 4), np.nan)  # log density and p-value, experts and model
    told[0, :2] = [[1.0, 0.5, 1.5, 0.05], [1.0, 0.01, 1.5, 0.5]]
    told[1, :] = [0.0, 0.5, 0.25, 0.0005]
    score = score_of(told)
    assert (score.n_streams, score.n_rows) == (2, 6)
    assert score.gain == pytest.approx((0.5 + 0.25) / 2)
    assert score.band_experts == pytest.approx(1 - (0.5 + 0) / 2)
    assert score.band == pytest.approx(1 - (0.5 + 1) / 2)
    assert score.rare == pytest.approx(0.5) and score.worst == pytest.approx(0.25)
    parts = scores_by_family(told, np.array(["b", "a"]))
    assert list(parts) == ["all", "b", "a"] and "b" in table(parts, "mine")


def test_rows_without_a_value_are_not_scored() -> None:
    stream = draw_sensor(random(), 64)
    stream.rows[20:30, MEASURED] = 0
    stream.rows[20:30, VALUE] = 0
    told = answers_of(create_model("sensors").eval(), [stream], lambda _: None)
    assert np.isnan(told[0, 20:30]).all() and np.isfinite(told[0, 40:]).any()
