"""Encoders of ordered streams by their papers' equations, of one stream, in float64 numpy.

Hedegaard et al. 2023 (Continual Transformers); Xiong et al. 2021 (Nyströmformer); Carreto Picon et
al. (Continual Low-Rank Scaled Dot-product Attention), whose equations are cited. Two forms of each:

    answers       everything of the window computed again at each token (equations 1 and 8)
    Retroactive,  one attention, token by token, with sums of exponentials from which the leaving
    Continual     token is subtracted (equations 2 to 7, and 9 to 26)

The papers say two things of two layers: section V lets a retroactive attention be followed by a
single output, section IV-C makes only the last layer continual. The papers do not say what happens
before a window is full: here a window is then shorter, and a landmark without tokens is 0.
Departures of the models, as arguments:

    serves        the first token that a landmark serves: "last" of its segment, as published
                  (Figure 1), or the "next" one
    continual     the layer that has landmarks of a grid over the stream, "first" or "last"; layers
                  below it have those of the window's own segments (Xiong et al.), and layers above
                  it means of the window's tokens in each segment of the grid, which is ours
    inverse       of fixed landmarks: "iterated", as published (section IV-C), or "exact"

Tokens are rows, (T, X).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.reference.numpy_layers import Rows, Weights, layer_norm, linear, relu, softmax

Heads = Rows
"""Rows by head, (H, rows, d)."""


def by_head(weights: Weights, n_heads: int, rows: Rows) -> Heads:
    return np.stack(np.split(linear(weights, rows), n_heads, -1))


def projected(weights: Weights, n_heads: int, rows: Rows) -> tuple[Heads, Heads, Heads]:
    """Queries, scaled by 1/sqrt(d), keys and values of rows."""
    q, k, v = (by_head(weights[name], n_heads, rows) for name in ("q", "k", "v"))
    return q / np.sqrt(q.shape[-1]), k, v


def finished(weights: Weights, rows: Rows, attended: Heads) -> Rows:
    """The rest of an encoder layer (Vaswani et al. 2017, 3.1), after the attention by head."""
    joined = linear(weights["out"], np.concatenate(list(attended), -1))
    hidden = layer_norm(weights["norm"], rows + joined)
    changed = linear(weights["down"], relu(linear(weights["up"], hidden)))
    return layer_norm(weights["last_norm"], hidden + changed)


def embedded(weights: Weights, config: Any, tokens: Rows) -> Rows:
    """Tokens with circular positions, which repeat after 2n - 1 (Hedegaard et al. 2023, 3.3)."""
    positions = np.arange(len(tokens)) % (2 * config.window - 1)
    rows: Rows = linear(weights["embed"], tokens) + weights("positions")[positions]
    return rows


# Nyström attention --------------------------------------------------------------------------------


def iterated_inverse(matrix: Rows) -> Rows:
    """Six iterations of Razavi et al. 2014 (Xiong et al. 2021, eq. 14)."""
    norms = np.abs(matrix).sum(-2).max(-1), np.abs(matrix).sum(-1).max(-1)
    inverse: Rows = matrix.swapaxes(-1, -2) / (norms[0] * norms[1])[:, None, None]
    one = np.eye(matrix.shape[-1])
    for _ in range(6):
        product = matrix @ inverse
        inner = 15 * one - product @ (7 * one - product)
        inverse = inverse @ (13 * one - product @ inner) / 4
    return inverse


def exact_inverse(matrix: Rows) -> Rows:
    inverse: Rows = np.linalg.pinv(matrix, rcond=1e-6).astype(np.float64)
    return inverse


INVERSES = {"iterated": iterated_inverse, "exact": exact_inverse}


@dataclass(frozen=True, slots=True)
class Landmarks:
    """Landmarks of queries, scaled, and of keys, each (H, m, d), and the kind of the inverse."""

    queries: Heads
    keys: Heads
    inverse: str = "iterated"

    def inverted(self) -> Rows:
        return INVERSES[self.inverse](softmax(self.queries @ self.keys.swapaxes(1, 2)))

    def attention(self, asked: Heads, keys: Heads, values: Heads) -> Heads:
        """Equation 8."""
        left = softmax(asked @ self.keys.swapaxes(1, 2)) @ self.inverted()
        after: Heads = left @ (softmax(self.queries @ keys.swapaxes(1, 2)) @ values)
        return after


def lengths(config: Any) -> list[int]:
    """Numbers of tokens of a window's segments; the first n mod m have one more (section IV-C)."""
    whole, more = divmod(config.window, config.n_landmarks)
    return [whole + (j < more) for j in range(config.n_landmarks)]


