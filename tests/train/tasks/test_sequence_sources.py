"""Where sequences come from: what lies in Edgefold, local files, and what broken ones are told."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgefold.cli.main import main
from edgefold.runtime.errors import DataError
from edgefold.train.tasks.sequences.human_activity import TAGS
from edgefold.train.tasks.sequences.sequence_files import GENRES, TRACK_SHAPE, gtzan, thumos14
from edgefold.train.tasks.sequences.sequence_scores import scored
from edgefold.train.tasks.sequences.sequence_sources import UNLABELLED, digits
from edgefold.train.tasks.sequences.sequences import SequenceOptions, SequenceTask
from tests.published import missing_columns

SPOTTER = f"{Path(__file__).parents[3]}/examples/keyword_spotter.py:KeywordSpotter"


def task_of(source: str = "digits-rows", **options: Any) -> SequenceTask:
    return SequenceTask.from_options(SequenceOptions(source, **options))


@pytest.fixture
def tracks(tmp_path: Path) -> Path:
    """Eleven tracks of the first genre and two of each other; the values tell genre and track."""
    for label, genre in enumerate(GENRES):
        (tmp_path / genre).mkdir()
        for number in range(2 if label else 11):
            values = np.full(TRACK_SHAPE, 100 * label + number, np.float32)
            np.save(tmp_path / genre / f"{genre}.{number:05d}.npy", values)
    return tmp_path


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    """Two videos for training and one held out, of 2 and 3 columns."""
    names = {
        "video_validation_0000001": 80,
        "video_validation_0000002": 30,
        "video_test_0000001": 70,
    }
    for folder, width in (("rgb_kinetics_x", 2), ("flow_kinetics_y", 3)):
        (tmp_path / folder).mkdir()
        for name, n in names.items():
            longer = n + (width == 2)  # flow needs two frames
            rows = np.arange(longer, dtype=np.float32)[:, None] + np.zeros(width)
            np.save(tmp_path / folder / f"{name}.npy", rows.astype(np.float16))
    (tmp_path / "target_perframe").mkdir()
    for name, n in names.items():
        targets = np.zeros((n, 22), np.int64)
        targets[:, 0] = 1
        targets[20:25] = targets[64:66] = np.eye(22, dtype=int)[[5]] + np.eye(22, dtype=int)[[8]]
        targets[64:][-1:] = np.eye(22, dtype=int)[21]
        np.save(tmp_path / "target_perframe" / f"{name}.npy", targets)
    return tmp_path


def test_digits_are_read_row_by_row_and_named_after_the_last_one() -> None:
    found = digits()
    assert (len(found.training), len(found.held_out)) == (1437, 360)
    first = found.training[0]
    assert first.tokens().shape == (8, 8) and first.y.tolist() == [UNLABELLED] * 7 + [0]
    labels = np.array([recording.y[-1] for recording in (*found.training, *found.held_out)])
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    zeros, ones = (np.mean([r.tokens() for r in found.training if r.y[-1] == k], 0) for k in (0, 1))
    assert zeros[4, 3:5].mean() < 3 < 12 < ones[4, 3:5].mean()  # a zero is hollow, a one is not


def test_an_endless_stream_has_every_digit_once_in_no_order() -> None:
    apart, joined = digits(), digits(endless=True)
    (training,), (held_out,) = joined.training, joined.held_out
    assert (len(training), len(held_out)) == (8 * 1437, 8 * 360)
    labels = held_out.y[held_out.y != UNLABELLED]
    assert np.array_equal(np.flatnonzero(held_out.y != UNLABELLED), np.arange(7, 2880, 8))
    assert sorted(labels) == sorted(recording.y[-1] for recording in apart.held_out)
    assert np.mean(np.diff(labels) % 10 == 1) < 0.2  # the file's order gives 0.9


def test_exercises_are_split_by_person() -> None:
    task = task_of("exercises")
    assert (len(task.sequences.training), len(task.sequences.held_out)) == (98, 42)
    every = [*task.sequences.training, *task.sequences.held_out]
    assert np.bincount([recording.y[0] for recording in every]).tolist() == [20] * 7
    x = np.concatenate([recording.tokens() for recording in task.sequences.training])
    at = (x - task.sequences.shift) / task.sequences.scale
    assert np.allclose(at.mean(0), 0, atol=1e-4) and np.allclose(at.std(0), 1, atol=1e-4)


def test_every_tenth_track_of_a_genre_is_held_out(tracks: Path) -> None:
    task = task_of("gtzan", folder=tracks)
    found = task.sequences
    held_out = [int(recording.tokens()[0, 0]) for recording in found.held_out]
    assert held_out == [9, *(100 * label + 1 for label in range(1, 10))]
    assert [int(r.y[-1]) for r in found.held_out] == list(range(10))
    assert found.training[0].tokens().shape == (120, 128)
    assert "29 tracks (the data set has 1,000)" in task.notes[0]
    batch = task.training_batch(4, torch.Generator().manual_seed(0))
    assert batch.x_context.shape == (4, 119, 128) and batch.y_target.shape == (4, 1, 1)


def test_videos_are_read_beside_each_other_and_ambiguous_tokens_do_not_count(videos: Path) -> None:
    found = thumos14(videos, "kinetics")
    assert found.n_inputs == 5 and len(found.classes) == 21
    first, (held_out,) = found.training[0], found.held_out
    assert first.tokens(3, 5).tolist() == [[3] * 5, [4] * 5]
    assert first.y[[0, 19, 20, 24, 25, 79]].tolist() == [0, 0, 5, 5, 0, UNLABELLED]
    assert first.truth is not None and first.truth[20].nonzero()[0].tolist() == [5, 8]
    assert scored(held_out, found).tolist() == list(range(63, 69))
    # The second video is shorter than a window: the mask hides what lies before its start.
    task = task_of("thumos14", folder=videos)
    batch = task.training_batch(64, torch.Generator().manual_seed(0))
    assert batch.mask is not None
    hidden = (~batch.mask).sum(1)
    assert set(hidden.tolist()) == {0} or set(hidden.tolist()) <= {0, 64 - 30}
    assert (batch.x_context[~batch.mask] == 0).all() and (batch.y_target >= 0).all()


def test_targets_of_the_actions_alone_are_read_too(videos: Path) -> None:
    for path in (videos / "target_perframe").glob("*.npy"):
        np.save(path, np.load(path)[:, 1:21])
    found = thumos14(videos, "kinetics").training[0]
    assert found.y[[0, 20, 79]].tolist() == [0, 5, 0]


def activity_file(path: Path, n_points: int = 200) -> Path:
    """Two recordings of UCI's form, of four tags."""
    lines = []
    for name in ("A01", "A02"):
        for point in range(n_points):
            tag, doing = TAGS[point % 4], "walking" if point < n_points // 2 else "lying"
            place = f"{point / 10},{1.0},{2.0}"
            lines.append(f"{name},{tag},{point * 10**5 + 5},27.05.2009 14:03:25,{place},{doing}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_human_activity_is_the_other_tasks_windows_in_order(tmp_path: Path) -> None:
    task = task_of("human-activity", folder=activity_file(tmp_path / "activity.txt"))
    batch = task.training_batch(3, torch.Generator().manual_seed(0))
    assert batch.x_context.shape == (3, 0, 17) and batch.y_target.shape == (3, 50, 1)
    assert task.sequences.classes[:3] == ("walking", "falling", "lying")


# What is told of files ----------------------------------------------------------------------------


def no_genre(folder: Path) -> None:
    for path in (folder / "jazz").iterdir():
        path.unlink()


def cut_short(folder: Path) -> None:
    path = folder / "rock" / "rock.00001.npy"
    path.write_bytes(path.read_bytes()[:1000])


def a_pickle(folder: Path) -> None:
    (folder / "rock" / "rock.00001.npy").write_bytes(pickle.dumps({"x": 1}))


def other_shape(folder: Path) -> None:
    np.save(folder / "rock" / "rock.00001.npy", np.zeros((120, 64), np.float32))


def text(folder: Path) -> None:
    np.save(folder / "rock" / "rock.00001.npy", np.full(TRACK_SHAPE, "a"))


def not_finite(folder: Path) -> None:
    values = np.zeros(TRACK_SHAPE, np.float32)
    values[7, 3] = np.nan
    np.save(folder / "rock" / "rock.00001.npy", values)


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        (no_genre, "jazz"),
        (cut_short, "rock.00001.npy"),
        (a_pickle, "rock.00001.npy"),
        (other_shape, "(120, 128)"),
        (text, "numbers"),
        (not_finite, "token 7"),
    ],
)
def test_a_broken_track_is_named(broken: Any, named: str, tracks: Path) -> None:
    broken(tracks)
    with pytest.raises(DataError) as told:
        gtzan(tracks)
    assert named in str(told.value)


