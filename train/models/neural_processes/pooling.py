"""Define CNP, NP and BNP, whose encoders read a context as sums over its points.

Two encoders of one width stand side by side, as in the published comparison code. The state is the
sum of the points' features and their number, once for the context, and for BNP once more for each
of K bootstraps, which are random resamplings of the context.

The published BNP draws twice from the whole context. It encodes K resampled contexts, predicts the
context from each, and encodes those predictions plus resampled residuals. Neither is possible in a
state of constant size; `two_stages` has that form, which keeps the points. Here

    each point enters bootstrap k as often as a Poisson number of mean 1 says, which is the online
    bootstrap (Oza and Russell 2001): given their sum, such numbers are a resampling's
    the second stage, of residuals, is left out: encodings of the resampled points are used

`pooling_device` has the form for a device.

Letters of shapes: B streams, U points, K bootstraps, S samples, X inputs, Y outputs, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from edgefold.train.batch import Batch
from edgefold.train.contract import SEED, Cache, State, StreamingModel
from edgefold.train.models.neural_processes.neural_process import Context, NeuralProcess
from edgefold.train.models.neural_processes.np_layers import (
    AllPoints,
    bootstrap_loss,
    every_row,
    masked,
)
from edgefold.train.models.neural_processes.pooling_device import BnpOnDevice, PoolingOnDevice
from edgefold.train.models.neural_processes.pooling_encoders import (
    PoolingEncoder,
    PoolingEncoders,
    means_of,
    summed,
)
from edgefold.train.settings import PAPER_TRAINING, SizedConfig, Start
from edgefold.train.states.random_numbers import PRIME
from edgefold.train.states.seeded_draws import bootstrap_weights


@dataclass(frozen=True, slots=True)
class CnpConfig(SizedConfig):
    """Holds the sizes of a CNP: inputs X, outputs Y and width D.

    `start` is how the inputs of the decoder's first layer start: "published" as every linear layer
    does, or "ours", with which a model learns sooner.
    """

    n_inputs: int = 1
    n_outputs: int = 1
    width: int = 128
    start: Start = "ours"


@dataclass(frozen=True, slots=True)
class NpConfig(CnpConfig):
    """Holds the sizes of an NP: those of a CNP, and the number of samples, or bootstraps for a BNP.

    A prediction has `n_samples` of them, a training step `n_train_samples`.
    """

    n_samples: int = 50
    n_train_samples: ClassVar[int] = 4


NO_MERGE = (
    "a bootstrap weighs a point by the number of points before it, and in two streams two points "
    "have the same number"
)
"""Why states with bootstraps are not merged."""


class PoolingProcess(NeuralProcess):
    """Predicts from sums over the points of a context; a base class.

    State: `sums` (B, 2, D), of each encoder's features; `count` (B,), the number of points; with
    samples `seed` (B,). With bootstraps `sums` (B, 1 + K, 2, D), of features times weights, and
    `count` (B, 1 + K), the sums of weights: row 0 is the context itself.
    """

    training_defaults: ClassVar[Mapping[str, Any]] = {
        "small": {"learning_rate": 1e-3},
        **PAPER_TRAINING,
    }
    ordered = False
    encoders: PoolingEncoders

    def __init__(self, config: CnpConfig):
        n_in, width = config.n_inputs + config.n_outputs, config.width
        widths = (width, 2 * width if self.sampling == "latent" else width)
        encoders = PoolingEncoders(PoolingEncoder(n_in, width, n_encoded) for n_encoded in widths)
        super().__init__(config, encoders)
        self.ordered = self.sampling == "bootstrap"  # a point's weights depend on its place
        self.no_merge = NO_MERGE * self.ordered
        if config.start == "ours":
            self.decoder.bend_at_inputs()

    def empty_state(self, n_streams: int, n_bootstraps: int | None = None) -> State:
        """Return the state of n_streams streams without points.

        By default the number of bootstraps, K, is that of the settings.
        """
        lead: tuple[int, ...] = (n_streams,)
        if self.sampling == "bootstrap":
            lead += (1 + (n_bootstraps or self.config.n_samples),)
        sums = torch.zeros(*lead, 2, self.config.width)
        return {"sums": sums, "count": torch.zeros(lead, dtype=torch.int64)}

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return self.condition(state, x[:, None], y[:, None])

    def condition(self, state: State, x: Tensor, y: Tensor, mask: Tensor | None = None) -> State:
        mask = every_row(x, mask)
        rows = self.encoders.points(masked(x, mask), masked(y, mask))
        if self.sampling == "bootstrap":
            place = state["count"][:, :1] + mask.cumsum(1) - 1
            weights = bootstrap_weights(place, state[SEED], state["count"].shape[1] - 1)
            weights = torch.where(mask[..., None], weights, 0)  # (B, U, 1 + K)
            sums, count = summed(rows, weights), weights.sum(1)
        else:
            sums, count = summed(rows, mask[..., None])[:, 0], mask.sum(1)
        return {"sums": state["sums"] + sums, "count": state["count"] + count}

    def merge(self, state: State, other: State) -> State:
        """Return the state that knows the points of both; ValueError with bootstraps."""
        if self.no_merge:
            raise ValueError(self.no_merge)
        return {name: state[name] + other[name] for name in ("sums", "count")}

    def context_of(self, state: State) -> Context:
        means, count = means_of(state["sums"], state["count"]), state["count"]
        if self.sampling == "bootstrap":
            # A bootstrap that has drawn no point yet is the context itself.
            means = torch.where(count[..., None, None] > 0, means, means[:, :1])
        return (means,)

    def read(self, context: Context, second: Tensor) -> Cache:
        return {"hidden": self.first_layers(context, second)[-1]}

    def first_layers(self, context: Context, second: Tensor) -> list[Tensor]:
        """Multiply the encoded context by its part of the decoder's first layer: [(B, S, D)].

        A query adds the target's part. With bootstraps there are two tensors: of the context alone,
        (B, 1, D), and of the K bootstraps, (B, K, D).

        Args:
            context: The means of the features, from which the first encoder encodes the context.
            second: What the second encoder made of the context and its bootstraps, (B, 1 + K, D);
                with a latent variable the S samples of it, (B, S, D).
        """
        first, part = self.encoders.first(*context), self.decoder.part
        if self.sampling == "latent":
            return [part(first) + part(second, self.config.width)]
        encoded = torch.cat([first, second], -1)  # (B, 1 + K, 2D)
        base = part(encoded[:, :1])
        if self.sampling == "none":
            return [base]
        return [base, base + part(encoded[:, 1:], bootstrapped=True)]

    def rows_at(self, cache: Cache, x: Tensor) -> Tensor:
        return self.decoder.inputs(x)

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return the training loss, (); for BNP `bootstrap_loss` with 4 bootstraps."""
        if self.sampling != "bootstrap":
            return super().loss(batch, generator)
        points = AllPoints.of(batch)
        seed = torch.randint(PRIME, (len(points.x),), generator=generator)
        state = {**self.empty_state(len(seed), self.config.n_train_samples), SEED: seed}
        state = {name: tensor.to(points.x.device) for name, tensor in state.items()}
        state |= self.condition(state, batch.x_context, batch.y_context, batch.mask)
        context = self.context_of(state)
        layers = self.first_layers(context, self.encoders.pooled(*context))
        plain, bootstrapped = (self.query({"hidden": each}, points.x) for each in layers)
        return bootstrap_loss(points, plain, bootstrapped)

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return (BnpOnDevice if self.sampling == "bootstrap" else PoolingOnDevice)(self)

    @property
    def summary(self) -> str:
        return f"{self.name.upper()}, {self.config.width} wide"
