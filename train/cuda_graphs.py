"""Take training steps on a GPU as CUDA graphs: for each shape of a batch, and for the optimiser.

    a batch ──> copied into the fixed inputs of its shape ──> loss, .grad ──> clip, optimiser
                 one launch, once the shape was seen before                     one launch

A step of a small model is a thousand kernels of some microseconds each. Launched one by one they
keep the GPU waiting for Python; as a graph they start at once. The numbers are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from edgefold.train.batch import Batch

Shapes = tuple[tuple[int, ...] | None, ...]
LEAST_FREE = 0.1
"""Share of the GPU's memory that stays free: with less, no further shape is captured."""


class Replayable(Protocol):
    """Repeats captured work on the same memory."""

    def replay(self) -> None:
        """Start the work; its results lie where they lay at the capture."""


class Graphs(Protocol):
    """Runs work and captures it."""

    def run(self, work: Callable[[], Tensor]) -> Tensor:
        """Run some work, which prepares what cannot be prepared while it is captured."""

    def capture(self, work: Callable[[], Tensor]) -> tuple[Replayable, Tensor]:
        """Return a graph of some work, which did not run yet, and the tensor that it will fill.

        Raises:
            RuntimeError: The work cannot be captured: it waits for the GPU, or copies from the CPU.
        """

    def has_room(self) -> bool:
        """Return whether there is memory for another graph."""


class CudaGraphs:
    """Captures CUDA graphs, which share one pool of memory: they never run at the same time.

    Args:
        device: The GPU.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self.stream = torch.cuda.Stream(device)
        self.pool = torch.cuda.graph_pool_handle()

    def run(self, work: Callable[[], Tensor]) -> Tensor:
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            result = work()
        torch.cuda.current_stream(self.device).wait_stream(self.stream)
        return result

    def capture(self, work: Callable[[], Tensor]) -> tuple[Replayable, Tensor]:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
                result = work()
        except RuntimeError:  # the pool stays as it is in the middle of a capture
            self.pool = torch.cuda.graph_pool_handle()
            raise
        return graph, result

    def has_room(self) -> bool:
        free, total = torch.cuda.mem_get_info(self.device)
        return free > LEAST_FREE * total


@dataclass(frozen=True, slots=True)
class CapturedLoss:
    """Holds the captured loss and gradients of one shape.

    Attributes:
        graph: Computes `loss` and the gradients from `batch`.
        batch: Fixed inputs, on the GPU.
        loss: Fixed output, ().
    """

    graph: Replayable
    batch: Batch
    loss: Tensor


class CapturedSteps:
    """Takes a training's steps, with what repeats itself in graphs.

    A loss that draws random numbers on the CPU, as those of models with samples do, would repeat
    those of its capture for ever: it is never captured, nor is one that waits for the GPU.

    Args:
        loss_of: Computes the loss of a batch on the GPU.
        parameters: What is trained; their gradients stay in the same memory from step to step.
        optimizer: Adam or Muon with `capturable`. Its learning rates become tensors on the GPU.
        generator: Source of the loss's random numbers, if it draws any.
        clip_norm: Norm to which a larger gradient is shortened.
        graphs: Runs and captures.
    """

    at_once = False

    def __init__(
        self,
        loss_of: Callable[[Batch], Tensor],
        parameters: list[nn.Parameter],
        optimizer: Any,
        generator: torch.Generator,
        clip_norm: float,
        graphs: Graphs,
    ):
        self.loss_of, self.optimizer, self.generator = loss_of, optimizer, generator
        self.clip_norm, self.graphs = clip_norm, graphs
        self.parameters = [p for p in parameters if p.requires_grad]
        self.device = self.parameters[0].device
        for group in optimizer.param_groups:
            group["lr"] = torch.as_tensor(group["lr"], dtype=torch.float32, device=self.device)
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        self.seen: set[Shapes] = set()
        self.losses: dict[Shapes, CapturedLoss] = {}
        self.update: tuple[Replayable, Tensor] | None = None
        self.has_moments = False
        self.may_capture = True

    def __call__(self, batch: Batch) -> Tensor:
        """Move the weights by one step; return loss and norm of the gradient (2,), on the GPU."""
        return torch.stack([self._loss(batch), self._update()])

    def _loss(self, batch: Batch) -> Tensor:
        shapes = tuple(None if t is None else tuple(t.shape) for t in batch.tensors())
        if shapes in self.seen and shapes not in self.losses and self.may_capture:
            self._capture(shapes, batch)
        captured = self.losses.get(shapes)
        if captured is None:
            self.seen.add(shapes)
            return self._uncaptured(batch)
        for fixed, new in zip(captured.batch.tensors(), batch.tensors(), strict=True):
            if fixed is not None and new is not None:
                fixed.copy_(new, non_blocking=True)
        captured.graph.replay()
        return captured.loss.clone()  # the optimiser's graph may write where a loss's memory lies

    def _uncaptured(self, batch: Batch) -> Tensor:
        before = self.generator.get_state() if self.may_capture else None
        loss = self.graphs.run(lambda: self._compute(batch.to(self.device)))
        if before is not None:
            self.may_capture = torch.equal(before, self.generator.get_state())
        return loss

    def _capture(self, shapes: Shapes, batch: Batch) -> None:
        """Capture the loss of a shape, or nothing where that is impossible."""
        if not self.graphs.has_room():
            self.may_capture = False
            return
        fixed = batch.to(self.device)
        try:
            graph, loss = self.graphs.capture(lambda: self._compute(fixed))
        except RuntimeError:
            self.may_capture = False
        else:
            self.losses[shapes] = CapturedLoss(graph, fixed, loss)

    def _compute(self, batch: Batch) -> Tensor:
        torch._foreach_zero_([p.grad for p in self.parameters if p.grad is not None])
        loss = self.loss_of(batch)
        torch.autograd.backward(loss)
        return loss.detach()

    def _update(self) -> Tensor:
        """Clip the gradients and let the optimiser take its step; return the gradients' norm."""

        def work() -> Tensor:
            norm = nn.utils.clip_grad_norm_(self.parameters, self.clip_norm)
            self.optimizer.step()
            return norm

        if not self.has_moments:  # the optimiser makes them in its first step, to stay
            self.has_moments = True
            return self.graphs.run(work)
        if self.update is None:
            self.update = self.graphs.capture(work)
        graph, norm = self.update
        graph.replay()
        return norm
