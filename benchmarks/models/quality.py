"""How good is each model after the same training, compared with the papers' columns?

    each model, seed ──> edgefold train (resumes) ──> edgefold evaluate ──> one record in
                         runs/quality/...                                   records/quality/
    all records of the budget ──> records/quality.json: a table, and the order of the models

Every model has the same optimiser steps, batch, learning-rate schedule and seeds. What is recorded
is not run again (--fresh does). After Ctrl-C the same command goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import stdev
from typing import Any

from benchmarks.models.quality_papers import ALIKE, ALIKE_NATS, order, published
from benchmarks.models.quality_table import papers_task
from benchmarks.record import (
    RECORDS,
    ROOT,
    Record,
    Requirement,
    arguments,
    conditions,
    finish,
    progress,
    write_record,
)
from benchmarks.tables import as_text
from edgefold.runtime.series.durations import duration
from edgefold.train.models.registry import learners, model_class

QUESTION = "How good is each model after the same training?"
TASKS = {"gp": ("gp",), "digits": ("images", "--source", "digits")}
"""Words given to `edgefold train`, by the name that records have."""
SURE = 2.0
"""Standard errors of a difference that chance may make."""
PAUSE_S = 60.0
"""Between two lines on the progress."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Length of the training, and amount of the evaluation."""

    steps: int
    warmup: int
    n_batches: int


BUDGETS = {
    "smoke": Budget(2, 1, 2),
    "tiny": Budget(1_000, 100, 300),
    "small": Budget(5_000, 250, 1_000),
    "paper": Budget(100_000, 1_000, 3_000),
}
LEARNING_RATE = 1e-3
"""Adam's, after a linear warm-up and before a cosine to 0. The papers' is 5e-4, without warm-up."""


@dataclass(frozen=True, slots=True)
class Run:
    """One training: a task, a model, its preset, a budget by name, and a seed."""

    task: str
    model: str
    preset: str
    budget: str
    seed: int

    @property
    def name(self) -> str:
        """Name of its record and its folder."""
        return f"{self.task}-{self.model}-{self.preset}-{self.budget}-{self.seed}"

    def training(self, folder: Path) -> list[str]:
        """The command that trains it, or goes on."""
        budget = BUDGETS[self.budget]
        options = {
            "model": self.model,
            "preset": self.preset,
            "steps": budget.steps,
            "warmup": budget.warmup,
            "batch": 16,
            "learning-rate": LEARNING_RATE,
            "optimizer": "adam",
            "seed": self.seed,
            "threads": 1,
            "out": folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder,
        }
        words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
        resume = ["--resume"] * (folder / "config.json").exists()
        return ["train", *TASKS[self.task], *words, *resume]


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


def execute(run: Run, runs: Path, records: Path) -> Record:
    """Train, evaluate and record one run.

    Raises:
        CalledProcessError: A command failed, or training was stopped before its last step.
    """
    folder, steps = runs / run.name, BUDGETS[run.budget].steps
    folder.mkdir(parents=True, exist_ok=True)
    log, scores, before = folder / "log.txt", folder / "scores.json", conditions()
    command = run.training(folder)
    edgefold(command, log)
    if steps_done(folder) < steps:
        raise subprocess.CalledProcessError(1, command)
    n_batches = str(BUDGETS[run.budget].n_batches)
    evaluation = ["evaluate", str(folder), "--batches", n_batches, "--threads", "1"]
    edgefold([*evaluation, "--json", str(scores)], log)
    found = json.loads(scores.read_text())
    record = {
        **asdict(run),
        "budget_of": asdict(BUDGETS[run.budget]),
        "learning_rate": LEARNING_RATE,
        "n_parameters": model_size(folder),
        "conditions": {**before, "commit": commit()},
        "training": found["run"]["training"],
        "scores": found["scores"],
    }
    write_record(records / f"{run.name}.json", record)
    return record


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


def recorded(wanted: Sequence[Run], records: Path) -> dict[str, Record]:
    """Records that exist, by run."""
    paths = {run.name: records / f"{run.name}.json" for run in wanted}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}


class Progress:
    """Tells how much is done and how long the rest takes, from the steps of all runs."""

    def __init__(self, waiting: Sequence[Run], runs: Path):
        self.waiting, self.runs = waiting, runs
        self.total = sum(BUDGETS[run.budget].steps for run in waiting)
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


def execute_all(waiting: Sequence[Run], runs: Path, records: Path, n_jobs: int) -> list[str]:
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


