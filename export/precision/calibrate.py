"""Collect samples for int8: values that the quantised products read, along streams of the task.

    reset ──> 0 points ──> 1 ──> 2 ──> 4 ──> ... ──> all      and again for the next stream
                 │         │     │                    │
              state ──> refresh, every inner value seen ──> memory ──> query, likewise

The empty state and the first points matter: a device meets them after each reset, and the values in
its graphs then differ from those of a full state. The float32 graphs are run with these inner
values as additional outputs. The step of a filter is sampled along each stream at every fourth
token.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from edgefold.export.precision.int8 import Samples, quantised_inputs
from edgefold.runtime import Stream
from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.backends.onnxruntime_session import open_session
from edgefold.runtime.bundle.manifest import Graph, n_that_fit
from edgefold.train.tasks.contract import Episode

EVERY = 4
"""Distance, in tokens, between two tokens of a filter's stream at which samples are taken."""
ROWS = 16
"""Approximate number of rows that are kept of one value at one moment."""

Values = dict[str, NDArray[Any]]


def moments(n_context: int) -> list[int]:
    """Return after how many points of a stream samples are taken: 0, 1, 2, 4, .. and n_context."""
    doubling = [2**k for k in range(n_context.bit_length()) if 2**k < n_context]
    return [0, *doubling, n_context]


class CalibrationSession:
    """Runs a step graph of a bundle and collects samples of what its quantised products read.

    Args:
        bundle: Folder of a bundle with float32 graphs; a copy of the graph with more outputs is
            written into it.
        graph: The step graph.
    """

    def __init__(self, bundle: Path, graph: Graph):
        model = onnx.load(bundle / graph.file, load_external_data=False)
        self.names = quantised_inputs(model, (*graph.inputs, *graph.outputs))
        self._outputs = [t.name for t in graph.outputs]
        interface = {*self._outputs, *(t.name for t in graph.inputs)}
        infos = {info.name: info for info in model.graph.value_info}
        self._inner = [name for name in self.names if name not in interface]
        model.graph.output.extend(infos[name] for name in self._inner)
        path = bundle / f"observed_{graph.file}"
        onnx.save(model, path)  # next to the weights that it refers to
        self._session = open_session(path)
        self.graph = graph
        self._seen: dict[str, list[NDArray[np.float32]]] = defaultdict(list)
        self._turn = 0

    def run(self, arguments: Values) -> Values:
        """Run the graph once, keep samples, and return the graph's own outputs by name.

        Args:
            arguments: Arrays of the inputs by `Tensor.of`, such as the name of the state tensor
                that the input reads, or "x".
        """
        feeds = {t.name: arguments[t.of].reshape(t.shape) for t in self.graph.inputs}
        outputs = [*self._outputs, *self._inner]
        arrays = dict(zip(outputs, self._session.run(outputs, feeds), strict=True))
        self._turn += 1
        for name in self.names:
            values = arrays[name] if name in arrays else feeds[name]
            values = values.reshape(-1, values.shape[-1])
            stride = max(1, len(values) // ROWS)
            self._seen[name].append(values[self._turn % stride :: stride])  # other rows each time
        return {name: arrays[name] for name in self._outputs}

    def samples(self) -> Samples:
        return {name: np.concatenate(self._seen[name]) for name in self.names}


def calibrate(bundle: Path, episodes: Iterable[Episode]) -> dict[str, Samples]:
    """Run streams through a bundle; return samples of the values that quantised products read.

    Args:
        bundle: Folder of a bundle with float32 graphs; copies of some graphs with more outputs are
            written into it.
        episodes: Streams to follow.

    Returns:
        Samples by the name of the graph, and then by the name of the value, (n, D_in).
    """
    with Stream.open(bundle, backend="onnxruntime") as stream:
        manifest = stream.manifest
        if manifest.is_filter:
            return _along(stream, CalibrationSession(bundle, manifest.of_step("step")[0]), episodes)
        refresh = [CalibrationSession(bundle, graph) for graph in manifest.of_step("refresh")]
        widest = manifest.of_step("query")[-1]
        query = CalibrationSession(bundle, widest)
        shift, scale = np.array(manifest.scaling_x.shift), np.array(manifest.scaling_x.scale)
        for episode in episodes:
            stream.reset()
            done = 0
            targets = (episode.x[episode.n_context :] - shift) / scale
            n_learned = n_that_fit(stream.room, episode.n_context)
            for turn, moment in enumerate(moments(n_learned)):
                if moment > done:
                    stream.condition(
                        *(on_every_stream(a[done:moment], stream) for a in (episode.x, episode.y))
                    )
                    done = moment
                held = stream.state()  # a query may read the state next to the cache
                for observer in refresh:
                    held |= observer.run(held)
                rows = np.arange(turn, turn + widest.width) % len(targets)
                points = np.tile(targets[rows], (manifest.n_streams, 1)).astype(np.float32)
                mask = np.ones((manifest.n_streams, widest.width), bool)
                query.run({**held, "x": points, "mask": mask})
    samples = {observer.graph.name: observer.samples() for observer in refresh}
    for graph in manifest.of_step("query"):  # every width with the same grids and weights
        model = onnx.load(bundle / graph.file, load_external_data=False)
        names = quantised_inputs(model, (*graph.inputs, *graph.outputs))
        samples[graph.name] = dict(zip(names, query.samples().values(), strict=True))
    return samples


def _along(
    stream: Stream, observer: CalibrationSession, episodes: Iterable[Episode]
) -> dict[str, Samples]:
    """Run streams through a filter; return samples of what its step reads, as `calibrate` does."""
    scaling = stream.manifest.scaling_x
    for episode in episodes:
        stream.reset()
        for number, token in enumerate(episode.x):
            row = np.broadcast_to(token, (stream.manifest.n_streams, len(token)))
            if number % EVERY == 0:
                scaled = (row - np.array(scaling.shift)) / np.array(scaling.scale)
                observer.run({**stream.state(), "x": scaled.astype(np.float32)})
            stream.step(row if stream.manifest.n_streams > 1 else token)
    return {observer.graph.name: observer.samples()}


def on_every_stream(rows: FloatArray, stream: Stream) -> FloatArray:
    """Repeat rows (n, columns) for B streams: (B, n, columns); unchanged where B is 1."""
    n_streams = stream.manifest.n_streams
    return rows if n_streams == 1 else np.broadcast_to(rows, (n_streams, *rows.shape))
