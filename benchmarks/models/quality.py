"""How good is each model after the same training, compared with the papers' columns?

`python -m benchmarks.tables_of_papers` trains as the papers do; here all models have one schedule.

    each model, seed ──> edgefold train (resumes) ──> edgefold evaluate ──> one record in
                         runs/quality/...                                   records/quality/
    all records of the budget ──> records/quality.json: a table, and the order of the models

Every model has the same optimiser steps, batch, learning-rate schedule and seeds. What is recorded
is not run again (--fresh does). After Ctrl-C the same command goes on where it was.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import stdev
from typing import Any

from benchmarks.models.quality_papers import ALIKE, ALIKE_NATS, order, published
from benchmarks.models.quality_table import papers_task
from benchmarks.models.trainings import (
    evaluated,
    execute_missing,
    exit_telling,
    recorded,
    train_words,
)
from benchmarks.record import (
    RECORDS,
    ROOT,
    Record,
    Requirement,
    arguments,
    conditions,
    finish,
)
from benchmarks.tables import as_text
from edgefold.train.models.registry import learners, model_class

QUESTION = "How good is each model after the same training?"
TASKS = {"gp": ("gp",), "digits": ("images", "--source", "digits")}
"""Words given to `edgefold train`, by the name that records have."""
SURE = 2.0
"""Standard errors of a difference that chance may make."""


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
}
LEARNING_RATE = 1e-3
"""Adam's, after a linear warm-up and before a cosine to 0."""


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

    @property
    def n_steps(self) -> int:
        """Steps of the optimiser."""
        return BUDGETS[self.budget].steps

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
        }
        return train_words(TASKS[self.task], options, folder)

    def score(self, folder: Path, log: Path) -> Record:
        """Return the log-likelihoods of `edgefold evaluate`."""
        return evaluated(folder, BUDGETS[self.budget].n_batches, log)

    def facts(self) -> Record:
        """Return what the record tells of the run."""
        budget = asdict(BUDGETS[self.budget])
        return {**asdict(self), "budget_of": budget, "learning_rate": LEARNING_RATE}


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
    before = conditions(threads=args.jobs)
    failed = execute_missing(wanted, args.runs, args.records, args.jobs)
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
    exit_telling(failed, args.runs)


if __name__ == "__main__":
    main()
