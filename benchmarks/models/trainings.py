"""Train, evaluate and record many runs, some at a time; after Ctrl-C it goes on where it was.

each run ──> edgefold train (resumes) ──> edgefold evaluate ──> one record, a JSON file
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

from benchmarks.record import ROOT, Record, conditions, progress, write_record
from edgefold.runtime.series.durations import duration

CURVE_POINTS = 40
PAUSE_S = 60.0
"""Between two lines on the progress."""


class Training(Protocol):
    """One training and its evaluation.

    Attributes:
        name: Of its record and its folder.
        n_steps: Steps of the optimiser.
    """

    @property
    def name(self) -> str: ...

    @property
    def n_steps(self) -> int: ...

    def training(self, folder: Path) -> list[str]:
        """Return the words behind `edgefold` that train it, or go on."""
        ...

    def score(self, folder: Path, log: Path) -> Record:
        """Return the scores of the trained run; commands write what they tell to `log`."""
        ...

    def facts(self) -> Record:
        """Return what its record tells of it."""
        ...


def edgefold(words: Sequence[str], log: Path | None = None) -> None:
    """One command of the product in a process of its own, with one thread.

    Raises:
        CalledProcessError: It failed; `log`, or stderr without one, has what it wrote.
    """
    single = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with log.open("a") if log else nullcontext(sys.stderr) as out:
        subprocess.run(
            [sys.executable, "-m", "edgefold.cli.main", *words],
            cwd=ROOT,
            env={**os.environ, **single},
            stdout=out,
            stderr=out,
            check=True,
        )


def execute(run: Training, runs: Path, records: Path) -> Record:
    """Train, evaluate and record one run.

    Raises:
        CalledProcessError: A command failed, or training was stopped before its last step.
    """
    folder, before = runs / run.name, conditions()
    folder.mkdir(parents=True, exist_ok=True)
    log, command = folder / "log.txt", run.training(folder)
    if steps_done(folder) < run.n_steps:
        edgefold(command, log)
    if steps_done(folder) < run.n_steps:
        raise subprocess.CalledProcessError(1, command)
    record = {
        **run.facts(),
        "n_parameters": model_size(folder),
        "conditions": {**before, "commit": commit()},
        "training": json.loads((folder / "config.json").read_text())["training"],
        "curve": loss_curve(folder),
        "scores": run.score(folder, log),
    }
    write_record(records / f"{run.name}.json", record)
    return record


def evaluated(folder: Path, n_batches: int, log: Path) -> Record:
    """Return the scores of `edgefold evaluate` on a number of batches."""
    path = folder / "scores.json"
    words = ["evaluate", str(folder), "--batches", str(n_batches), "--threads", "1"]
    edgefold([*words, "--json", str(path)], log)
    scores: Record = json.loads(path.read_text())["scores"]
    return scores


def train_words(
    task: Sequence[str], options: Mapping[str, Any], folder: Path, more: Sequence[str] = ()
) -> list[str]:
    """Return the words behind `edgefold` that train a task into a folder, or go on there.

    Options come by name; words that are no pair of a name and a value come as `more`.
    """
    out = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder
    pairs = {**options, "out": out}.items()
    words = [str(word) for name, value in pairs for word in (f"--{name}", value)]
    return ["train", *task, *words, *more, *["--resume"] * (folder / "config.json").exists()]


def loss_curve(folder: Path) -> list[list[float]]:
    """Return mean training losses by step, at most `CURVE_POINTS` of [last step, mean loss]."""
    lines = (folder / "history.jsonl").read_text().splitlines()
    points = [(line["step"], line["loss"]) for line in map(json.loads, lines)]
    size = max(1, -(-len(points) // CURVE_POINTS))
    parts = [points[at : at + size] for at in range(0, len(points), size)]
    return [[part[-1][0], round(fmean(loss for _, loss in part), 4)] for part in parts]


def commit() -> str:
    """The code's commit, with `-dirty` where files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return told.stdout.strip() or "unknown"


def model_size(folder: Path) -> int:
    """Parameters of a trained model."""
    from edgefold.train.checkpoints import load_model

    return sum(weights.numel() for weights in load_model(folder)[0].parameters())


def steps_done(folder: Path) -> int:
    """Optimiser steps that a run's last line of history tells of."""
    try:
        lines = (folder / "history.jsonl").read_text().splitlines()
        return int(json.loads(lines[-1])["step"])
    except (OSError, IndexError, ValueError, KeyError):  # not begun, or a line half written
        return 0


def recorded(wanted: Sequence[Training], records: Path) -> dict[str, Record]:
    """Records that exist, by run."""
    paths = {run.name: records / f"{run.name}.json" for run in wanted}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}


class Progress:
    """Tells how much is done and how long the rest takes, from the steps of all runs."""

    def __init__(self, waiting: Sequence[Training], runs: Path):
        self.waiting, self.runs = waiting, runs
        self.total = sum(run.n_steps for run in waiting)
        self.before, self.started_s = self.steps(), time.monotonic()

    def steps(self) -> int:
        """Steps of all runs together."""
        return sum(steps_done(self.runs / run.name) for run in self.waiting)

    def line(self, n_done: int) -> str:
        """One line for the terminal."""
        steps = self.steps()
        lasted_s, new = time.monotonic() - self.started_s, steps - self.before
        left = f"about {duration(lasted_s / new * (self.total - steps))} left" if new else ""
        told = f"{n_done} of {len(self.waiting)} runs, {steps:,} of {self.total:,} steps"
        return f"{told}  {left}"


def execute_all(waiting: Sequence[Training], runs: Path, records: Path, n_jobs: int) -> list[str]:
    """Run what waits; returns the names of runs that failed.

    Raises:
        KeyboardInterrupt: Ctrl-C, once the trainings, which got it too, have saved and ended.
    """
    failed, progressing = [], Progress(waiting, runs)
    with ThreadPoolExecutor(n_jobs) as pool:
        futures = {pool.submit(execute, run, runs, records): run for run in waiting}
        left = set(futures)
        try:
            while left:
                try:
                    done = {next(as_completed(left, timeout=PAUSE_S))}
                except TimeoutError:
                    done = set()
                left -= done
                for future in done:
                    if future.exception():
                        failed.append(futures[future].name)
                progress(progressing.line(len(waiting) - len(left)), last=not left)
        except KeyboardInterrupt:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return failed


def execute_missing(
    wanted: Sequence[Training], runs: Path, records: Path, n_jobs: int
) -> list[str]:
    """Run what is not recorded, in a nice process; return the names of runs that failed.

    Ctrl-C ends the program once the trainings have saved.
    """
    os.nice(max(0, 10 - os.nice(0)))
    known = recorded(wanted, records)
    waiting = [run for run in wanted if run.name not in known]
    try:
        return execute_all(waiting, runs, records, n_jobs)
    except KeyboardInterrupt:
        sys.exit("\nstopped; the same command goes on from here")


def exit_telling(failed: Sequence[str], runs: Path) -> None:
    """End the program: with 1 if runs failed, whose logs it names."""
    for name in failed:
        print(f"failed: {name}, see {runs / name / 'log.txt'}", file=sys.stderr)
    sys.exit(1 if failed else 0)
