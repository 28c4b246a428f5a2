"""List the calls that a profile times: those that the bundle has, on points in fixed buffers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from edgefold.runtime import Stream
    from edgefold.runtime.bundle.manifest import Manifest

N_POINTS = 997  # distinct points, used in turn
GOLDEN = 0.6180339887498949


def spread_evenly(shape: tuple[int, ...], seed: float = 0.0) -> NDArray[np.floating[Any]]:
    """Return evenly spread numbers in [0, 1), shifted by `seed`; numpy.random would load 6 MB."""
    return (np.arange(math.prod(shape)).reshape(shape) * GOLDEN + seed) % 1.0


class ProfilePoints:
    """Provides points in the bundle's raw units, one after the other, in fixed buffers.

    They are spread over +-sqrt(3) scale units (mean 0, variance 1), or over the range that the kind
    of prediction demands of x. What the model does not take (x, y or targets) is None.

    Attributes:
        x, y: The present point, (1, X) and (1, Y); with S streams (S, 1, X) and (S, 1, Y).
        target: One target of a query, (1, X).
        targets: As many targets as a query takes at most, (T, X).
        chunk: x (C, X) and y (C, Y) of `n_chunk` = C points.
    """

    def __init__(self, manifest: Manifest):
        self._one = manifest.n_streams == 1
        taken = {t.role for graph in manifest.graphs.values() for t in graph.inputs}

        def draw(role: str, n: int, scaling: Any, seed: float) -> Any:
            if role not in taken:
                return None
            unit = spread_evenly((manifest.n_streams, n, len(scaling.shift)), seed)
            asked = None if role == "points.y" else manifest.prediction.input_range
            low, high = asked or (-(3**0.5), 3**0.5)
            raw = (low + (high - low) * unit) * scaling.scale + scaling.shift
            return raw[0] if self._one else raw

        def both(n: int, seed_x: float, seed_y: float) -> tuple[Any, Any]:
            return (
                draw("points.x", n, manifest.scaling_x, seed_x),
                draw("points.y", n, manifest.scaling_y, seed_y),
            )

        self._all = both(N_POINTS, 0.0, 0.5)
        self.n_chunk = min(manifest.chunk, manifest.room or manifest.chunk)
        self.chunk = both(self.n_chunk, 0.25, 0.75)
        self.targets = draw("targets.x", manifest.targets, manifest.scaling_x, 0.3)
        self.target = None if self.targets is None else self.targets[..., :1, :]
        self._index = 0
        self.turn()

    def turn(self) -> None:
        """Set x (1, X) and y (1, Y) to the next point; with S streams (S, 1, X) and (S, 1, Y)."""
        self._index = (self._index + 1) % N_POINTS
        rows = slice(self._index, self._index + 1)
        self.x, self.y = (None if a is None else a[..., rows, :] for a in self._all)
        if self.targets is not None and self.x is not None:
            self.target = self.x


def _nothing() -> None:
    """Do nothing, before a step that needs no preparation."""


@dataclass(frozen=True, slots=True)
class TimedCall:
    """Describes a step to time: `run` is timed, and `before`, called before each run, is not.

    Attributes:
        name: Name of the step, unique in a profile.
        what: Description of the timed step, in words.
        n: Number of timed runs.
        n_points: Points or targets of one call, per stream.
    """

    name: str
    what: str
    run: Callable[[], Any]
    n: int
    n_points: int = 1
    before: Callable[[], Any] = _nothing


def calls_of(
    stream: Stream, points: ProfilePoints, n_updates: int, n_queries: int
) -> list[TimedCall]:
    """Return the calls to time: update with one point, its graph only, ..., last a whole row.

    A graph only is run by `Stream.run_step` on the present buffers, and the state stays as it was.
    A whole row is a query, then an update with one point. A filter's calls are `Stream.step`, its
    graph only, and the graphs that consolidate its state.

    Args:
        stream: The opened bundle.
        points: Points and targets for the calls.
        n_updates: Number of runs of the first two calls.
        n_queries: Number of runs of most others; slow ones run less often.
    """
    manifest = stream.manifest
    name = "step" if manifest.is_filter else "update"
    graph = manifest.of_step(name)[0].name

    def update() -> None:
        stream.update(points.x, points.y)

    n_chunk = points.n_chunk

    def turn() -> None:
        """Go to the next point; reset a state that has no room for it."""
        points.turn()
        if stream.room is not None and stream.room < n_chunk:
            stream.reset()

    def turn_and_update() -> None:
        turn()
        update()

    def row() -> None:
        stream.query(points.target)
        update()

    calls = [
        TimedCall(name, f"Stream.{name}, 1 point", update, n_updates, 1, turn),
        TimedCall(f"{name}_bare", f"{name} graph alone", lambda: stream.run_step(graph), n_updates),
    ]
    if manifest.is_filter:
        calls[0] = replace(calls[0], run=lambda: stream.step(points.x))
        for between in manifest.of_step("consolidate"):
            what = f"{between.name} graph alone, once in {manifest.consolidate_every}"
            run = partial(stream.run_step, between.name)
            calls.append(TimedCall(f"{between.name}_bare", what, run, max(20, n_queries // 10)))
        return calls
    targets, n, look = manifest.targets, n_queries, points.turn
    if manifest.of_step("condition"):
        what = f"Stream.condition, {n_chunk} points"
        history = partial(stream.condition, *points.chunk)
        calls.append(TimedCall("condition", what, history, max(20, n // 10), n_chunk, turn))
    if manifest.of_step("refresh"):
        calls.append(TimedCall("refresh", "Stream.refresh", stream.refresh, n, 0, turn_and_update))
    wide = partial(stream.query, points.targets)
    return [
        *calls,
        TimedCall(
            "query", "Stream.query, 1 target", lambda: stream.query(points.target), n, 1, look
        ),
        TimedCall("query_wide", f"Stream.query, {targets} targets", wide, n, targets),
        TimedCall("row", "predict, then update: query with refresh, update", row, n, 1, turn),
    ]
