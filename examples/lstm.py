"""Two layers of long short-term memory that learn from each point and predict at any input.

Hochreiter and Schmidhuber, "Long Short-Term Memory", Neural Computation 9(8), 1997; with the forget
gate of Gers et al., 2000, as `torch.nn.LSTM` has it.

    edgefold verify examples/lstm.py:Lstm
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.contract import Prediction, State, StreamingModel


class Lstm(StreamingModel):
    """An LSTM that reads (x, y), and a head that reads the last layer's output and a new x.

    Args:
        width: D, of every layer.
        n_layers: Layers on top of each other.
        n_inputs: X; 0 for a sequence of y alone.
        n_outputs: Y.
    """

    def __init__(self, width: int = 64, n_layers: int = 2, n_inputs: int = 1, n_outputs: int = 1):
        super().__init__()
        self.n_inputs, self.n_outputs = n_inputs, n_outputs
        self.lstm = nn.LSTM(n_inputs + n_outputs, width, n_layers, batch_first=True)
        self.head = nn.Sequential(
            nn.Linear(width + n_inputs, width), nn.SiLU(), nn.Linear(width, 2 * n_outputs)
        )

    def initial_state(self, n_streams: int = 1) -> State:
        """Outputs `hidden` and memories `cell` of all layers, (B, layers, D)."""
        shape = (n_streams, self.lstm.num_layers, self.lstm.hidden_size)
        like = next(self.parameters())
        return {"hidden": like.new_zeros(shape), "cell": like.new_zeros(shape)}

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        """x (B, X), y (B, Y); a sequence of one point, with the layers in front for PyTorch."""
        before = (state["hidden"].transpose(0, 1), state["cell"].transpose(0, 1))
        _, (hidden, cell) = self.lstm(torch.cat([x, y], -1)[:, None], before)
        return {"hidden": hidden.transpose(0, 1), "cell": cell.transpose(0, 1)}

    def query(self, cache: State, x: Tensor) -> Prediction:
        """x (B, M, X); mean and std (B, M, Y)."""
        hidden = cache["hidden"][:, -1:].expand(-1, x.shape[1], -1)  # (B, M, D)
        mean, spread = self.head(torch.cat([hidden, x], -1)).chunk(2, -1)
        return {"mean": mean, "std": F.softplus(spread) + 1e-3}

    def forward(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, mask: Tensor | None = None
    ) -> Prediction:
        """For training: the whole sequence in one call, (B, N, X) and (B, N, Y)."""
        if mask is not None or x_context.shape[1] == 0:
            return super().forward(x_context, y_context, x_target, mask)
        _, (hidden, _) = self.lstm(torch.cat([x_context, y_context], -1))
        return self.query({"hidden": hidden.transpose(0, 1)}, x_target)
