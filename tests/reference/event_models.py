"""CMHP and THP by their papers' equations, of one stream of events, in float64 numpy.

Feng et al. 2024 (CMANP), appendix C.1, and Zuo et al. 2020 (THP). No code of CMHP is published; the
paper says that it is THP with its layers replaced by constant-memory attention blocks, with all
latents flattened at the end. The blocks are those of the published CMANP. Sources of the parts:

    mixture of log-normals    Shchur et al. 2020, section 3.2; both models (CMANP, appendix C.1)
    embedding                 Zuo et al. 2020, equations 2 and 3
    attention, feed-forward   Zuo et al. 2020, equations 4 and 5, as their code runs them: a norm
                              after each addition, a GELU (the paper: ReLU), and the encoding of the
                              time is added before every layer (the paper: before the first)
    intensity                 Zuo et al. 2020, equations 6 to 8

Departures of the models from these sources, all of them here:

    times       are whole ticks, and so are the periods of the encoding (`whole_ticks`)
    gaps        are at least 1e-6 where a logarithm is taken, and log deviations from -3.5 to 3
                (`LOG_STD`; in the code of Shchur et al. from -5 to 3)
    window      a layer sees the last `window` events before its own; the paper's all
    no event    before any event the output is learned in THP, and in CMHP latents read nothing; the
                papers score no first event
    head norm   CMHP's latents pass a layer norm before they are flattened; the paper names none
    intensity   has a small constant rate in addition, its slope is not divided by the time since
                the beginning, and an event is scored by the state before it

Events are rows of gap and mark, (N, 2). A result's row i is of event i given those before it, and
its last row is of the event that comes next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.reference.numpy_layers import (
    Rows,
    Weights,
    attended,
    attention,
    fed_forward,
    gelu,
    layer_norm,
    linear,
    relu,
    softmax,
)

TICKS = 2**16
LEAST_GAP, LOG_STD = 1e-6, (-3.5, 3.0)
EPSILON = 1e-6
"""Of the layer norms in the published code of THP."""
FAR = 400
"""Number of pieces of the quadrature of an intensity."""


def log_gaps(gaps: Rows) -> Rows:
    return np.log(np.maximum(gaps, LEAST_GAP))


def times(gaps: Rows) -> NDArray[np.int64]:
    return np.rint(gaps * TICKS).astype(np.int64).cumsum()


# The mixture of log-normals -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogNormals:
    """Mixtures of N events: (N, C) numbers of the components, (N, C or 1, K) of the marks."""

    weights: Rows
    means: Rows
    stds: Rows
    marks: Rows

    @classmethod
    def of(cls, weights: Weights, features: Rows, n_components: int) -> LogNormals:
        """Shchur et al. 2020, eq. 3: one affine layer for the parameters of a mixture.

        With weights of `mark_gains` each component has probabilities of the marks of its own, which
        is ours.
        """
        numbers = linear(weights["linear"], features)
        ends = np.cumsum([n_components] * 3)
        shares, means, log_stds, marks = np.split(numbers, ends, -1)
        marks = marks[:, None]
        if weights.has("mark_gains"):
            marks = marks * weights("mark_gains") + weights("mark_shifts")
        return cls(softmax(shares), means, np.exp(np.clip(log_stds, *LOG_STD)), softmax(marks))

    def log_densities(self, events: Rows) -> Rows:
        """Log densities of N events, each by its own mixture (Shchur et al. 2020, eq. 2)."""
        n, log_gap = len(events), log_gaps(events[:, :1])
        z = (log_gap - self.means[:n]) / self.stds[:n]
        of_gap = np.exp(-(z**2) / 2) / (np.exp(log_gap) * self.stds[:n] * math.sqrt(2 * math.pi))
        of_mark = self.marks[np.arange(n), :, events[:, 1].astype(int)]
        densities: Rows = np.log((self.weights[:n] * of_gap * of_mark).sum(-1))
        return densities

    def mark_probabilities(self) -> Rows:
        """The probabilities of the marks of the next events, (N, K)."""
        probabilities: Rows = (self.weights[..., None] * self.marks).sum(1)
        return probabilities

    def chance_before(self, gap: float, n: int) -> float:
        """The probability that the event of mixture n comes before a gap is over."""
        z = (math.log(gap) - self.means[n]) / self.stds[n] / math.sqrt(2)
        return float((self.weights[n] * (1 + np.vectorize(math.erf)(z)) / 2).sum())


# CMHP and the embedding of THP --------------------------------------------------------------------


def encoded_times(ticks: NDArray[np.int64], width: int, whole_ticks: bool = True) -> Rows:
    """The temporal encoding (N, D) of Zuo et al. 2020, eq. 2, with sines before cosines.

    With `whole_ticks` the periods are rounded to ticks, as the models' are; False is as published.
    """
    periods = 2 * math.pi * 10_000.0 ** (2 * np.arange(width // 2) / width) * TICKS
    periods = np.rint(periods) if whole_ticks else periods
    angles = 2 * math.pi * (ticks[:, None] % periods) / periods
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(len(ticks), -1)


def cmhp(weights: Weights, config: Any, events: Rows, whole_ticks: bool = True) -> LogNormals:
    """Feng et al. 2024 (CMANP), appendix C.1.1, with the embedding of Zuo et al. 2020."""
    gaps, marks = events.T
    tokens = weights("mark_layer.weight")[marks.astype(int)]
    tokens = tokens + encoded_times(times(gaps), config.width, whole_ticks)
    rows = [last_latents(weights, config, tokens[:n]) for n in range(len(events) + 1)]
    features = np.stack([layer_norm(weights["head_norm"], latents).ravel() for latents in rows])
    return LogNormals.of(weights["head"], features, config.n_components)


def last_latents(weights: Weights, config: Any, tokens: Rows) -> Rows:
    """The latents L_I after the last block (section 3.2), of the tokens of all events so far."""
    heads, latents = config.n_heads, weights("input_latents")
    for k in range(config.n_blocks):
        own, first = weights("block_latents")[k], weights["context_attention"].copy(k)
        if len(tokens):
            own = attended(first, heads, own, tokens)
        else:
            own = layer_norm(first["norm"], own) + first["out"]("bias")
        own = fed_forward(weights["context_ff"].copy(k), own)
        own = attended(weights["latent_attention"].copy(k), heads, own)
        own = fed_forward(weights["latent_ff"].copy(k), own)
        latents = attended(weights["block_attention"][k], heads, latents, own)
        latents = fed_forward(weights["block_ff"][k], latents)
        latents = attended(weights["block_self_attention"][k], heads, latents)
        latents = fed_forward(weights["block_self_ff"][k], latents)
    after: Rows = latents
    return after


# THP ----------------------------------------------------------------------------------------------


def published_encoder(
    weights: Weights, config: Any, events: Rows, whole_ticks: bool = True
) -> Rows:
    """Zuo et al. 2020, section 3.1, equations 2 to 5: the rows (N, D) after the last layer."""
    gaps, marks = events.T
    rows: Rows = weights("mark_layer.weight")[marks.astype(int)]
    encoding = encoded_times(times(gaps), config.width, whole_ticks)
    for k in range(config.n_layers):
        own, ff = weights["attention"][k], weights["ff"][k]
        rows = rows + encoding
        after = [
            row + attention(own, config.n_heads, row[None], rows[max(0, n - config.window) : n + 1])
            for n, row in enumerate(rows)
        ]
        rows = layer_norm(own["norm"], np.concatenate(after), EPSILON)
        changed = linear(ff["down"], gelu(linear(ff["up"], rows)))
        rows = layer_norm(ff["norm"], rows + changed, EPSILON)
    return rows


def relative_encoder(weights: Weights, config: Any, events: Rows) -> Rows:
    """The encoder that is ours, in the departures that `train.models.events.thp` states."""
    gaps, marks = events.T
    ticks, heads = times(gaps), config.n_heads
    hidden = linear(weights["gap_layer"], log_gaps(gaps)[:, None])
    hidden = relu(hidden + weights("mark_layer.weight")[marks.astype(int)])
    rows = linear(weights["token_layer"], hidden)
    exponents = np.rint(np.linspace(0, 14, config.width // 2))
    angles = 2 * math.pi * ticks[:, None] / (TICKS * 2.0**exponents)
    turns = np.exp(1j * angles.reshape(len(ticks), -1, heads).transpose(2, 0, 1))  # (H, N, D/2H)
    for k in range(config.n_layers):
        own, rates = weights["attention"][k], np.exp(weights("log_rates")[k])
        normal = layer_norm(own["norm"], rows)
        q, key, value = (
            np.stack(np.split(linear(own[name], normal), heads, -1)) for name in ("q", "k", "v")
        )
        q, key = (turned(part, turns) for part in (q, key))
        ages = (ticks[:, None] - ticks) / TICKS
        scores = q @ key.swapaxes(1, 2) / math.sqrt(q.shape[-1]) - rates[:, None, None] * ages
        back = np.arange(len(rows))[:, None] - np.arange(len(rows))
        scores = np.where((back < 0) | (back > config.window), -np.inf, scores)
        silent = np.zeros((heads, len(rows), 1))
        shares = softmax(np.concatenate([scores, silent], -1))[..., :-1]
        rows = rows + linear(own["out"], np.concatenate(list(shares @ value), -1))
        ff = weights["ff"][k]
        up, gate = np.split(linear(ff["up"], layer_norm(ff["norm"], rows)), 2, -1)
        rows = rows + linear(ff["down"], up * gelu(gate))
    return layer_norm(weights["head_norm"], rows)


def turned(rows: Rows, turns: NDArray[np.complex128]) -> Rows:
    """Rotary angles (Su et al. 2021): numbers i and i + d/2 of a head are a complex number."""
    real, imaginary = np.split(rows, 2, -1)
    product = (real + 1j * imaginary) * turns
    return np.concatenate([product.real, product.imag], -1)


def encoded(weights: Weights, config: Any, events: Rows, whole_ticks: bool = True) -> Rows:
    if config.encoder == "published":
        return published_encoder(weights, config, events, whole_ticks)
    return relative_encoder(weights, config, events)


def thp_of_mixtures(
    weights: Weights, config: Any, events: Rows, whole_ticks: bool = True
) -> LogNormals:
    """THP with the head by which Feng et al. 2024 (CMANP, appendix C.1) compare it with CMHP."""
    features = np.stack([weights("start"), *encoded(weights, config, events, whole_ticks)])
    return LogNormals.of(weights["head"], features, config.n_components)


@dataclass(frozen=True, slots=True)
class Intensities:
    """Intensities of K marks, Zuo et al. 2020, equations 6 and 7, to which the floors are added.

    The outputs are (N + 1, K): those after no event, after the first event, and so on.
    """

    outputs: Rows
    slopes: Rows
    scales: Rows
    floors: Rows

    def at(self, t: Rows) -> Rows:
        """The intensities (N, ..., K) of the marks at times t (N, ...) after the event before."""
        shape = len(t), *(1,) * (t.ndim - 1), -1
        x = self.outputs[: len(t)].reshape(shape) + self.slopes * t[..., None]
        return self.scales * np.logaddexp(0, x / self.scales) + self.floors

    def log_densities(self, events: Rows) -> Rows:
        """Equation 8 for one event: the log intensity minus the integral of all intensities."""
        gaps, marks = events.T
        nodes, shares = np.polynomial.legendre.leggauss(20)
        cuts = (np.arange(FAR)[:, None] + (1 + nodes) / 2).ravel() / FAR
        rates = self.at(gaps[:, None] * cuts).sum(-1)
        integrals = gaps * (rates * np.tile(shares, FAR)).sum(-1) / (2 * FAR)
        of_mark = self.at(gaps)[np.arange(len(events)), marks.astype(int)]
        densities: Rows = np.log(of_mark) - integrals
        return densities


def thp_of_intensities(weights: Weights, config: Any, events: Rows) -> Intensities:
    """Zuo et al. 2020, section 3.2, with the departures that are stated above."""
    of = weights["intensity"]
    outputs = [weights("start"), *linear(weights["head"], encoded(weights, config, events))]
    positive = (np.logaddexp(0, of(f"raw_{name}")) for name in ("scales", "floors"))
    return Intensities(np.stack(outputs), of("slopes"), *positive)