def segment_of(config: Any, place: int) -> int:
    return int(np.searchsorted(np.cumsum(lengths(config)), place, "right"))


def segments(config: Any, newest: int, kind: str, serves: str) -> list[list[int]]:
    """Positions of the tokens of each landmark's segment when the newest token is `newest`.

    The kinds are "window", segments of the window itself; "grid", the window's tokens in each
    segment of a grid over the stream; and "complete", the newest whole segment of each number.
    """
    n, first = config.window, newest - config.window + 1
    found: list[list[int]] = [[] for _ in range(config.n_landmarks)]
    if kind == "complete":
        ends = np.cumsum(lengths(config)) - 1
        for end in range(newest + (serves == "last")):
            if end % n in ends:
                j = segment_of(config, end % n)
                found[j] = list(range(end - lengths(config)[j] + 1, end + 1))
        return found
    for position in range(max(0, first), newest + 1):
        place = position - first if kind == "window" else position % n
        found[segment_of(config, place)].append(position)
    return found


def mean_landmarks(queries: Heads, keys: Heads, members: list[list[int]]) -> Landmarks:
    """Landmarks as means of tokens, whose rows `members` names; 0 where it names none."""

    def means(rows: Heads) -> Heads:
        zero = np.zeros((len(rows), rows.shape[-1]))
        return np.stack([rows[:, own].mean(1) if own else zero for own in members], 1)

    return Landmarks(means(queries), means(keys))


def fixed_landmarks(weights: Weights, k: int, inverse: str) -> Landmarks:
    parts = weights("landmark_queries")[k], weights("landmark_keys")[k]
    return Landmarks(*parts, inverse)


# A window computed again at each token ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Form:
    """The attention of all layers: "softmax", or Nyström attention in its forms."""

    attention: str = "softmax"
    serves: str = "last"
    continual: str = "none"
    inverse: str = "iterated"
    n_fixed: int = 0

    def kind(self, k: int, n_layers: int) -> str:
        """Which tokens layer k's landmarks are means of."""
        of = {"none": n_layers, "first": 0, "last": n_layers - 1}[self.continual]
        return "complete" if k == of else "grid" if k > of else "window"


def answers(weights: Weights, config: Any, tokens: Rows, form: Form) -> Rows:
    """The class scores after each token of a stream, (T, classes)."""
    rows = embedded(weights, config, tokens)
    return np.stack([answer(weights, config, rows[: t + 1], form) for t in range(len(tokens))])


def answer(weights: Weights, config: Any, rows: Rows, form: Form) -> Rows:
    """The class scores for the newest of all embedded tokens so far.

    Rows before the window exist for the sake of landmarks of segments that began before it; no row
    attends to them.
    """
    newest, heads, start = len(rows) - 1, config.n_heads, max(0, len(rows) - config.window)
    for k in range(config.n_layers):
        own = weights["layers"][k]
        q, keys, values = projected(own, heads, rows)
        seen_keys, seen_values = keys[:, start:], values[:, start:]
        if form.attention == "softmax":
            attended = softmax(q @ seen_keys.swapaxes(1, 2)) @ seen_values
        else:
            if k < form.n_fixed:
                landmarks = fixed_landmarks(weights, k, form.inverse)
            else:
                kind = form.kind(k, config.n_layers)
                members = segments(config, newest, kind, form.serves)
                landmarks = mean_landmarks(q, keys, members)
            attended = landmarks.attention(q, seen_keys, seen_values)
        rows = finished(own, rows, attended)
    scores: Rows = linear(weights["scores"], rows[-1:])[0]
    return scores


# One attention, token by token, with subtraction --------------------------------------------------


