"""Define a continual Nyströmformer that keeps no token: its window loses whole blocks.

The paper's memory for fixed landmarks (Carreto Picon et al., section IV-E: 3 d m + m^2 + m numbers)
leaves out the window's keys and values, without which nothing can be subtracted. Here nothing is
subtracted: each landmark has one sum for each of b blocks of L tokens, and the oldest block is
dropped as a whole. A sum of sums, each with its own largest score, has no cancellation. The state
of a layer is b m (D + 2 H) numbers, whatever the window is, which has from (b - 1) L + 1 to b L
tokens.

Every layer answers each token once, from the tokens of that layer so far, and never again: so each
further layer costs no more than the first. In PyTorch (training, and the reference of the device's
form) the same windows are masks over the last tokens.

Letters of shapes: B streams, H heads, m landmarks, D width, d = D/H, R rows.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from edgefold.train.contract import Prediction, Ring, State, StreamingModel
from edgefold.train.layers.postnorm_layers import PostNormLayer
from edgefold.train.models.device_form import DeviceForm
from edgefold.train.models.ordered.continual_attention import LEAST_PEAK, at_index, weight
from edgefold.train.models.ordered.continual_nystrom_device import FixedLandmarks
from edgefold.train.models.ordered.window_encoder import PAPER, UNSEEN, queries
from edgefold.train.models.ordered.window_nystrom import Landmarks, NystromConfig, WindowNystrom


@dataclass(frozen=True, slots=True)
class HoppingConfig(NystromConfig):
    """Holds the sizes of an encoder; `window` is the longest window, b blocks of L tokens.

    Attributes:
        n_blocks: b, the number of blocks in a window.
    """

    landmarks: Landmarks = "fixed"
    n_blocks: int = 4

    def __post_init__(self) -> None:
        NystromConfig.__post_init__(self)
        if self.landmarks != "fixed":
            raise ValueError("landmarks must be fixed: sums over dropped tokens cannot move")
        if self.fixing != "together":
            raise ValueError("fixing must be together: no layer here can attend by means")
        if self.window % self.n_blocks:
            raise ValueError(f"window {self.window} is not a multiple of n_blocks {self.n_blocks}")


class HoppingNystrom(WindowNystrom):
    """Encodes a stream by Nyström attention to fixed landmarks, over a window of whole blocks.

    The window grows up to b blocks of L tokens; with the next token the oldest block leaves it.
    """

    name = "hopping-nystrom"
    presets: ClassVar[dict[str, Any]] = {
        "small": HoppingConfig(),
        "paper": HoppingConfig(**asdict(PAPER)),
    }
    config: HoppingConfig

    @property
    def block(self) -> int:
        """Return L, the number of tokens in a block."""
        return self.config.window // self.config.n_blocks

    @property
    def reach(self) -> int:
        """Return the number of tokens that an answer depends on, the newest included.

        Each layer reaches one window further back.
        """
        return self.config.n_layers * (self.config.window - 1) + 1

    def attend(
        self,
        k: int,
        layer: PostNormLayer,
        rows: Tensor,
        asked: Tensor,
        positions: Tensor,
        visible: Tensor,
    ) -> Tensor:
        keys, values = layer.keys_values(rows)
        newest = positions if asked.shape == rows.shape else positions.amax(1, keepdim=True)
        newest = newest[..., None]  # (B, rows, 1)
        first = (newest // self.block - (self.config.n_blocks - 1)) * self.block
        earlier = positions[:, None]
        seen = (earlier >= first.clamp_min(0)) & (earlier <= newest)  # (B, rows, R)
        scores = self.landmark_queries[k] @ keys.mT  # (B, H, m, R)
        scores = scores[:, :, :, None] + torch.where(seen, 0.0, UNSEEN)[:, None, None]
        means = torch.softmax(scores, -1) @ values[:, :, None]  # (B, H, m, rows, d)
        of_queries = torch.softmax(queries(layer, asked) @ self.landmark_keys[k].mT, -1)
        coefficients = of_queries @ self.inverses[k]  # (B, H, rows, m)
        return torch.einsum("bhrm,bhmrd->bhrd", coefficients, means)

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return HoppingDevice(self)


class HoppingDevice(DeviceForm):
    """Runs a `HoppingNystrom` on a device, token by token.

    State: `blocks_k` (B, b, m, d + 2, H) of each layer k, a sum of values, its weight and its
    largest score for each block and landmark; and `n_tokens` (B,).
    """

    def __init__(self, model: HoppingNystrom):
        super().__init__(model)
        self.model = model
        n_layers = len(model.layers)
        self.landmarks = nn.ModuleList(FixedLandmarks(model, k) for k in range(n_layers))
        self.rings = {f"blocks_{k}": Ring(axis=1, slot="block") for k in range(n_layers)}

    def initial_state(self, n_streams: int = 1) -> State:
        config, like = self.model.config, self.model.positions
        d = config.width // config.n_heads
        empty = like.new_zeros(
            n_streams, config.n_blocks, config.n_landmarks, d + 2, config.n_heads
        )
        empty[:, :, :, -1] = LEAST_PEAK
        state = {name: empty.clone() for name in self.rings}
        return {**state, "n_tokens": torch.zeros(n_streams, dtype=torch.int64)}

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        n_tokens, model = state["n_tokens"], self.model
        block = torch.remainder(n_tokens // model.block, model.config.n_blocks)
        begins = (torch.remainder(n_tokens, model.block) == 0)[:, None, None, None]
        row = model.embed(x) + model.encoding(n_tokens)  # (B, D)
        written: State = {"block": block, "n_tokens": n_tokens + 1}
        for k in range(len(model.layers)):
            blocks = state[f"blocks_{k}"]
            coefficients, score, value = self.landmarks[k](row)
            old, old_peak = at_index(blocks, block).split([blocks.shape[3] - 1, 1], 2)
            old_peak = torch.where(begins, LEAST_PEAK, old_peak)
            peak = torch.maximum(old_peak, score)
            share = torch.where(begins, 0.0, weight(old_peak, peak))
            newest = torch.cat([share * old + weight(score, peak) * value, peak], 2)
            is_newest = torch.arange(blocks.shape[1], device=x.device) == block[:, None]
            blocks = torch.where(is_newest[..., None, None, None], newest[:, None], blocks)
            peaks = blocks[:, :, :, -1:]
            shares = weight(peaks, peaks.amax(1, keepdim=True))
            sums = (shares * blocks[:, :, :, :-1]).sum(1)  # (B, m, d + 1, H)
            attended = (coefficients / sums[:, :, -1:] * sums[:, :, :-1]).sum(1).mT  # (B, H, d)
            row = model.layer(k).finish(row[:, None], attended[:, :, None])[:, 0]
            written[f"blocks_{k}"] = newest[:, None]
        scores = model.scores(row)
        return {**written, "finite": scores.sum(-1)}, {"scores": scores}