def requirements(records: Sequence[Record], task: str) -> list[Requirement]:
    """The order of the papers' table; a difference within `SURE` standard errors breaks none."""
    score = scores_of(records)
    found = []

    def judge(pairs: Sequence[tuple[str, str]], words: str, most: float) -> None:
        for one, other in pairs:
            if {one, other} <= set(score):
                (low, low_error), (high, high_error) = score[one], score[other]
                error = (low_error**2 + high_error**2) ** 0.5
                apart = abs(high - low) if most else low - high
                told = f"{low:.3f}, {high:.3f}, standard error {error:.3f} nats"
                what = f"{task}: {words.format(one, other)}"
                bound = f"at most {most} nats apart" if most else "rising"
                found.append(Requirement(what, told, bound, apart <= most + SURE * error))

    judge(order(papers_task(task)), "{}, then {}", 0.0)
    judge(ALIKE, "{} like {}", ALIKE_NATS)
    return found


def scores_of(records: Sequence[Record]) -> dict[str, tuple[float, float]]:
    """By model, the mean log-likelihood over its seeds and its task's columns, and the error.

    The standard error is that of the seeds, or of the batches of one seed.
    """
    runs: dict[str, list[tuple[float, float]]] = {}
    for record in records:
        scores = record["scores"].values()
        mean = sum(score["log_likelihood"] for score in scores) / len(scores)
        error = sum(score["standard_error"] ** 2 for score in scores) ** 0.5 / len(scores)
        runs.setdefault(record["model"], []).append((mean, error))
    found = {}
    for model, seeds in runs.items():
        means = [mean for mean, _ in seeds]
        error = stdev(means) / len(means) ** 0.5 if len(means) > 1 else seeds[0][1]
        found[model] = sum(means) / len(means), error
    return found


def preset_of(model: str, wanted: str) -> str:
    """The preset asked for, or the model's first one where it has no such preset."""
    presets = model_class(model).presets
    return wanted if wanted in presets else next(iter(presets))


def options() -> argparse.ArgumentParser:
    """Return a parser of this benchmark's options."""
    parser = arguments(__doc__ or "", "quality")
    parser.add_argument("--task", choices=tuple(TASKS), default="gp")
    parser.add_argument("--models", nargs="+", choices=learners(), default=learners())
    parser.add_argument("--preset", default="small", help="of the models; default small")
    parser.add_argument("--budget", choices=tuple(BUDGETS), default="tiny")
    parser.add_argument("--seeds", type=int, default=1, help="how many; default 1")
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=1, help="runs at a time")
    parser.add_argument("--fresh", action="store_true", help="train again what is recorded")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "quality")
    parser.add_argument("--records", type=Path, default=RECORDS / "quality", help="one a run")
    return parser


def main() -> None:
    """Train what is not recorded, and record the table."""
    args = options().parse_args()
    if args.quick:  # a smoke run keeps nothing
        args.budget, args.fresh = "smoke", True
        args.runs, args.records = args.runs / "smoke", args.runs / "smoke"
    wanted = [
        Run(args.task, model, preset_of(model, args.preset), args.budget, seed)
        for seed in range(args.seeds)
        for model in args.models
    ]
    if args.fresh:
        for run in wanted:
            shutil.rmtree(args.runs / run.name, ignore_errors=True)
            (args.records / f"{run.name}.json").unlink(missing_ok=True)
    os.nice(max(0, 10 - os.nice(0)))
    before = conditions(threads=args.jobs)
    known = recorded(wanted, args.records)
    waiting = [run for run in wanted if run.name not in known]
    try:
        failed = execute_all(waiting, args.runs, args.records, args.jobs)
    except KeyboardInterrupt:
        sys.exit("\nstopped; the same command goes on from here")
    found = list(recorded(wanted, args.records).values())
    data: dict[str, Any] = {
        "task": args.task,
        "budget": asdict(BUDGETS[args.budget]),
        "runs": found,
        "published": published(papers_task(args.task)),
        "failed": failed,
    }
    variant = "" if args.task == "gp" else args.task
    question = QUESTION if not variant else f"{QUESTION[:-1]}, on {variant}?"
    wanted_order = requirements(found, args.task)
    finish(args, "quality", question, before, data, wanted_order, as_text, variant)
    for name in failed:
        print(f"failed: {name}, see {args.runs / name / 'log.txt'}", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
