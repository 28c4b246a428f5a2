"""Training steps as graphs: on an imitation that repeats work as a GPU would, and on a real GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from edgefold.runtime.errors import TrainingError
from edgefold.train.batch import Batch
from edgefold.train.cuda_graphs import CapturedSteps, CudaGraphs, Graphs, Replayable
from edgefold.train.distributed import LocalLauncher
from edgefold.train.models.constant_memory.cmanp import Cmanp, CmanpConfig
from edgefold.train.muon import Muon
from edgefold.train.steps import Losses, PlainSteps
from edgefold.train.tasks.gp import GpTask

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU here")
GPU = pytest.param("cuda", marks=needs_gpu)


@dataclass
class Repeated:
    """Does work again on replay and writes its result where the first one lies."""

    work: Callable[[], Tensor]
    result: Tensor

    def replay(self) -> None:
        self.result.copy_(self.work())


class Imitation:
    """Captures by keeping the work; as on a GPU, the capture itself changes nothing."""

    def __init__(self, rooms: int = 1000, refuses: bool = False):
        self.rooms, self.refuses, self.n_captured = rooms, refuses, 0

    def run(self, work: Callable[[], Tensor]) -> Tensor:
        return work()

    def capture(self, work: Callable[[], Tensor]) -> tuple[Replayable, Tensor]:
        self.n_captured += 1
        if self.refuses and self.n_captured == 1:
            raise RuntimeError("operation not permitted when stream is capturing")
        result = torch.full((), torch.nan)
        return Repeated(work, result), result

    def has_room(self) -> bool:
        self.rooms -= 1
        return self.rooms >= 0


def graphs_on(device: str) -> Graphs:
    return CudaGraphs(torch.device(device)) if device == "cuda" else Imitation()


def fresh(device: str = "cpu") -> Cmanp:
    torch.manual_seed(0)
    config = CmanpConfig(n_blocks=1, width=16, n_heads=2, n_latents=8, feedforward=16)
    return Cmanp(config).to(device)


def batches(n: int) -> list[Batch]:
    """Batches of three shapes, in turn."""
    generator = torch.Generator().manual_seed(1)
    tasks = [GpTask(n_context=n_context, n_targets=4) for n_context in (5, 8, 11)]
    return [tasks[k % 3].training_batch(2, generator) for k in range(n)]


def optimizer_of(model: Cmanp, muon: bool) -> torch.optim.Optimizer:
    on_gpu = next(model.parameters()).is_cuda
    how = {"fused": True, "capturable": True} if on_gpu else {}
    if muon:
        return Muon(model, 1e-3, **how)
    return torch.optim.Adam(list(model.parameters()), lr=1e-3, **how)  # type: ignore[arg-type]


def captured_steps(
    model: Cmanp,
    graphs: Graphs,
    muon: bool = False,
    loss_of: Callable[[Batch, torch.Generator], Tensor] | None = None,
) -> CapturedSteps:
    generator = torch.Generator().manual_seed(2)
    loss = loss_of or model.loss
    return CapturedSteps(
        lambda batch: loss(batch, generator),
        list(model.parameters()),
        optimizer_of(model, muon),
        generator,
        1.0,
        graphs,
    )


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("muon", [False, True])
def test_captured_steps_move_the_weights_as_plain_ones_do(muon: bool, device: str) -> None:
    """The same operations in the same order: on one device the difference is that of sums whose
    order a GPU leaves open, some units in the last place of each of 12 steps.
    """
    plain, captured = fresh(device), fresh(device)
    generator, launched = torch.Generator().manual_seed(2), LocalLauncher()
    launched.device = torch.device(device)
    plain_steps = PlainSteps(
        lambda batch: plain.loss(batch, generator),
        list(plain.parameters()),
        optimizer_of(plain, muon),
        launched,
        1.0,
    )
    steps = captured_steps(captured, graphs_on(device), muon)
    for batch in batches(12):
        expected, found = plain_steps(batch), steps(batch)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert len(steps.losses) == 3 and steps.update is not None
    for one, other in zip(plain.parameters(), captured.parameters(), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_a_loss_that_draws_random_numbers_is_never_captured(device: str) -> None:
    model = fresh(device)

    def noisy(batch: Batch, generator: torch.Generator) -> Tensor:
        noise = torch.rand((), generator=generator)
        return model.loss(batch, generator) + noise.to(batch.x_target.device)

    steps = captured_steps(model, graphs_on(device), loss_of=noisy)
    losses = [float(steps(batches(1)[0])[0]) for _ in range(4)]
    assert not steps.losses and len(set(losses)) == 4


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_a_loss_that_cannot_be_captured_runs_all_the_same(device: str) -> None:
    model = fresh(device)

    def waiting(batch: Batch, generator: torch.Generator) -> Tensor:
        loss = model.loss(batch, generator)
        return loss if loss.item() < 1e9 else 2 * loss

    graphs = graphs_on(device) if device == "cuda" else Imitation(refuses=True)
    steps = captured_steps(model, graphs, loss_of=waiting)
    pairs = torch.stack([steps(batches(1)[0]) for _ in range(4)])
    assert not steps.losses and torch.isfinite(pairs).all() and pairs[3, 0] < pairs[0, 0]


def test_no_shape_is_captured_without_room() -> None:
    steps = captured_steps(fresh(), Imitation(rooms=1))
    for batch in batches(9):
        steps(batch)
    assert len(steps.losses) == 1


def test_a_gradient_that_is_not_finite_names_its_step_though_it_is_read_later() -> None:
    losses = Losses(Path("run"), 7, at_once=False)
    for norm in (1.0, 2.0, torch.inf, 3.0):
        losses.add(torch.tensor([0.5, norm]))
    with pytest.raises(TrainingError, match="step 9"):
        losses.read()
