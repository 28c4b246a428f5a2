"""Run continual Nyström attention on a device: sums over a window without subtraction.

Carreto Picon et al., section IV, keep softmax(q~ K^T) V as sums from which the leaving token is
subtracted (their eq. 14 to 29), which leaves the rounding errors of all tokens that ever came, and
after a large one the digits that were lost next to it. Here a sum has two parts, each with its
largest score:

    older     over the tokens of the last consolidation that are still in the window: a table of
              what remains after 0, 1, ... P - 1 of them have left
    recent    over the tokens since then

`step` adds its token to `recent` and reads one row of the table: m d additions whatever n is.
`consolidate`, every P tokens, computes the table again from the rings, and moves the landmarks
where these are means. So no error is older than the window.

A constant landmark is folded into the projection: then neither queries nor keys exist, only their
scores. Heads lie innermost: a graph's nodes then run along contiguous numbers.

Shapes: B streams, H heads, D width, d = D/H, m landmarks, n tokens of the window. A sum is d + 1
numbers of values and weight; one of the table ends with its largest score.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.contract import Ring, State
from edgefold.train.layers.device_layers import Affine, Weights
from edgefold.train.layers.nystrom_attention import center_inverse
from edgefold.train.layers.postnorm_layers import PostNormLayer, queries_keys_values
from edgefold.train.models.ordered.continual_attention import LEAST_PEAK, at_index, weight
from edgefold.train.models.ordered.window_encoder import UNSEEN, positions_of

if TYPE_CHECKING:
    from edgefold.train.models.ordered.window_nystrom import WindowNystrom

PERIOD: Final = 32
"""Number of tokens between consolidations where landmarks are fixed."""


class FixedLandmarks(nn.Module):
    """Projects embedded tokens (B, D) in a layer whose landmarks are constants.

    It returns the coefficients by which a token weighs the landmarks' means of values, (B, m, 1,
    H); the scores of its key for the landmarks, of the same shape; and its value with a 1 appended,
    (B, 1, d + 1, H).
    """

    inverse: Tensor

    def __init__(self, model: WindowNystrom, k: int):
        super().__init__()
        self.n_heads, projections = model.config.n_heads, queries_keys_values(model.layer(k))
        query, key, value = (by_head(w, self.n_heads) for w in projections)
        parts = [
            scored(query, model.landmark_keys[k]),
            scored(key, model.landmark_queries[k]),
            counted(value),
        ]
        self.project = Affine(joined(parts), model.positions.dtype)
        self.sizes = [bias.numel() for _, bias in parts]
        self.register_buffer("inverse", model.inverses[k].permute(1, 2, 0).contiguous())

    def forward(self, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        of_query, score, value = self.project(row).split(self.sizes, 1)
        of_query, score = (part.unflatten(1, (-1, 1, self.n_heads)) for part in (of_query, score))
        return mixed(of_query, self.inverse), score, value.unflatten(1, (1, -1, self.n_heads))


class MovingLandmarks(nn.Module):
    """Projects embedded tokens (B, D) in a layer whose landmarks change and are kept as state.

    It returns query and key, each (B, 1, d, H), and the value with a 1 appended, (B, 1, d + 1, H).
    """

    def __init__(self, layer: PostNormLayer):
        super().__init__()
        query, key, value = (by_head(w, layer.n_heads) for w in queries_keys_values(layer))
        parts, self.n_heads = [query, key, counted(value)], layer.n_heads
        self.project = Affine(joined(parts), layer.q.weight.dtype)
        self.sizes = [bias.numel() for _, bias in parts]

    def forward(self, row: Tensor) -> tuple[Tensor, ...]:
        parts = self.project(row).split(self.sizes, 1)
        return tuple(part.unflatten(1, (1, -1, self.n_heads)) for part in parts)


class NystromSingle(nn.Module):
    """Attends from the newest token, with sums over the window as its state.

    State, where in a ring the newest token replaces the oldest, and P is the number of tokens
    between two calls of `consolidate`. Each landmark has sums over tokens: of d weighted values and
    of the weights; a peak is the largest score in a sum.

        values          (B, n - 1, d + 1, H) ring; the last number is 1
        recent          (B, m, d + 1, H), recent_peaks (B, m, 1, H): sums since the last call
        older           (B, P, m, d + 2, H): sums up to that call, without the 0 to P - 1 oldest
                        tokens of the window, each with its peak as the last number
        and for fixed landmarks
        scores          (B, n - 1, m, H) ring: of keys for the landmarks
        and for moving ones
        keys                               (B, n - 1, d, H) ring
        landmark_queries, landmark_keys    (B, m, d, H)
        inverse                            (B, m, m, H)
        segment_queries, segment_keys      (B, 1, d, H), sums over the segment that is not complete
    """

    segment_of: Tensor
    end_of: Tensor

    def __init__(self, model: WindowNystrom):
        super().__init__()
        config = model.config
        self.window, self.n_heads = config.window, config.n_heads
        self.head_width, self.n_landmarks = config.width // config.n_heads, config.n_landmarks
        self.is_fixed = model.is_fixed
        if self.is_fixed:
            self.period = min(PERIOD, config.window)
            self.landmarks: nn.Module = FixedLandmarks(model, 0)
        else:
            whole, more = divmod(config.window, config.n_landmarks)
            self.period = 1 if more else whole  # every segment ends where a period does
            self.landmarks = MovingLandmarks(model.layer(0))
            self.register_buffer("segment_of", model.segment_of)
            self.register_buffer("end_of", model.end_of)
        self.kept = "scores" if self.is_fixed else "keys"
        self.rings = {name: Ring(axis=1, counter="n_tokens") for name in ("values", self.kept)}

    def initial_state(self, like: Tensor, n_streams: int) -> State:
        """Return the state before the first token: sums over nothing, and landmarks of 0.

        `like` gives the type and the device of the tensors.
        """
        h, m, d, n = self.n_heads, self.n_landmarks, self.head_width, self.window

        def zeros(*shape: int) -> Tensor:
            return like.new_zeros(n_streams, *shape, h)

        state = {
            "values": zeros(n - 1, d + 1),
            self.kept: zeros(n - 1, m if self.is_fixed else d),
            "recent": zeros(m, d + 1),
            "recent_peaks": zeros(m, 1) + LEAST_PEAK,
            "older": torch.cat(
                [zeros(self.period, m, d + 1), zeros(self.period, m, 1) + LEAST_PEAK], 3
            ),
        }
        if self.is_fixed:
            return state
        landmarks = zeros(m, d)
        return {
            **state,
            "landmark_queries": landmarks,
            "landmark_keys": landmarks.clone(),
            "inverse": inverse_of(landmarks, landmarks),
            "segment_queries": zeros(1, d),
            "segment_keys": zeros(1, d),
        }

    def step(self, state: State, row: Tensor) -> tuple[State, Tensor]:
        """Take an embedded token (B, D) and attend from it.

        Returns:
            The state tensors that change, and the attention, (B, H, d).
        """
        written, coefficients, sums = self._attended(state, row)
        values, counts = sums.split([self.head_width, 1], 2)
        return written, (coefficients / counts * values).sum(1).mT

    def _attended(self, state: State, row: Tensor) -> tuple[State, Tensor, Tensor]:
        """Take an embedded token (B, D) and add it to the sums.

        Returns:
            The state tensors that change; the coefficients by which the token weighs the landmarks'
                means of values, (B, m, 1, H); and each landmark's sum over the window with the
                token, (B, m, d + 1, H).
        """
        written, coefficients, score, value = self._projected(state, row)
        old_peak, n_recent = state["recent_peaks"], torch.remainder(state["n_tokens"], self.period)
        older = at_index(state["older"], n_recent)  # (B, m, d + 2, H)
        older, older_peak = older.split([self.head_width + 1, 1], 2)
        peak = torch.maximum(old_peak, score)
        top = torch.maximum(peak, older_peak)
        scores = torch.cat([old_peak, score, peak, older_peak], 1)
        weights = weight(scores, torch.cat([peak, peak, top, top], 1))  # (B, 4 m, 1, H)
        old, new, of_recent, of_older = weights.chunk(4, 1)
        recent = old * state["recent"] + new * value
        sums = of_recent * recent + of_older * older
        return {**written, "recent": recent, "recent_peaks": peak}, coefficients, sums

    def _projected(self, state: State, row: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        """Project an embedded token (B, D).

        Returns:
            The state tensors that change; the coefficients by which the token weighs the landmarks'
                means of values, and the scores of its key for the landmarks, (B, m, 1, H) each; and
                its value with a 1 appended, (B, 1, d + 1, H).
        """
        if self.is_fixed:
            coefficients, score, value = self.landmarks(row)
            return {"values": value, "scores": score.transpose(1, 2)}, coefficients, score, value
        query, key, value = self.landmarks(row)
        of_query = (state["landmark_keys"] * query).sum(2, keepdim=True)
        score = (state["landmark_queries"] * key).sum(2, keepdim=True)
        written = {
            "values": value,
            "keys": key,
            "segment_queries": state["segment_queries"] + query,
            "segment_keys": state["segment_keys"] + key,
        }
        if "queries" in self.rings:
            written["queries"] = query
        return written, mixed(of_query, state["inverse"]), score, value

    # Between two tokens, every `period` of them ---------------------------------------------------

    def consolidate(self, state: State) -> State:
        """Compute the sums again from the window's keys and values; return what has changed.

        Where landmarks are means and a segment has become complete, its mean becomes a landmark.
        """
        moved = {} if self.is_fixed else self._moved(state)
        scores = state[self.kept].permute(0, 3, 2, 1)  # (B, H, m or d, n - 1)
        if not self.is_fixed:
            scores = moved["landmark_queries"].permute(0, 3, 1, 2) @ scores
        sums = self._remaining(scores, state["values"].permute(0, 3, 1, 2), state["n_tokens"])
        return {
            **moved,
            "older": sums.permute(0, 2, 3, 4, 1),
            "recent": torch.zeros_like(state["recent"]),
            "recent_peaks": torch.full_like(state["recent_peaks"], LEAST_PEAK),
        }

    def _moved(self, state: State) -> State:
        """Return the state tensors of the landmarks, after a segment may have become complete.

        The mean of a complete segment replaces the oldest landmark, and the segment's sums are 0.
        """
        place = torch.remainder(state["n_tokens"] - 1, self.window)
        index = torch.arange(self.n_landmarks, device=place.device)
        is_complete = (self.end_of[place] == place)[:, None]
        is_new = ((index == self.segment_of[place][:, None]) & is_complete)[..., None, None]
        length = (self.segment_of[:, None] == index).sum(0)[:, None, None]  # (m, 1, 1)
        moved = {}
        for name in ("queries", "keys"):
            total = state[f"segment_{name}"]  # (B, 1, d, H)
            moved[f"landmark_{name}"] = torch.where(
                is_new, total / length, state[f"landmark_{name}"]
            )
            moved[f"segment_{name}"] = torch.where(is_complete[..., None, None], 0.0, total)
        inverse = inverse_of(moved["landmark_queries"], moved["landmark_keys"])
        return {**moved, "inverse": inverse}

    def _remaining(self, scores: Tensor, values: Tensor, n_tokens: Tensor) -> Tensor:
        """Return sums over the last n - 1 tokens without the r oldest ones, for each r < P.

        P is the number of tokens between two calls of `consolidate`. The sums are (B, H, P, m, d +
        2): for each landmark d weighted values, the sum of weights and the largest score.

        Args:
            scores: Scores of the tokens' keys for the landmarks, (B, H, m, n - 1).
            values: Values of the tokens, with a 1 appended, (B, H, n - 1, d + 1).
            n_tokens: Number of tokens so far, (B,).
        """
        length, n_leaving = self.window - 1, self.period - 1
        positions = positions_of(n_tokens, length)  # (B, n - 1)
        n_left = positions - (n_tokens[:, None] - length)  # 0 for the token that leaves first

        def hidden(scores: Tensor, seen: Tensor) -> Tensor:
            return scores + torch.where(seen, 0.0, UNSEEN)  # small: a choice of all scores is slow

        staying = hidden(scores, ((positions >= 0) & (n_left >= n_leaving))[:, None, None])
        peak = staying.amax(-1, keepdim=True).clamp_min(LEAST_PEAK)
        sums = weight(staying, peak) @ values  # (B, H, m, d + 1)
        sums, peak = sums[:, :, None], peak[:, :, None]
        if not n_leaving:
            return torch.cat([sums, peak], -1)
        first = torch.arange(n_leaving, device=scores.device)
        leaves = n_tokens[:, None] - length + first  # (B, P - 1): their positions, the oldest first
        slots = torch.remainder(leaves, length)[:, None, None]
        of_leaving = scores.gather(3, slots.expand(*scores.shape[:3], -1))
        slots = slots.transpose(2, 3).expand(*values.shape[:2], -1, values.shape[3])
        n_gone = torch.arange(self.period, device=scores.device)[:, None]
        seen = (first >= n_gone) & (leaves >= 0)[:, None]  # (B, P, P - 1)
        of_leaving = hidden(of_leaving[:, :, None], seen[:, None, :, None])  # (B, H, P, m, P - 1)
        top = torch.maximum(of_leaving.amax(-1, keepdim=True), peak)
        weights = weight(of_leaving, top).flatten(2, 3)  # (B, H, P m, P - 1)
        left = (weights @ values.gather(2, slots)).unflatten(2, (self.period, -1))
        return torch.cat([left + weight(peak, top) * sums, top], -1)


class NystromRetroactive(NystromSingle):
    """Attends from all tokens in the window, with sums over it as its state.

    The state is that of `NystromSingle` and `coefficients` (B, H, m, n), by which each token weighs
    the landmarks' means; for moving landmarks also a ring of `queries` (B, n, d, H), because
    coefficients change with the landmarks.
    """

    def __init__(self, model: WindowNystrom):
        super().__init__(model)
        if self.is_fixed:
            self.rings["coefficients"] = Ring(axis=3, counter="n_tokens")
        else:
            self.rings["queries"] = Ring(axis=1, counter="n_tokens")

    def initial_state(self, like: Tensor, n_streams: int) -> State:
        state, h, n = super().initial_state(like, n_streams), self.n_heads, self.window
        state["coefficients"] = like.new_zeros(n_streams, h, self.n_landmarks, n)
        if not self.is_fixed:
            state["queries"] = like.new_zeros(n_streams, n, self.head_width, h)
        return state

    def step(self, state: State, row: Tensor) -> tuple[State, Tensor]:
        """Take an embedded token (B, D); return the state tensors that change and the attention.

        The attention is that of all tokens in the window, (B, H, n, d): token p at p modulo n.
        """
        written, own, sums = self._attended(state, row)
        means = (sums[:, :, :-1] / sums[:, :, -1:]).permute(0, 3, 1, 2)  # (B, H, m, d)
        column = own.permute(0, 3, 1, 2)  # (B, H, m, 1)
        place = torch.remainder(state["n_tokens"], self.window)[:, None]
        newest = torch.arange(self.window, device=place.device) == place  # (B, n)
        coefficients = torch.where(newest[:, None, None], column, state["coefficients"])
        written["coefficients"] = column if self.is_fixed else coefficients
        return written, coefficients.mT @ means

    def consolidate(self, state: State) -> State:
        state_after = super().consolidate(state)
        if not self.is_fixed:
            keys = state_after["landmark_keys"].permute(0, 3, 2, 1)  # (B, H, d, m)
            attended = torch.softmax(state["queries"].permute(0, 3, 1, 2) @ keys, -1)
            state_after["coefficients"] = (attended @ state_after["inverse"].permute(0, 3, 1, 2)).mT
        return state_after


# Heads innermost ----------------------------------------------------------------------------------


def by_head(weights: Weights, n_heads: int) -> Weights:
    """Reshape a projection (D, H d) to (D, d, H), and its bias to (d, H)."""
    weight, bias = weights
    return weight.unflatten(-1, (n_heads, -1)).mT, bias.unflatten(-1, (n_heads, -1)).mT


def scored(weights: Weights, landmarks: Tensor) -> Weights:
    """Fold landmarks (H, m, d) into a projection (D, d, H), so that it gives scores: (D, m, H)."""
    weight, bias = weights
    products = torch.einsum("xdh,hmd->xmh", weight, landmarks.double())
    return products, torch.einsum("dh,hmd->mh", bias, landmarks.double())


def counted(weights: Weights) -> Weights:
    """Add to a projection of values one more number that is always 1: return (D, d + 1, H)."""
    weight, bias = weights
    return F.pad(weight, (0, 0, 0, 1)), F.pad(bias, (0, 0, 0, 1), value=1.0)


def joined(parts: Sequence[Weights]) -> Weights:
    """Join projections (D, ..., H) of the same input into one, with outputs side by side."""
    return torch.cat([w.flatten(1) for w, _ in parts], 1), torch.cat(
        [b.flatten() for _, b in parts]
    )


def mixed(scores: Tensor, inverse: Tensor) -> Tensor:
    """Return the softmax of scores (B, m, 1, H), times the inverse (..., m, m, H): (B, m, 1, H).

    Scores are those of a token's query for m landmarks; `inverse` is the result of `inverse_of`.
    """
    weights = torch.exp(scores - scores.amax(1, keepdim=True))
    weights = weights / weights.sum(1, keepdim=True)
    return (weights * inverse).sum(1)[:, :, None]


def inverse_of(landmark_queries: Tensor, landmark_keys: Tensor) -> Tensor:
    """Return the pseudo-inverse (B, m, m, H) of the attention of landmarks (B, m, d, H)."""
    by_head = (landmarks.permute(0, 3, 1, 2) for landmarks in (landmark_queries, landmark_keys))
    return center_inverse(*by_head).permute(0, 2, 3, 1)
