"""Record the golden stream, and compare the shipped graphs with PyTorch along the whole of it.

Three forms of one model see the same points: PyTorch in float64 (the reference), PyTorch in float32
in its own recurrent form, and the bundle's graphs. Agreement on a single call would prove little:
errors of a recurrent state show along the stream.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from edgefold.runtime.golden import Golden, replay
from edgefold.runtime.manifest import Scaling
from edgefold.runtime.stream import Stream
from edgefold.train.models.cmanp import Cmanp

TOLERANCE = 1e-4
"""Scaled units of y. float32 through 6 blocks stays below 2e-5; a wrong graph does not."""


GOLDEN_POINTS = 1000
"""Points of a golden stream that a bundle keeps: ten thousand would weigh more than int8 weights,
and a board would replay them for a minute."""


@dataclass(frozen=True, slots=True)
class ParityRow:
    """Largest errors of mean and std after some points, in scaled units of y."""

    n_points: int
    graphs_to_float32: float
    graphs_to_float64: float
    torch_to_float64: float


@dataclass(frozen=True, slots=True)
class Streamed:
    """A golden stream before any model saw it, in scaled units: (B, n, columns), float64."""

    x: torch.Tensor
    y: torch.Tensor
    targets: torch.Tensor
    n_condition: int
    moments: list[int]


def draw_stream(model: Cmanp, n_streams: int, n_steps: int, chunk: int, seed: int = 7) -> Streamed:
    """Points over the model's range with a smooth function and noise on top, and 24 targets.

    The part that is conditioned on ends in a chunk that lacks one row, so that padding is met too.
    """
    config = model.config
    generator = torch.Generator().manual_seed(seed)

    def uniform(n: int) -> torch.Tensor:
        unit = torch.rand(n_streams, n, config.n_inputs, generator=generator, dtype=torch.float64)
        return config.input_low + (config.input_high - config.input_low) * unit

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x = uniform(n_steps)
    direction = normal(n_streams, config.n_inputs, config.n_outputs)
    y = torch.sin(2 * x @ direction) + 0.1 * normal(n_streams, n_steps, config.n_outputs)
    first = 3  # single updates before conditioning
    n_condition = first + 3 * chunk - 1
    rising = np.geomspace(n_condition + 1, n_steps, 10).round().astype(int).tolist()
    moments = sorted({0, 1, first, n_condition, *rising})
    return Streamed(x, y, uniform(24), n_condition, [m for m in moments if m <= n_steps])


@torch.inference_mode()
def predictions(model: Cmanp, stream: Streamed) -> tuple[np.ndarray, np.ndarray]:
    """The model's own recurrent fold along the stream: mean and std (J, B, M, Y), scaled."""
    dtype = next(model.parameters()).dtype
    x, y, targets = (t.to(dtype) for t in (stream.x, stream.y, stream.targets))
    state = model.initial_state(x.shape[0])
    means, stds, done = [], [], 0
    for moment in stream.moments:
        if done < stream.n_condition <= moment:
            state = model.update(
                state, x[:, done : stream.n_condition], y[:, done : stream.n_condition]
            )
            done = stream.n_condition
        for step in range(done, moment):
            state = model.update(state, x[:, step : step + 1], y[:, step : step + 1])
        done = moment
        prediction = model.query(model.refresh(state), targets)
        means.append(prediction.mean.double().numpy())
        stds.append(prediction.std.double().numpy())
    return np.stack(means), np.stack(stds)


class ParityRecorder:
    """PyTorch's side of the comparison, computed once; then any bundle can be held against it."""

    def __init__(self, model: Cmanp, scaling_x: Scaling, scaling_y: Scaling, stream: Streamed):
        self._stream = stream
        self._scale = np.array(scaling_y.scale)
        shift = np.array(scaling_y.shift)
        reference = copy.deepcopy(model).double()
        self._float64 = predictions(reference, stream)
        self._float32 = predictions(model, stream)
        x_scale, x_shift = np.array(scaling_x.scale), np.array(scaling_x.shift)
        self.golden = Golden(
            x=stream.x.numpy() * x_scale + x_shift,
            y=stream.y.numpy() * self._scale + shift,
            targets=stream.targets.numpy() * x_scale + x_shift,
            n_condition=stream.n_condition,
            moments=np.array(stream.moments),
            mean=self._float64[0] * self._scale + shift,
            std=self._float64[1] * self._scale,
            tolerance=TOLERANCE,
        )
        self._shift = shift

    def compare(self, bundle: Path) -> Iterator[ParityRow]:
        """Errors along the stream, moment by moment, of the bundle's graphs and of PyTorch.

        On onnxruntime, because it is the same on every machine that exports and builds no engines.
        """
        with Stream.open(bundle, backend="onnxruntime") as stream:
            for index, (n, mean, std) in enumerate(replay(stream, self.golden)):
                graphs = ((mean - self._shift) / self._scale, std / self._scale)
                by_torch = (self._float32[0][index], self._float32[1][index])
                exact = (self._float64[0][index], self._float64[1][index])
                yield ParityRow(
                    n,
                    _distance(graphs, by_torch),
                    _distance(graphs, exact),
                    _distance(by_torch, exact),
                )


def shortened(golden: Golden, tolerance: float) -> Golden:
    """The first part of a golden stream, with the tolerance that a check shall apply."""
    n_kept = max(GOLDEN_POINTS, golden.n_condition)  # a check must meet every step
    points = slice(0, n_kept)
    kept = golden.moments <= n_kept
    return replace(
        golden,
        x=golden.x[:, points],
        y=golden.y[:, points],
        moments=golden.moments[kept],
        mean=golden.mean[kept],
        std=golden.std[kept],
        tolerance=tolerance,
    )


def _distance(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> float:
    errors = [np.abs(a - b).max() for a, b in zip(one, other, strict=True)]
    return float(np.max(errors))  # NaN if any is, which Python's max would lose
