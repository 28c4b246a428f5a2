"""Define CNP, NP and BNP, whose encoders read a context as sums over its points.

Two encoders of one width stand side by side, as in the published comparison code. The state is the
sum of the points' features and their number, once for the context, and for BNP once more for each
of K bootstraps, which are random resamplings of the context.

The published BNP draws twice from the whole context. It encodes K resampled contexts, predicts the
context from each, and encodes those predictions plus resampled residuals. Neither is possible in a
state of constant size. Here

    each point enters bootstrap k as often as a Poisson number of mean 1 says, which is the online
    bootstrap (Oza and Russell 2001): given their sum, such numbers are a resampling's
    the second stage, of residuals, is left out: encodings of the resampled points are used

The form for a device does as little as possible:

    update, condition   points -> features of both encoders, added to the recent sums
    consolidate         recent -> base (see `running_sums`)
    refresh             means -> the decoder's first layer, without the target's part
    query               that layer -> prediction

The first layers of both encoders are one matrix. The others stay two matrices: one matrix with
zeros next to both has twice the weights. The number of points is kept as one more sum, of ones.
Linear layers that follow each other are one matrix.

An update reports squares of the point as `finite`: a ReLU hides NaN on some backends, and a square
overflows long before a layer does.

Letters of shapes: B streams, U points, K bootstraps, S samples, X inputs, Y outputs, D width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from edgefold.train.batch import Batch
from edgefold.train.contract import FINITE, SEED, Cache, Prediction, State, StreamingModel
from edgefold.train.layers.attention import Linear, mlp
from edgefold.train.layers.device_layers import (
    Affine,
    composed,
    exact,
    linear_layers,
    rounded,
    side_by_side,
)
from edgefold.train.models.device_form import DeviceForm
from edgefold.train.models.neural_processes.neural_process import Context, NeuralProcess
from edgefold.train.models.neural_processes.np_layers import (
    AllPoints,
    LatentOnDevice,
    ProcessDecoderOnDevice,
    bootstrap_loss,
    every_row,
    masked,
    squares,
    with_seed,
)
from edgefold.train.settings import PAPER_TRAINING, SizedConfig
from edgefold.train.states.point_buffer import COUNT
from edgefold.train.states.random_numbers import PRIME
from edgefold.train.states.running_sums import (
    CONSOLIDATE_EVERY,
    RECENT,
    consolidated,
    empty_sums,
    total_of,
)
from edgefold.train.states.seeded_draws import bootstrap_weights


@dataclass(frozen=True, slots=True)
class CnpConfig(SizedConfig):
    """Holds the sizes of a CNP: inputs X, outputs Y and width D."""

    n_inputs: int = 1
    n_outputs: int = 1
    width: int = 128


@dataclass(frozen=True, slots=True)
class NpConfig(CnpConfig):
    """Holds the sizes of an NP or a BNP: those of a CNP, and the number of samples or bootstraps.

    A prediction has `n_samples` of them, a training step `n_train_samples`.
    """

    n_samples: int = 50
    n_train_samples: ClassVar[int] = 4


class PoolingEncoder(nn.Module):
    """Encodes points as a vector of `n_encoded` numbers, by the mean of D features over the points.

    The published encoder is 4 layers, a mean over the points, and 2 layers (Garnelo et al. 2018a).
    Between its fourth and fifth layer there is only the mean. A mean and a linear layer may change
    places, so the mean is taken before the fourth layer here: the same function of one or more
    points with the same parameters, and a third less work for each point. Without points the mean
    is 0.

        features   3 layers, of each point          an update adds them to the state
        of_mean    1 + 2 layers, of the mean        `refresh` runs them
    """

    def __init__(self, n_in: int, width: int, n_encoded: int):
        super().__init__()
        self.of_point = mlp(n_in, width, width, 3)
        self.of_mean = nn.Sequential(Linear(width, width), mlp(width, width, n_encoded, 2))

    def features(self, points: Tensor) -> Tensor:
        """Return features (..., D), all at least 0, of points (..., X + Y)."""
        return torch.relu(self.of_point(points))

    def forward(self, mean: Tensor) -> Tensor:
        """Encode the mean of features (..., D): return (..., n_encoded)."""
        encoded: Tensor = self.of_mean(mean)
        return encoded


class PoolingEncoders(nn.ModuleList):
    """Holds both encoders of a process; they read a context as the means of its points' features.

    The means are (B, 2, D), or (B, 1 + K, 2, D) with K bootstraps (resamplings of the points).
    """

    def points(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the features of both encoders, (..., 2, D), of points x (..., X), y (..., Y)."""
        points = torch.cat([x, y], -1)
        return torch.stack([encoder.features(points) for encoder in self], -2)  # type: ignore[operator]

    def context(self, rows: Tensor, mask: Tensor) -> Context:
        """Return the means (B, 2, D) of the rows (B, U, 2, D) for which mask (B, U) is True.

        Without such rows they are 0.
        """
        return (means_of(summed(rows, mask[..., None])[:, 0], mask.sum(1)),)

    def first(self, means: Tensor) -> Tensor:
        """Return the first encoder's encoding of each context, (B, 1, D) or (B, 1 + K, D)."""
        return self._encoded(0, means)

    def pooled(self, means: Tensor) -> Tensor:
        """Return the second encoder's encodings, (B, 1, D), (B, 1 + K, D), or (B, 1, 2D) for NP."""
        return self._encoded(1, means)

    def _encoded(self, number: int, means: Tensor) -> Tensor:
        encoded: Tensor = self[number](means[..., number, :])
        return encoded[:, None] if means.ndim == 3 else encoded


