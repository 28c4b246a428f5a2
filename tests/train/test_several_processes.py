"""Training in several processes: the path of several GPUs or machines, on two CPU processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from edgefold.train.batch import Batch
from edgefold.train.checkpoints import load_model
from edgefold.train.tasks.gp import GpTask
from edgefold.train.training_loop import fit
from tests.train.test_fit import CONFIG, fresh

ROOT = Path(__file__).parents[2]
Train = Callable[..., None]


class Shared(GpTask):
    """Draws one batch for all processes, of which each takes its part, in float64."""

    def __init__(self) -> None:
        super().__init__(n_context=8, n_targets=4)
        self.own = torch.Generator().manual_seed(5)

    def training_batch(self, n_tasks: int, generator: torch.Generator) -> Batch:
        index, n = (
            int(os.environ.get(name, one)) for name, one in (("RANK", 0), ("WORLD_SIZE", 1))
        )
        part = slice(index * n_tasks, (index + 1) * n_tasks)
        whole = super().training_batch(n * n_tasks, self.own)
        mask = None if whole.mask is None else whole.mask[part]
        x, y, x_target, y_target = (t[part].double() for t in whole.tensors()[:4] if t is not None)
        return Batch(x, y, x_target, y_target, mask)


@pytest.fixture
def train(tmp_path: Path) -> Train:
    """Return a function that runs a script, which gets words, in two processes under torchrun."""
    pytest.importorskip("accelerate")

    def run(script: str, *words: str) -> None:
        path = tmp_path / "train.py"
        path.write_text(script)
        # What `torchrun` and `accelerate launch` start; the CPU launcher of the second wants MPI.
        launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
        single = {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [*launch, str(path), *words],
            env={**os.environ, **single},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    return run


SHARES = """
import sys, torch
from pathlib import Path
from tests.train.test_fit import CONFIG, GpTask, StopsAfter, fresh, fit
task = StopsAfter(5) if sys.argv[2] == 'stop' else GpTask(8, 4)
fit(fresh(), task, CONFIG, Path(sys.argv[1]), resume=sys.argv[2] == 'resume')
"""


@pytest.mark.long
def test_two_processes_share_gradients_and_resume_to_the_same_bits(
    tmp_path: Path, train: Train
) -> None:
    for name, mode in (("whole", "all"), ("cut", "stop"), ("cut", "resume")):
        train(SHARES, str(tmp_path / name), mode)
    fit(fresh(), GpTask(8, 4), CONFIG, tmp_path / "alone")
    whole, cut, alone = (
        load_model(tmp_path / name)[0].state_dict() for name in ("whole", "cut", "alone")
    )
    assert all(torch.equal(whole[name], cut[name]) for name in whole)
    assert not all(torch.equal(whole[name], alone[name]) for name in whole)


EQUALS = """
import os, sys, torch
from pathlib import Path
from tests.train.test_several_processes import CONFIG, Shared, fresh, fit
model = fresh().double()
fit(model, Shared(), CONFIG, Path(sys.argv[1]))
torch.save(model.state_dict(), f"{sys.argv[1]}/{os.environ['RANK']}.pt")
"""


@pytest.mark.long
def test_two_processes_equal_one_with_twice_the_batch(tmp_path: Path, train: Train) -> None:
    """Gradients' averages, the norm at which they are clipped, and the optimiser's steps.

    Sums of float64 have another order, some 1e-16 of a gradient. Adam divides what it gets by at
    least its eps of 1e-8, and the rate is 1e-3, so that a step adds 1e-11 and 12 steps about 1e-10.
    """
    train(EQUALS, str(tmp_path / "two"))
    one, start = fresh().double(), fresh().double().state_dict()
    assert fit(one, Shared(), replace(CONFIG, batch=2 * CONFIG.batch), tmp_path / "one")
    first, second = (torch.load(tmp_path / "two" / f"{index}.pt") for index in (0, 1))
    moved = 0.0
    for name, weights in one.state_dict().items():
        assert torch.equal(first[name], second[name]), name
        assert (first[name] - weights).abs().max() < 1e-9, name
        moved = max(moved, (weights - start[name]).abs().max().item())
    assert moved > 1e-3  # they were trained at all
