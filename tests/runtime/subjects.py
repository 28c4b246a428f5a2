"""A bundle's stream as the contract suite drives it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgefold.runtime import Stream
from tests.contract import ORDER, Array, Subject, draw

# One step of the type at values around 1: float32 sums in another order may round to the next one.
STEP = {"float32": ORDER, "float16": 2e-3, "int8": 5e-2}


class StreamSubject(Subject):
    def __init__(self, stream: Stream):
        self.stream = stream
        manifest = stream.manifest
        self.tolerance = STEP[manifest.precision["name"]]
        self.n_streams = manifest.n_streams
        self.n_inputs, self.n_outputs = manifest.n_inputs, manifest.n_outputs

    def _plain(self, array: Array) -> Array:
        return array[0] if self.n_streams == 1 else array

    def reset(self) -> None:
        self.stream.reset()

    def update(self, x: Array, y: Array) -> None:
        self.stream.update(self._plain(x), self._plain(y))

    def query(self, x: Array) -> tuple[Array, Array]:
        parts = []
        for start in range(0, x.shape[1], self.stream.manifest.targets):
            part = x[:, start : start + self.stream.manifest.targets]
            asked = self.stream.query(self._plain(part))
            shape = (self.n_streams, part.shape[1], self.n_outputs)
            parts.append((asked.mean.reshape(shape).copy(), asked.std.reshape(shape).copy()))
        mean, std = (np.concatenate(p, 1) for p in zip(*parts, strict=True))
        return mean, std

    def state(self) -> dict[str, Array]:
        return self.stream.state()

    def save(self, path: Path) -> None:
        self.stream.save(path)

    def restore(self, path: Path) -> None:
        self.stream.restore(path)


def points(stream: Stream, n: int) -> tuple[Array, Array]:
    x, y = draw(StreamSubject(stream), n)
    return x[0], y[0]
