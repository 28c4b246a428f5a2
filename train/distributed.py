"""Let the training loop run in one process or in several that train one model together.

Several processes train one model under `torchrun` or `accelerate launch` (several GPUs or machines,
or CPU processes in a test). All collective calls are here, so that the loop is the same for one
process and for several. A call is collective if every process must make it, because each waits for
the others.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch import Tensor

PATIENCE = timedelta(days=2)
"""How long a process waits for another one: the first one may prepare a task's files for hours."""


class Launcher(Protocol):
    """Connects one process of a training run with the others, if there are any.

    Attributes:
        device: Device on which this process trains.
        index: Number of this process, from 0 on.
    """

    device: torch.device
    index: int

    def prepare(self, model: Any, optimizer: Any) -> tuple[Any, Any]:
        """Return the model, wrapped so that its gradients are shared, and its optimiser."""

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients of a loss, averaged over processes."""

    def any(self, flag: bool) -> bool:
        """Return whether the flag is true in at least one process; collective."""

    def gather(self, value: Tensor) -> list[Tensor]:
        """Return the values of all processes, in the order of their index; collective."""

    def close(self) -> None:
        """Wait until all processes have come here, then end the connection to them; collective."""


class LocalLauncher:
    """Runs a training in this one process, on the first GPU, or on the CPU where there is none."""

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
    """Runs a training in one of the processes that `torchrun` or `accelerate launch` started."""

    def __init__(self) -> None:
        from accelerate import Accelerator
        from accelerate.utils import InitProcessGroupKwargs

        self._accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=PATIENCE)])
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

        Without this, a process that ended with open connections could make another one, which was
        still ending, abort in the threads of Gloo (the library that connects them).
        """
        self._accelerator.wait_for_everyone()
        self._accelerator.end_training()


def is_first_process() -> bool:
    """Return whether this process is the first of those that train one model, or trains alone."""
    return os.environ.get("RANK", "0") == "0"


def launcher() -> Launcher:
    """Return the launcher of this process: accelerated if a launcher started it, else local."""
    if torch.distributed.is_torchelastic_launched():
        return AcceleratedLauncher()
    return LocalLauncher()
