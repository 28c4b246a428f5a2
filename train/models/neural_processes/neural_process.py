"""Define the plan of the six classical neural processes: two encoders, a decoder, sampling.

    context ──> encoder 1 ──> first encoding ──────────────────────────┐
    context ──> encoder 2 ──> second encoding ──> one, or S of them ──> decoder ──> prediction
    target x ──────────────────────────────────────────────────────────┘

A process differs in its encoders (`pooling` or `attentive`) and in its sampling, which expresses
doubt about the function:

    none        the second encoding enters the decoder as it is
    latent      it is the mean and deviation of a normal latent variable, of which S samples enter
    bootstrap   S bootstraps of the context give S encodings, next to that of the context itself

S predictions form a mixture of S normal distributions. S is chosen at export. The samples' noise
depends on the stream's seed only: it is the same at every point, so that predictions change
smoothly along a stream. The same seed and points give the same prediction on every machine.

Letters of shapes: B streams, M targets, X inputs, Y outputs, S samples, D width.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from edgefold.runtime.predictions import GaussianMixture
from edgefold.train.batch import Batch
from edgefold.train.contract import (
    SEED,
    Cache,
    Prediction,
    State,
    StreamingModel,
    advance,
    initial_state_for,
)
from edgefold.train.models.neural_processes.np_layers import (
    AllPoints,
    Decoder,
    Latent,
    latent_loss,
    plain_loss,
    with_seed,
)
from edgefold.train.states.seeded_draws import SeededNoise

Sampling = Literal["none", "latent", "bootstrap"]
Context = tuple[Tensor, ...]
"""Tensors that encoders read of a context: means of features, or points with their weights."""


class NeuralProcess(StreamingModel):
    """Predicts by two encoders of the context and a decoder; a base class.

    A subclass (`pooling` or `attentive`) defines how encoders read the context, and what the state
    holds. Encoders compute rows of points one by one (`points`), gather those of a context
    (`context`), and pool these to the second encoding (`pooled`), (B, 1, D), or (B, 1, 2D) for a
    latent.

    Cache: `hidden` (B, S, D), what each of S encodings adds to the sum of the decoder's first
    layer, and the tensors that a subclass adds.
    """

    sampling: ClassVar[Sampling] = "none"
    encoders: Any

    def __init__(self, config: Any, encoders: nn.Module):
        super().__init__()
        self.config = config
        self.n_inputs, self.n_outputs = config.n_inputs, config.n_outputs
        self.encoders = encoders
        sizes = (config.n_inputs, config.n_outputs, config.width, 2 * config.width)
        self.decoder = Decoder(*sizes, 2 * config.width if self.sampling == "bootstrap" else 0)
        if self.sampling != "none":
            self.prediction = GaussianMixture(config.n_samples)
        if self.sampling == "latent":
            self.noise = SeededNoise(config.n_samples, config.width)

    def empty_state(self, n_streams: int) -> State:
        """Return the state of n_streams streams without points, and without a seed."""
        raise NotImplementedError

    def context_of(self, state: State) -> Context:
        """Return the context that the encoders read from the state."""
        raise NotImplementedError

    def read(self, context: Context, second: Tensor) -> Cache:
        """Compute the cache for queries from a context and its second encodings.

        Args:
            context: Result of `context_of`: the tensors that encoders read of the points.
            second: The second encoder's encoding, (B, 1, D); with a latent S samples, (B, S, D);
                with bootstraps that of the context, then those of S bootstraps, (B, 1 + S, D).
        """
        raise NotImplementedError

    def rows_at(self, cache: Cache, x: Tensor) -> Tensor:
        """Return what targets x (B, M, X) add to the sum of the decoder's first layer.

        It is (B, M, D).
        """
        raise NotImplementedError

    def initial_state(self, n_streams: int = 1) -> State:
        state = self.empty_state(n_streams)
        return state if self.sampling == "none" else with_seed(state, n_streams)

    def refresh(self, state: State) -> Cache:
        return self.cache(self.context_of(state), state)

    def cache(self, context: Context, state: State) -> Cache:
        """Compute the cache from a context; the state gives the seed of a latent."""
        pooled = self.encoders.pooled(*context)
        if self.sampling == "latent":
            pooled = Latent.of(pooled).samples(self.noise(state[SEED]))
        return self.read(context, pooled)

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        rows, hidden = self.rows_at(cache, x), cache["hidden"]
        if self.sampling != "none":
            rows, hidden = rows[:, :, None], hidden[:, None]  # (B, M, S, D)
        return self.decoder.answer(rows + hidden)

    def forward(
        self,
        x_context: Tensor,
        y_context: Tensor,
        x_target: Tensor,
        mask: Tensor | None = None,
        seeds: Tensor | None = None,
    ) -> Prediction:
        """Learn a context from an empty state and predict targets.

        `seeds` (B,) decide the samples of each stream; None is the seed 0 for all.
        """
        state = self.seeded(x_context, seeds)
        written = self.condition(state, x_context, y_context, mask)
        return self.query(self.refresh(advance(self, state, written)), x_target)

    def seeded(self, x: Tensor, seeds: Tensor | None) -> State:
        """Return the empty state of the streams of points x (B, N, X), with seeds (B,) if given."""
        state = initial_state_for(self, x)
        return state if seeds is None or SEED not in state else state | {SEED: seeds}

    def log_likelihood(self, batch: Batch) -> Tensor:
        context = batch.x_context, batch.y_context
        prediction = self(*context, batch.x_target, batch.mask, batch.seeds)
        likelihood: Tensor = self.prediction.log_likelihood(prediction, batch.y_target, torch)
        return likelihood

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return the published training loss, (): with a latent, the importance-weighted bound."""
        if self.sampling != "latent":
            return plain_loss(self, batch)
        points, n_context, encoders = AllPoints.of(batch), batch.x_context.shape[1], self.encoders
        rows = encoders.points(points.x, points.y)
        context = encoders.context(rows[:, :n_context], points.mask[:, :n_context])
        both = context, encoders.context(rows, points.mask)
        prior, posterior = (Latent.of(encoders.pooled(*each)) for each in both)
        shape = (len(rows), self.config.n_train_samples, self.config.width)
        samples = posterior.samples(torch.randn(shape, generator=generator).to(rows.device))
        predictions = self.query(self.read(context, samples), points.x)
        return latent_loss(points, predictions, samples, prior, posterior)
