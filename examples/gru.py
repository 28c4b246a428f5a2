"""A gated recurrent unit that learns from each point and predicts at any input.

The hidden state summarises all points so far: it is the whole memory. Cho et al., "Learning Phrase
Representations using RNN Encoder-Decoder for Statistical Machine Translation", 2014.

    edgefold verify examples/gru.py:Gru
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.contract import Prediction, State, StreamingModel


class Gru(StreamingModel):
    """A GRU that reads (x, y), and a head that reads the hidden state and a new x.

    Args:
        width: D, of the hidden state.
        n_inputs: X; 0 for a sequence of y alone.
        n_outputs: Y.
    """

    def __init__(self, width: int = 64, n_inputs: int = 1, n_outputs: int = 1):
        super().__init__()
        self.n_inputs, self.n_outputs = n_inputs, n_outputs
        self.gru = nn.GRU(n_inputs + n_outputs, width, batch_first=True)
        self.head = nn.Sequential(
            nn.Linear(width + n_inputs, width), nn.SiLU(), nn.Linear(width, 2 * n_outputs)
        )

    def initial_state(self, n_streams: int = 1) -> State:
        return {"hidden": next(self.parameters()).new_zeros(n_streams, self.gru.hidden_size)}

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        """x (B, X), y (B, Y): one step of the GRU, as `torch.nn.GRUCell` takes it."""
        point = torch.cat([x, y], -1)
        return {"hidden": torch.gru_cell(point, state["hidden"], *self.gru.all_weights[0])}

    def query(self, cache: State, x: Tensor) -> Prediction:
        """x (B, M, X); mean and std (B, M, Y)."""
        hidden = cache["hidden"][:, None].expand(-1, x.shape[1], -1)  # (B, M, D)
        mean, spread = self.head(torch.cat([hidden, x], -1)).chunk(2, -1)
        return {"mean": mean, "std": F.softplus(spread) + 1e-3}

    def forward(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, mask: Tensor | None = None
    ) -> Prediction:
        """For training: the whole sequence in one call, (B, N, X) and (B, N, Y)."""
        if mask is not None or x_context.shape[1] == 0:
            return super().forward(x_context, y_context, x_target, mask)
        _, hidden = self.gru(torch.cat([x_context, y_context], -1))
        return self.query({"hidden": hidden[0]}, x_target)
