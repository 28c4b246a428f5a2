"""The copy task and human activity: what they draw, read and refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from edgefold.runtime.errors import DataError, TrainingError
from edgefold.train.models.registry import accepted, create_model
from edgefold.train.tasks.copy import BOS, EOS, CopyTask
from edgefold.train.tasks.sequences.human_activity import (
    TAGS,
    UNKNOWN,
    URL,
    HumanActivityOptions,
    HumanActivityTask,
    read_windows,
)
from tests.published import missing_columns


def test_the_second_half_mirrors_the_first_and_ends_with_the_last_token() -> None:
    batch = CopyTask(16).evaluation_batch(3, torch.Generator().manual_seed(0))
    first, second = batch.y_context[..., 0], batch.y_target[..., 0]
    assert first.shape == second.shape == (3, 8)
    assert (first[:, 0] == BOS).all() and (second[:, -1] == EOS).all()
    assert torch.equal(second[:, :-1], first[:, 1:].flip(1)) and first[:, 1:].max() <= 9
    places = torch.cat([batch.x_context, batch.x_target], 1)[0]
    assert len({tuple(place) for place in places.tolist()}) == 16


def test_shorter_batches_are_the_middle_of_whole_ones() -> None:
    task, generator = CopyTask(64), torch.Generator().manual_seed(0)
    batches = [task.training_batch(2, generator) for _ in range(40)]
    assert {b.x_context.shape[1] for b in batches} == {4, 8, 16, 32}
    for batch in batches:
        assert batch.x_target.shape == batch.x_context.shape
        mirrored = batch.y_context.flip(1)
        assert torch.equal(batch.y_target[:, :-1], mirrored[:, :-1])


def test_a_length_that_is_no_power_of_two_is_refused() -> None:
    with pytest.raises(TrainingError, match="power of 2"):
        CopyTask(100)


@pytest.mark.parametrize("name", ["retreever", "perceiver-io"])
def test_a_model_is_told_accuracy_and_tokens_read(name: str) -> None:
    task = CopyTask(16)
    own = {"n_inputs": task.n_inputs, **task.model_settings, "n_latents": 4}
    model = create_model(name, accepted(name, own))
    scores, text = task.evaluate(model, 2, 1, ("untrained", "0 steps"))
    assert 0 <= scores["copy"]["accuracy"] < 0.5 and scores["copy"]["n_sequences"] == 64
    assert not missing_columns("copy-256", scores)
    assert scores["copy"]["tokens_read"] == 4 and "50.0 %" in text


def recording(name: str, n_points: int) -> str:
    """Lines of a recording in UCI's form: two readings a time point, of one tag and another."""
    lines = []
    for point in range(n_points):
        ticks = 633790226051280329 + point * 300_000
        activity = "walking" if point < n_points // 2 else "lying down"
        date = "27.05.2009 14:03:25:127"
        for tag, x, late in ((TAGS[point % 4], 1.0, 0), (TAGS[point % 4], 3.0, 30_000)):
            lines.append(f"{name},{tag},{ticks + late},{date},{x},{point / 10},0.5,{activity}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ConfLongDemo_JSI.txt"
    path.write_text(recording("A01", 101) + recording("B02", 60) + recording("C03", 20))
    return path


def test_recordings_become_windows_of_fifty_time_points(file: Path) -> None:
    windows = read_windows(file)
    assert windows.x.shape == (4, 50, 17) and windows.y.shape == (4, 50, 1)
    first = windows.x[0]
    assert first[0, :4].tolist() == pytest.approx([0, 2.0, 0, 0.5])  # the mean of 1 and 3
    assert first[0, 13:].tolist() == [1, 0, 0, 0] and first[1, 13:].tolist() == [0, 1, 0, 0]
    assert (first[1:, 0] > first[:-1, 0]).all() and windows.x[1, 0, 0] == 0
    assert set(windows.y[0].flatten().tolist()) == {0} and windows.y[2, -1] == 2


def test_context_points_do_not_tell_the_activity(file: Path) -> None:
    task = HumanActivityTask(file)
    batch = task.training_batch(5, torch.Generator().manual_seed(0))
    assert (batch.y_context == UNKNOWN).all() and (batch.y_target < UNKNOWN).all()
    assert len(task.train.x) == 3 and len(task.test.x) == 1
    model = create_model("retreever", {
        "n_inputs": task.n_inputs, "n_encoder_layers": 1, **task.model_settings
    })  # fmt: skip
    assert model.loss(batch, torch.Generator().manual_seed(0)).isfinite()
    scores, _ = task.evaluate(model, 10, 1, ("untrained", "0 steps"))
    assert scores["human-activity"]["n_windows"] == 1
    assert not missing_columns("human-activity", scores)
    again = HumanActivityTask.from_options(HumanActivityOptions(), task.describe())
    assert torch.equal(again.test.x, task.test.x)


def test_a_missing_file_is_refused_with_what_to_download(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Download") as refused:
        read_windows(tmp_path / "none.txt")
    assert URL in str(refused.value) and "--file" in str(refused.value)


def test_a_line_of_another_form_is_refused_with_its_number(file: Path) -> None:
    file.write_text(file.read_text().replace("lying down", "swimming", 1))
    with pytest.raises(DataError, match="line 101 "):
        read_windows(file)
