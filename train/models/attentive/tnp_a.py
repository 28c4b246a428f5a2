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

Letters of shapes: B streams, N points, M targets, H heads, D width.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from edgefold.train.batch import Batch
from edgefold.train.models.attentive.tnp import TnpD
from edgefold.train.published import Published, as_published


class TnpA(TnpD):
    """Predicts as TNP-D, but is trained on the distribution of each target given earlier ones."""

    name = "tnp-a"
    published: ClassVar[Published] = as_published(
        {"TNP-A": (1.63, 1.21)}, {"TNP-A": (5.82, None, None, 1.54, 1.41)}
    )

    def log_likelihood(self, batch: Batch) -> Tensor:
        """Return the log-likelihood of each target in nats, (B, M).

        Each target is predicted from the context and the true targets before it.
        """
        points, mask = self.embedded(batch.x_context, batch.y_context, batch.mask)
        cache = self.encode(points, mask)
        tokens = self.embedding.points(batch.x_target, batch.y_target)
        rows = torch.cat([tokens, self.embedding.queries(batch.x_target)], 1)  # (B, 2M, D)
        visible = self._visible(mask, tokens.shape[1])
        for k, layer in enumerate(self.layers):
            seen = layer.keys_values(rows[:, : tokens.shape[1]])
            keys = torch.cat([cache[f"keys_{k}"], seen[0]], 2)  # (B, H, N + M, D/H)
            values = torch.cat([cache[f"values_{k}"], seen[1]], 2)
            rows = layer.step(rows, rows, keys, values, visible)
        prediction = self.predicted(rows[:, tokens.shape[1] :])
        likelihood: Tensor = self.prediction.log_likelihood(prediction, batch.y_target, torch)
        return likelihood

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
