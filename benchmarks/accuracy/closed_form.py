"""The exact state of a CMANP after any number of points from a finite set, by counting.

If every point of a stream is one of P known points and point p came c_p times, the running
cross-attention of a latent is

    log c = logsumexp_p(s_p + log c_p)        attended = sum_p c_p exp(s_p - log c) v_p

in float64, however long the stream was. Where the scores s and values v come from decides what an
error means: from the model in float64 it holds all rounding; from the graph itself, only what the
length of the stream adds. Beside it stands the paper's recurrence in float32. No stream is run
here.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.backends.opening import open_backend
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.train.layers.attention import EMPTY
from edgefold.train.models.constant_memory.cmanp import Cmanp

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class RunningAttention:
    """One state of one stream: attended (K*H, L, D/H) and log_count (K*H, L)."""

    attended: Array
    log_count: Array


def scores_values(model: Cmanp, x: Array, y: Array) -> tuple[Array, Array]:
    """Scores (P, K*H, L) and values (P, K*H, D/H) of points, in the model's precision."""
    like = model.block_latents
    with torch.inference_mode():
        scores, values = model.scores_values(
            torch.from_numpy(x)[None].to(like), torch.from_numpy(y)[None].to(like), None
        )
    by_head = scores[0].flatten(0, 1).numpy(), values[0].flatten(0, 1).numpy()  # (K*H, L | P, ..)
    return by_head[0].transpose(2, 0, 1).copy(), by_head[1].transpose(1, 0, 2).copy()


class ClosedForm:
    """The float64 state of a stream over known points, given what each point says.

    Args:
        scores: (P, K*H, L). values: (P, K*H, D/H).
    """

    def __init__(self, scores: Array, values: Array):
        self._scores = scores.astype(np.float64)
        self._values = values.astype(np.float64)

    def after(self, counts: NDArray[np.int64]) -> RunningAttention:
        """The state when point p came counts[p] times; at least one came."""
        seen = counts > 0
        scores = self._scores[seen] + np.log(counts[seen])[:, None, None]
        top = scores.max(axis=0)
        weights = np.exp(scores - top)
        count = weights.sum(axis=0)
        attended = np.einsum("phl,phd->hld", weights, self._values[seen]) / count[..., None]
        return RunningAttention(attended, top + np.log(count))


def exact_form(model: Cmanp, x: Array, y: Array) -> ClosedForm:
    """The reference: everything in float64, from the raw points on."""
    return ClosedForm(*scores_values(copy.deepcopy(model).double(), x, y))


def graph_form(
    bundle: Path,
    step: str,
    x: Array,
    y: Array,
    backend: str = "onnxruntime",
    engine: EngineOptions | None = None,
) -> ClosedForm:
    """Exact sums of what a bundle's `update` or `condition` graph itself says of each point.

    A fold of one point into the empty state leaves its score as the peak and its value as the sum,
    to the bit, so the difference from this form is what the stream's length adds: drift alone.
    The graph runs on the backend that runs the stream, since each rounds scores in its own way.
    """
    manifest = load_manifest(bundle)
    graph = manifest.of_step(step)[-1]
    opened, _ = open_backend(backend, manifest, 1, engine or EngineOptions())
    staged = opened.allocate_host(graph)
    tensors = [t for t in (*graph.inputs, *graph.outputs) if t.name not in staged]
    placed = {t.name: opened.allocate_device(t) for t in tensors}
    run = opened.bind(graph, placed)
    initial = {t.name: t.initial for t in manifest.state}
    for tensor in graph.inputs:
        if tensor.role == "state":
            placed[tensor.name].write(np.array(initial[tensor.of], tensor.dtype))
    given = {t.role: staged[t.name] for t in graph.inputs if t.name in staged}
    outputs = {t.of: placed[t.name] for t in graph.outputs if t.role == "state"}
    scores, values = [], []
    for point in range(len(x)):
        row = point % graph.width
        rows = slice(point - row, point - row + graph.width)
        mask = np.arange(graph.width) == row
        points = {"points.x": x[rows], "points.y": y[rows], "points.mask": mask}
        for role, array in given.items():
            array[...] = points[role].reshape(array.shape)
        run()
        scores.append(outputs["recent_peak"].read()[0, :, 0])
        values.append(outputs["recent_sums"].read()[0, :, :-1, 0])
    opened.close()
    return ClosedForm(np.stack(scores), np.stack(values))


