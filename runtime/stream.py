"""A running model: points go in, predictions come out, in memory that was all allocated at open.

    learning    condition, update ──> [state] ──> refresh, if the cache is stale ──> query
    filtering   step ──> [state], prediction

`Stream` owns the state; a backend only runs graphs on bound buffers. Not thread-safe: one stream
belongs to one thread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from edgefold.runtime.arrays import Array
from edgefold.runtime.backends.base import Backend, EngineOptions
from edgefold.runtime.backends.registry import open_backend
from edgefold.runtime.chunks import ChunkBuffer
from edgefold.runtime.errors import (
    BackendError,
    ClosedError,
    ShapeError,
    SnapshotError,
    StepRefusedError,
)
from edgefold.runtime.manifest import Graph, Manifest
from edgefold.runtime.memory_estimate import require_within
from edgefold.runtime.points import PointBuffers, RawPredictions, as_rows
from edgefold.runtime.predictions import Prediction
from edgefold.runtime.signature import TrustedKeys, load_expected
from edgefold.runtime.snapshot import SnapshotRecord, read_snapshot, write_snapshot
from edgefold.runtime.state_buffers import StateBuffers, Step


class Stream:
    """A bundle opened for running. Use as a context manager, or call `close`.

    Arrays are (n, X) and (n, Y) for a bundle of one stream, (B, n, X) and (B, n, Y) for more, in
    the caller's units. Where a model takes no x or no y, leave it out.
    """

    def __init__(
        self, manifest: Manifest, backend: Backend, report: dict[str, Any], buffered: bool
    ):
        """Use `Stream.open`."""
        self.manifest = manifest
        self._backend: Backend | None = backend
        self._state = StateBuffers(manifest, backend)
        self._steps = {
            graph.name: Step(graph, backend, self._state, manifest)
            for graph in manifest.graphs.values()
        }
        self._one = self._step_of(manifest.learns_from[:1])
        chunk = self._step_of(manifest.of_step("condition")[-1:])
        self._chunks: ChunkBuffer | None = None
        if chunk is not None and self._one is not None:
            self._chunks = ChunkBuffer(chunk, self._one, self._learn)
        consolidates = manifest.of_step("consolidate") if manifest.consolidate_every else []
        self._consolidate = self._step_of(consolidates)
        self._refresh = self._step_of(manifest.of_step("refresh"))
        self._queries = [self._steps[graph.name] for graph in manifest.of_step("query")]
        if buffered and self._chunks is None:
            raise BackendError(
                f"{manifest.path} has no graph that learns a chunk, so points cannot be buffered; "
                "open it without buffered."
            )
        self._buffered, self._is_filter = buffered, manifest.is_filter
        self._chunk_width = manifest.chunk  # looked up once: every update asks for it
        roles = {t.role for graph in manifest.learns_from for t in graph.inputs}
        self._x, self._y = (
            PointBuffers(role, scaling, manifest.n_streams, manifest.chunk, role in roles)
            for role, scaling in (
                ("points.x", manifest.scaling_x),
                ("points.y", manifest.scaling_y),
            )
        )
        widest = manifest.targets
        has_targets = any(graph.with_role("targets.x") for graph in manifest.of_step("query"))
        self._targets = PointBuffers(
            "targets.x", manifest.scaling_x, manifest.n_streams, widest, has_targets
        )
        self._predictions = RawPredictions(manifest, widest)
        self._n_points = self._n_recent = 0
        self._stale = True
        self.backend_report = {**report, **backend.report()}  # again: it tells of binding, too
        self.reset()  # binding may have run the steps: only now does the state begin

    def _step_of(self, graphs: list[Graph]) -> Step | None:
        return self._steps[graphs[0].name] if graphs else None

    @classmethod
    def open(
        cls,
        path: str | Path,
        backend: str = "auto",
        threads: int = 1,
        buffered: bool = False,
        memory_limit: int | None = None,
        engine: EngineOptions | None = None,
        expect_hash: str | None = None,
        trusted_keys: TrustedKeys | None = None,
    ) -> Stream:
        """Open a bundle: verify its hashes, open its graphs, allocate every buffer.

        Args:
            path: The bundle's folder.
            backend: "auto", or a name of `edgefold.runtime.backends.registry`.
            threads: CPU threads of one step.
            buffered: Collect points and learn them chunk by chunk, or when a query or a save asks.
            memory_limit: Bytes that this process may need, judged before anything is opened.
            engine: How TensorRT builds, keeps and launches its engines.
            expect_hash: The bundle's hash; any other bundle is refused.
            trusted_keys: Public keys, files or bytes; what none of them has signed is refused.

        Raises:
            BundleError, KeyFileError: It is missing, damaged, changed or refused; a key is.
            BackendError: The backend does not open, or the bundle cannot be `buffered`.
            MemoryLimitError: The plan exceeds the limit; the message breaks it down.
        """
        manifest = load_expected(path, expect_hash, trusted_keys)
        if memory_limit is not None:
            require_within(manifest, memory_limit, backend)
        opened, report = open_backend(backend, manifest, threads, engine or EngineOptions())
        try:
            return cls(manifest, opened, report, buffered)
        except BaseException:
            opened.close()
            raise

    def __enter__(self) -> Stream:
        self._require_open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the backend; idempotent. Buffered points that were not flushed are lost.

        Raises:
            BackendError: Something could not be released; everything else was.
        """
        backend, self._backend = self._backend, None
        if backend is not None:
            for step in self._steps.values():
                step.release()
            self._steps.clear()
            self._state.release()
            backend.close()

    @property
    def n_points(self) -> int:
        """Points taken so far, per stream, buffered ones included."""
        return self._n_points + (self._chunks.n_points if self._chunks else 0)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of all fixed buffers: state, cache, points, predictions."""
        own = (self._x, self._y, self._targets, self._predictions)
        steps = sum(step.n_bytes for step in self._steps.values())
        return self._state.n_bytes + steps + sum(buffers.n_bytes for buffers in own)

    # Learning -----------------------------------------------------------------------------------

    def condition(self, x: ArrayLike | None = None, y: ArrayLike | None = None) -> None:
        """Learn a history of any length, a chunk at a time. The same as `update`; see there."""
        self.update(x, y)

    def update(self, x: ArrayLike | None = None, y: ArrayLike | None = None) -> None:
        """Learn new points, any number of them.

        One point runs the update graph; more run the condition graph chunk by chunk, where the
        bundle has one. Every run commits as a whole: on an error `n_points` tells how many points
        the state holds.

        Args:
            x: Inputs, (n, X) or (B, n, X); leave it out if X is 0.
            y: Outputs, (n, Y) or (B, n, Y); leave it out if the model learns from x alone.

        Raises:
            ShapeError: Other shapes than these.
            ValueRefusedError: NaN, infinite or absurdly large values; nothing was learned.
            BackendError, StepRefusedError: A step failed; the state is as before that step.
        """
        one = self._require_kind("update", "step", filters=False)
        x, n = self._taken("update", x, self._x)
        y, n_y = self._taken("update", y, self._y)
        if n is None or n_y is None:
            n = n_y if n is None else n
        elif n != n_y:
            raise ShapeError(f"update() got {n} rows of x and {n_y} of y; give one y for each x.")
        if n == 1 and not self._buffered:
            if x is not None:
                self._x.into(one.inputs["points.x"], x)
            if y is not None:
                self._y.into(one.inputs["points.y"], y)
            return self._learn(one, 1)
        given = [(b, rows) for b, rows in ((self._x, x), (self._y, y)) if rows is not None]
        n = 1 if n is None else n
        n_waiting = self._chunks.n_points if self._chunks else 0
        if n_waiting + n > self._chunk_width:  # more than one run: look at all points first
            for buffers, rows in given:
                buffers.validate(rows)
        if self._chunks is not None:
            self._chunks.add(given, n, self._buffered)
            return
        for row in range(n):
            for buffers, rows in given:
                buffers.into(one.inputs[buffers.role], rows[:, row : row + 1])
            self._learn(one, 1)

    def flush(self) -> None:
        """Learn the buffered points, if any."""
        self._require_open()
        self._learn_buffered()

    def _learn_buffered(self) -> None:
        if self._chunks is not None:
            self._chunks.flush(self._buffered)

    def _learn(self, step: Step, n: int) -> None:
        """Run a step on the points in its buffers and commit it."""
        state = self._state
        consolidate = self._consolidate
        if consolidate is not None and self._n_recent >= self.manifest.consolidate_every:
            consolidate.run(state.sides)
            self._require_finite(consolidate)
            state.sides ^= consolidate.flip
            self._n_recent = 0
        step.run(state.sides)
        self._require_finite(step)
        if step.rings:
            state.write_rows(step.rings, self._n_points)
        state.sides ^= step.flip
        self._n_recent += n
        self._n_points += n
        self._stale = True

    def _require_finite(self, step: Step) -> None:
        finite = step.finite
        if finite is None:
            return
        sound = math.isfinite(finite.item()) if finite.size == 1 else np.isfinite(finite).all()
        if not sound:
            raise StepRefusedError(
                f"{step.graph.name} gave a non-finite result and was not committed; the state is "
                "as before. Check the values just given and the bundle with `edgefold check`."
            )

    # Predicting ---------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Bring the cache up to date if it is stale. `query` calls it; call it to choose when."""
        self._require_open()
        self._learn_buffered()
        if self._stale and self._refresh is not None:
            self._refresh.run(self._state.sides)
            self._require_finite(self._refresh)
        self._stale = False

    def query(self, x: ArrayLike | None = None) -> Prediction:
        """Predict at new inputs; the state is not changed.

        Args:
            x: Target inputs, (M, X) or (B, M, X), in the caller's units; M from 1 to the bundle's
                targets. Leave it out if X is 0.

        Returns:
            Tensors of the bundle's prediction kind, each (M, *shape) or (B, M, *shape), in units
            of y. Views of buffers that the next call overwrites: copy them to keep them.

        Raises:
            ShapeError: Another number of columns or more targets than the bundle was exported for.
            ValueRefusedError: NaN, infinite or absurdly large values.
            BackendError, StepRefusedError: A step failed; the state is as before it.
        """
        self._require_kind("query", "step", filters=False)
        x, n = self._taken("query", x, self._targets)
        m = 1 if n is None else n
        if not 1 <= m <= self._queries[-1].width:
            raise ShapeError(
                f"query() got {m} targets; this bundle takes 1 to {self._queries[-1].width}. "
                f"Split the queries, or export again with --targets {max(m, 1)}."
            )
        step = next(s for s in self._queries if s.width >= m)
        if x is not None:
            self._targets.into(step.inputs["targets.x"][:, :m], x)
        self.refresh()
        step.run(self._state.sides)
        return self._predictions.of(step.outputs, m)

    def step(self, x: ArrayLike | None = None) -> Prediction:
        """Take one input and answer at once: what a model of the filtering kind does.

        Args:
            x: (X,) or (1, X); (B, X) or (B, 1, X) for more than one stream.

        Returns:
            Tensors of the bundle's prediction kind, each (1, *shape) or (B, 1, *shape). Views of
            buffers that the next call overwrites: copy them to keep them.

        Raises:
            ShapeError: Another shape than the bundle was exported for.
            ValueRefusedError: NaN, infinite or absurdly large values.
            BackendError, StepRefusedError: The step failed; the state is as before it.
        """
        step = self._require_kind("step", "update and query", filters=True)
        if self._x.is_used:
            rows, n = as_rows("step", "x", x, self.manifest.n_streams, self._x.n_columns, bare=True)
            if n != 1:
                raise ShapeError(f"step() got {n} rows; give one row at a time.")
            self._x.into(step.inputs["points.x"], rows)
        self._learn(step, 1)
        return self._predictions.of(step.outputs, 1)

    def run_step(self, name: str) -> None:
        """Run one bound graph on whatever its buffers hold and commit nothing: for measuring."""
        self._require_open()
        step = self._steps.get(name)
        if step is None:
            raise BackendError(f"no step is called {name!r}; run one of: {', '.join(self._steps)}.")
        step.run(self._state.sides)

    # Keeping ------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget every point, buffered ones included."""
        self._require_open()
        self._state.reset()
        self._begin_at(0, 0)

    def _begin_at(self, n_points: int, n_recent: int) -> None:
        self._n_points, self._n_recent, self._stale = n_points, n_recent, True
        if self._chunks is not None:
            self._chunks.clear()

    def save(self, path: str | Path, extra: Mapping[str, Array] | None = None) -> None:
        """Write a snapshot atomically; buffered points are learned first.

        Args:
            path: File to write; replaced only once the new snapshot is whole and on disk.
            extra: Arrays of the caller's own, kept in the same file and given back by `restore`.

        Raises:
            SnapshotError: The file system refused; an older snapshot is intact.
            BackendError, StepRefusedError: The state could not be updated or read.
        """
        self.flush()
        record = SnapshotRecord(self.manifest.bundle_hash, self._n_points, self._n_recent)
        write_snapshot(Path(path), record, self._state.read(), extra or {})

    def restore(self, path: str | Path) -> dict[str, Array]:
        """Take over a snapshot's state; the present state is lost. Returns the caller's arrays.

        Raises:
            SnapshotError: Missing, damaged, or of another bundle; the present state is kept.
            BackendError: The state could not be written; the present one is kept.
        """
        self._require_open()
        record, state, extra = read_snapshot(Path(path), self.manifest.bundle_hash)
        expected = {t.name: (t.shape, t.dtype) for t in self.manifest.state}
        found = {name: (array.shape, array.dtype.name) for name, array in state.items()}
        if expected != found:
            raise SnapshotError(
                f"snapshot {path} holds other tensors than the manifest lists; "
                "use an older copy, or remove it to start over."
            )
        self._state.load(state)
        self._begin_at(record.n_points, record.n_recent)
        return extra

    def state(self) -> dict[str, Array]:
        """Copies of the state's tensors, buffered points learned; for tests and tools."""
        self.flush()
        return self._state.read()

    def _require_open(self) -> None:
        if self._backend is None:
            raise ClosedError("this stream was closed; open the bundle again with Stream.open().")

    def _require_kind(self, call: str, other: str, filters: bool) -> Step:
        self._require_open()
        if self._is_filter != filters or self._one is None:
            kind = "filtering" if self._is_filter else "learning"
            raise BackendError(f"this bundle is of the {kind} kind: use {other}, not {call}.")
        return self._one

    def _taken(
        self, call: str, values: ArrayLike | None, buffers: PointBuffers
    ) -> tuple[Array | None, int | None]:
        """What the caller gave as (B, n, columns), and n; None where the model takes no such."""
        if values is None and not buffers.is_used:
            return None, None
        rows, n = as_rows(call, buffers.name, values, self.manifest.n_streams, buffers.n_columns)
        return (rows if buffers.is_used else None), n
