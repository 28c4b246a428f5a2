"""Run continual Nyström attention whose landmarks serve their segment's last token, on a device.

Carreto Picon et al., "Continual Low-Rank Scaled Dot-product Attention", section IV-A: the token
that completes a segment makes a landmark, and is answered by it. A graph of fixed shape must then
be able to make a landmark in every step, so that every step costs what theirs does with updated
landmarks, O(n m D). Sums would save nothing: the window's keys are weighed again at each token.

Shapes: B streams, H heads, D width, d = D/H, m landmarks, n tokens of the window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from edgefold.train.contract import Ring, State
from edgefold.train.layers.nystrom_attention import center_inverse
from edgefold.train.models.ordered.continual_attention import HeadProjection, unseen_slots

if TYPE_CHECKING:
    from edgefold.train.models.ordered.window_nystrom import WindowNystrom


class PromptSingle(nn.Module):
    """Attends from the newest token, by landmarks of a grid over the stream.

    State, where in a ring the newest token replaces the oldest:

        keys, values                       (B, H, d, n - 1) rings
        landmark_queries, landmark_keys    (B, H, m, d)
        segment_queries, segment_keys      (B, H, 1, d), sums over the segment that is not complete
    """

    segment_of: Tensor
    end_of: Tensor
    lengths: Tensor

    def __init__(self, model: WindowNystrom):
        super().__init__()
        config = model.config
        self.heads, self.window = HeadProjection(model.layer(0)), config.window
        self.n_landmarks = config.n_landmarks
        lengths = torch.bincount(model.segment_of, minlength=config.n_landmarks)
        self.register_buffer("segment_of", model.segment_of)
        self.register_buffer("end_of", model.end_of)
        self.register_buffer("lengths", lengths[:, None])  # (m, 1)
        self.rings = {name: Ring(axis=3, counter="n_tokens") for name in ("keys", "values")}

    def initial_state(self, like: Tensor, n_streams: int) -> State:
        """Return the state before the first token, of the type and device of `like`."""
        n_heads, d = self.heads.n_heads, self.heads.head_width
        shapes = {
            **{name: (d, self.window - 1) for name in ("keys", "values")},
            **{f"landmark_{name}": (self.n_landmarks, d) for name in ("queries", "keys")},
            **{f"segment_{name}": (1, d) for name in ("queries", "keys")},
        }
        return {name: like.new_zeros(n_streams, n_heads, *of) for name, of in shapes.items()}

    def step(self, state: State, row: Tensor) -> tuple[State, Tensor]:
        """Take an embedded token (B, D) and attend from it.

        Returns:
            The state tensors that change, and the attention, (B, H, d).
        """
        query, key, value = self.heads(row)
        written, means = self._read(state, query, key, value)
        return written, self._attended(written, query[:, :, None], means)[:, :, 0]

    def _read(
        self, state: State, query: Tensor, key: Tensor, value: Tensor
    ) -> tuple[State, Tensor]:
        """Let the landmarks read the window.

        Query, key and value are those of the newest token, each (B, H, d).

        Returns:
            The state tensors that change, and the landmarks' means of values, (B, H, m, d).
        """
        written = self._moved(state, {"queries": query, "keys": key})
        asking = written["landmark_queries"]
        unseen = unseen_slots(state["n_tokens"], self.window - 1)[:, None, None]
        scores = torch.cat([asking @ state["keys"] + unseen, asking @ key[..., None]], -1)
        weights = torch.softmax(scores, -1)  # (B, H, m, n)
        means = weights[..., :-1] @ state["values"].mT + weights[..., -1:] * value[:, :, None]
        return {**written, "keys": key[..., None], "values": value[..., None]}, means

    def _moved(self, state: State, token: State) -> State:
        """Return the landmarks and the segment's sums with the newest token in them.

        If the token completes a segment, the mean of the segment replaces a landmark. `token` holds
        its `queries` and `keys`, each (B, H, d).
        """
        place = torch.remainder(state["n_tokens"], self.window)
        is_complete = (self.end_of[place] == place)[:, None]  # (B, 1)
        index = torch.arange(self.n_landmarks, device=place.device)
        is_new = ((index == self.segment_of[place][:, None]) & is_complete)[:, None, :, None]
        moved = {}
        for name, part in token.items():
            total = state[f"segment_{name}"] + part[:, :, None]
            landmarks = torch.where(is_new, total / self.lengths, state[f"landmark_{name}"])
            moved[f"landmark_{name}"] = landmarks
            moved[f"segment_{name}"] = torch.where(is_complete[..., None, None], 0.0, total)
        return moved

    @staticmethod
    def _attended(landmarks: State, asked: Tensor, means: Tensor) -> Tensor:
        """Return the attention (B, H, rows, d) of queries (B, H, rows, d)."""
        of_keys = landmarks["landmark_keys"]
        inverse = center_inverse(landmarks["landmark_queries"], of_keys)
        attended: Tensor = torch.softmax(asked @ of_keys.mT, -1) @ (inverse @ means)
        return attended


class PromptRetroactive(PromptSingle):
    """Attends from all tokens in the window.

    The state is that of `PromptSingle` and a ring of `queries` (B, H, d, n).
    """

    def __init__(self, model: WindowNystrom):
        super().__init__(model)
        self.rings["queries"] = Ring(axis=3, counter="n_tokens")

    def initial_state(self, like: Tensor, n_streams: int) -> State:
        shape = n_streams, self.heads.n_heads, self.heads.head_width, self.window
        return {**super().initial_state(like, n_streams), "queries": like.new_zeros(shape)}

    def step(self, state: State, row: Tensor) -> tuple[State, Tensor]:
        """Take an embedded token (B, D); return the state tensors that change and the attention.

        The attention is that of all tokens in the window, (B, H, n, d): token p at p modulo n.
        """
        query, key, value = self.heads(row)
        written, means = self._read(state, query, key, value)
        place = torch.remainder(state["n_tokens"], self.window)[:, None]
        newest = torch.arange(self.window, device=place.device) == place  # (B, n)
        column = query[..., None]  # (B, H, d, 1)
        asked = torch.where(newest[:, None, None], column, state["queries"])
        return {**written, "queries": column}, self._attended(written, asked.mT, means)
