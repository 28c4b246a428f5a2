"""Compute exact softmax attention over a sliding window, token by token, without subtraction.

Hedegaard et al. 2023, "Continual Transformers": the single output is the attention of the newest
token (eq. 7 of Carreto Picon et al.), the retroactive one that of every token in the window (eq. 5
and 6). As published, the retroactive form keeps sums of unshifted exponentials and subtracts the
token that leaves: at scores of standard deviation 9 the sums overflow, and where a large weight was
subtracted, only its rounding error is left. Here nothing is subtracted:

    what row i attends to  =  keys that leave soon  +  keys up to i  +  keys after i
                              computed directly        suffix sums      running sums

Keys lie in blocks of L positions. A row's suffix sums, one for each block's beginning, are computed
when it comes; at each step all rows read those of the oldest whole block. Of the block that is
leaving, at most L keys, weights are computed directly. Keys after the row are only added. Every sum
has its own largest score, so that no exponential overflows, and none of a sum's terms is older than
the window: the error stays that of a softmax for ever.

Shapes: B streams, H heads, D width, d = D/H, n tokens of the window, J = n/L blocks.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from edgefold.train.contract import Ring, State
from edgefold.train.layers.device_layers import Affine
from edgefold.train.layers.postnorm_layers import PostNormLayer, queries_keys_values
from edgefold.train.models.ordered.window_encoder import UNSEEN

LEAST_PEAK = -1e29
"""Peak (largest score) of sums over nothing: above the score of an unseen token, below any
other."""
LEAST_EXPONENT = -60.0
"""Least exponent of weights, relative to the largest: e to this power is 9e-27. Products of smaller
weights would be denormal numbers, with which processors are 20 times slower."""
BLOCK = 10
"""Wanted number of positions in a block of the retroactive form: the direct part costs n L, the
suffix sums take memory for n n / L."""


class HeadProjection(nn.Module):
    """Computes scaled query, key and value of an embedded token (B, D), each (B, H, d)."""

    def __init__(self, layer: PostNormLayer):
        super().__init__()
        weights, biases = zip(*queries_keys_values(layer), strict=True)
        joined = torch.cat(weights, -1), torch.cat(biases, -1)
        self.project = Affine(joined, layer.q.weight.dtype)
        self.n_heads, self.head_width = layer.n_heads, weights[0].shape[-1] // layer.n_heads

    def forward(self, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        heads = self.project(row).unflatten(-1, (3 * self.n_heads, -1))
        query, key, value = heads.chunk(3, 1)
        return query, key, value


class SingleOutput(nn.Module):
    """Attends from the newest token to kept keys and values, each (B, H, d, n - 1).

    They are rings: the newest token replaces the oldest. Tokens lie innermost: a product with one
    query then runs along contiguous numbers.
    """

    def __init__(self, layer: PostNormLayer, window: int):
        super().__init__()
        self.heads, self.window = HeadProjection(layer), window
        self.rings = {name: Ring(axis=3, counter="n_tokens") for name in ("keys", "values")}

    def initial_state(self, like: Tensor, n_streams: int) -> State:
        """Return empty keys and values for n_streams, of the type and device of `like`."""
        shape = n_streams, self.heads.n_heads, self.heads.head_width, self.window - 1
        return {name: like.new_zeros(shape) for name in self.rings}

    def step(self, state: State, row: Tensor) -> tuple[State, Tensor]:
        """Take an embedded token (B, D) and attend from it.

        Returns:
            The state tensors that change, and the attention, (B, H, d).
        """
        query, key, value = self.heads(row)
        unseen = unseen_slots(state["n_tokens"], self.window - 1)[:, None]  # (B, 1, n - 1)
        past = (query[:, :, None] @ state["keys"])[:, :, 0] + unseen
        own = (query * key).sum(-1, keepdim=True)
        weights = torch.softmax(torch.cat([past, own], -1), -1)  # (B, H, n)
        attended = (state["values"] @ weights[..., :-1, None])[..., 0] + weights[..., -1:] * value
        return {"keys": key[..., None], "values": value[..., None]}, attended


def unseen_slots(n_tokens: Tensor, length: int) -> Tensor:
    """Return numbers (B, length) that, added to scores, hide the places without a token.

    The number is `UNSEEN` for a place without a token, else 0. n_tokens (B,) tokens have come: they
    lie from place 0 on.
    """
    slots = torch.arange(length, device=n_tokens.device)
    return torch.where(slots < n_tokens[:, None], 0.0, UNSEEN)


class Retroactive(nn.Module):
    """Keeps the attention of all tokens in the window up to date as tokens come and leave.

    State, with places for n tokens, of which the newest replaces the oldest one. The places form J
    blocks. A row's sums over keys are the d weighted values and, last, the sum of the weights.

        queries, keys     (B, H, d, n) rings
        values            (B, H, d + 1, n) ring; the last row is 1, which counts weights
        suffixes          (B, J, H, d + 1, n) ring: each row's sums over the keys from the beginning
                          of each block on, up to the row itself
        suffix_peaks      (B, J, H, 1, n) ring: the largest score in each of these sums
        after             (B, H, d + 1, n): each row's sums over the keys after it
        after_peaks       (B, H, 1, n): the largest score in each of these sums
    """

    def __init__(self, layer: PostNormLayer, window: int):
        super().__init__()
        self.heads, self.window = HeadProjection(layer), window
        divisors = [n for n in range(1, window + 1) if window % n == 0]
        self.block = min(divisors, key=lambda n: abs(n - BLOCK))
        self.n_blocks = window // self.block
        self.rings = {name: Ring(axis=3, counter="n_tokens") for name in ("queries", "keys")}
        self.rings["values"] = Ring(axis=3, counter="n_tokens")
        self.rings |= {n: Ring(axis=4, counter="n_tokens") for n in ("suffixes", "suffix_peaks")}

    def initial_state(self, like: Tensor, n_streams: int) -> State:
        """Return the state before the first token, for n_streams streams: sums over nothing.

        `like` gives the type and the device of the tensors.
        """
        n_heads, d, n = self.heads.n_heads, self.heads.head_width, self.window

        def zeros(*shape: int) -> Tensor:
            return like.new_zeros(n_streams, *shape)

        return {
            "queries": zeros(n_heads, d, n),
            "keys": zeros(n_heads, d, n),
            "values": zeros(n_heads, d + 1, n),
            "suffixes": zeros(self.n_blocks, n_heads, d + 1, n),
            "suffix_peaks": zeros(self.n_blocks, n_heads, 1, n) + LEAST_PEAK,
            "after": zeros(n_heads, d + 1, n),
            "after_peaks": zeros(n_heads, 1, n) + LEAST_PEAK,
        }

    def step(self, state: State, row: Tensor) -> tuple[State, Tensor]:
        """Take an embedded token (B, D) and update the attention of all tokens in the window.

        Returns:
            The state tensors that change, and the attention of each token, (B, H, n, d), token p at
                place p modulo n.
        """
        query, key, value = self.heads(row)
        n, n_tokens = self.window, state["n_tokens"][:, None]  # (B, 1): the token's position
        slots = torch.arange(n, device=n_tokens.device)
        age = torch.remainder(n_tokens - slots, n)  # (B, n), 0 for the newest
        newest = (age == 0)[:, None, None]  # (B, 1, 1, n)
        past = torch.where((age > 0) & (age <= n_tokens), age, n)  # n: it leaves, or never came
        columns = query[..., None], key[..., None], one_more(value)[..., None]
        # The oldest block that is whole begins at this age; the leaving keys are older.
        begin = n - 1 - torch.remainder(-1 - n_tokens, self.block)  # (B, 1)
        place = torch.remainder(n_tokens - begin, n) // self.block  # of that block, (B, 1)
        own, own_peak = self._own(state, columns, past, n_tokens)

        suffix, kept_peak = (
            at_index(state[name], place[:, 0]) for name in ("suffixes", "suffix_peaks")
        )
        kept_peak = torch.where((past <= begin)[:, None, None], kept_peak, LEAST_PEAK)
        score = key[:, :, None] @ state["queries"]  # (B, H, 1, n)
        old_peak = torch.where(newest, LEAST_PEAK, state["after_peaks"])
        after_peak = torch.where(newest, LEAST_PEAK, torch.maximum(old_peak, score))
        old, new = (
            torch.where(newest, 0.0, weight(part, after_peak)) for part in (old_peak, score)
        )
        after = old * state["after"] + new * columns[2]
        leaving, leaving_peak = self._leaving(state, past, begin, place)
        top = torch.maximum(torch.maximum(kept_peak, after_peak), leaving_peak)
        sums = (
            weight(kept_peak, top) * suffix
            + weight(after_peak, top) * after
            + weight(leaving_peak, top) * leaving
        )
        attended = torch.where(newest, averaged(own[:, :, 0, :, None]), averaged(sums))
        written = dict(zip(KEPT, columns, strict=True))
        written |= {
            "suffixes": own[:, :, 1:].transpose(1, 2)[..., None],
            "suffix_peaks": own_peak[:, :, 1:].transpose(1, 2)[..., None],
        }
        return {**written, "after": after, "after_peaks": after_peak}, attended.mT

    def _own(
        self, state: State, columns: tuple[Tensor, ...], past: Tensor, n_tokens: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the newest token's sums over the window, and over its keys from each block on.

        The n places for tokens form J blocks. The sums of weighted values and weights are (B, H, 1
        + J, d + 1), that over the window first; the largest scores in them (B, H, 1 + J, 1).

        Args:
            state: State before the token.
            columns: Query and key of the token, (B, H, d, 1), and its value with a 1 appended,
                (B, H, d + 1, 1).
            past: Age, in tokens, of the token in each place, (B, n); n where none counts.
            n_tokens: Number of tokens before, (B, 1).
        """
        query, key, value = (column.mT for column in columns)  # (B, H, 1, d)
        index = torch.arange(self.n_blocks, device=past.device) * self.block
        begins = torch.remainder(n_tokens - index, self.window)  # (B, J): their ages
        reached = torch.cat([torch.full_like(n_tokens, self.window - 1), begins], 1)
        joins = past[:, None] <= reached[..., None]  # (B, 1 + J, n)
        scores = query @ state["keys"] + torch.where(joins, 0.0, UNSEEN)[:, None]
        own = (query * key).sum(-1, keepdim=True)
        peak = torch.maximum(scores.amax(-1, keepdim=True), own)
        sums = weight(scores, peak) @ state["values"].mT + weight(own, peak) * value
        return sums, peak

    def _leaving(
        self, state: State, past: Tensor, begin: Tensor, place: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return each token's sums over the keys up to its own in the block that is leaving.

        Places for tokens form J blocks. The oldest block loses a key with each token: it comes
        before the oldest whole block. The sums of weighted values and weights are (B, H, d + 1, n),
        the largest scores in them (B, H, 1, n).

        Args:
            state: State before the newest token.
            past: Age, in tokens, of the token in each place, (B, n); n where none counts.
            begin: Age of the first key of the oldest whole block, (B, 1).
            place: Number of the oldest whole block, from 0 to J - 1, (B, 1).
        """
        place = torch.remainder(place - 1, self.n_blocks)[:, 0]  # (B,)
        parts = (self.n_blocks, self.block)
        keys, values = (
            at_index(state[name].unflatten(3, parts), place, 3) for name in ("keys", "values")
        )
        of_key = at_index(past.unflatten(1, parts), place)[..., None]  # (B, L, 1)
        leaves = (of_key > begin[..., None]) & (of_key < self.window)
        met = leaves & (of_key >= past[:, None])  # (B, L, n)
        scores = keys.mT @ state["queries"] + torch.where(met, 0.0, UNSEEN)[:, None]
        peak = scores.amax(2, keepdim=True).clamp_min(LEAST_PEAK)
        return values @ weight(scores, peak), peak


KEPT = ("queries", "keys", "values")


# Sums of weighted values, (..., d + 1) with that of the weights, and their largest scores ---------


def one_more(value: Tensor) -> Tensor:
    """Append a 1, which counts weights, to values (..., d): return (..., d + 1)."""
    return torch.nn.functional.pad(value, (0, 1), value=1.0)


def weight(score: Tensor, peak: Tensor) -> Tensor:
    """Return e to the power score - peak, at least e to `LEAST_EXPONENT`; peak >= score."""
    return torch.exp((score - peak).clamp_min(LEAST_EXPONENT))


def averaged(sums: Tensor) -> Tensor:
    """Return the weighted means of values, (B, H, d, n), from sums (B, H, d + 1, n).

    Sums over nothing give 0.
    """
    total = sums[:, :, -1:]
    return sums[:, :, :-1] / torch.where(total > 0, total, 1.0)


def at_index(tensor: Tensor, index: Tensor, axis: int = 1) -> Tensor:
    """Return, for each stream b, entry index[b] along an axis of tensor[b], without this axis."""
    if len(tensor) == 1:
        return tensor.index_select(axis, index).squeeze(axis)
    shape = [*tensor.shape]
    shape[axis] = 1
    place = index.reshape(-1, *(1,) * (tensor.ndim - 1)).expand(shape)
    return tensor.gather(axis, place).squeeze(axis)
