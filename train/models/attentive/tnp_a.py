"""Define TNP-A, the autoregressive transformer neural process.

Nguyen & Grover 2022. Targets come one after the other, and each is predicted from the context and
from the targets before it, whose true values are then given. A given target is a causal token: it
attends to the context, to given targets before it and to itself, while the context never attends to
it. So a pass over context, M given targets (x, y) and M asked ones (x, 0) yields all M conditional
distributions, which training and `log_likelihood` use:

    row attends to      context    given target j    asked target j
    context             yes        no                no
    given target i      yes        j <= i            no
    asked target i      yes        j < i             no

`query` predicts every target separately, from the context. The network and its 222,082 parameters
(the paper's size, one input and output) are those of TNP-D.

When a device samples several targets, it learns each drawn value by `update` on a copy of its
state. The drawn value is then a context point, to which the others attend, and not a causal token.
That is another distribution than the one of training, and it costs a refresh for every drawn value.
`TnpA.sample` draws from the distribution of training. Both draw the targets in a random order if
the settings say so.

Letters of shapes: B streams, N points, M targets, H heads, D width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from edgefold.runtime.predictions import Gaussian
from edgefold.train.batch import Batch
from edgefold.train.contract import Prediction
from edgefold.train.models.attentive.tnp import TnpConfig, TnpD
from edgefold.train.published import Published, as_published


@dataclass(frozen=True, slots=True)
class TnpAConfig(TnpConfig):
    """Holds the settings of a TNP-A: those of a TNP, and two of its own.

    Attributes:
        given_noise: Standard deviation of the noise that training adds to the given targets if
            deviations are `bounded`; 0.05 as published. Without bounds none is added.
        permute: Whether each sample draws the targets in a random order, as published.
    """

    given_noise: float = 0.0
    permute: bool = False

    def __post_init__(self) -> None:
        TnpConfig.__post_init__(self)  # super() does not know a class with slots
        if not 0 <= self.given_noise < math.inf:
            raise ValueError(f"given_noise is {self.given_noise}, must be finite and not negative")


class TnpA(TnpD):
    """Predicts as TNP-D, but is trained on the distribution of each target given earlier ones."""

    name = "tnp-a"
    presets: ClassVar[Mapping[str, TnpConfig]] = {
        "small": TnpAConfig(n_layers=3, embedding="fourier"),
        "paper": TnpAConfig(given_noise=0.05, permute=True, start="published"),
    }
    published: ClassVar[Published] = as_published(
        {"TNP-A": (1.63, 1.21)}, {"TNP-A": (5.82, None, None, 1.54, 1.41)}
    )

    def __init__(self, config: TnpAConfig):
        super().__init__(config)
        self.prediction = Gaussian(permuted=config.permute)

    def log_likelihood(self, batch: Batch) -> Tensor:
        """Return the log-likelihood of each target in nats, (B, M).

        Each target is predicted from the context and the true targets before it.
        """
        return self._scored(batch, batch.y_target)

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return the mean negative log-likelihood of a target, given noisy earlier ones: ().

        The noise is `given_noise`, and none if deviations are not bounded.
        """
        given = batch.y_target
        if self.config.bounded and self.config.given_noise:
            noise = torch.randn(given.shape, generator=generator).to(given)
            given = given + self.config.given_noise * noise
        return -self._scored(batch, given).mean()

    def _scored(self, batch: Batch, given: Tensor) -> Tensor:
        told = self.conditional(batch.x_context, batch.y_context, batch.x_target, given, batch.mask)
        likelihood: Tensor = self.prediction.log_likelihood(told, batch.y_target, torch)
        return likelihood

    def conditional(
        self,
        x_context: Tensor,
        y_context: Tensor,
        x_target: Tensor,
        given: Tensor,
        mask: Tensor | None = None,
    ) -> Prediction:
        """Predict each target from the context and from the values given for earlier targets.

        Args:
            x_context: Inputs of the context, (B, N, X).
            y_context: Outputs of the context, (B, N, Y).
            x_target: Inputs of the targets in their order, (B, M, X).
            given: Values that the targets have for later ones, (B, M, Y).
            mask: True for real context points, (B, N); None if all are.
        """
        points, mask = self.embedded(x_context, y_context, mask)
        cache = self.encode(points, mask)
        tokens = self.embedding.points(x_target, given)
        rows = torch.cat([tokens, self.embedding.queries(x_target)], 1)  # (B, 2M, D)
        visible = self._visible(mask, tokens.shape[1])
        for k, layer in enumerate(self.layers):
            seen = layer.keys_values(rows[:, : tokens.shape[1]])
            keys = torch.cat([cache[f"keys_{k}"], seen[0]], 2)  # (B, H, N + M, D/H)
            values = torch.cat([cache[f"values_{k}"], seen[1]], 2)
            rows = layer.step(rows, rows, keys, values, visible)
        return self.predicted(rows[:, tokens.shape[1] :])

    @torch.no_grad()
    def sample(
        self,
        x_context: Tensor,
        y_context: Tensor,
        x_target: Tensor,
        n_samples: int,
        generator: torch.Generator,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Draw values of all targets together, each given those drawn before: (S, B, M, Y).

        Arguments are as in `conditional`. Drawn values are causal tokens, as in training. With
        `permute` each sample goes through the targets in an order of its own, which is the same for
        all streams; the values return in the order of x_target.
        """
        shape = n_samples, *x_target.shape[:2], self.n_outputs
        samples = x_target.new_zeros(shape)
        noise = torch.randn(shape, generator=generator).to(x_target)
        for sample, numbers in zip(samples, noise, strict=True):
            order = torch.arange(x_target.shape[1])
            if self.config.permute:
                order = torch.randperm(len(order), generator=generator)
            x, given = x_target[:, order], torch.zeros_like(sample)
            for at in range(len(order)):
                told = self.conditional(x_context, y_context, x, given, mask)
                given[:, at] = told["mean"][:, at] + told["std"][:, at] * numbers[:, at]
            sample[:, order] = given
        return samples

    @staticmethod
    def _visible(mask: Tensor, n_targets: int) -> Tensor:
        """Return True where a target row may attend to a token, else False, (B, 1, 2M, N + M).

        The rows are M targets with their true y, then the same M with y = 0, which are predicted.
        The tokens are N points, real where the mask (B, N) is True, then the M with true y.
        """
        square = mask.new_ones(n_targets, n_targets)
        among = torch.cat([square.tril(), square.tril(-1)]).expand(len(mask), -1, -1)
        context = mask[:, None].expand(-1, 2 * n_targets, -1)
        return torch.cat([context, among], 2)[:, None]
