"""Define LBANP with joint predictions: LBANP-ND and LBANP-END.

Feng et al., ICLR 2023, sections 3.2.1 and B.5. Targets read the latents as in LBANP. Then a joint
head passes information between targets: in LBANP-ND they attend to each other, as in TNP-ND, and in
LBANP-END to a few latents of the head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from edgefold.runtime.predictions.joint import Covariance
from edgefold.train.contract import Cache, Prediction, StreamingModel
from edgefold.train.layers.joint_head import (
    N_LAYERS,
    PUBLISHED_HEAD,
    BottleneckAttention,
    TargetAttention,
    TrainedBlocks,
    require_joint_settings,
)
from edgefold.train.layers.latents import PUBLISHED_FORM
from edgefold.train.layers.starts import start_alike
from edgefold.train.models.attentive.lbanp import Lbanp, LbanpBlock, LbanpConfig, LbanpOnDevice
from edgefold.train.models.latents_model import JointLatentsModel, LatentsModel
from edgefold.train.published import Published, as_published

BottleneckLayers = Literal["post-norm", "pre-norm"]
"""Layers by which LBANP-END's targets exchange information: those of TNP-ND with one last attention
to the latents, which are the equations of appendix B.5, or blocks of LBANP with a query layer each,
as in the published code."""


@dataclass(frozen=True, slots=True)
class LbanpNdConfig(LbanpConfig):
    """Holds the settings of an LBANP-ND: those of an LBANP, and those of its joint head.

    `least` and `covariance` are described at `JointGaussian`, `trained_blocks` at `TrainedBlocks`.
    """

    least: float = 1e-4
    covariance: Covariance = "cholesky"
    trained_blocks: TrainedBlocks = "drawn"

    def __post_init__(self) -> None:
        LbanpConfig.__post_init__(self)  # super() does not know a class with slots
        require_joint_settings(self)


class LbanpNd(JointLatentsModel, Lbanp):
    """Predicts jointly as LBANP-ND, with the state and cache of `Lbanp`.

    The preset `paper` has 903,253 parameters. The authors' 911,831 hold the predictor of the plain
    LBANP too (8,578), which their LBANP-ND has but does not use.
    """

    name = "lbanp-nd"
    presets: ClassVar[Mapping[str, LbanpConfig]] = {
        "small": LbanpNdConfig(n_blocks=3, n_latents=32),
        "paper": LbanpNdConfig(**PUBLISHED_FORM, **PUBLISHED_HEAD),
    }
    published: ClassVar[Published] = as_published(
        {"LBANP-ND": (1.24, 0.78)}, {"LBANP-ND": (5.57, None, None, 1.42, 1.14)}
    )

    def __init__(self, config: LbanpNdConfig):
        super().__init__(config)
        self.join_targets(self._attention(config))

    def _attention(self, config: LbanpNdConfig) -> nn.Module:
        return TargetAttention(config.width, config.n_heads, config.feedforward, config.start)

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
class LbanpEndConfig(LbanpNdConfig):
    """Holds the settings of an LBANP-END.

    Attributes:
        n_target_latents: Number of latents by which targets exchange information.
        bottleneck: Form of the layers between them, described at `BottleneckLayers`.
    """

    n_target_latents: int = 128
    bottleneck: BottleneckLayers = "post-norm"


class TargetBlocks(nn.Module):
    """Lets targets attend to L latents that attended to all targets, by two blocks of LBANP.

    In block i the latents attend to the targets as they came, and then to themselves; in query
    layer i the targets attend to the latents that block i has computed.
    """

    def __init__(self, config: LbanpEndConfig):
        super().__init__()
        self.latents = nn.Parameter(torch.randn(config.n_target_latents, config.width))
        blocks = nn.ModuleList(LbanpBlock(config) for _ in range(N_LAYERS))
        self.blocks = cast("list[LbanpBlock]", blocks)
        if config.start == "published":
            start_alike(blocks)

    def forward(self, targets: Tensor, mask: Tensor | None) -> Tensor:
        visible = targets.new_ones(targets.shape[:2]).bool() if mask is None else mask
        hidden, rows = self.latents.expand(len(targets), -1, -1), targets
        for block in self.blocks:
            context = block.context_attention.keys_values(targets)
            hidden = block.encoded(hidden, context, visible)
            rows = block.query_ff.added(block.query_attention.added(rows, hidden))
        return rows


class LbanpEnd(LbanpNd):
    """Predicts jointly as LBANP-END: attention among M targets costs O(M) instead of O(M^2).

    The covariance itself still has M^2 numbers. For a query of few targets the attention of
    LBANP-ND is the cheaper one.
    """

    name = "lbanp-end"
    presets: ClassVar[Mapping[str, LbanpConfig]] = {
        "small": LbanpEndConfig(n_blocks=3, n_latents=32, n_target_latents=8),
        "paper": LbanpEndConfig(**PUBLISHED_FORM, **PUBLISHED_HEAD, bottleneck="pre-norm"),
    }
    published: ClassVar[Published] = as_published(
        {}, {"LBANP-END (128)": (5.60, 6.06, None, 1.42, 1.14)}
    )

    def _attention(self, config: LbanpNdConfig) -> nn.Module:
        assert isinstance(config, LbanpEndConfig)
        if config.bottleneck == "pre-norm":
            return TargetBlocks(config)
        n_latents = config.n_target_latents
        return BottleneckAttention(config.width, config.n_heads, n_latents, config.feedforward)
