"""How long a training step of each row of a table takes on this machine."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.papers.paper_runs import PaperRun
from benchmarks.record import progress, write_record
from edgefold.devices.machine.machine import read_machine

N_STEPS, MOST_S = 30, 20.0
"""Steps that are measured, and seconds after which a row has enough of them."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Holds the median times of a table's steps, and what they were measured on.

    Attributes:
        machine: In words.
        threads: Of the CPU.
        step_s: Seconds of a step, by the row's slug.
    """

    machine: str
    threads: int
    step_s: dict[str, float]


def path_of(table: str, folder: Path) -> Path:
    """Return the place of a table's times."""
    return folder / "times" / f"{table}.json"


def read_times(table: str, folder: Path) -> StepTimes | None:
    """Return the recorded times of a table, or None if there are none."""
    path = path_of(table, folder)
    return StepTimes(**json.loads(path.read_text())) if path.exists() else None


def measure_steps(runs: Sequence[PaperRun], folder: Path) -> StepTimes:
    """Measure steps of each run of one table, and record them beside older ones."""
    import torch

    from edgefold.train.training_loop import machine

    table, threads = runs[0].table, runs[0].threads
    torch.set_num_threads(threads)
    before = read_times(table, folder)
    step_s = {}
    for run in runs:
        step_s[run.row.slug] = median(step_times(run))
        progress(f"{run.row.title}: {1e3 * step_s[run.row.slug]:.1f} ms a step")
    where = f"{read_machine().cpu_model}, {machine()}"
    if before is not None and (before.machine, before.threads) == (where, threads):
        step_s = before.step_s | step_s
    found = StepTimes(where, threads, step_s)
    write_record(path_of(table, folder), asdict(found))
    return found


def step_times(run: PaperRun) -> list[float]:
    """Return seconds of some steps of a training: batch, loss, gradients and optimiser.

    On a GPU all have the shapes of one batch, which is captured first, as those of a long training.
    """
    from edgefold.cli.commands import train
    from edgefold.train.training_loop import TrainingProcess

    words = run.training(Path("unused"))[1:]
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    train.add_arguments_for(parser, words)
    args = parser.parse_args(words)
    task, config = train.task_and_config(args, None)
    model = train.build_model(args, task, None)
    found: list[float] = []
    with TemporaryDirectory() as folder:
        training = TrainingProcess(model, task, config, Path(folder), "")
        take_step = training.steps(*training.loss_and_optimizer())
        captured = task.training_batch(config.batch, training.generator)
        if training.captures:  # the second time that the shapes come
            take_step(captured)
            take_step(captured)
        while len(found) < N_STEPS and sum(found) < MOST_S:
            start = time.perf_counter()
            batch = task.training_batch(config.batch, training.generator)
            take_step(captured if training.captures else batch).tolist()  # waits for the GPU
            found.append(time.perf_counter() - start)
    return found[1:] or found
