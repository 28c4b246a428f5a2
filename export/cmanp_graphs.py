"""CMANP's five step graphs, rewritten so that a device does as little as possible.

The state has two levels, because plain float32 sums stop growing after some million points:

    recent_sums (B, K*H, D/H + 1, L)   plain sums of the last points' weighted values; the last row
    recent_peak (B, K*H, 1, L)         is the sum of weights, the peak the largest score in it
    base_sums, base_rest               everything older, as pairs of floats whose sum is the value
    base_peak

    update, condition   points ──> recent
    consolidate         recent ──> base, by compensated sums (Knuth's TwoSum); recent is emptied
    refresh             recent + base ──> keys and values of the query layers
    query               keys and values ──> prediction

The latents (L) lie innermost, because a broadcast along many contiguous floats costs a runtime far
less than one along D/H. Sums stay unnormalised: that saves the divisions at every point, and makes
consolidation an addition. Nothing here trains, and nothing here writes files.

A narrow type (float16) is for what lies behind the state: refresh, query, and the memory between
them. What stays float32, and why (gp-small, gp-paper and series-co2 with every node rounded):

    the fold         scores reach 460 at gp-small, where float16 resolves 0.25: a worst latent of
                     the state is off by 1e-2, for as long as the state lives, and by 4e-4 if the
                     values alone are half. The state is held to 1e-5, so no part of the fold is.
    W x + b, sin     in half it blurs x by 1e-3 and doubles the error of every prediction
    the last layer   so that predictions do not lie on float16's grid

Attention scores, softmax, layer norms and the residual stream of refresh and query lose nothing
that can be measured in half. Nothing there overflows, however large x and y are: the fold's layer
norm bounds what follows it, and sines or a clip what a query begins with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgefold.export.cmanp_weights import (
    AttentionWeights,
    FeedForwardWeights,
    FoldWeights,
    bias_of,
    fold,
    normalised,
    values_of,
)
from edgefold.export.graph import GraphBuilder, WeightFile
from edgefold.runtime.manifest import StateTensor
from edgefold.train.models.attention import Linear
from edgefold.train.models.cmanp import EMPTY, Cmanp, FourierEmbedding, MlpEmbedding

HIDDEN_SCORE = -3e38
"""Score of a masked row: its weight is exactly 0 beside any peak, also beside an empty state's."""

HALF = 6e4
"""Close to the largest float16."""

CONSOLIDATE_EVERY = 128
"""Points in the recent sums before they move to the base: a float32 sum of this many weighted
values is off by under 1e-6 of itself, and the step's cost is spread over as many updates."""


