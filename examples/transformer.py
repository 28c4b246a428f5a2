"""A causal transformer over the last points, with its keys and values in a ring.

Vaswani et al., "Attention Is All You Need", 2017, decoder only with normalisation first; rotary
positions of Su et al., "RoFormer", 2021. A point attends to itself and to the points in the ring.

A step reads the rings and returns one new row for each; the runtime then writes it over the oldest
row, so that no step copies a ring. Positions are counted modulo `PERIODS` rings and every frequency
completes whole turns in that time, so that angles are exact however long the stream is.

    edgefold verify examples/transformer.py:Transformer
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.contract import Prediction, Ring, State, StreamingModel

PERIODS = 8
"""More than 1, so that the oldest point does not look like the next one."""


class Transformer(StreamingModel):
    """K layers of attention and feed-forward, and a head that reads the last one and a new x.

    Args:
        width: D. n_heads: H; D / H is even.
        n_layers: K.
        ring: R, points that are kept; a layer sees R points before its own.
        n_inputs: X; 0 for a sequence of y alone.
        n_outputs: Y.
    """

    cosines: Tensor
    sines: Tensor
    swap: Tensor

    def __init__(
        self,
        width: int = 64,
        n_heads: int = 4,
        n_layers: int = 2,
        ring: int = 128,
        n_inputs: int = 1,
        n_outputs: int = 1,
    ):
        super().__init__()
        self.n_inputs, self.n_outputs = n_inputs, n_outputs
        self.width, self.n_heads, self.ring = width, n_heads, ring
        self.embed = nn.Linear(n_inputs + n_outputs, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * n_layers))
        self.reads = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(n_layers))
        self.outs = nn.ModuleList(nn.Linear(width, width) for _ in range(n_layers))
        self.feeds = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(n_layers)
        )
        self.head = nn.Sequential(
            nn.Linear(width + n_inputs, width), nn.SiLU(), nn.Linear(width, 2 * n_outputs)
        )
        self.rings = {
            f"{name}_{k}": Ring(axis=2, counter="n_points")
            for k in range(n_layers)
            for name in ("keys", "values")
        }
        self._tabulate(PERIODS * ring, width // n_heads // 2)

    def _tabulate(self, period: int, n_pairs: int) -> None:
        """Cosines and sines of every position in a period, (period, 2 * pairs).

        Pair j turns `turns[j]` whole times in a period: from about once a radian to once a period.
        """
        fastest = period / (2 * math.pi)
        turns = (fastest ** (1 - torch.arange(n_pairs) / max(n_pairs - 1, 1))).round().long()
        steps = torch.arange(period)[:, None] * turns % period  # integers: exact
        angles = (steps.double() * (2 * math.pi / period)).repeat(1, 2)
        sign = torch.tensor([-1.0, 1.0]).repeat_interleave(n_pairs)
        swap = torch.arange(2 * n_pairs).roll(n_pairs)
        for name, table in (
            ("cosines", torch.cos(angles).float()),
            ("sines", (torch.sin(angles) * sign).float()),
            ("swap", swap),
        ):
            self.register_buffer(name, table, persistent=False)

    def initial_state(self, n_streams: int = 1) -> State:
        """Rings (B, H, R, D/H), the last layer's output `last` (B, D), and a counter of points."""
        like = self.embed.weight
        row = (n_streams, self.n_heads, self.ring, self.width // self.n_heads)
        return {name: like.new_zeros(row) for name in self.rings} | {
            "last": like.new_zeros(n_streams, self.width),
            "n_points": torch.zeros(n_streams, dtype=torch.int64, device=like.device),
        }

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        """x (B, X), y (B, Y)."""
        n_points = state["n_points"]  # (B,)
        position = n_points % len(self.cosines)
        cosines = self.cosines.index_select(0, position)[:, None, None]  # (B, 1, 1, D/H)
        sines = self.sines.index_select(0, position)[:, None, None]
        reached = torch.arange(self.ring, device=x.device) < n_points[:, None]  # (B, R)
        unseen = torch.where(reached, 0.0, -1e9)[:, None, None]
        hidden = self.embed(torch.cat([x, y], -1))  # (B, D)
        written: State = {}
        for k, (read, out, feed) in enumerate(zip(self.reads, self.outs, self.feeds, strict=True)):
            heads = read(self.norms[2 * k](hidden)).unflatten(-1, (3 * self.n_heads, -1))
            turning, value = heads[:, :, None].split([2 * self.n_heads, self.n_heads], 1)
            turned = turning * cosines + turning.index_select(-1, self.swap) * sines
            query, key = turned.chunk(2, 1)  # (B, H, 1, D/H)
            query = query * key.shape[-1] ** -0.5
            past = query @ state[f"keys_{k}"].mT + unseen  # (B, H, 1, R)
            present = (query * key).sum(-1, keepdim=True)  # (B, H, 1, 1): the point itself
            weights = torch.softmax(torch.cat([past, present], -1), -1)
            past, present = weights.split([self.ring, 1], -1)
            attended = past @ state[f"values_{k}"] + present * value
            hidden = hidden + out(attended.flatten(1))
            hidden = hidden + feed(self.norms[2 * k + 1](hidden))
            written |= {f"keys_{k}": key, f"values_{k}": value}
        # All that was computed is in the last layer: one sum tells whether it is finite.
        finite = hidden.sum(-1)
        return written | {"last": hidden, "n_points": n_points + 1, "finite": finite}

    def query(self, cache: State, x: Tensor) -> Prediction:
        """x (B, M, X); mean and std (B, M, Y)."""
        last = cache["last"][:, None].expand(-1, x.shape[1], -1)  # (B, M, D)
        mean, spread = self.head(torch.cat([last, x], -1)).chunk(2, -1)
        return {"mean": mean, "std": F.softplus(spread) + 1e-3}
