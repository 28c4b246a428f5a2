"""Define LBANP with joint predictions: LBANP-ND and LBANP-END.

Feng et al., ICLR 2023, sections 3.2.1 and B.5. Targets read the latents as in LBANP. Then a joint
head passes information between targets: in LBANP-ND they attend to each other, as in TNP-ND, and in
LBANP-END to a few latents of the head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from edgefold.train.batch import Batch
from edgefold.train.contract import Cache, Prediction, StreamingModel
from edgefold.train.layers.joint_head import (
    BottleneckAttention,
    TargetAttention,
    drawn_block,
)
from edgefold.train.models.attentive.lbanp import Lbanp, LbanpConfig, LbanpOnDevice
from edgefold.train.models.latents_model import JointLatentsModel, LatentsModel
from edgefold.train.published import Published, as_published


class LbanpNd(JointLatentsModel, Lbanp):
    """Predicts jointly as LBANP-ND, with the state and cache of `Lbanp`.

    The preset `paper` has 903,253 parameters. The authors' 911,831 hold the predictor of the plain
    LBANP too (8,578), which their LBANP-ND has but does not use.
    """

    name = "lbanp-nd"
    presets: ClassVar[Mapping[str, LbanpConfig]] = {
        "small": LbanpConfig(n_blocks=3, n_latents=32),
        "paper": LbanpConfig(embedding="mlp", latents="normal", query_gain=1.0),
    }
    published: ClassVar[Published] = as_published(
        {"LBANP-ND": (1.24, 0.78)}, {"LBANP-ND": (5.57, None, None, 1.42, 1.14)}
    )

    def __init__(self, config: LbanpConfig):
        super().__init__(config)
        self.join_targets(self._attention(config))

    def _attention(self, config: LbanpConfig) -> TargetAttention | BottleneckAttention:
        return TargetAttention(config.width, config.n_heads, config.feedforward)

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return the negative joint log-likelihood of blocks of targets, per target: ().

        `drawn_block` draws the size of the blocks.
        """
        cache = self.context_cache(batch.x_context, batch.y_context, batch.mask)
        block = drawn_block(batch.x_target.shape[1], generator)
        return self.head.loss(self.decoded(cache, batch.x_target), batch.y_target, block)

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return LbanpNdOnDevice(self, n_streams)


class LbanpNdOnDevice(LbanpOnDevice):
    """Runs an LBANP with a joint head on a device, for a fixed number of streams."""

    def add_head(self, model: LatentsModel) -> None:
        assert isinstance(model, LbanpNd)
        self.head_norm, self.head = model.head_norm, model.head

    def query(self, cache: Cache, x: Tensor, mask: Tensor | None = None) -> Prediction:
        targets = self.decoder(cache, x).view(*x.shape[:2], -1)
        prediction: Prediction = self.head(self.head_norm(targets), mask)
        return prediction


@dataclass(frozen=True, slots=True)
class LbanpEndConfig(LbanpConfig):
    """Holds the settings of an LBANP-END.

    Attributes:
        n_target_latents: Number of latents by which targets exchange information.
    """

    n_target_latents: int = 128


class LbanpEnd(LbanpNd):
    """Predicts jointly as LBANP-END: attention among M targets costs O(M) instead of O(M^2).

    The covariance itself still has M^2 numbers. For a query of few targets the attention of
    LBANP-ND is the cheaper one.
    """

    name = "lbanp-end"
    presets: ClassVar[Mapping[str, LbanpConfig]] = {
        "small": LbanpEndConfig(n_blocks=3, n_latents=32, n_target_latents=8),
        "paper": LbanpEndConfig(embedding="mlp", latents="normal", query_gain=1.0),
    }
    published: ClassVar[Published] = as_published({}, {"LBANP-END": (5.60, 6.06, None, 1.42, 1.14)})

    def _attention(self, config: LbanpConfig) -> TargetAttention | BottleneckAttention:
        assert isinstance(config, LbanpEndConfig)
        n_latents = config.n_target_latents
        return BottleneckAttention(config.width, config.n_heads, n_latents, config.feedforward)
