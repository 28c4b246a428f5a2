"""Define CMANP-AND: CMANP with joint predictions, block by block (Feng et al., ICML 2024, 3.3.1).

A query predicts a block of targets jointly. The block is then learned, as values that were drawn
from the prediction or as the true ones, and the next block is predicted. So the memory of a long
prediction is constant, and blocks may depend on each other in any way. The blocks are driven by
`Stream.sample` and `Stream.joint_log_likelihood` on a device, and by `log_likelihood` here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from edgefold.runtime.predictions.joint import Covariance
from edgefold.train.batch import Batch
from edgefold.train.contract import (
    Cache,
    Prediction,
    StreamingModel,
    advance,
    initial_state_for,
)
from edgefold.train.layers.joint_head import (
    PUBLISHED_HEAD,
    TargetAttention,
    TrainedBlocks,
    require_joint_settings,
)
from edgefold.train.layers.latents import PUBLISHED_FORM
from edgefold.train.models.constant_memory.cmanp import Cmanp, CmanpConfig, CmanpOnDevice
from edgefold.train.models.latents_model import JointLatentsModel
from edgefold.train.published import Published, as_published
from edgefold.train.settings import PAPER_TRAINING


@dataclass(frozen=True, slots=True)
class CmanpAndConfig(CmanpConfig):
    """Holds the settings of a CMANP-AND: those of a CMANP, and those of its joint head.

    Here `block` is the number of targets that are predicted jointly. A smaller block predicts
    better and takes more steps; 5 is the published number. `bounded`, `least` and `covariance` are
    described at `JointGaussian`, `trained_blocks` at `TrainedBlocks`. The paper trains on all
    targets as one block. A head that has only met 48 targets together predicts 5 of them worse than
    a plain CMANP does (checkpoints/README.md has the figures).
    """

    block: int = 5
    least: float = 1e-4
    covariance: Covariance = "cholesky"
    trained_blocks: TrainedBlocks = "fixed"

    def __post_init__(self) -> None:
        CmanpConfig.__post_init__(self)  # super() does not know a class with slots
        require_joint_settings(self)


class CmanpAnd(JointLatentsModel, Cmanp):
    """Predicts blocks of targets jointly, with the state and cache of `Cmanp`.

    The preset `paper` has 1,452,373 parameters. The authors' 1,460,951 hold the predictor of the
    plain CMANP too (8,578), which their CMANP-AND has but does not use.
    """

    name = "cmanp-and"
    presets: ClassVar[Mapping[str, CmanpConfig]] = {
        "small": CmanpAndConfig(n_blocks=3, n_latents=32),
        "medium": CmanpAndConfig(n_blocks=3, n_latents=64),
        "large": CmanpAndConfig(),
        "paper": CmanpAndConfig(**PUBLISHED_FORM, **PUBLISHED_HEAD),
    }
    training_defaults: ClassVar[Mapping[str, Any]] = {
        "medium": {"steps": 40_000, "optimizer": "muon"},
        "large": {"steps": 100_000},
        **PAPER_TRAINING,
    }
    published: ClassVar[Published] = as_published(
        {"CMANP-AND": (1.48, 0.96)}, {"CMANP-AND": (6.31, 6.96, 7.15, 1.48, 1.19)}
    )

    def __init__(self, config: CmanpAndConfig):
        super().__init__(config)
        c = config
        attention = TargetAttention(c.width, c.n_heads, c.feedforward, c.start)
        self.join_targets(attention, config.block)

    def log_likelihood(self, batch: Batch) -> Tensor:
        """Return the joint log-likelihood in nats, divided by the number of targets, (B, 1).

        It is computed block by block; earlier blocks are learned with their true values.
        """
        context = batch.x_context, batch.y_context, batch.mask
        start = initial_state_for(self, batch.x_context)
        state = advance(self, start, self.condition(start, *context))
        total = batch.y_target.new_zeros(len(batch.y_target), 1)
        n_targets = batch.x_target.shape[1]
        block = self.prediction.block or n_targets
        for first in range(0, n_targets, block):
            rows = slice(first, first + block)
            x, y = batch.x_target[:, rows], batch.y_target[:, rows]
            prediction = self.query(self.refresh(state), x)
            total = total + x.shape[1] * self.prediction.log_likelihood(prediction, y, torch)
            state = advance(self, state, self.condition(state, x, y))
        return total / n_targets

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return CmanpAndOnDevice(self, n_streams, dtype)


class CmanpAndOnDevice(CmanpOnDevice):
    """Runs a CMANP with a joint head on a device, for a fixed number of streams."""

    def _fold_head(self, model: Cmanp) -> None:
        assert isinstance(model, CmanpAnd)
        self.head_norm, self.joint_head = model.head_norm, model.head

    def query(self, cache: Cache, x: Tensor, mask: Tensor | None = None) -> Prediction:
        targets = self.decoded(cache, x).float().view(*x.shape[:2], -1)
        prediction: Prediction = self.joint_head(self.head_norm(targets), mask)
        return prediction
