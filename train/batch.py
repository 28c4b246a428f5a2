"""Define a batch of training tasks: tensors of known points and of points to be predicted."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    """Holds B training tasks as tensors: a model learns the context and predicts the targets.

    Attributes:
        x_context, y_context: Inputs (B, N, X) and outputs (B, N, Y) of the N context points.
        x_target, y_target: Inputs (B, M, X) and outputs (B, M, Y) of the M targets.
        mask: (B, N), True for real context points and False for padding; None where all are real.
        seeds: Seeds (B,) of the samples of each task, where a model is scored that draws samples;
            with None it takes the seed 0 of an empty state for all.
    """

    x_context: Tensor
    y_context: Tensor
    x_target: Tensor
    y_target: Tensor
    mask: Tensor | None = None
    seeds: Tensor | None = None

    def to(self, device: torch.device) -> Batch:
        """Return the same batch on another device."""
        return Batch(
            self.x_context.to(device),
            self.y_context.to(device),
            self.x_target.to(device),
            self.y_target.to(device),
            None if self.mask is None else self.mask.to(device),
            None if self.seeds is None else self.seeds.to(device),
        )

    def tensors(self) -> tuple[Tensor | None, ...]:
        """Return the tensors that a training step reads, in the order of the fields."""
        return self.x_context, self.y_context, self.x_target, self.y_target, self.mask