def summed(rows: Tensor, weights: Tensor) -> Tensor:
    """Sum features (B, U, 2, D), each counted weights (B, U, 1 + K) times: (B, 1 + K, 2, D)."""
    return (weights.mT.to(rows) @ rows.flatten(2)).unflatten(-1, (2, -1))


def means_of(sums: Tensor, count: Tensor) -> Tensor:
    """Divide sums (..., 2, D) by counts (...); the result is 0 without points."""
    return sums / count.clamp(min=1)[..., None, None]


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
        first = self.decoder.first
        with torch.no_grad():
            # The bends of the decoder's first layer begin between -2 and 2, where scaled inputs
            # lie: a CNP then learns sooner than from the published start.
            first.weight[self.decoder.n_encoded :].uniform_(-1, 1)
            first.bias.uniform_(-2, 2)  # type: ignore[union-attr]

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


class FeaturesOnDevice(nn.Module):
    """Computes both encoders' features of points, and a 1: (rows, 2D + 1).

    The points are x (rows, X) and y (rows, Y).
    """

    one: Tensor

    def __init__(self, encoders: Iterable[PoolingEncoder]):
        super().__init__()
        layers = [linear_layers(encoder.of_point) for encoder in encoders]
        weights, biases = zip(*(own[0] for own in layers), strict=True)
        self.first = Affine((torch.hstack(weights), torch.hstack(biases)))
        self.second, self.third = (
            nn.ModuleList(Affine(own[number]) for own in layers) for number in (1, 2)
        )
        self.register_buffer("one", torch.ones(1, 1))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        halves = torch.relu(self.first(torch.cat([x, y], -1))).chunk(2, -1)
        features = [
            third(torch.relu(second(half)))
            for half, second, third in zip(halves, self.second, self.third, strict=True)
        ]
        return torch.relu(torch.cat([*features, self.one.expand(len(y), 1)], -1))


class MeansOnDevice(nn.Module):
    """Computes both encoders from the means of features up to the encoders' last layer.

    The means of both encoders are (rows, 2D), and so is the result.
    """

    def __init__(self, encoders: Iterable[PoolingEncoder]):
        super().__init__()
        folded = (composed(*linear_layers(encoder.of_mean)[:2]) for encoder in encoders)
        self.first = nn.ModuleList(Affine(weights) for weights in folded)

    def forward(self, means: Tensor) -> Tensor:
        halves = zip(self.first, means.chunk(2, -1), strict=True)
        return torch.relu(torch.cat([first(half) for first, half in halves], -1))


