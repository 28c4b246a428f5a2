"""TNP-D: the transformer neural process that predicts each target on its own.

Nguyen & Grover 2022. The paper's size has 222,082 parameters for one input and output.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from edgefold.train.contract import Cache, Prediction, StreamingModel
from edgefold.train.layers.attention import Linear
from edgefold.train.layers.decoder_device import GaussianOutput
from edgefold.train.layers.device_layers import Affine, exact
from edgefold.train.layers.prediction_head import Outputs
from edgefold.train.models.attentive.tnp import Tnp, TnpConfig, TnpOnDevice
from edgefold.train.published import Published, as_published


class TnpD(Tnp):
    """A TNP with an MLP D -> 2D -> 2Y for the mean and the logarithm of the standard deviation."""

    name = "tnp-d"
    published: ClassVar[Published] = as_published(
        {"TNP-D": (1.39, 0.95)}, {"TNP-D": (3.89, 5.41, None, 1.46, 1.31)}
    )

    def __init__(self, config: TnpConfig):
        super().__init__(config)
        self.head_up = Linear(config.width, config.feedforward)
        self.outputs = Outputs(config.n_outputs, bounded=config.bounded)
        self.head_down = Linear(config.feedforward, self.outputs.n_numbers)

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        return self.predicted(self.targets(cache, x))

    def predicted(self, targets: Tensor) -> Prediction:
        """The prediction of encoded targets (B, M, D)."""
        hidden = torch.relu(self.head_up(targets))
        return self.outputs.prediction_of(self.head_down(hidden))

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return TnpDOnDevice(self, n_streams)


class TnpDOnDevice(TnpOnDevice):
    """The rewrite of TNP-D."""

    def __init__(self, model: TnpD, n_streams: int):
        super().__init__(model, n_streams)
        self.up = Affine(exact(model.head_up))
        self.output = GaussianOutput(model.head_down, model.outputs)

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        hidden = torch.relu(self.up(self.targets(cache, x)))
        prediction: Prediction = self.output(hidden, (*x.shape[:2], self.n_outputs))
        return prediction
