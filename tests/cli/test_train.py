from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from edgefold.cli.commands import train as train_command
from edgefold.cli.commands.train import fit_config
from edgefold.cli.main import build_parser, main
from edgefold.train.checkpoints import load_model, load_tensors
from edgefold.train.tasks.registry import TASKS, task_class
from edgefold.train.training_loop import FitConfig


def series_lines(n: int = 200) -> list[str]:
    """A trend, a season of 24 rows and something uneven."""
    return [
        f"{i},{20 + 0.01 * i + 3 * math.sin(2 * math.pi * i / 24) + math.sin(i * i):.3f}"
        for i in range(n)
    ]


def write_csv(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(["time,value", *lines]) + "\n")
    return path


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "sensor.csv", series_lines())


def train(*words: object) -> int:
    return main(["train", *map(str, words), "--threads", "1"])


def config_of(run: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((run / "config.json").read_text())
    return config


@pytest.mark.long
def test_a_series_run_keeps_what_rebuilds_its_task(tmp_path: Path, csv: Path) -> None:
    out = tmp_path / "run"
    assert train("series", "--csv", csv, "--season", 24, "--steps", 20, "--out", out) == 0
    config = config_of(out)
    assert config["training"]["steps_done"] == 20
    assert config["training"]["batch"] == 8 and config["training"]["warmup"] == 200
    task = config["task"]
    assert task["file"] == "sensor.csv" and task["columns"] == ["time", "value"]
    assert task["n_training_rows"] == 160
    assert task["features"]["season"] == 24.0
    assert load_model(out)[0].config.n_inputs == len(task["x_shift"]) == 6 + 1 + 6
    assert (out / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("gp", {"steps": 10_000, "batch": 16, "warmup": 500, "learning_rate": 2e-3}),
        ("series", {"steps": 5_000, "batch": 8, "warmup": 200, "learning_rate": 2e-3}),
        ("gp --preset paper", {"steps": 100_000, "batch": 16}),
        ("series --preset paper --steps 7", {"steps": 7, "batch": 8}),
        ("gp --preset plain", {"learning_rate": 5e-4}),
        ("gp --preset plain --learning-rate 0.1 --seed 3", {"learning_rate": 0.1, "seed": 3}),
    ],
)
def test_each_task_has_its_own_defaults(words: str, expected: dict[str, float]) -> None:
    argv = ["train", *words.split(), "--out", "x"]
    args = build_parser(argv).parse_args(argv)
    config = fit_config(args, task_class(args.task).training, None, {})
    assert {name: getattr(config, name) for name in expected} == expected


