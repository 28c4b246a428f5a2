"""Define the base of the device forms of models.

A device form is a model rewritten for export: it predicts the same with less work on a device.
"""

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
    "no_merge",
    "input_range",
)
"""Names of the attributes of the contract that a device form takes from its model, unless it sets
them itself."""


class DeviceForm(StreamingModel):
    """Predicts the same as a trained model, rewritten so that a device does as little as possible.

    Args:
        model: The model in the form in which it is trained.
        n_streams: B, the number of streams, which is fixed on a device.
    """

    def __init__(self, model: StreamingModel, n_streams: int = 1):
        super().__init__()
        self.n_streams = n_streams
        for name in DECLARED:
            setattr(self, name, getattr(model, name))