class PoolingOnDevice(DeviceForm):
    """Runs a CNP or an NP on a device.

    State: `recent_sums`, `base_sums` and `rest_sums` of `running_sums`, (B, 2D + 1) each: sums of
    both encoders' features and, last, the number of points; with a latent also `seed` (B,).
    """

    consolidate_every = CONSOLIDATE_EVERY
    of_latent: Tensor

    @torch.no_grad()
    def __init__(self, model: PoolingProcess):
        super().__init__(model)
        self.sampling, width, decoder = model.sampling, model.config.width, model.decoder
        encoders: list[PoolingEncoder] = list(model.encoders)  # type: ignore[arg-type]
        self.features, self.means = FeaturesOnDevice(encoders), MeansOnDevice(encoders)
        self.decoder = ProcessDecoderOnDevice(decoder, model.n_outputs)
        last = [linear_layers(encoder.of_mean)[2] for encoder in encoders]
        weight, bias = exact(decoder.first)
        weight = weight[: decoder.n_encoded]
        if self.sampling == "latent":
            self.of_encoded = Affine(composed(last[0], (weight[:width], bias)))
            self.register_buffer("of_latent", rounded(weight[width:], torch.float32))
            self.latent = LatentOnDevice(last[1], model.noise)
            return
        self.of_encoded = Affine(side_by_side(last, (weight, bias)))
        if decoder.bootstrapped is not None:
            weight = decoder.bootstrapped.weight.double()
            self.of_bootstrap = Affine(side_by_side(last, (weight, torch.zeros_like(bias))))

    def initial_state(self, n_streams: int = 1) -> State:
        state = empty_sums(n_streams, 2 * self.config.width + 1)
        return state if self.sampling == "none" else with_seed(state, n_streams)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        added = self.features(x, y)
        return {RECENT: state[RECENT] + added, FINITE: squares(x, y).sum(1)}

    def condition(self, state: State, x: Tensor, y: Tensor, mask: Tensor | None = None) -> State:
        x, y = masked(x, mask), masked(y, mask)
        features = self.chunk_features(x, y)
        seen = torch.ones_like(x[..., 0]) if mask is None else mask.to(features)
        added = (seen[:, None] @ features)[:, 0]
        return {RECENT: state[RECENT] + added, FINITE: squares(x, y).sum((1, 2))}

    def chunk_features(self, x: Tensor, y: Tensor) -> Tensor:
        """Return features and a 1, (B, U, 2D + 1), of points x (B, U, X), y (B, U, Y)."""
        rows = self.features(x.flatten(0, 1), y.flatten(0, 1))
        return rows.unflatten(0, x.shape[:2])

    def consolidate(self, state: State) -> State:
        return consolidated(state)

    def refresh(self, state: State) -> Cache:
        total = total_of(state)
        hidden = self.means(means_of_total(total))
        if self.sampling == "none":
            return {"hidden": self.of_encoded(hidden)[:, None]}
        encoded, latent = hidden.chunk(2, -1)
        samples = self.latent(latent, state[SEED])
        return {"hidden": self.of_encoded(encoded)[:, None] + samples @ self.of_latent}

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        prediction: Prediction = self.decoder(x, cache["hidden"])
        if self.sampling == "none":
            return {name: part[:, :, 0] for name, part in prediction.items()}
        return prediction


def means_of_total(sums: Tensor) -> Tensor:
    """Divide sums (..., 2D + 1) by the last one, the number of points: return (..., 2D).

    Without points the means are 0.
    """
    return sums[..., :-1] / sums[..., -1:].clamp(min=1.0)


class BnpOnDevice(PoolingOnDevice):
    """Runs a BNP on a device.

    State: the sums of `PoolingOnDevice`, but (B, 1 + K, 2D + 1): row 0 is for the context itself,
    the others for K bootstraps; `count` (B,), the number of points; `seed` (B,).
    """

    def initial_state(self, n_streams: int = 1) -> State:
        sums = empty_sums(n_streams, 1 + self.config.n_samples, 2 * self.config.width + 1)
        return with_seed({**sums, COUNT: torch.zeros(n_streams, dtype=torch.int64)}, n_streams)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        weights = bootstrap_weights(state[COUNT][:, None], state[SEED], self.config.n_samples)
        added = weights.to(y).mT * self.features(x, y)[:, None]  # (B, 1 + K, 2D + 1)
        return {
            RECENT: state[RECENT] + added,
            COUNT: state[COUNT] + 1,
            FINITE: squares(x, y).sum(1),
        }

    def condition(self, state: State, x: Tensor, y: Tensor, mask: Tensor | None = None) -> State:
        mask = every_row(x, mask)
        x, y = masked(x, mask), masked(y, mask)
        place = state[COUNT][:, None] + mask.cumsum(1) - 1
        weights = bootstrap_weights(place, state[SEED], self.config.n_samples)
        weights = torch.where(mask[..., None], weights, 0).to(y)  # (B, U, 1 + K)
        return {
            RECENT: state[RECENT] + weights.mT @ self.chunk_features(x, y),
            COUNT: state[COUNT] + mask.sum(1),
            FINITE: squares(x, y).sum((1, 2)),
        }

    def refresh(self, state: State) -> Cache:
        total = total_of(state)
        means = means_of_total(total)
        means = torch.where(total[..., -1:] > 0, means, means[:, :1])
        hidden = self.means(means.flatten(0, 1)).unflatten(0, means.shape[:2])  # (B, 1 + K, 2D)
        base = self.of_encoded(hidden[:, 0])[:, None]
        bootstraps = self.of_bootstrap(hidden[:, 1:].flatten(0, 1))
        return {"hidden": base + bootstraps.unflatten(0, (len(base), self.config.n_samples))}