class Retroactive:
    """Equations 2 to 6; its newest row is the single output, equation 7.

    `step` takes the newest query, scaled, key and value, each (H, 1, d), and returns the attention
    of all tokens in the window, the oldest first, (H, rows, d).
    """

    def __init__(self, window: int):
        self.window, self.tokens = window, list[tuple[Heads, Heads, Heads]]()
        self.sums, self.products = np.zeros(()), np.zeros(())

    def _memory(self, part: int) -> Heads:
        return np.concatenate([token[part] for token in self.tokens], 1)

    def step(self, q: Heads, k: Heads, v: Heads) -> Heads:
        if self.tokens:
            if len(self.tokens) == self.window:
                _, k_old, v_old = self.tokens.pop(0)
                leaving = np.exp(self._memory(0) @ k_old.swapaxes(1, 2))
                self.sums = self.sums[:, 1:] - leaving
                self.products = self.products[:, 1:] - leaving * v_old
            coming = np.exp(self._memory(0) @ k.swapaxes(1, 2))
            self.sums, self.products = self.sums + coming, self.products + coming * v
        self.tokens.append((q, k, v))
        own = np.exp(q @ self._memory(1).swapaxes(1, 2))
        rows = own.sum(-1, keepdims=True), own @ self._memory(2)
        alone = len(self.tokens) == 1
        self.sums = rows[0] if alone else np.concatenate([self.sums, rows[0]], 1)
        self.products = rows[1] if alone else np.concatenate([self.products, rows[1]], 1)
        return self.products / self.sums


class Continual:
    """Equations 9 to 26, whose newest row is the single output (equations 22 and 26).

    Sums of landmark rows lose the token that leaves and gain the one that comes (equations 17, 20,
    24 and 25); with a new landmark its row is computed from the memory, and the rest is made of the
    parts again.
    """

    def __init__(self, config: Any, n_heads: int, width: int, form: Form, fixed: Landmarks | None):
        self.config, self.form, self.n = config, form, 0
        self.tokens: list[tuple[Heads, Heads, Heads]] = []
        zero = np.zeros((n_heads, config.n_landmarks, width))
        self.landmarks = fixed or Landmarks(zero, zero)
        self.moves = fixed is None
        self.segment: list[tuple[Heads, Heads, Heads]] = []
        self.sums = np.zeros((n_heads, config.n_landmarks, 1))
        self.products = zero

    def _memory(self, part: int) -> Heads:
        return np.concatenate([token[part] for token in self.tokens], 1)

    def step(self, q: Heads, k: Heads, v: Heads) -> Heads:
        if len(self.tokens) == self.config.window:
            self._weigh(self.tokens.pop(0), -1)
        self.tokens.append((q, k, v))
        self._weigh(self.tokens[-1], 1)
        self.segment.append(self.tokens[-1])
        place = self.n % self.config.window
        completes = self.moves and place in np.cumsum(lengths(self.config)) - 1
        if completes and self.form.serves == "last":
            self._move(segment_of(self.config, place))
        left = softmax(self._memory(0) @ self.landmarks.keys.swapaxes(1, 2))
        attended = (left @ self.landmarks.inverted()) @ (self.products / self.sums)
        if completes and self.form.serves == "next":
            self._move(segment_of(self.config, place))
        self.n += 1
        return attended

    def _weigh(self, token: tuple[Heads, Heads, Heads], sign: int) -> None:
        weights = np.exp(self.landmarks.queries @ token[1].swapaxes(1, 2))  # (H, m, 1)
        self.sums = self.sums + sign * weights
        self.products = self.products + sign * weights * token[2]

    def _move(self, j: int) -> None:
        """Replace landmark j by the mean of the segment, and its row by that of the memory."""
        parts = self.landmarks.queries.copy(), self.landmarks.keys.copy()
        for part, rows in enumerate(parts):
            rows[:, j] = np.mean([token[part][:, 0] for token in self.segment], 0)
        self.landmarks, self.segment = Landmarks(*parts), []
        row = np.exp(parts[0][:, j : j + 1] @ self._memory(1).swapaxes(1, 2))
        self.sums[:, j : j + 1] = row.sum(-1, keepdims=True)
        self.products[:, j : j + 1] = row @ self._memory(2)
