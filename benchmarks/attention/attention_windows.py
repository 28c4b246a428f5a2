"""The tokens of `attention_drift`, and what attention over the last of them answers.

Nothing here goes on from token to token: an answer is computed from its window, in any precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.attention.attention_cores import Landmarks, Shape
from benchmarks.attention.published_cores import PUBLISHED
from edgefold.train.layers.nystrom_attention import (
    center_inverse,
    clustered,
    complete_segments,
    nystrom,
    segment_lengths,
)
from edgefold.train.models.ordered.window_encoder import UNSEEN

SHAPE = Shape()
CASES: dict[str, tuple[float, slice]] = {
    "0.5": (0.5, slice(0, 3)),
    "1": (1.0, slice(3, 6)),
    "3": (3.0, slice(6, 9)),
    "4": (4.0, slice(9, 12)),
    "4, outliers": (4.0, slice(12, 16)),
}
POOL = 4001
OUTLIER, ONE_IN = 100.0, 1000
HOPPING_BLOCKS = 4


@dataclass(frozen=True, slots=True)
class Leg:
    """One core: ours by its kind, or a published form by its name.

    Attributes:
        name: As tables show it.
        n_steps: Tokens.
        every: Of the answers that are checked, each so many-th.
    """

    name: str
    n_steps: int = 10_000_000
    every: int = 1

    @property
    def is_ours(self) -> bool:
        """Whether it is a form of this project."""
        return self.name not in PUBLISHED

    @property
    def folder(self) -> str:
        """Name of its bundle and results."""
        return self.name.replace(" ", "-")

    @property
    def attention(self) -> str:
        """Name of the computation: softmax, fixed, means, published means, hopping."""
        if self.name.startswith("hopping"):
            return "hopping"
        if "fixed" in self.name or self.name.endswith("Fix"):
            return "fixed"
        if self.name.endswith("Cont"):
            return "published means"
        return "means" if "means" in self.name else "softmax"

    @property
    def has_all_rows(self) -> bool:
        """Whether an answer holds all rows of the window."""
        return "retroactive" in self.name or self.name.startswith(("CoRe", "CoNyRe"))


# Tokens -------------------------------------------------------------------------------------------


class Tokens:
    """Queries (scaled), keys and values of any moment, each (N, H, d)."""

    def __init__(self, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        size = POOL, SHAPE.n_heads, SHAPE.head_width
        q, k, v = (random.standard_normal(size, np.float32) for _ in range(3))
        for std, heads in CASES.values():
            q[:, heads] *= std
            k[:, heads] *= std
        self.typical_keys = k.copy()
        outliers = random.permutation(POOL)[: POOL // ONE_IN]
        k[outliers, CASES["4, outliers"][1]] *= OUTLIER
        q /= np.float32(SHAPE.head_width**0.5)
        self.q, self.k, self.v, self.seed = q, k, v, seed
        self._order: dict[int, NDArray[np.int64]] = {}

    def order(self, turn: int) -> NDArray[np.int64]:
        """Places in the pool of the tokens of its turn-th use."""
        if turn not in self._order:
            self._order = {t: o for t, o in self._order.items() if t >= turn - 1}
            self._order[turn] = np.random.default_rng((self.seed, turn)).permutation(POOL)
        return self._order[turn]

    def places(self, first: int, last: int) -> NDArray[np.int64]:
        """Return the places of tokens first to last - 1."""
        turns = range(first // POOL, (last - 1) // POOL + 1)
        found = np.concatenate([self.order(turn) for turn in turns])
        return found[first - turns[0] * POOL : last - turns[0] * POOL]

    def landmarks(self) -> Landmarks:
        """Clusters of the pool's queries and keys; outliers are not among these."""
        generator = torch.Generator().manual_seed(self.seed)
        found = [
            clustered(torch.from_numpy(t).transpose(0, 1), SHAPE.n_landmarks, generator)
            for t in (self.q, self.typical_keys)
        ]
        return Landmarks(*found)


# The exact answer ---------------------------------------------------------------------------------


def exact(
    leg: Leg, tokens: Tokens, landmarks: Landmarks, n: NDArray[np.int64], dtype: torch.dtype
) -> Tensor:
    """Answers after tokens n (C,) from the last tokens alone: (C, H, rows, d).

    Rows are the newest token's, or all of the window, the oldest first.
    """
    window = SHAPE.window
    more = max(segment_lengths(window, SHAPE.n_landmarks)) if "means" in leg.attention else 0
    reach = window + more
    positions = torch.from_numpy(n[:, None] + np.arange(1 - reach, 1))  # (C, R)
    flat = np.stack([tokens.places(int(p) + 1 - reach, int(p) + 1) for p in n])
    q, k, v = (torch.from_numpy(t[flat]).to(dtype).transpose(1, 2) for t in tokens_of(tokens))
    asked = q[:, :, -window:] if leg.has_all_rows else q[:, :, -1:]
    seen = positions > positions[:, -1:] - window
    if leg.attention == "hopping":
        block = window // HOPPING_BLOCKS
        seen &= positions >= (positions[:, -1:] // block - (HOPPING_BLOCKS - 1)) * block
    unseen = torch.where(seen, 0.0, UNSEEN).to(dtype)[:, None, None]
    if leg.attention == "softmax":
        return torch.softmax(asked @ k.mT + unseen, -1) @ v
    if "means" in leg.attention:
        weights = grid_weights(positions, leg.attention == "published means").to(dtype)
        of_queries, of_keys = weights[:, None] @ q, weights[:, None] @ k
        inverse = center_inverse(of_queries, of_keys)
    else:
        of_queries, of_keys, inverse = (
            t.to(dtype) for t in (landmarks.queries, landmarks.keys, landmarks.inverse)
        )
    return nystrom(asked, of_queries, of_keys, inverse, k, v, unseen)


def tokens_of(tokens: Tokens) -> tuple[Any, Any, Any]:
    """The pool's queries, keys and values."""
    return tokens.q, tokens.k, tokens.v


def grid_weights(positions: Tensor, at_once: bool) -> Tensor:
    """Weights (C, m, R) of tokens in the landmarks, whose segments lie in a grid over the stream.

    A landmark serves from the token on that follows its segment, or `at_once`, as published.
    """
    lengths = torch.tensor(segment_lengths(SHAPE.window, SHAPE.n_landmarks))
    segment_of = torch.arange(SHAPE.n_landmarks).repeat_interleave(lengths)
    end_of = (lengths.cumsum(0) - 1)[segment_of]
    ahead = int(at_once)
    if at_once:  # as if one more token had come
        positions = torch.cat([positions, positions[:, -1:] + 1], 1)
    segments, taken = complete_segments(positions, segment_of, end_of, SHAPE.window)
    index = torch.arange(SHAPE.n_landmarks)[:, None]
    member = ((segments[:, None] == index) & taken[:, None])[:, :, : positions.shape[1] - ahead]
    return member.double() / member.sum(-1, keepdim=True)


def oldest_first(found: Any, n: NDArray[np.int64]) -> Any:
    """Rows (C, H, n, d) in the order of their slots, p modulo n, as the oldest first."""
    turns = -(n + 1) % SHAPE.window
    return np.stack([np.roll(one, turn, 1) for one, turn in zip(found, turns, strict=True)])
