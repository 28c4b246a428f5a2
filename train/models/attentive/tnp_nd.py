"""TNP-ND: the transformer neural process that predicts all targets of a query jointly.

Nguyen & Grover 2022: encoded targets of TNP-D, then a head that lets them attend to
each other and gives a mean and a covariance (`joint_head`). The paper's size has 332,821 parameters
for one input and output. A query costs O(M N + M^2).
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from edgefold.train.batch import Batch
from edgefold.train.contract import Cache, Prediction, StreamingModel
from edgefold.train.layers.joint_head import JointHead, TargetAttention, drawn_block
from edgefold.train.models.attentive.tnp import Tnp, TnpConfig, TnpOnDevice
from edgefold.train.published import Published, as_published


class TnpNd(Tnp):
    """A TNP with a head for means and covariances."""

    name = "tnp-nd"
    published: ClassVar[Published] = as_published(
        {"TNP-ND": (1.46, 1.02)}, {"TNP-ND": (5.48, None, None, 1.50, 1.31)}
    )

    def __init__(self, config: TnpConfig):
        super().__init__(config)
        attention = TargetAttention(config.width, config.n_heads, config.feedforward)
        self.head = JointHead(
            attention,
            config.width,
            config.n_outputs,
            config.bounded,
            hidden=config.feedforward,
        )
        self.prediction = self.head.kind

    def query(self, cache: Cache, x: Tensor, mask: Tensor | None = None) -> Prediction:
        return self.head(self.targets(cache, x), mask)

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """The negative joint log-likelihood of blocks of targets, see `drawn_block`."""
        points, visible = self.embedded(batch.x_context, batch.y_context, batch.mask)
        targets = self.targets(self.encode(points, visible), batch.x_target)
        return self.head.loss(
            targets, batch.y_target, drawn_block(batch.x_target.shape[1], generator)
        )

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return TnpNdOnDevice(self, n_streams)


class TnpNdOnDevice(TnpOnDevice):
    """The rewrite of TNP-ND; its head is small and stays as it is."""

    def __init__(self, model: TnpNd, n_streams: int):
        super().__init__(model, n_streams)
        self.head = model.head

    def query(self, cache: Cache, x: Tensor, mask: Tensor | None = None) -> Prediction:
        targets = self.targets(cache, x).view(*x.shape[:2], -1)
        return self.head(targets, mask)
