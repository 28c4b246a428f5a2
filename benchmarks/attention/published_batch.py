"""The batch forms of attention on a window, and what all published forms have in common.

Scores are plain products: queries come scaled. See `benchmarks.attention.published_cores`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.attention.attention_cores import Landmarks, Shape, drawn_landmarks
from edgefold.runtime.predictions import Raw
from edgefold.train.contract import Prediction, State, StreamingModel
from edgefold.train.layers.nystrom_attention import pseudo_inverse, segment_lengths


class PublishedCore(StreamingModel):
    """The common part of all: sizes, the split of a token by head, windows that move by a token.

    Subclasses give `start` and `attend`. A single output is (B, H, d), the others (B, H, n, d), the
    oldest token's first.
    """

    name, n_outputs = "published-core", 0
    is_single = False

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape, self.n_inputs = shape, 3 * shape.width
        rows = () if self.is_single else (shape.window,)
        self.prediction = Raw({"found": (shape.n_heads, *rows, shape.head_width)})
        self.register_buffer("like", torch.zeros(1))

    def zeros(self, *size: int) -> Tensor:
        """Return zeros of the model's type, (*size)."""
        return self.get_buffer("like").new_zeros(size)

    def tokens(self, n_streams: int, length: int) -> Tensor:
        """A window of zeros, (B, H, length, d)."""
        return self.zeros(n_streams, self.shape.n_heads, length, self.shape.head_width)

    def initial_state(self, n_streams: int = 1) -> State:
        counter = {"n_tokens": torch.zeros(n_streams, dtype=torch.int64)}
        return {**self.start(n_streams), **counter}

    def start(self, n_streams: int) -> State:
        """The state over a window of zeros."""
        raise NotImplementedError

    def attend(self, state: State, q: Tensor, k: Tensor, v: Tensor) -> tuple[State, Tensor]:
        """Take a token, each (B, H, 1, d): what changes of the state, and what is found."""
        raise NotImplementedError

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        q, k, v = x.view(len(x), 3, self.shape.n_heads, 1, self.shape.head_width).unbind(1)
        written, found = self.attend(state, q, k, v)
        written["n_tokens"] = state["n_tokens"] + 1
        written["finite"] = torch.zeros_like(x[:, 0])
        return written, {"found": found[:, :, 0] if self.is_single else found}


def rho(p: Tensor, w: Tensor) -> Tensor:
    """exp(P W^T), (..., rows of P, rows of W)."""
    return torch.exp(p @ w.mT)


def phi(a: Tensor) -> Tensor:
    """Sums of rows, (..., rows, 1)."""
    return a.sum(-1, keepdim=True)


def moved(window: Tensor, new: Tensor) -> Tensor:
    """A window of rows without its oldest one and with a new one."""
    return torch.cat([window[:, :, 1:], new], 2)


# The window computed anew at each token -----------------------------------------------------------


class Batch(PublishedCore):
    """Softmax attention of the whole window (Att)."""

    def start(self, n_streams: int) -> State:
        return {name: self.tokens(n_streams, self.shape.window) for name in "qkv"}

    def attend(self, state: State, q: Tensor, k: Tensor, v: Tensor) -> tuple[State, Tensor]:
        window = {name: moved(state[name], row) for name, row in zip("qkv", (q, k, v), strict=True)}
        return {**window}, self.found(window["q"], window["k"], window["v"])

    def found(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return the attention of windows (B, H, n, d) of queries, keys and values."""
        return torch.softmax(q @ k.mT, -1) @ v


class BatchNystrom(Batch):
    """Nystrom attention to means over segments of the window (Ny, eq. 8)."""

    def __init__(self, shape: Shape):
        super().__init__(shape)
        self.lengths = segment_lengths(shape.window, shape.n_landmarks)

    def found(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        landmarks = (
            torch.cat(
                [part.mean(2, keepdim=True) for part in torch.split(rows, self.lengths, 2)], 2
            )
            for rows in (q, k)
        )
        queries, keys = landmarks
        inverse = pseudo_inverse(torch.softmax(queries @ keys.mT, -1))
        return nystrom(q, k, v, queries, keys, inverse)


class BatchFixed(Batch):
    """Nystrom attention to fixed landmarks (NyFix)."""

    def __init__(self, shape: Shape, landmarks: Landmarks | None = None):
        super().__init__(shape)
        keep(self, landmarks or drawn_landmarks(shape))

    def found(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return nystrom(q, k, v, *kept(self))


def nystrom(
    q: Tensor, k: Tensor, v: Tensor, queries: Tensor, keys: Tensor, inverse: Tensor
) -> Tensor:
    """Eq. 8, multiplied in the order of the appendix: (n x m)(m x m), (m x n)(n x d), both."""
    left = torch.softmax(q @ keys.mT, -1) @ inverse
    return left @ (torch.softmax(queries @ k.mT, -1) @ v)


def keep(model: StreamingModel, landmarks: Landmarks) -> None:
    """Constant landmarks as buffers."""
    model.register_buffer("landmark_queries", landmarks.queries)
    model.register_buffer("landmark_keys", landmarks.keys)
    model.register_buffer("inverse", landmarks.inverse)


def kept(model: StreamingModel) -> tuple[Tensor, Tensor, Tensor]:
    """Return the tensors that `keep` stored."""
    queries, keys, inverse = (
        model.get_buffer(name) for name in ("landmark_queries", "landmark_keys", "inverse")
    )
    return queries, keys, inverse
