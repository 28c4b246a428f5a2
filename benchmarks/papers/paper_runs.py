"""One training of a row of the papers' tables, as the papers train it, and its scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.models.trainings import evaluated, train_words
from benchmarks.papers.published_tables import TABLES, PublishedRow
from benchmarks.record import Record

N_BATCHES = 3000
"""Batches of the evaluation, as the papers state it for gp."""
N_WHEEL_SEEDS = 50


@dataclass(frozen=True, slots=True)
class PaperRun:
    """A row, trained for some steps from one seed.

    Attributes:
        table: Name in `TABLES`.
        row: The row, of a model of ours.
        n_steps: Steps, from the first to the end of the cosine.
        seed: Of weights and batches.
        threads: Of the CPU.
        compiled: Whether torch.compile compiles the loss.
        data: Path of the data, where the table needs some.
        n_batches: Batches of the evaluation, or seeds of the wheel where it is "wheel".
    """

    table: str
    row: PublishedRow
    n_steps: int
    seed: int = 0
    threads: int = 1
    compiled: bool = False
    data: Path | None = None
    n_batches: int = N_BATCHES

    @property
    def name(self) -> str:
        """Name of its record and its folder."""
        return f"{self.table}-{self.row.slug}-{self.n_steps}-{self.seed}"

    def training(self, folder: Path) -> list[str]:
        """Return the command that trains it, or goes on."""
        of = TABLES[self.table]
        options = {
            "model": self.row.model,
            "preset": preset_of(self.row.model),
            "recipe": "paper",
            "steps": self.n_steps,
            "seed": self.seed,
            "threads": self.threads,
        }
        if not has_recipe(of.task[0]):
            del options["recipe"]
        more = [word for setting in self.row.settings for word in ("--set", setting)]
        more += [of.option, str(self.data)] if of.option and self.data else []
        more += ["--compile"] * self.compiled
        return train_words(of.task, options, folder, more)

    def score(self, folder: Path, log: Path) -> Record:
        """Return the scores of the trained run."""
        if self.table != "wheel":
            return evaluated(folder, self.n_batches, log)
        from benchmarks.usage.wheel_runs import DELTAS, N_STEPS, measure, problem_of

        seeds = range(min(self.n_batches, N_WHEEL_SEEDS))
        problems = {delta: [problem_of(delta, seed, N_STEPS) for seed in seeds] for delta in DELTAS}
        regret = measure(folder, problems)["regret"]
        return {delta: {"percent": own["percent"]} for delta, own in regret.items()}

    def facts(self) -> Record:
        """Return what the record tells of the run."""
        return {
            **{"table": self.table, "title": self.row.title, "model": self.row.model},
            **{"settings": list(self.row.settings), "steps": self.n_steps, "seed": self.seed},
        }


def preset_of(model: str) -> str:
    """Return the preset `paper` of a model, or its first one."""
    from edgefold.train.models.registry import model_class

    presets: Mapping[str, object] = model_class(model).presets
    return "paper" if "paper" in presets else next(iter(presets))


def has_recipe(task: str) -> bool:
    """Return whether the papers' training on a task is known."""
    from edgefold.train.tasks.registry import task_class

    return task_class(task).recipe is not None