@pytest.mark.long
def test_a_killed_run_resumes_to_the_uninterrupted_ones_bits(tmp_path: Path) -> None:
    words = ["gp", "--steps", "100", "--batch", "2", "--warmup", "20"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    command = [sys.executable, "-m", "edgefold.cli.main", "train", *words, "--threads", "1"]
    process = subprocess.Popen(
        [*command, "--out", str(cut)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    history = cut / "history.jsonl"
    while process.poll() is None and not (history.exists() and history.read_text()):
        time.sleep(0.02)  # the first line comes after 50 steps
    process.send_signal(signal.SIGTERM)
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    assert "--resume" in out
    steps_done = config_of(cut)["training"]["steps_done"]
    assert 50 <= steps_done < 100
    assert load_tensors(cut / "resume.safetensors")[1]["step"] == str(steps_done)

    assert train("gp", "--out", cut, "--resume") == 0
    assert train(*words, "--out", whole) == 0
    a, b = (load_model(run)[0].state_dict() for run in (whole, cut))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert config_of(cut)["training"]["command"].endswith(str(cut))  # the one that started it


class Killed(BaseException):
    """What ends a process at once; nothing of ours catches it."""


@pytest.mark.long
@pytest.mark.parametrize("steps", [2, 4])
def test_a_kill_before_any_change_of_the_files_is_made_up_for(
    tmp_path: Path, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is a config.json the run resumes; where there is none it starts."""
    config = FitConfig(steps, batch=2, warmup=2, threads=1, log_every=2, save_every_s=0.0)
    monkeypatch.setattr(train_command, "fit_config", lambda *_: config)
    monkeypatch.setattr("edgefold.train.loss_curve.draw_curve", lambda run: run)
    sizes = ("n_blocks=1", "width=8", "n_heads=2", "n_latents=4", "feedforward=8")
    settings = [word for size in sizes for word in ("--set", size)]
    left = [0]

    def dying(change: Callable[..., Any]) -> Callable[..., Any]:
        def killed(*args: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return change(*args, **named)

        return killed

    for change in ("replace", "unlink"):
        monkeypatch.setattr(os, change, dying(getattr(os, change)))

    def tried(run: Path, n: int) -> bool:
        """Train, up to the n-th change of a file; whether it came so far."""
        left[0] = n
        words = ["--resume"] if (run / "config.json").exists() else []
        try:
            assert train("gp", "--out", run, *words, *settings) == 0
        except Killed:
            return False
        return True

    assert tried(tmp_path / "whole", 0)
    expected = (tmp_path / "whole/model.safetensors").read_bytes()
    n = 1
    while not tried(run := tmp_path / str(n), n):
        assert tried(run, 0)
        assert (run / "model.safetensors").read_bytes() == expected
        assert config_of(run)["training"]["steps_done"] == steps
        assert not (run / "resume.safetensors").exists()
        n += 1
    assert n > 3 * (steps // 2 + 1)  # three files a checkpoint, and one more at the end


def stopped_series_run(out: Path, csv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of 8 steps that was asked to stop after 3."""
    from edgefold.train.tasks.series import SeriesTask

    real, drawn = SeriesTask.training_batch, [0]

    def draw(self: SeriesTask, n_tasks: int, generator: torch.Generator) -> Any:
        drawn[0] += 1
        if drawn[0] == 3:
            signal.raise_signal(signal.SIGTERM)
        return real(self, n_tasks, generator)

    with monkeypatch.context() as patch:
        patch.setattr(SeriesTask, "training_batch", draw)
        words = ("--batch", 2, "--season", 24, "--gaps", "interpolate")
        assert train("series", "--csv", csv, *words, "--steps", 8, "--out", out) == 0
    assert config_of(out)["training"]["steps_done"] == 3


def test_a_resumed_series_takes_its_settings_from_the_run(
    tmp_path: Path, csv: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    stopped_series_run(out, csv, monkeypatch)
    before = config_of(out)
    monkeypatch.chdir(tmp_path)  # the file is found by its name
    assert train("series", "--out", out, "--resume") == 0
    after = config_of(out)
    assert after["task"] == before["task"] and after["model"] == before["model"]
    assert after["training"]["steps_done"] == 8 and after["training"]["batch"] == 2
    capsys.readouterr()
    assert train("series", "--out", out, "--resume") == 0
    assert "nothing to resume" in capsys.readouterr().out


PAPERS = {"learning_rate": 5e-4, "warmup": 0, "clip_norm": None, "optimizer": "adam", "batch": 16}


@pytest.mark.parametrize(
    ("words", "training", "draws"),
    [
        (("--preset", "paper"), PAPERS, "batch"),
        (("--recipe", "paper"), PAPERS, "batch"),
        (("--preset", "paper", "--recipe", "own"), {"warmup": 500, "clip_norm": 1.0}, "function"),
        (("--preset", "paper", "--draws", "function"), PAPERS, "function"),
        (("--preset", "paper", "--batch", "4"), {**PAPERS, "batch": 4}, "batch"),
        ((), {"warmup": 500, "clip_norm": 1.0, "batch": 16}, "function"),
    ],
)
def test_the_preset_paper_trains_by_the_papers_recipe(
    tmp_path: Path, words: tuple[str, ...], training: dict[str, Any], draws: str
) -> None:
    out = tmp_path / "run"
    assert train("gp", "--model", "cnp", "--steps", "2", *words, "--out", out) == 0
    config = config_of(out)
    assert {name: config["training"][name] for name in training} == training
    assert config["task"]["draws"] == draws


def test_a_task_without_a_recipe_has_no_such_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        train("hawkes", "--recipe", "paper", "--out", tmp_path / "run")
    assert "unrecognized arguments: --recipe" in capsys.readouterr().err


@pytest.mark.one_case
@pytest.mark.parametrize(
    "words",
    [
        ("--steps", "9"),
        ("--seed", "1"),
        ("--learning-rate", "0.5"),
        ("--weight-decay", "0.1"),
        ("--preset", "paper"),
        ("--preset", "plain"),
    ],
)
def test_a_resumed_run_refuses_another_schedule_or_model(
    tmp_path: Path,
    csv: Path,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "run"
    stopped_series_run(out, csv, monkeypatch)
    before = config_of(out)
    with pytest.raises(SystemExit, match="2"):
        train("series", "--csv", csv, "--out", out, "--resume", *words)
    assert "the run in" in capsys.readouterr().err
    assert config_of(out) == before


def test_a_resumed_run_refuses_another_series(
    tmp_path: Path, csv: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    stopped_series_run(out, csv, monkeypatch)
    write_csv(csv, series_lines(220))
    assert train("series", "--csv", csv, "--out", out, "--resume") == 1
    assert "another task than the run" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        train("gp", "--out", out, "--resume")


def test_a_run_that_exists_is_not_overwritten(
    tmp_path: Path, csv: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    stopped_series_run(out, csv, monkeypatch)
    before = (out / "model.safetensors").read_bytes()
    with pytest.raises(SystemExit, match="2"):
        train("series", "--csv", csv, "--out", out)
    assert "--resume" in capsys.readouterr().err
    assert (out / "model.safetensors").read_bytes() == before


def test_there_must_be_a_run_to_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train("gp", "--out", tmp_path / "none", "--resume") == 1
    error = capsys.readouterr().err
    assert "config.json is missing" in error and error.count("\n") == 1


LINES = series_lines()
BAD_FILES = {
    "text": (
        ["time,value", *LINES[:50], "50,warm", *LINES[51:]],
        "line 52: column value is 'warm'",
    ),
    "duplicate": (["time,value", *LINES[:50], "49,0.5", *LINES[50:]], "--duplicates keep-first"),
    "unsorted": (["time,value", *LINES[:50], *reversed(LINES[50:])], "sort the rows"),
    "gap": (["time,value", *LINES[:50], *LINES[53:]], "--gaps interpolate"),
    "short": (["time,value", *LINES[:70]], "at least 64"),
    "column": (["when,what,who", *(f"{line},1" for line in LINES)], "--time, --value"),
    "empty": ([], "holds no lines"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_one_clear_line_and_leaves_nothing(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, words = BAD_FILES[name]
    path = tmp_path / "bad.csv"
    path.write_text("".join(f"{line}\n" for line in lines))
    assert train("series", "--csv", path, "--steps", 3, "--out", tmp_path / "run") == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and str(path) in error and words in error
    assert not (tmp_path / "run").exists()


def test_a_missing_file_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("series", "--csv", tmp_path / "no.csv", "--out", tmp_path / "run") == 1
    error = capsys.readouterr().err
    assert "cannot open" in error and error.count("\n") == 1


def test_gaps_are_bridged_where_asked(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "gaps.csv", [*LINES[:50], *LINES[53:]])
    out = tmp_path / "run"
    words = ("--gaps", "interpolate", "--steps", 2, "--batch", 2, "--out", out)
    assert train("series", "--csv", path, *words) == 0
    assert config_of(out)["task"]["gaps"] == "interpolate"
    assert config_of(out)["task"]["n_training_rows"] == 157  # four fifths of the real rows


def test_a_file_whose_last_rows_come_at_another_pace_is_refused(tmp_path: Path) -> None:
    slow = [f"{200 + 3 * k},{math.sin(k)}" for k in range(100)]
    lines = [*(f"{k},{math.sin(k)}" for k in range(200)), *slow]
    path = write_csv(tmp_path / "slow.csv", lines)
    words = ("--csv", path, "--gaps", "interpolate", "--out", tmp_path / "run")
    assert train("series", *words) == 1


@pytest.mark.long
def test_a_run_keeps_how_its_file_was_read(tmp_path: Path) -> None:
    rough = [line.replace(",", ";").replace(".", ",") for line in LINES]
    path = tmp_path / "rough.csv"
    path.write_text("\n".join(["When;Note;Level", *(r.replace(";", ";x;") for r in rough)]) + "\n")
    out = tmp_path / "run"
    words = ("--time", "When", "--value", "Level", "--decimal", ",", "--mend")
    assert train("series", "--csv", path, *words, "--steps", 2, "--batch", 2, "--out", out) == 0
    task = config_of(out)["task"]
    assert task["columns"] == ["When", "Level"] and task["format"]["decimal"] == ","
    kept = {name: task[name] for name in ("gaps", "duplicates", "bad_rows")}
    assert kept == {"gaps": "interpolate", "duplicates": "keep-first", "bad_rows": "skip"}
    assert main(["evaluate", str(out), "--csv", str(path)]) == 0
    assert train("series", "--csv", path, "--steps", 2, "--out", out, "--resume") == 0


@pytest.mark.parametrize(
    "words",
    [
        ["gp", "--csv", "x.csv"],
        ["gp", "--gaps", "refuse"],
        ["gp", "--steps", "0"],
        ["gp", "--learning-rate", "nan"],
        ["gp", "--optimizer", "adam", "--weight-decay", "0.1"],
        ["gp", "--optimizer", "muon", "--weight-decay", "nan"],
        ["gp", "--seed", "99999999999999999999"],
        ["gp", "--seed", "-1"],
        ["series", "--csv", "x.csv", "--season", "nan"],
        ["series", "--csv", "x.csv", "--season", "-1"],
    ],
)
def test_wrong_usage_leaves_with_two(words: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        train(*words, "--out", tmp_path / "run")


GP_RUN = ("gp", "--steps", 1, "--batch", 2, "--set", "n_blocks=1", "--set", "n_latents=4")


def test_a_related_model_starts_from_anothers_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """CMANP-AND shares CMANP's encoder; a warm-up of 10^9 steps leaves it where it began."""
    assert train(*GP_RUN, "--seed", 1, "--out", tmp_path / "first") == 0
    words = [*GP_RUN, "--model", "cmanp-and", "--warmup", 10**9, "--out", tmp_path / "second"]
    capsys.readouterr()
    assert train(*words, "--start-from", tmp_path / "first") == 0
    assert f"tensors begin as in {tmp_path / 'first'}" in capsys.readouterr().err
    first, second = (load_model(tmp_path / name)[0].state_dict() for name in ("first", "second"))
    shared = [name for name in first if name in second]
    assert len(shared) > 20
    assert all(torch.allclose(first[name], second[name], atol=1e-6) for name in shared)


def test_a_start_from_a_run_that_does_not_fit_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(*GP_RUN, "--out", tmp_path / "first") == 0
    words = ["gp", "--model", "cnp", "--steps", 1, "--start-from"]
    assert train(*words, tmp_path / "first", "--out", tmp_path / "r") == 1
    assert "no weights of" in capsys.readouterr().err
    assert train(*words, tmp_path / "nowhere", "--out", tmp_path / "r") == 1
    assert not (tmp_path / "r").exists()
    with pytest.raises(SystemExit) as stopped:
        train(*GP_RUN, "--resume", "--start-from", "x", "--out", tmp_path / "first")
    assert stopped.value.code == 2


def test_the_help_lists_every_task_that_comes_with_edgefold() -> None:
    assert set(train_command.SHIPPED) == set(TASKS)


def test_the_help_of_a_model_explains_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "gp", "--model", "retreever", "--help"])
    printed = capsys.readouterr().out
    assert "branching: Children of a node." in printed
    assert "when_full, of the next one: refuse, overwrite" in printed
