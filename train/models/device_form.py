"""The part that every device's form of a model has in common."""

from __future__ import annotations

from edgefold.train.contract import StreamingModel

DECLARED = (
    "config",
    "n_inputs",
    "n_outputs",
    "prediction",
    "ordered",
    "rings",
    "capacity",
    "when_full",
    "input_range",
)
"""Attributes of the contract in which a form equals its model, unless it sets them itself."""


class DeviceForm(StreamingModel):
    """A model rewritten so that a device does as little as possible; it predicts the same.

    Args:
        model: The trained form.
        n_streams: B, which is fixed on a device.
    """

    def __init__(self, model: StreamingModel, n_streams: int = 1):
        super().__init__()
        self.n_streams = n_streams
        for name in DECLARED:
            setattr(self, name, getattr(model, name))
