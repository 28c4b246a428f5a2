"""Take the steps of a training one by one, and collect their losses until they are logged."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch

from edgefold.runtime.errors import TrainingError
from edgefold.train.batch import Batch
from edgefold.train.distributed import Launcher


class Steps(Protocol):
    """Moves the weights by a step for each batch.

    Attributes:
        at_once: Whether the results are known at once, not when a GPU comes to them.
    """

    at_once: bool

    def __call__(self, batch: Batch) -> torch.Tensor:
        """Move the weights; return the loss and the norm of its gradient, (2,)."""


class PlainSteps:
    """Takes steps one operation after the other, in one process or with others.

    A gradient that is not finite moves nothing.
    """

    at_once = True

    def __init__(
        self,
        loss_of: Callable[[Batch], torch.Tensor],
        weights: list[torch.nn.Parameter],
        optimizer: Any,
        process: Launcher,
        clip_norm: float,
    ):
        self.loss_of, self.weights, self.optimizer = loss_of, weights, optimizer
        self.process, self.clip_norm = process, clip_norm

    def __call__(self, batch: Batch) -> torch.Tensor:
        loss = self.loss_of(batch.to(self.process.device))
        self.optimizer.zero_grad(set_to_none=True)
        self.process.backward(loss)
        norm = torch.nn.utils.clip_grad_norm_(self.weights, self.clip_norm)
        if torch.isfinite(norm):
            self.optimizer.step()
        return torch.stack([loss.detach(), norm.detach()])


class Losses:
    """Collects the losses of steps until they are logged, and refuses gradients not finite.

    Those of a GPU are read when they are logged: reading one at once would wait for the GPU.

    Args:
        run: Folder of the run, for the error.
        first: Step of the first loss, from 0 on.
        at_once: Whether to read each loss when it comes, see `Steps`.
    """

    def __init__(self, run: Path, first: int, at_once: bool):
        self.run, self.step, self.at_once = run, first, at_once
        self.unread: list[torch.Tensor] = []
        self.known: list[float] = []

    def add(self, pair: torch.Tensor) -> None:
        """Take loss and norm of the gradient (2,) of the next step."""
        self.unread.append(pair)
        if self.at_once:
            self.read()

    def mean(self) -> float:
        """Return the mean of the losses since the last call.

        Raises:
            TrainingError: The gradient of a step was not finite.
        """
        self.read()
        mean = sum(self.known) / len(self.known)
        self.known.clear()
        return mean

    def read(self) -> None:
        """Read the losses that were not read yet.

        Raises:
            TrainingError: The gradient of a step was not finite.
        """
        pairs = torch.stack(self.unread).tolist() if self.unread else []
        for loss, norm in pairs:
            if not math.isfinite(norm):
                raise TrainingError(
                    f"the gradient is not finite at step {self.step}; lower --learning-rate, then "
                    f"resume from the last checkpoint in {self.run}."
                )
            self.step += 1
            self.known.append(loss)
        self.unread.clear()
