"""A running model: points go in, predictions come out, in memory that was all allocated at open.

    condition / update ──> [state] ──> refresh, only when a query finds the memory stale ──> query

`Stream` owns the state; a backend only runs graphs on bound buffers. Not thread-safe: one stream
belongs to one thread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from edgefold.runtime.arrays import Array, aligned_full
from edgefold.runtime.backends.base import Backend, EngineOptions
from edgefold.runtime.backends.registry import open_backend
from edgefold.runtime.errors import (
    BackendError,
    ClosedError,
    ShapeError,
    SnapshotError,
    StepRefusedError,
)
from edgefold.runtime.manifest import Manifest, load_manifest
from edgefold.runtime.memory_estimate import require_within
from edgefold.runtime.points import Scaler, as_rows
from edgefold.runtime.predictions import Prediction
from edgefold.runtime.snapshot import SnapshotRecord, read_snapshot, write_snapshot
from edgefold.runtime.state_buffers import StateBuffers, Step

FEW = 4
"""A remainder of up to this many points is folded one by one: a padded chunk would take longer."""


class Stream:
    """A bundle opened for running. Use as a context manager, or call `close`.

    Arrays are (n, X) and (n, Y) for a bundle of one stream, (B, n, X) and (B, n, Y) for more, in
    the caller's units.
    """

    def __init__(self, manifest: Manifest, backend: Backend, report: dict[str, Any], wait: bool):
        """Use `Stream.open`."""
        self.manifest = manifest
        self._backend: Backend | None = backend
        self._wait = wait
        self._state = StateBuffers(manifest, backend)
        n_streams = manifest.n_streams
        self._steps = {
            g.name: Step(g, backend, self._state, n_streams) for g in manifest.graphs.values()
        }
        self._chunk = self._steps[manifest.widest("condition").name]
        self._one = self._steps[manifest.of_step("update")[0].name]
        self._refresh = self._steps[manifest.of_step("refresh")[0].name]
        self._queries = [self._steps[g.name] for g in manifest.of_step("query")]
        self._consolidate = (
            self._steps[manifest.of_step("consolidate")[0].name]
            if manifest.consolidate_every
            else None
        )
        self._x = Scaler(manifest.scaling_x, manifest.n_streams, self._chunk.width)
        self._y = Scaler(manifest.scaling_y, manifest.n_streams, self._chunk.width)
        widest = self._queries[-1].width
        self._targets = Scaler(manifest.scaling_x, manifest.n_streams, widest)
        shape = (manifest.n_streams, widest, manifest.n_outputs)
        self._mean, self._std = (aligned_full(shape, "float64", 0) for _ in range(2))
        self._y_shift = np.array(manifest.scaling_y.shift)
        self._y_scale = np.array(manifest.scaling_y.scale)
        self._n_points = self._n_recent = self._n_waiting = 0
        self._stale = True
        self.backend_report = {**report, **backend.report()}  # again: it tells of binding, too
        self.reset()  # binding may have run the steps: only now does the state begin

    @classmethod
    def open(
        cls,
        path: str | Path,
        backend: str = "auto",
        threads: int = 1,
        wait: bool = False,
        memory_limit: int | None = None,
        engine: EngineOptions | None = None,
    ) -> Stream:
        """Open a bundle: verify its hashes, open its graphs, allocate every buffer.

        Args:
            path: The bundle's folder.
            backend: "auto", or a name of `edgefold.runtime.backends.base.OPENERS`.
            threads: CPU threads of one step.
            wait: Let points wait in a fixed buffer and fold them a chunk at a time, or when a
                query, a save or a flush asks: the same results in a fraction of the time.
            memory_limit: Bytes that this process may come to; the bundle's plan is held against it
                before anything is opened (`edgefold.runtime.memory_estimate`).
            engine: How TensorRT builds, keeps and launches its engines.

        Raises:
            BundleError: The bundle is missing, damaged or changed.
            BackendError: The backend does not open.
            MemoryLimitError: The plan exceeds the limit; the message breaks it down.
        """
        manifest = load_manifest(path)
        if memory_limit is not None:
            require_within(manifest, memory_limit, backend)
        opened, report = open_backend(backend, manifest, threads, engine or EngineOptions())
        try:
            return cls(manifest, opened, report, wait)
        except BaseException:
            opened.close()
            raise

    def __enter__(self) -> Stream:
        self._require_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the backend; idempotent. Waiting points that were not flushed are lost.

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
        """Points taken so far, per stream, waiting ones included."""
        return self._n_points + self._n_waiting

    @property
    def buffer_bytes(self) -> int:
        """Bytes of all fixed buffers: state, memory, points, predictions."""
        scratch = sum(s.scratch.nbytes for s in (self._x, self._y, self._targets))
        return (
            self._state.n_bytes
            + sum(step.n_bytes for step in self._steps.values())
            + scratch
            + self._mean.nbytes
            + self._std.nbytes
        )

    # Folding ------------------------------------------------------------------------------------

    def condition(self, x: ArrayLike, y: ArrayLike) -> None:
        """Fold a history of any length, a chunk at a time. The same as `update`; see there."""
        self.update(x, y)

    def update(self, x: ArrayLike, y: ArrayLike) -> None:
        """Fold new points, any number of them.

        One point runs the update graph, more run the condition graph chunk by chunk. Every fold
        commits as a whole: on an error `n_points` tells how many points the state holds.

        Args:
            x: Inputs, (n, X) or (B, n, X).
            y: Outputs, (n, Y) or (B, n, Y).

        Raises:
            ShapeError: Other shapes than these.
            ValueRefusedError: NaN, infinite or absurdly large values; nothing was folded.
            BackendError, StepRefusedError: A step failed; the state is as before that step.
        """
        x, n = self._as_rows("x", x, self.manifest.n_inputs)
        y, n_y = self._as_rows("y", y, self.manifest.n_outputs)
        if n != n_y:
            raise ShapeError(f"update() got {n} rows of x and {n_y} of y; give one y for each x.")
        if n == 1 and not self._wait:
            inputs = self._one.inputs
            self._x.into(inputs["points.x"], x)
            self._y.into(inputs["points.y"], y)
            self._fold(self._one, 1)
            return
        if self._n_waiting + n > self._chunk.width:  # more than one fold: look at all points first
            self._x.validate(x)
            self._y.validate(y)
        done = 0
        while done < n:
            start = self._n_waiting
            stop = min(start + n - done, self._chunk.width)
            rows = slice(done, done + stop - start)
            inputs = self._chunk.inputs
            self._x.into(inputs["points.x"][:, start:stop], x[:, rows])
            self._y.into(inputs["points.y"][:, start:stop], y[:, rows])
            self._n_waiting = stop
            done = rows.stop
            if stop == self._chunk.width:
                self._fold_waiting()
        if not self._wait:
            self._fold_waiting()

    def flush(self) -> None:
        """Fold the points that wait, if any."""
        self._require_open()
        self._fold_waiting()

    def _fold_waiting(self) -> None:
        """Fold what waits in the chunk's buffer. In case of an error without `wait`, forget it."""
        n = self._n_waiting
        if not n:
            return
        try:
            if n <= FEW:
                self._fold_few()
            else:
                mask = self._chunk.inputs["points.mask"]
                mask.fill(0)
                mask[:, :n] = 1
                self._fold(self._chunk, n)
                self._n_waiting = 0
        finally:
            if not self._wait:
                self._n_waiting = 0

    def _fold_few(self) -> None:
        chunk, one = self._chunk.inputs, self._one.inputs
        while self._n_waiting:
            for role in ("points.x", "points.y"):
                one[role][:] = chunk[role][:, :1]
            self._fold(self._one, 1)
            self._n_waiting -= 1
            for role in ("points.x", "points.y"):
                chunk[role][:, : self._n_waiting] = chunk[role][:, 1 : self._n_waiting + 1]

    def _fold(self, step: Step, n: int) -> None:
        """Run a folding step on the points in its buffers and commit it."""
        state = self._state
        consolidate = self._consolidate
        if consolidate is not None and self._n_recent >= self.manifest.consolidate_every:
            consolidate.run(state.sides)
            self._require_finite(consolidate)
            state.sides ^= consolidate.flip
            self._n_recent = 0
        step.run(state.sides)
        self._require_finite(step)
        state.sides ^= step.flip
        self._n_recent += n
        self._n_points += n
        self._stale = True

    def _require_finite(self, step: Step) -> None:
        check = step.check
        if check is None:
            return
        finite = math.isfinite(check.item()) if check.size == 1 else np.isfinite(check).all()
        if not finite:
            raise StepRefusedError(
                f"{step.graph.name} gave a non-finite result and was not committed; the state is "
                "as before. Check the values just given and the bundle with `edgefold check`."
            )

    # Querying -----------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Bring the memory up to date, if it is stale. `query` calls it; call it to choose when."""
        self._require_open()
        self._fold_waiting()
        if self._stale:
            self._refresh.run(self._state.sides)
            self._require_finite(self._refresh)
            self._stale = False

    def query(self, x: ArrayLike) -> Prediction:
        """Predict at new inputs; the state is not changed.

        Args:
            x: Target inputs, (M, X) or (B, M, X), in the caller's units; M from 1 to the bundle's
                targets.

        Raises:
            ShapeError: Another number of columns or more targets than the bundle was exported for.
            ValueRefusedError: NaN, infinite or absurdly large values.
            BackendError, StepRefusedError: A step failed; the state is as before it.
        """
        x, m = self._as_rows("x", x, self.manifest.n_inputs, "query")
        if not 1 <= m <= self._queries[-1].width:
            raise ShapeError(
                f"query() got {m} targets; this bundle takes 1 to {self._queries[-1].width}. "
                f"Split the queries, or export again with --targets {max(m, 1)}."
            )
        step = next(s for s in self._queries if s.width >= m)
        self._targets.into(step.inputs["targets.x"][:, :m], x)
        self.refresh()
        step.run(self._state.sides)
        mean, std = self._mean[:, :m], self._std[:, :m]
        np.multiply(step.outputs["mean"][:, :m], self._y_scale, out=mean)
        np.add(mean, self._y_shift, out=mean)
        np.multiply(step.outputs["std"][:, :m], self._y_scale, out=std)
        if self.manifest.n_streams == 1:
            return Prediction({"mean": mean[0], "std": std[0]})
        return Prediction({"mean": mean, "std": std})

    def run_step(self, name: str) -> None:
        """Run one bound graph on whatever its buffers hold and commit nothing: for measuring."""
        self._require_open()
        step = self._steps.get(name)
        if step is None:
            raise BackendError(f"no step is called {name!r}; run one of: {', '.join(self._steps)}.")
        step.run(self._state.sides)

    # Keeping ------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget every point, waiting ones included."""
        self._require_open()
        self._state.reset()
        self._n_points = self._n_recent = self._n_waiting = 0
        self._stale = True

    def save(self, path: str | Path, extra: Mapping[str, Array] | None = None) -> None:
        """Write a snapshot atomically; points that wait are folded first.

        Args:
            path: File to write; replaced only once the new snapshot is whole and on disk.
            extra: Arrays of the caller's own, kept in the same file and given back by `restore`.

        Raises:
            SnapshotError: The file system refused; an older snapshot is intact.
            BackendError, StepRefusedError: The state could not be folded or read.
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
                "use an older copy, or remove it to start anew."
            )
        self._state.load(state)
        self._n_points, self._n_recent, self._n_waiting = record.n_points, record.n_recent, 0
        self._stale = True
        return extra

    def state(self) -> dict[str, Array]:
        """Copies of the state's tensors, waiting points folded; for tests and tools."""
        self.flush()
        return self._state.read()

    def _require_open(self) -> None:
        if self._backend is None:
            raise ClosedError("this stream was closed; open the bundle again with Stream.open().")

    def _as_rows(
        self, name: str, values: ArrayLike, columns: int, call: str = "update"
    ) -> tuple[Array, int]:
        self._require_open()
        return as_rows(call, name, values, self.manifest.n_streams, columns)
