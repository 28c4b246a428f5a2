"""Training tasks side by side, as tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    """Tasks side by side: x (B, n, X), y (B, n, Y), mask (B, N), True for real context points."""

    x_context: Tensor
    y_context: Tensor
    x_target: Tensor
    y_target: Tensor
    mask: Tensor | None = None

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device."""
        return Batch(
            self.x_context.to(device),
            self.y_context.to(device),
            self.x_target.to(device),
            self.y_target.to(device),
            None if self.mask is None else self.mask.to(device),
        )

    def tensors(self) -> tuple[Tensor | None, ...]:
        """The tensors in the order of the fields."""
        return self.x_context, self.y_context, self.x_target, self.y_target, self.mask
