"""A deep diagonal state space model: linear recurrences with nonlinear layers between them.

The linear recurrent unit (LRU) of Orvieto et al., "Resurrecting Recurrent Neural Networks for Long
Sequences", 2023, section 3. Each layer has N complex modes; a mode is one complex number that turns
and decays at every point. Complex tensors do not export, so a mode is its real and imaginary part.

    edgefold verify examples/ssm.py:Ssm
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.contract import Prediction, State, StreamingModel


class Ssm(StreamingModel):
    """K residual layers `h + glu(gelu(Re(C modes) + skip * norm(h)))`, and a head on the last one.

    Args:
        width: D.
        n_modes: N, of each layer.
        n_layers: K.
        slowest: Largest magnitude of a mode's multiplier at the start: 0.99 remembers about 100
            points.
        n_inputs: X; 0 for a sequence of y alone.
        n_outputs: Y.
    """

    def __init__(
        self,
        width: int = 64,
        n_modes: int = 64,
        n_layers: int = 4,
        slowest: float = 0.99,
        n_inputs: int = 1,
        n_outputs: int = 1,
    ):
        super().__init__()
        self.n_inputs, self.n_outputs = n_inputs, n_outputs
        # Squared magnitudes uniform from 0.5^2 to slowest^2, angles up to pi / 10.
        squared = 0.25 + (slowest**2 - 0.25) * torch.rand(n_layers, n_modes)
        self.log_decay = nn.Parameter(torch.log(-0.5 * torch.log(squared)))
        self.log_angle = nn.Parameter(torch.log(math.pi / 10 * torch.rand(n_layers, n_modes)))
        self.into = nn.Parameter(torch.randn(n_layers, width, 2 * n_modes) / math.sqrt(2 * width))
        self.out = nn.Parameter(torch.randn(n_layers, 2 * n_modes, width) / math.sqrt(n_modes))
        self.skip = nn.Parameter(torch.randn(n_layers, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(n_layers))
        self.gates = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(n_layers))
        self.embed = nn.Linear(n_inputs + n_outputs, width)
        self.head = nn.Sequential(
            nn.Linear(width + n_inputs, width), nn.SiLU(), nn.Linear(width, 2 * n_outputs)
        )

    def initial_state(self, n_streams: int = 1) -> State:
        """Real and imaginary parts `modes`, (B, K, 2, N), and the last layer `last`, (B, D)."""
        n_layers, width, _ = self.into.shape
        return {
            "modes": self.into.new_zeros(n_streams, n_layers, 2, self.log_decay.shape[1]),
            "last": self.into.new_zeros(n_streams, width),
        }

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        """x (B, X), y (B, Y)."""
        size = torch.exp(-torch.exp(self.log_decay))  # (K, N), less than 1
        angle = torch.exp(self.log_angle)
        real, imaginary = size * torch.cos(angle), size * torch.sin(angle)
        gain = torch.sqrt(1 - size**2).repeat(1, 2)[:, None]  # keeps the modes' variance near 1
        # All modes of all layers turn and decay at once: (r + i s)(a + i b).
        swapped = state["modes"].flip(2)
        turned = state["modes"] * torch.stack([real, real], 1)
        turned = turned + swapped * torch.stack([-imaginary, imaginary], 1)  # (B, K, 2, N)
        hidden = self.embed(torch.cat([x, y], -1))
        modes = []
        for k, kept in enumerate(turned.flatten(2).unbind(1)):
            read = self.norms[k](hidden)
            now = torch.addmm(kept, read, (self.into * gain)[k])  # (B, 2N)
            modes.append(now)
            seen = F.gelu(torch.addmm(read * self.skip[k], now, self.out[k]))
            hidden = hidden + F.glu(self.gates[k](seen), -1)
        return {"modes": torch.stack(modes, 1).unflatten(2, (2, -1)), "last": hidden}

    def query(self, cache: State, x: Tensor) -> Prediction:
        """x (B, M, X); mean and std (B, M, Y)."""
        last = cache["last"][:, None].expand(-1, x.shape[1], -1)  # (B, M, D)
        mean, spread = self.head(torch.cat([last, x], -1)).chunk(2, -1)
        return {"mean": mean, "std": F.softplus(spread) + 1e-3}