def exact_predictions(model: Cmanp, state: RunningAttention, x: Array) -> tuple[Array, Array]:
    """Mean and std (M, Y) at x (M, X) from a state, in float64."""
    c = model.config
    lead = (1, c.n_blocks, c.n_heads, c.n_latents)
    form = {
        "attended": torch.from_numpy(state.attended).reshape(*lead, -1),
        "log_count": torch.from_numpy(state.log_count).reshape(*lead, 1),
    }
    reference = copy.deepcopy(model).double()
    with torch.inference_mode():
        out = reference.query(reference.refresh(form), torch.from_numpy(x)[None])
    return out["mean"][0].numpy(), out["std"][0].numpy()


def of_graph(state: Mapping[str, Array]) -> RunningAttention:
    """Join a bundle's two-level state of one stream into the state it stands for, in float64."""
    recent, recent_peak, base, rest, base_peak = (
        state[name][0].astype(np.float64)
        for name in ("recent_sums", "recent_peak", "base_sums", "base_rest", "base_peak")
    )
    top = np.maximum(recent_peak, base_peak)
    sums = recent * np.exp(recent_peak - top) + (base + rest) * np.exp(base_peak - top)
    weighted, count = sums[:, :-1], sums[:, -1]  # (K*H, D/H, L), (K*H, L)
    attended = (weighted / count[:, None]).transpose(0, 2, 1)
    return RunningAttention(attended, top[:, 0] + np.log(count))


class PaperForm:
    """The paper's update in float32: `log c' = log c + softplus(s - log c)`, one point at a time.

    The same arithmetic as the PyTorch model's `update`, on scores and values known beforehand
    (`tests/benchmarks` holds them equal).
    """

    def __init__(self, model: Cmanp, x: Array, y: Array):
        scores, values = scores_values(model, x, y)
        self._scores = scores[..., None]  # (P, K*H, L, 1)
        self._values = values[:, :, None]  # (P, K*H, 1, D/H)
        self.log_count = np.full(self._scores.shape[1:], EMPTY, np.float32)
        self.attended = np.zeros((*self.log_count.shape[:2], values.shape[-1]), np.float32)
        self._next = np.empty_like(self.log_count)
        self._kept = np.empty_like(self.log_count)
        self._added = np.empty_like(self.attended)

    def fold(self, point: int) -> None:
        """Fold the point of this index."""
        score = self._scores[point]
        np.logaddexp(self.log_count, score, out=self._next)
        np.subtract(self.log_count, self._next, out=self._kept)
        np.exp(self._kept, out=self._kept)
        self.attended *= self._kept
        np.subtract(score, self._next, out=self._kept)
        np.exp(self._kept, out=self._kept)
        np.multiply(self._kept, self._values[point], out=self._added)
        self.attended += self._added
        self.log_count, self._next = self._next, self.log_count

    def state(self) -> RunningAttention:
        """The state so far, in float64."""
        return RunningAttention(
            self.attended.astype(np.float64), self.log_count[..., 0].astype(np.float64)
        )


def relative_errors(found: RunningAttention, exact: RunningAttention) -> dict[str, float]:
    """Errors of a state.

    Returns:
        attended: The largest |found - exact| of a latent's attended vector over the vector's
            largest entry, over all latents, heads and blocks. norm: The norm of the difference of
            all attended vectors over their norm. count: The largest relative error of a latent's
            sum of weights.
    """
    difference = found.attended - exact.attended
    gap = np.abs(difference).max(axis=-1)
    size = np.abs(exact.attended).max(axis=-1)
    return {
        "attended": float((gap / size).max()),
        "norm": float(np.linalg.norm(difference) / np.linalg.norm(exact.attended)),
        "count": float(np.abs(np.expm1(found.log_count - exact.log_count)).max()),
    }
