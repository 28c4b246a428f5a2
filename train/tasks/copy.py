"""Define the copy task: predict a palindrome's second half from its first (Feng et al. 2024, 4.1).

A sequence of N tokens is [BOS], digits, the same digits backwards, [EOS]. Context are the N/2
tokens of the first half, targets those of the second. The target at place p repeats the token at
place N - 1 - p, except for the last one, which is always [EOS]: each answer is one token of the
context, and every token is the answer of some target. A model that keeps a summary fails, one that
looks up solves it.

y is the number of a class: the digits 0 to 9, [BOS] 10, [EOS] 11. x is the place as sines and
cosines of log2(N) periods, N, N/2, .. 2, as sequence models are given it (Vaswani et al. 2017).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from edgefold.runtime.errors import TrainingError
from edgefold.runtime.options import option
from edgefold.train.batch import Batch
from edgefold.train.contract import StreamingModel
from edgefold.train.settings import PAPER_RECIPE
from edgefold.train.tasks.contract import Recipe, Task, hits

N_DIGITS, BOS, EOS, N_CLASSES = 10, 10, 11, 12
EVALUATION_BATCH = 32
"""Number of sequences in a batch of the evaluation: 100 batches are the paper's 3,200 sequences."""


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """Holds the options of `edgefold train copy`."""

    length: int = option("tokens of a sequence, a power of 2 (256)", default=256)


class CopyTask(Task):
    """Draws palindromes of one length: a model reads the first half and predicts the second.

    Args:
        length: N, the number of tokens of a sequence, a power of 2.
    """

    name = "copy"
    about = "Learn to look tokens up: say the second half of a palindrome, given its first half."
    n_outputs = 1
    option_class = CopyOptions
    training: ClassVar[Mapping[str, Any]] = {
        "steps": 3_000,
        "batch": 16,
        "warmup": 100,
        "learning_rate": 2e-3,
        "optimizer": "muon",
        "threads": 1,
    }
    recipe = Recipe({**PAPER_RECIPE, "steps": 100_000, "batch": 16})  # the paper states no steps
    # The paper's models here are single modules: no encoder in front of tree cross attention.
    prediction = "categorical"
    model_settings: Mapping[str, Any] = {
        "n_classes": N_CLASSES,
        "dropout": 0.1,
        "n_encoder_layers": 0,
        "order": "arrival",
        "reward": "accuracy",
    }

    def __init__(self, length: int = 256):
        if length < 4 or length & (length - 1):
            raise TrainingError(f"the length is {length}; take a power of 2, as 256.")
        self.length = length
        n_periods = length.bit_length() - 1
        self.n_inputs = 2 * n_periods
        turns = torch.arange(length)[:, None] * 2 ** torch.arange(n_periods)  # of 1/N
        angles = (turns % length).double() * (2 * math.pi / length)
        self._places = torch.cat([angles.sin(), angles.cos()], -1).float()  # (N, X)

    @classmethod
    def from_options(cls, args: CopyOptions, kept: dict[str, Any] | None = None) -> CopyTask:
        return cls(kept["length"] if kept else args.length)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "length": self.length}

    def training_batch(self, n_tasks: int, generator: torch.Generator) -> Batch:
        """Draw sequences; half of the batches hold only their middles, of 8 tokens or more.

        A model that has not yet learned where to look finds it sooner among few tokens; without
        such batches, training with N = 256 stays for long where every digit is equally likely.
        """
        batch, half = self.evaluation_batch(n_tasks, generator), self.length // 2
        n_shorter = max(0, half.bit_length() - 3)
        if n_shorter and torch.rand((), generator=generator) < 0.5:
            half >>= int(torch.randint(1, n_shorter + 1, (), generator=generator))
        context, target = slice(-half, None), slice(half)
        return Batch(
            batch.x_context[:, context],
            batch.y_context[:, context],
            batch.x_target[:, target],
            batch.y_target[:, target],
        )

    def evaluation_batch(self, n_tasks: int, generator: torch.Generator) -> Batch:
        """Draw a batch of whole sequences, as the paper evaluates on them."""
        half = self.length // 2
        y = torch.randint(0, N_DIGITS, (n_tasks, half, 1), generator=generator).float()
        y[:, 0] = BOS
        backwards = y.flip(1)
        backwards[:, -1] = EOS
        x = self._places.expand(n_tasks, -1, -1)
        return Batch(x[:, :half], y, x[:, half:], backwards)

    def evaluate(
        self, model: StreamingModel, n_batches: int, seed: int, names: tuple[str, str]
    ) -> tuple[dict[str, Any], str]:
        """Return the share of right answers, as JSON and as text.

        Where the model reports how many tokens a prediction reads, the mean number is added.
        """
        generator = torch.Generator().manual_seed(20240606 + seed)
        right = []
        for _ in range(n_batches):
            batch = self.evaluation_batch(EVALUATION_BATCH, generator)
            right.append(hits(model, batch).mean())
        read = model.tokens_read(batch)
        share = torch.stack(right).mean().item()
        scores: dict[str, Any] = {"accuracy": share, "n_sequences": n_batches * EVALUATION_BATCH}
        text = f"{names[0]}, {names[1]}: {100 * share:.2f} % right"
        if read is not None:
            n_read = read.float().mean().item()
            scores |= {"tokens_read": n_read, "share_read": 2 * n_read / self.length}
            text += f", reading {n_read:.1f} of {self.length // 2} tokens"
            text += f" ({100 * scores['share_read']:.1f} %)"
        return {"copy": scores}, text