class CmanpGraphs:
    """Builds the step graphs of one model for a number of streams."""

    def __init__(self, model: Cmanp, n_streams: int, weights: WeightFile, narrow: str = "float32"):
        self.model = model
        self.config = model.config
        self.n_streams = n_streams
        self.weights = weights
        self.narrow = narrow
        self.head = self.config.width // self.config.n_heads
        self.all_heads = self.config.n_blocks * self.config.n_heads

    # What the manifest says ---------------------------------------------------------------------

    def state(self) -> tuple[StateTensor, ...]:
        """The state's tensors and what each holds before the first point."""
        lead = (self.n_streams, self.all_heads)
        sums = (*lead, self.head + 1, self.config.n_latents)
        peak = (*lead, 1, self.config.n_latents)
        return (
            StateTensor("recent_sums", sums, "float32", 0.0),
            StateTensor("recent_peak", peak, "float32", EMPTY),
            StateTensor("base_sums", sums, "float32", 0.0),
            StateTensor("base_rest", sums, "float32", 0.0),
            StateTensor("base_peak", peak, "float32", EMPTY),
        )

    def memory(self) -> tuple[StateTensor, ...]:
        """Keys (transposed) and values of each query layer."""
        lead = (self.n_streams, self.config.n_heads)
        tensors = []
        for k in range(self.config.n_blocks):
            keys = (*lead, self.head, self.config.n_latents)
            values = (*lead, self.config.n_latents, self.head)
            tensors.append(StateTensor(f"keys_{k}", keys, self.narrow, None))
            tensors.append(StateTensor(f"values_{k}", values, self.narrow, None))
        return tuple(tensors)

    # Shared pieces ------------------------------------------------------------------------------

    def _state_inputs(self, g: GraphBuilder, names: Sequence[str]) -> list[str]:
        shapes = {t.name: t.shape for t in self.state()}
        return [g.input(name, "state", shapes[name]) for name in names]

    def _state_outputs(self, g: GraphBuilder, values: dict[str, str]) -> None:
        shapes = {t.name: t.shape for t in self.state()}
        for name, value in values.items():
            g.output(value, f"next_{name}", "state", shapes[name], of=name)

    def _embed(self, g: GraphBuilder, x: str, y: str | None) -> str:
        """Embedded points, or queries without y: (rows, D)."""
        embedding = self.model.embedding
        if isinstance(embedding, FourierEmbedding):
            return self._embed_fourier(g, embedding, x, y)
        assert isinstance(embedding, MlpEmbedding)
        layers = embedding.of_queries if y is None else embedding.of_points
        value = x if y is None else g.call("Concat", x, y, axis=-1)
        linear = [layer for layer in layers if isinstance(layer, Linear)]
        for index, layer in enumerate(linear):
            value = value if index == 0 else g.call("Relu", value)
            value = g.gemm(value, values_of(layer.weight), bias_of(layer))
        return value

    def _embed_fourier(
        self, g: GraphBuilder, embedding: FourierEmbedding, x: str, y: str | None
    ) -> str:
        frequency, rise, fall = embedding.frequency, embedding.rise, embedding.fall
        wave = g.call("Sin", g.gemm(x, values_of(frequency.weight), bias_of(frequency)))
        # One more hidden unit that is always 1 carries the last layer's bias, so that the product
        # has room for the wave as its third operand: Gemm adds beta times it.
        weight = np.pad(values_of(rise.weight), ((0, 0), (0, 1)))
        bias = np.append(bias_of(rise), 1.0)
        if y is None:
            hidden = g.gemm(wave, weight[: self.config.width], bias)
        else:
            hidden = g.gemm(g.call("Concat", wave, y, axis=-1), weight, bias)
        last = np.vstack([values_of(fall.weight), bias_of(fall)])
        return g.call("Gemm", g.call("Relu", hidden), last, wave, beta=math.sqrt(2))

    # Folding ------------------------------------------------------------------------------------

    def update(self, name: str, width: int) -> GraphBuilder:
        """Fold `width` points. With one point and one stream there is no mask to carry."""
        g = GraphBuilder(name, self.weights)
        c, n_streams = self.config, self.n_streams
        rows = n_streams * width
        x = g.input("x", "points.x", (rows, c.n_inputs))
        y = g.input("y", "points.y", (rows, c.n_outputs))
        visible = None
        if width > 1:
            mask = g.input("mask", "points.mask", (n_streams, width))
            visible = g.call("Greater", mask, np.array(0.5))
            seen = g.reshape(visible, rows, 1)
            x, y = (g.call("Where", seen, value, np.array(0.0)) for value in (x, y))
        sums, peak = self._state_inputs(g, ("recent_sums", "recent_peak"))
        normal = g.normalise(self._embed(g, x, y), c.width)  # (B*U, D), shared by all blocks
        fixed = FoldWeights.of(self.model)
        keys = g.gemm(normal, *fixed.keys)
        values = g.gemm(normal, *fixed.values)
        n = self.head
        if width == 1:
            keys = g.reshape(keys, n_streams, self.all_heads, 1, n)
            values = g.reshape(values, n_streams, self.all_heads, n + 1, 1)
        else:
            keys = g.transpose(g.reshape(keys, n_streams, width, self.all_heads, n), 0, 2, 1, 3)
            values = g.reshape(values, n_streams, width, self.all_heads, n + 1)
            values = g.transpose(values, 0, 2, 3, 1)  # (B, K*H, D/H + 1, U)
        scores = g.call("MatMul", keys, fixed.queries)  # (B, K*H, U, L)
        if visible is not None:
            shown = g.reshape(visible, n_streams, 1, width, 1)
            scores = g.call("Where", shown, scores, np.array(HIDDEN_SCORE))
        top = scores
        if width > 1:
            top = g.call("ReduceMax", scores, axes=[2], keepdims=1)
        next_peak = g.call("Max", peak, top)
        weights = g.call("Exp", g.call("Sub", scores, next_peak))
        kept = g.call("Exp", g.call("Sub", peak, next_peak))
        added = g.call("Mul" if width == 1 else "MatMul", values, weights)
        next_sums = g.call("Add", g.call("Mul", sums, kept), added)
        self._state_outputs(g, {"recent_sums": next_sums, "recent_peak": next_peak})
        # Finite points give finite, bounded normalised rows, and those finite sums: the rows' sum
        # stands for the whole step.
        per_stream = normal if width == 1 else g.reshape(normal, n_streams, width * c.width)
        check = g.call("ReduceSum", per_stream, np.array([1], np.int64), keepdims=0)
        g.output(check, "check", "check", (n_streams,))
        return g

    def consolidate(self) -> GraphBuilder:
        """Add the recent sums to the base by compensated summation, and empty them."""
        g = GraphBuilder("consolidate", self.weights)
        names = [tensor.name for tensor in self.state()]
        sums, peak, base, rest, base_peak = self._state_inputs(g, names)
        next_peak = g.call("Max", base_peak, peak)
        keep = g.call("Exp", g.call("Sub", base_peak, next_peak))  # exactly 1 unless the peak rose
        a = g.call("Mul", base, keep)
        b = g.call("Mul", sums, g.call("Exp", g.call("Sub", peak, next_peak)))
        # TwoSum (Knuth, TAOCP 2, 4.2.2, theorem B): total + error is a + b, exactly.
        total = g.call("Add", a, b)
        of_b = g.call("Sub", total, a)
        of_a = g.call("Sub", total, of_b)
        error = g.call("Add", g.call("Sub", a, of_a), g.call("Sub", b, of_b))
        small = g.call("Add", g.call("Mul", rest, keep), error)
        next_base = g.call("Add", total, small)
        next_rest = g.call("Sub", small, g.call("Sub", next_base, total))
        zero = np.array(0.0)
        self._state_outputs(
            g,
            {
                "recent_sums": g.call("Mul", sums, zero),
                "recent_peak": g.call("Add", g.call("Mul", peak, zero), np.array(EMPTY)),
                "base_sums": next_base,
                "base_rest": next_rest,
                "base_peak": next_peak,
            },
        )
        return g

    # Refreshing ---------------------------------------------------------------------------------

    def refresh(self) -> GraphBuilder:
        """Everything behind the running attentions, to the query layers' keys and values.

        Block by block, though the first phase of all blocks could run as one batch: a block's
        tensors stay in a core's cache, and the largest (the attention weights) exist once.
        """
        g = GraphBuilder("refresh", self.weights, self.narrow)
        m, c = self.model, self.config
        attended = self._attended(g)
        read_ff, mix, mix_ff = (
            FeedForwardWeights.of(m.read_ff),
            AttentionWeights.of(m.mix),
            FeedForwardWeights.of(m.mix_ff),
        )
        passed = ""
        for k in range(c.n_blocks):
            latents = self._feed_forward(g, attended[k], read_ff.block(k))
            latents = self._self_attention(g, latents, mix.block(k))
            latents = self._feed_forward(g, latents, mix_ff.block(k))  # (B*L, D)
            block = m.block(k)
            join = AttentionWeights.of(block.join)
            normal = g.normalise(latents, c.width)
            keys = self._heads(g, g.gemm(normal, *join.k), transposed=True)
            values = self._heads(g, g.gemm(normal, *join.v))
            if k == 0:
                passed = self._first_join(g, join, keys, values)
            else:
                queries = self._heads(g, g.gemm(g.normalise(passed, c.width), *join.q))
                passed = self._attend(g, passed, queries, keys, values, join)
            passed = self._feed_forward(g, passed, FeedForwardWeights.of(block.join_ff))
            passed = self._self_attention(g, passed, AttentionWeights.of(block.blend))
            passed = self._feed_forward(g, passed, FeedForwardWeights.of(block.blend_ff))
            self._memory_outputs(g, k, passed)
        return g

    def _attended(self, g: GraphBuilder) -> list[str]:
        """Both levels together, normalised, behind the output layer, on L_B: K of (B*L, D)."""
        c = self.config
        names = [tensor.name for tensor in self.state()]
        sums, peak, base, rest, base_peak = self._state_inputs(g, names)
        top = g.call("Max", base_peak, peak)
        older = g.call(
            "Mul", g.call("Add", base, rest), g.call("Exp", g.call("Sub", base_peak, top))
        )
        newer = g.call("Mul", sums, g.call("Exp", g.call("Sub", peak, top)))
        split = np.array([self.head, 1], np.int64)
        weighted, count = g.calls("Split", 2, g.call("Add", older, newer), split, axis=2)
        # A latent that has seen nothing has count 0: it attends to nothing, which is the prior.
        attended = g.narrowed(g.call("Div", weighted, g.call("Max", count, np.array(1e-30))))
        blocks = [attended]
        if c.n_blocks > 1:
            sizes = np.full(c.n_blocks, c.n_heads, np.int64)
            blocks = g.calls("Split", c.n_blocks, attended, sizes, axis=1)
        out = AttentionWeights.of(self.model.read).out
        starts = values_of(self.model.block_latents) + out[1][:, None]
        placed = []
        for k, block in enumerate(blocks):
            heads = g.reshape(block, self.n_streams, c.width, c.n_latents)
            heard = g.reshape(g.transpose(heads, 0, 2, 1), self.n_streams * c.n_latents, c.width)
            placed.append(g.gemm(heard, out[0][k], np.tile(starts[k], (self.n_streams, 1))))
        return placed

    def _first_join(self, g: GraphBuilder, join: AttentionWeights, keys: str, values: str) -> str:
        """The first block's queries come from learned latents: constants, like those of reading."""
        c = self.config
        latents = values_of(self.model.input_latents)
        queries = (normalised(latents) @ join.q[0] + join.q[1]).reshape(-1, c.n_heads, self.head)
        fixed = g.constant(queries.transpose(1, 0, 2)[None])
        start = g.constant(np.tile(latents, (self.n_streams, 1)))
        return self._attend(g, start, fixed, keys, values, join)

    def _memory_outputs(self, g: GraphBuilder, k: int, passed: str) -> None:
        shapes = {tensor.name: tensor.shape for tensor in self.memory()}
        ask = AttentionWeights.of(self.model.block(k).ask)
        normal = g.normalise(passed, self.config.width)
        keys = self._heads(g, g.gemm(normal, *ask.k), transposed=True)
        values = self._heads(g, g.gemm(normal, *ask.v))
        for name, value in ((f"keys_{k}", keys), (f"values_{k}", values)):
            g.output(value, name, "memory", shapes[name])

    # Layers over (B*rows, D) --------------------------------------------------------------------

    def _heads(self, g: GraphBuilder, x: str, transposed: bool = False, rows: int = 0) -> str:
        """(B*rows, D) -> (B, H, rows, D/H), or (B, H, D/H, rows) if transposed; rows: L."""
        rows = rows or self.config.n_latents
        if rows == 1:  # one row has no order of rows and heads to exchange
            return g.reshape(x, self.n_streams, self.config.n_heads, 1, self.head)
        split = g.reshape(x, self.n_streams, rows, self.config.n_heads, self.head)
        return g.transpose(split, *((0, 2, 3, 1) if transposed else (0, 2, 1, 3)))

    def _attend(
        self,
        g: GraphBuilder,
        x: str,
        q: str,
        k: str,
        v: str,
        layer: AttentionWeights,
        rows: int = 0,
    ) -> str:
        """X plus softmax(q k) v behind the output layer; k is transposed; rows: L."""
        rows = rows or self.config.n_latents
        weights = g.call("Softmax", g.call("MatMul", q, k), axis=-1)
        heard = g.call("MatMul", weights, v)  # (B, H, rows, D/H)
        if rows > 1:
            heard = g.transpose(heard, 0, 2, 1, 3)
        heard = g.reshape(heard, self.n_streams * rows, self.config.width)
        return g.call("Add", g.gemm(heard, *layer.out), x)

    def _self_attention(self, g: GraphBuilder, x: str, layer: AttentionWeights) -> str:
        """X plus self-attention of the latents."""
        normal = g.normalise(x, self.config.width)
        q, k, v = (g.gemm(normal, *w) for w in (layer.q, layer.k, layer.v))
        heads = (self._heads(g, q), self._heads(g, k, transposed=True), self._heads(g, v))
        return self._attend(g, x, *heads, layer)

    def _feed_forward(self, g: GraphBuilder, x: str, layer: FeedForwardWeights) -> str:
        """X plus the GEGLU."""
        normal = g.normalise(x, self.config.width)
        hidden = g.call("Mul", g.gemm(normal, *layer.value), g.gelu(g.gemm(normal, *layer.gate)))
        return g.call("Add", g.gemm(hidden, *layer.fall), x)

    # Querying -----------------------------------------------------------------------------------

    def query(self, name: str, width: int) -> GraphBuilder:
        """Predict `width` targets from the memory."""
        g = GraphBuilder(name, self.weights, self.narrow)
        m, c, n_streams = self.model, self.config, self.n_streams
        rows = n_streams * width
        asked = self._embed(g, g.input("x", "targets.x", (rows, c.n_inputs)), None)
        if self.narrow == "float16" and isinstance(m.embedding, MlpEmbedding):
            asked = g.call("Clip", asked, np.array(-HALF), np.array(HALF))  # it grows with x
        asked = g.narrowed(asked)
        shapes = {tensor.name: tensor.shape for tensor in self.memory()}
        for k in range(c.n_blocks):
            keys, values = (
                g.input(f"{kind}_{k}", "memory", shapes[f"{kind}_{k}"], dtype=self.narrow)
                for kind in ("keys", "values")
            )
            layer = AttentionWeights.of(m.block(k).ask)
            queries = self._heads(g, g.gemm(g.normalise(asked, c.width), *layer.q), rows=width)
            asked = self._attend(g, asked, queries, keys, values, layer, rows=width)
            asked = self._feed_forward(g, asked, FeedForwardWeights.of(m.block(k).ask_ff))
        hidden = g.gemm(g.normalise(asked, c.width), *fold(m.head_norm, m.head_rise))
        hidden = g.widened(g.call("Relu", hidden))
        weight, bias, n = values_of(m.head_fall.weight), bias_of(m.head_fall), c.n_outputs
        mean = g.gemm(hidden, weight[:, :n], bias[:n])
        std = g.call("Exp", g.gemm(hidden, weight[:, n:], bias[n:]))
        g.output(mean, "mean", "prediction", (rows, n))
        g.output(std, "std", "prediction", (rows, n))
        return g