def no_targets(folder: Path) -> None:
    for path in (folder / "target_perframe").glob("video_test*"):
        path.unlink()


def no_flow(folder: Path) -> None:
    (folder / "flow_kinetics_y").rename(folder / "flow_other")


def one_flow(folder: Path) -> None:
    (folder / "flow_kinetics_y" / "video_test_0000001.npy").unlink()


def other_width(folder: Path) -> None:
    np.save(folder / "rgb_kinetics_x" / "video_test_0000001.npy", np.zeros((70, 4), np.float32))


def other_classes(folder: Path) -> None:
    np.save(folder / "target_perframe" / "video_test_0000001.npy", np.zeros((70, 30)))


def empty(folder: Path) -> None:
    np.save(folder / "target_perframe" / "video_test_0000001.npy", np.zeros((0, 22)))


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        (no_targets, "video_test_"),
        (no_flow, "flow_kinetics"),
        (one_flow, "flow_kinetics_y/video_test_0000001.npy"),
        (other_width, "rgb_kinetics_x/video_test_0000001.npy"),
        (other_classes, "(T, 22)"),
        (empty, "no tokens"),
    ],
)
def test_a_broken_video_is_named(broken: Any, named: str, videos: Path) -> None:
    broken(videos)
    with pytest.raises(DataError) as told:
        thumos14(videos, "kinetics")
    assert named in str(told.value)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"source": "gtzan"}, "kaggle.com"),
        ({"source": "thumos14"}, "target_perframe"),
        ({"source": "human-activity"}, "archive.ics.uci.edu"),
        ({"source": "exercises", "folder": Path("a")}, "--folder"),
        ({"source": "exercises", "endless": True}, "--endless"),
        ({"source": "gtzan", "folder": Path("a"), "pretrained": "anet"}, "--pretrained"),
        ({"source": "gtzan", "folder": Path("a")}, "blues"),
    ],
)
def test_a_source_says_what_it_needs(
    options: dict[str, Any], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as told:
        task_of(**options)
    assert named in str(told.value)


def test_a_run_of_videos_is_scored_beside_the_papers(
    videos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    train = ["train", "sequences", "--source", "thumos14", "--folder", str(videos)]
    model = ["--model", SPOTTER]
    steps = ["--set", "width=4", "--steps", "2", "--warmup", "1", "--out", str(run)]
    assert main([*train, *model, *steps]) == 0
    capsys.readouterr()
    json_file = tmp_path / "scores.json"
    words = ["evaluate", str(run), *model, "--threads", "1", "--json", str(json_file)]
    assert main(words) == 0
    assert not missing_columns("thumos14-anet", json.loads(json_file.read_text())["scores"])
    told = capsys.readouterr().out
    assert "cmAP" in told and "AttCo, 2 layers, as published" in told and "63.93" in told
