"""One process or several: what the training loop needs to know of its neighbours.

Several processes train one model under `accelerate launch` (several GPUs, or CPU processes in a
test); everything collective is here, so that the loop reads the same either way.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor


class Launcher(Protocol):
    """One process of a training run."""

    device: torch.device
    index: int

    def prepare(self, model: Any, optimizer: Any) -> tuple[Any, Any]:
        """The model with its gradients shared between processes, and its optimiser."""

    def backward(self, loss: Tensor) -> None:
        """Gradients, averaged over processes."""

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in some process; collective."""

    def gather(self, value: Tensor) -> list[Tensor]:
        """The value of every process, by index; collective."""

    def close(self) -> None:
        """Leave the other processes once all of them have come here; collective."""


class LocalLauncher:
    """One process on one device: the first GPU, else the CPU."""

    index = 0

    def __init__(self) -> None:
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def prepare(self, model: Any, optimizer: Any) -> tuple[Any, Any]:
        return model, optimizer

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def any(self, flag: bool) -> bool:
        return flag

    def gather(self, value: Tensor) -> list[Tensor]:
        return [value]

    def close(self) -> None:
        pass


class AcceleratedLauncher:
    """One of several processes that `accelerate launch` started."""

    def __init__(self) -> None:
        from accelerate import Accelerator

        self._accelerator = Accelerator()
        self.device = self._accelerator.device
        self.index = self._accelerator.process_index

    def prepare(self, model: Any, optimizer: Any) -> tuple[Any, Any]:
        prepared, wrapped = self._accelerator.prepare(model, optimizer)
        return prepared, wrapped

    def backward(self, loss: Tensor) -> None:
        self._accelerator.backward(loss)

    def any(self, flag: bool) -> bool:
        count = self._accelerator.reduce(torch.tensor(float(flag), device=self.device), "sum")
        return bool(count.item() > 0)

    def gather(self, value: Tensor) -> list[Tensor]:
        from accelerate.utils import gather_object

        values: list[Tensor] = gather_object([value])
        return values

    def close(self) -> None:
        """Wait for every process, then close the connections between them.

        A process that ended with open connections could bring another one, which was still ending,
        to an abort in Gloo's threads.
        """
        self._accelerator.wait_for_everyone()
        self._accelerator.end_training()


def launcher() -> Launcher:
    """Under `accelerate launch` its process, else a local one."""
    if torch.distributed.is_torchelastic_launched():
        return AcceleratedLauncher()
    return LocalLauncher()
