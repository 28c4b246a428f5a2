"""The walk of points and targets over a model's layers, written once for training and the device.

    points ──> encoder layer 1 ──> encoder layer 2 ──> ... ──> encoder layer E
      |              |                   |                          |
    targets read the last Q of these E + 1 encodings, one in each of Q query layers

One layer may serve as encoder and as query layer, as in TNP: its keys are computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from edgefold.train.contract import Cache, State, StreamingModel
from edgefold.train.states.point_buffer import PointBuffer


class LayerWalk(StreamingModel):
    """Walks over encoder and query layers, in training and on a device.

    A layer must know which slots hold points: training gives it a mask. A device gives `Slots`
    where keys are made, and hides nothing later.
    """

    buffer: PointBuffer
    encoders: Sequence[Any]
    queries: Sequence[Any]

    def initial_state(self, n_streams: int = 1) -> State:
        return self.buffer.initial_state(n_streams)

    def normal(self, rows: Tensor) -> Tensor:
        """Return the rows as layers read them; those of training normalise rows themselves."""
        return rows

    def encoded(self, rows: Tensor, slots: Any) -> Cache:
        """Return keys and values of each query layer, from the embedded points."""
        cache: Cache = {}
        encoders, queries = list(self.encoders), list(self.queries)
        n_unread = len(encoders) + 1 - len(queries)  # the first encodings
        for k in range(len(encoders) + 1):
            normal, reader, context = self.normal(rows), k - n_unread, None
            if reader >= 0:
                context = queries[reader].keys_values(normal, slots)
                cache |= {f"keys_{reader}": context[0], f"values_{reader}": context[1]}
            if k < len(encoders):
                layer = encoders[k]
                if context is None or layer is not queries[reader]:
                    context = layer.keys_values(normal, slots)
                rows = layer.step(rows, normal, *context, slots)
        return cache

    def decoded(self, rows: Tensor, cache: Cache, slots: Any = None) -> Tensor:
        """Return the rows of targets behind the query layers."""
        for k, layer in enumerate(self.queries):
            keys, values = cache[f"keys_{k}"], cache[f"values_{k}"]
            rows = layer.step(rows, self.normal(rows), keys, values, slots)
        return rows
