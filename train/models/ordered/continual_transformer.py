"""Define a continual transformer: exact softmax attention over a window, token by token.

Hedegaard et al. 2023, "Continual Transformers: Redundancy-Free Attention for Online Inference". It
has the weights of `WindowEncoder` and predicts the same; on a device no token is projected twice:

    one layer      the newest token's attention over rings of keys and values (`SingleOutput`)
    more layers    the first one keeps the attention of all tokens in the window (`Retroactive`);
                   each new token changes all of them, so that the layers above are computed again
"""

from __future__ import annotations

from edgefold.train.contract import StreamingModel
from edgefold.train.models.ordered.continual_attention import Retroactive, SingleOutput
from edgefold.train.models.ordered.continual_device import ContinualDevice
from edgefold.train.models.ordered.window_encoder import WindowEncoder


class ContinualTransformer(WindowEncoder):
    """Predicts the same as `WindowEncoder`; on a device its first layer reads a token only once."""

    name = "continual-transformer"

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        layer, window = self.layer(0), self.config.window
        if self.config.n_layers == 1:
            return ContinualDevice(self, SingleOutput(layer, window))
        return ContinualDevice(self, Retroactive(layer, window))
