"""The task of sequences: batches, scores, baselines, commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from edgefold.cli.main import main
from edgefold.runtime.predictions import Categorical
from edgefold.train.contract import Prediction, State, StreamingModel
from edgefold.train.models.registry import create_model
from edgefold.train.tasks.sequences import sequence_scores
from edgefold.train.tasks.sequences.sequence_scores import (
    answers,
    average_precisions,
    baselines,
    logistic_regression,
    score,
)
from edgefold.train.tasks.sequences.sequence_sources import (
    UNLABELLED,
    LabelledTokens,
    SequenceSet,
    digits,
)
from edgefold.train.tasks.sequences.sequences import SequenceOptions, SequenceTask

SPOTTER = f"{Path(__file__).parents[3]}/examples/keyword_spotter.py:KeywordSpotter"


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def task_of(source: str = "digits-rows", **options: Any) -> SequenceTask:
    return SequenceTask.from_options(SequenceOptions(source, **options))


class Echo(StreamingModel):
    """Its scores are the token itself."""

    prediction = Categorical(3)
    n_inputs = 3

    def initial_state(self, n_streams: int = 1) -> State:
        return {"n": torch.zeros(n_streams, dtype=torch.int64)}

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        return {"n": state["n"] + 1}, {"scores": x}


# Batches ------------------------------------------------------------------------------------------


def test_a_batch_is_a_window_and_depends_on_the_generator_alone() -> None:
    task = task_of("exercises")
    one, same, other = (task.training_batch(5, seeded(seed)) for seed in (0, 0, 1))
    assert torch.equal(one.x_target, same.x_target)
    assert not torch.equal(one.x_target, other.x_target)
    assert one.x_context.shape == (5, 48, 6) and one.y_target.shape == (5, 16, 1)
    assert one.mask is None
    places = {tuple(r.tokens(0, 1)[0]) for r in task.sequences.training}
    assert len(places) > 90


def test_an_endless_window_ends_at_a_last_row() -> None:
    task = task_of(endless=True)
    batch = task.training_batch(20, seeded())
    assert batch.x_context.shape == (20, 23, 8)
    digit = torch.cat([batch.x_context, batch.x_target], 1)[0, -8:]
    each = task_of().training_batch(4000, seeded())
    rows = torch.cat([each.x_context, each.x_target], 1)
    same = (rows == digit).all(-1).all(-1)
    assert same.any() and (each.y_target[same] == batch.y_target[0]).all()


def test_a_bundle_takes_raw_tokens() -> None:
    task = task_of("exercises")
    described = task.describe()
    streams = SequenceTask.streams(described, SequenceOptions())
    episode = streams.calibration[0]
    tokens = {
        tuple(t)
        for r in task.sequences.training
        for t in r.tokens().astype(float).round(2).tolist()
    }
    assert tuple(np.round(episode.x[0], 2).tolist()) in tokens
    assert episode.n_context == 48 and len(episode.y) == 64
    assert described["classes"][0] == "pendulum"


# Scores -------------------------------------------------------------------------------------------


def echoed(held_out: list[LabelledTokens], **others: Any) -> SequenceSet:
    zero = np.zeros(3, np.float32)
    return SequenceSet(held_out, held_out, ("a", "b", "c"), 4, 1, zero, zero + 1, **others)


def test_streams_of_other_lengths_are_followed_apart_whatever_the_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sequence_scores, "CHUNK", 7)
    torch.manual_seed(0)
    model = create_model(SPOTTER, {"width": 4, "n_inputs": 3, "n_classes": 3})
    random = np.random.default_rng(0)
    recordings = [
        LabelledTokens((random.normal(size=(n, 3)),), np.zeros(n, np.int64)) for n in (20, 9, 14)
    ]
    told = answers(model, recordings, echoed(recordings))
    for recording, found in zip(recordings, told, strict=True):
        x = torch.from_numpy(recording.tokens())[None]
        with torch.no_grad():
            alone = model(x[:, :0], x[:, :0, :1], x)["scores"][0].double().log_softmax(-1)
        assert np.allclose(found, alone.numpy(), atol=1e-6)  # float32 products of other batches


def test_scores_count_tokens_from_the_first_full_window_on() -> None:
    y = np.array([0, 0, 0, 1, UNLABELLED, 2, 0])
    x = 4.0 * np.eye(3)[[1, 1, 1, 1, 0, 2, 1]]
    recordings = [LabelledTokens((x,), y), LabelledTokens((x[5:6],), y[5:6])]
    sequences = echoed(recordings)
    found = score(answers(Echo(), recordings, sequences), recordings, sequences)
    assert (found.n, found.accuracy) == (4, 0.75)
    right, wrong = np.exp(4) / (np.exp(4) + 2), 1 / (np.exp(4) + 2)
    assert found.nll == pytest.approx(-(3 * np.log(right) + np.log(wrong)) / 4)
    # Two recordings: their sums of (hit - 0.75) are -0.25 and 0.25.
    assert found.accuracy_error == pytest.approx(np.sqrt(2 * 0.125) / 4)


def test_average_precision_is_that_of_the_definition() -> None:
    scores = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
    truth = np.array([True, False, True, False, False, False])
    plain, calibrated = average_precisions(scores, truth)
    assert plain == pytest.approx((1 + 2 / 3) / 2)
    assert calibrated == pytest.approx((1 + (2 * 2) / (2 * 2 + 1)) / 2)  # 2 negatives a positive
    assert average_precisions(scores, scores > 0) == (1.0, 1.0)


def test_calibrated_precision_does_not_depend_on_how_rare_a_class_is() -> None:
    random = np.random.default_rng(0)
    positive, negative = random.normal(1, 1, 2000), random.normal(0, 1, 2000)
    common = average_precisions(np.r_[positive, negative], np.r_[[True] * 2000, [False] * 2000])
    many = np.tile(negative, 20) + 1e-9 * random.normal(size=40_000)
    rare = average_precisions(np.r_[positive, many], np.r_[[True] * 2000, [False] * 40_000])
    assert rare[0] < 0.7 * common[0]
    assert rare[1] == pytest.approx(common[1], abs=0.01)  # the same scores, ten times as many


def test_precisions_are_the_mean_over_actions_that_occur() -> None:
    x = 4.0 * np.eye(3)[[0, 1, 1, 0]]
    truth = np.eye(3, dtype=bool)[[0, 1, 0, 0]]
    recording = LabelledTokens((x,), np.array([0, 1, 0, 0]), truth)
    sequences = echoed([recording], has_background=True)
    sequences = SequenceSet(**{**vars_of(sequences), "window": 1})
    found = score(answers(Echo(), [recording], sequences), [recording], sequences)
    assert found.mean_ap == 1.0  # of class b; c never occurs, a is the background


def vars_of(sequences: SequenceSet) -> dict[str, Any]:
    return {name: getattr(sequences, name) for name in sequences.__slots__}


def test_a_logistic_regression_finds_the_plane_between_two_classes() -> None:
    x = torch.randn(400, 2, generator=seeded())
    y = (x[:, 0] + 2 * x[:, 1] > 0.3).long()
    told = logistic_regression(x, y, 2)(x)
    assert (told.argmax(-1) == y).float().mean() > 0.98
    assert torch.allclose(told.exp().sum(-1), torch.ones(400).double())


def test_baselines_on_digits_are_those_that_are_known() -> None:
    sequences = digits()
    found = baselines(sequences, sequences.held_out)
    share = {name: row.accuracy for name, row in found.items()}
    assert share["the most frequent class"] == pytest.approx(0.1, abs=0.01)
    assert 0.4 < share["logistic regression, last token"] < 0.55
    assert share["logistic regression, whole window"] > 0.88  # scikit-learn's own has 0.9 to 0.97


# Commands -----------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_run_is_trained_scored_and_drawn(tmp_path: Path) -> None:
    run, scores = tmp_path / "run", tmp_path / "scores.json"
    train = ["train", "sequences", "--model", SPOTTER, "--set", "width=16", "--steps", "60"]
    faster = ["--learning-rate", "0.01", "--warmup", "5", "--threads", "1"]
    assert main([*train, *faster, "--out", str(run)]) == 0
    config = json.loads((run / "config.json").read_text())
    assert config["task"]["source"] == "digits-rows" and len(config["task"]["classes"]) == 10
    picture = tmp_path / "p.png"
    evaluate = ["evaluate", str(run), "--model", SPOTTER, "--threads", "1", "--json", str(scores)]
    assert main([*evaluate, "--plot", str(picture)]) == 0
    assert picture.read_bytes()[:4] == b"\x89PNG"
    found = json.loads(scores.read_text())["scores"]
    assert (
        found["digits-rows"]["accuracy"]
        > 0.3
        > found["baselines"]["the most frequent class"]["accuracy"]
    )
    assert found["digits-rows"]["n"] == 360 and "mean_ap" not in found["digits-rows"]


def test_a_resumed_run_keeps_its_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    train = ["train", "sequences", "--model", SPOTTER, "--set", "width=4", "--out", str(run)]
    assert main([*train, "--steps", "2", "--warmup", "1"]) == 0
    assert main([*train, "--resume", "--source", "exercises"]) == 1
    assert "--source" in capsys.readouterr().err
