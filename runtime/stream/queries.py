"""Answer queries: bring the cache up to date if it is stale, then predict; only read the state.

[state] ──> refresh, if a commit came since ──> [cache] ──> query ──> prediction

The cache holds tensors that `refresh` computes from the state. It is stale if a commit (a result
that became the state) came after it was computed.
"""

from __future__ import annotations

from collections.abc import Mapping

from numpy.typing import ArrayLike

from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.errors import ShapeError
from edgefold.runtime.predictions import Prediction
from edgefold.runtime.stream.point_updates import ChunkBuffer, require_finite
from edgefold.runtime.stream.points import PointBuffers, RawPredictions
from edgefold.runtime.stream.state_buffers import Commit, StateBuffers, Step


class Predictor:
    """Runs the steps that read the state: refresh and query.

    Args:
        manifest: The bundle's manifest.
        state: The state, which is only read.
        steps: All steps by name.
        chunks: The buffer where points may wait, which a query learns first; None without one.

    Attributes:
        targets: The buffers that check and scale targets.
        predictions: The buffers in which predictions return to the caller's units.
    """

    def __init__(
        self,
        manifest: Manifest,
        state: StateBuffers,
        steps: Mapping[str, Step],
        chunks: ChunkBuffer | None,
    ):
        refreshes, queries = (
            [steps[graph.name] for graph in manifest.of_step(name)] for name in ("refresh", "query")
        )
        self._state, self._queries, self._chunks = state, queries, chunks
        self._refresh = refreshes[0] if refreshes else None
        self._cached: Commit | None = None  # the commit that the cache was made of
        self._joint = manifest.prediction.joint
        widest, has_targets = manifest.targets, any("targets.x" in step.inputs for step in queries)
        self.targets = PointBuffers(
            "targets.x",
            manifest.scaling_x,
            manifest.n_streams,
            widest,
            has_targets,
            manifest.prediction.largest_input,
        )
        self.predictions = RawPredictions(manifest, widest)

    def refresh(self) -> Commit:
        """Learn waiting points, and compute the cache again if the state is newer.

        The returned `Commit` records which buffers hold the state.
        """
        at = self._state.at
        if at is self._cached:  # no point waits then, and all rows are in their places
            return at
        if self._chunks is not None and at.n_waiting:
            self._chunks.flush()
            at = self._state.at
        if at.rows:
            self._state.settled()
        self._cached = None  # also if the step fails half-way
        if self._refresh is not None:
            self._refresh.run(at.sides)
            require_finite(self._refresh)
        self._cached = at
        return at

    def query(self, x: ArrayLike | None) -> Prediction:
        """Predict at x, (M, X), or (B, M, X) for B > 1 streams; None without inputs.

        `Stream.query` describes the errors.
        """
        row = self.targets.scaled_row(x)
        if row and not self._joint:
            step = self._queries[0]
            step.put("targets.x", row)
            step.run(self.refresh().sides)
            return self.predictions.of(step, 1)
        rows, n = self.targets.taken("query", x)
        m = 1 if n is None else n
        widest = self._queries[-1].width
        if not 1 <= m <= widest:
            raise ShapeError(
                f"query() got {m} targets; this bundle takes 1 to {widest}. "
                f"Split the queries, or export again with --targets {max(m, 1)}."
            )
        for step in self._queries:
            if step.width >= m:
                break
        if rows is not None:
            self.targets.into(step.inputs["targets.x"][:, :m], rows)
        if self._joint and "targets.mask" in step.inputs:
            mask = step.inputs["targets.mask"]
            mask[:, :m], mask[:, m:] = True, False
        step.run(self.refresh().sides)
        return self.predictions.of(step, m)
