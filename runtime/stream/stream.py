"""Run a model: take points and give predictions, in memory that is all allocated at open.

    learning    condition, update ──> [state] ──> refresh, if the cache is stale ──> query
    filtering   step ──> [state], prediction

`Stream` owns the state; a backend only runs graphs on bound buffers. Only one call runs at a time,
and only in the process that opened the stream (`edgefold.runtime.stream.call_guard`). After an
error or Ctrl-C, each step of a call is either fully in the state or not at all
(`edgefold.runtime.stream.point_updates`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from edgefold.runtime.backends.base import Backend, EngineOptions
from edgefold.runtime.backends.opening import open_backend
from edgefold.runtime.bundle.manifest import Graph, Manifest
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.errors import BackendError, ShapeError
from edgefold.runtime.predictions import Prediction
from edgefold.runtime.stream.call_guard import one_call, one_call_of_points, one_call_of_x
from edgefold.runtime.stream.joint_prediction import JointPrediction
from edgefold.runtime.stream.memory_estimate import require_within
from edgefold.runtime.stream.point_updates import ChunkBuffer, Learner, refuse_overflow
from edgefold.runtime.stream.points import PointBuffers, require_sound
from edgefold.runtime.stream.provenance import Piece
from edgefold.runtime.stream.queries import Predictor
from edgefold.runtime.stream.state_buffers import StateBuffers, Step

if TYPE_CHECKING:
    from edgefold.runtime.bundle.signature import TrustedKeys


class Stream(JointPrediction):
    """Runs an opened bundle and holds its state; use it as a context manager, or call `close`.

    Arrays are (n, X) and (n, Y) for a bundle of one stream, (B, n, X) and (B, n, Y) for B > 1
    streams, in the caller's units. If a model takes no x or no y, leave it out.

    Several threads may call one after the other. A call while another one runs, also from a
    signal's handler, raises BusyError and changes nothing. In a fork of the process every call
    raises ClosedError, and `close` releases nothing: open the bundle again there.
    """

    def __init__(
        self,
        manifest: Manifest,
        backend: Backend,
        report: dict[str, Any],
        buffered: bool,
        seed: int | Sequence[int] | None = None,
        source: str | None = None,
    ):
        """Bind all graphs and allocate all buffers; users call `Stream.open`.

        Args:
            manifest: The bundle's manifest.
            backend: The open backend, which `close` closes.
            report: Facts for `backend_report`, to which the backend's own are added.
            buffered: Whether points are collected and learned chunk by chunk.
            seed: The seed of the model's random numbers; see `open`.
            source: The name of the source of all points; see `open`.
        """
        super().__init__()
        if source is not None:
            Piece(source, 0, 0, 0)  # raises SnapshotError for what is no name
        self.manifest, self._source = manifest, source
        self._backend: Backend | None = backend
        self._state = state = StateBuffers(manifest, backend)
        self._steps = {
            graph.name: Step(graph, backend, state, manifest)
            for graph in manifest.graphs.values()
            if not graph.opens_late
        }
        self._one = self._steps[manifest.learns_from[0].name]
        every = manifest.consolidate_every
        consolidate = self._step_of(manifest.of_step("consolidate") if every else [])
        self._learner = Learner(state, self._one, consolidate, every)
        chunk = self._step_of(manifest.of_step("condition")[-1:])
        self._chunks = ChunkBuffer(state, self._learner, chunk, self._one) if chunk else None
        if buffered and self._chunks is None:
            raise BackendError(
                f"{manifest.path} has no graph that learns a chunk, so points cannot be buffered; "
                "open it without buffered."
            )
        self._buffered, self._is_filter = buffered, manifest.is_filter
        # Every update needs them, so they are looked up once.
        self._chunk_width, self._most = manifest.chunk, manifest.room
        roles = {t.role for graph in manifest.learns_from for t in graph.inputs}
        self._x, self._y = (
            PointBuffers(
                role,
                scaling,
                manifest.n_streams,
                manifest.chunk,
                role in roles,
                manifest.prediction.largest_input,
            )
            for role, scaling in (
                ("points.x", manifest.scaling_x),
                ("points.y", manifest.scaling_y),
            )
        )
        self._predictor = Predictor(manifest, state, self._steps, self._chunks)
        self.backend_report = {**report, **backend.report()}  # now with the facts of binding
        self.reset(seed)  # binding may have run the steps: only now does the state begin

    def _step_of(self, graphs: list[Graph]) -> Step | None:
        return self._steps[graphs[0].name] if graphs else None

    def _opened(self, graph: Graph) -> Step:
        step = self._steps.get(graph.name)
        if step is None:
            assert self._backend is not None
            step = Step(graph, self._backend, self._state, self.manifest)
            self._steps[graph.name] = step
        return step

    @classmethod
    def open(
        cls,
        path: str | Path,
        backend: str = "auto",
        threads: int = 1,
        buffered: bool = False,
        memory_limit: int | None = None,
        engine: EngineOptions | None = None,
        slots: int = 0,
        expect_hash: str | None = None,
        trusted_keys: TrustedKeys | None = None,
        seed: int | Sequence[int] | None = None,
        source: str | None = None,
    ) -> Stream:
        """Open a bundle: verify its hashes, open its graphs, allocate every buffer.

        Args:
            path: The bundle's folder.
            backend: "auto", or a name of `edgefold.runtime.backends.registry`.
            threads: The number of CPU threads that one step uses.
            buffered: Whether points are collected and learned chunk by chunk, or when a query or a
                save needs them.
            memory_limit: The number of bytes that this process may need, checked before anything is
                opened; None checks nothing.
            engine: Options that say how TensorRT builds, keeps and launches its engines.
            slots: The number of `StateSlots` that the caller will make; the limit counts them too.
            expect_hash: The bundle's hash; any other bundle is refused.
            trusted_keys: Public keys, as files or bytes; a bundle that none of them has signed is
                refused.
            seed: The seed of the model's random numbers, if it computes any: one for all streams or
                one for each. None is the bundle's own seed, 0.
            source: The name of the source of all points that the stream will learn, unlike that of
                any other stream, such as that of the board: `provenance` then states them as its
                rows, one after the other. None leaves their rows unknown, until `learned` states
                them.

        Raises:
            BundleError: The bundle is missing, damaged, changed or refused.
            KeyFileError: A key cannot be read.
            BackendError: The backend does not open, or the bundle cannot be `buffered`.
            MemoryLimitError: The estimated memory exceeds the limit; the message lists its parts.
            ValueRefusedError: The bundle takes no seed, or not this one.
            SnapshotError: The source is not a name.
        """
        if expect_hash is None and trusted_keys is None:
            manifest = load_manifest(path)
        else:
            from edgefold.runtime.bundle.signature import load_expected

            manifest = load_expected(path, expect_hash, trusted_keys)
        if memory_limit is not None:
            require_within(manifest, memory_limit, backend, slots)
        opened, report = open_backend(backend, manifest, threads, engine or EngineOptions())
        try:
            return cls(manifest, opened, report, buffered, seed, source)
        except BaseException:
            opened.close()
            raise

    def __enter__(self) -> Stream:
        self._require_open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the backend and all buffers; a second call does nothing.

        Buffered points that still wait are lost.

        Raises:
            BackendError: Something could not be released; everything else was.
            BusyError: Another thread's call is running; nothing was released.
        """
        if not self._closed:
            self._release()

    @one_call
    def _release(self) -> None:
        self._closed = "this stream was closed; open the bundle again with Stream.open()."
        if self._copy is not None:
            self._copy.close()
        for step in self._steps.values():
            step.release()
        self._steps.clear()
        self._predictor.predictions.release()
        self._state.release()
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.close()

    @property
    def n_points(self) -> int:
        """Return how many points each stream has taken so far, including buffered ones."""
        return self._state.at.n_taken

    @property
    def room(self) -> int | None:
        """Return how many points can still be learned; None if there is no limit."""
        return None if self._most is None else self._most - self.n_points

    @property
    def buffer_bytes(self) -> int:
        """Return the bytes of all buffers: state, cache, points, predictions.

        The first `sample` makes a copy of the stream, whose buffers then count too, and the first
        `merge` allocates those of the second state.
        """
        own = (self._x, self._y, self._predictor.targets, self._predictor.predictions)
        steps = sum(step.n_bytes for step in self._steps.values())
        copy = 0 if self._copy is None else self._copy.buffer_bytes
        return self._state.n_bytes + steps + sum(buffers.n_bytes for buffers in own) + copy

    @property
    def library(self) -> Any:
        """Return the loaded library of compiled C that runs the steps; None for other backends."""
        return getattr(self._backend, "library", None)

    def _another(self) -> Stream:
        backend = self._backend
        assert backend is not None
        another = Stream(self.manifest, backend, {}, buffered=False)
        another._backend = None  # this stream closes it
        return another

    # Learning -----------------------------------------------------------------------------------

    def condition(self, x: ArrayLike | None = None, y: ArrayLike | None = None) -> None:
        """Learn a history of any length, chunk by chunk; the same as `update`."""
        self.update(x, y)

    @one_call_of_points
    def update(self, x: ArrayLike | None = None, y: ArrayLike | None = None) -> None:
        """Learn any number n of new points.

        One point runs the update graph; more run the condition graph chunk by chunk, if the bundle
        has one. Every run commits as a whole: on an error, or when Ctrl-C interrupts, `n_points` is
        the number of points that the state holds. Memory does not grow with n: a history in a
        memory-mapped file is read twice, once to check all values, once to learn them.

        Args:
            x: Inputs, (n, X) or (B, n, X); leave it out if X is 0.
            y: Outputs, (n, Y) or (B, n, Y); leave it out if the model learns only from x.

        Raises:
            ShapeError: The arrays have other shapes than these.
            ValueRefusedError: Values are NaN, infinite, absurdly large or masked; nothing was
                learned.
            CapacityError: There is not `room` for all points; nothing was learned.
            BackendError, StepRefusedError: A step failed; `n_points` counts the points that were
                learned before.
        """
        if self._closed or self._is_filter:
            self._refuse("update", "step")
        one, learner = self._one, self._learner
        if not self._buffered:
            row_x, row_y = self._x.scaled_row(x), self._y.scaled_row(y)
            if row_x is not None and row_y is not None:
                if self._most is not None and self.n_points >= self._most:
                    refuse_overflow(self.manifest, self.n_points, 1)
                one.put("points.x", row_x)
                one.put("points.y", row_y)
                return learner.commit(learner.run(one), one, 1)
        x, n = self._x.taken("update", x)
        y, n_y = self._y.taken("update", y)
        if n is None or n_y is None:
            n = n_y if n is None else n
        elif n != n_y:
            raise ShapeError(f"update() got {n} rows of x and {n_y} of y; give one y for each x.")
        n = 1 if n is None else n
        if self._most is not None and self.n_points + n > self._most:
            refuse_overflow(self.manifest, self.n_points, n)
        if n == 1 and not self._buffered:
            if x is not None:
                self._x.into(one.inputs["points.x"], x)
            if y is not None:
                self._y.into(one.inputs["points.y"], y)
            return learner.commit(learner.run(one), one, 1)
        points = [(b, rows) for b, rows in ((self._x, x), (self._y, y)) if rows is not None]
        at = self._state.at
        if n > 1 and at.first + at.n_waiting + n > self._chunk_width:
            require_sound(points, n)  # of several runs the first must not commit in vain
        if self._chunks is None:
            learner.learn_each(points, n)
        elif self._buffered:
            self._chunks.keep(points, n)
        else:
            self._chunks.learn(points, n)

    @one_call
    def flush(self) -> None:
        """Learn all buffered points that still wait."""
        self._learn_waiting()

    # Predicting ---------------------------------------------------------------------------------

    @one_call
    def refresh(self) -> None:
        """Compute the cache, tensors that `query` reads, from the state if that has changed.

        Without this call the next `query` does so.
        """
        self._predictor.refresh()

    @one_call_of_x
    def query(self, x: ArrayLike | None = None) -> Prediction:
        """Predict at new inputs; the state is not changed.

        Args:
            x: Target inputs, (M, X) or (B, M, X), in the caller's units; M is from 1 to the largest
                number of targets that the bundle takes. Leave it out if X is 0.

        Returns:
            The tensors of the bundle's prediction kind, each (M, *shape) or (B, M, *shape), in
            units of y. They are views of buffers that the next call overwrites: `[stream.query(
            x).mean for x in xs]` holds the last answer many times. `stream.query(x).copy()` returns
            an answer that stays.

        Raises:
            ShapeError: x has another number of columns or more targets than the bundle was
                exported for.
            ValueRefusedError: Values are NaN, infinite, absurdly large or masked.
            BackendError: A step failed; the state is as before it.
            StepRefusedError: The prediction is not finite, or a step failed as above.
        """
        if self._closed or self._is_filter:
            self._refuse("query", "step")
        return self._predictor.query(x)

    @one_call_of_x
    def step(self, x: ArrayLike | None = None) -> Prediction:
        """Take one input and predict at once; only models of the filtering kind do this.

        Args:
            x: The input, (X,) or (1, X); (B, X) or (B, 1, X) for more than one stream.

        Returns:
            The tensors of the bundle's prediction kind, each (1, *shape) or (B, 1, *shape). They
            are views of buffers that the next call overwrites; `copy` returns tensors that stay.

        Raises:
            ShapeError: x has another shape than the bundle was exported for.
            ValueRefusedError: Values are NaN, infinite, absurdly large or masked.
            CapacityError: The state has no `room`.
            BackendError, StepRefusedError: The step failed, or its prediction is not finite; the
                state is as before it.
        """
        return self._step(x, None)

    @one_call
    def step_with(self, x: ArrayLike | None, prepare: Callable[[Prediction], None]) -> Prediction:
        """Take one input as `step` does, and call a function before the state changes.

        So a program can compute what it keeps next to the state, and change both or neither.

        Args:
            x: The input, as `step` takes it.
            prepare: Function that gets the prediction; if it raises an error, the state is as
                before.

        Returns:
            The prediction, as `step` returns it; the errors are those of `step`, too.
        """
        return self._step(x, prepare)

    def _step(
        self, x: ArrayLike | None, prepare: Callable[[Prediction], None] | None
    ) -> Prediction:
        if self._closed or not self._is_filter:
            self._refuse("step", "update and query")
        step = self._one
        if self._most is not None and self.n_points >= self._most:
            refuse_overflow(self.manifest, self.n_points, 1)
        row = self._x.scaled_row(x, bare=True)
        if row is not None:
            step.put("points.x", row)
        elif self._x.is_used:
            rows, n = self._x.taken("step", x, bare=True)
            if rows is None or n != 1:
                raise ShapeError(f"step() got {n} rows; give one row at a time.")
            self._x.into(step.inputs["points.x"], rows)
        at = self._learner.run(step)
        prediction = self._predictor.predictions.of(step, 1)
        if prepare is not None:
            prepare(prediction)
        self._learner.commit(at, step, 1)
        return prediction

    @one_call
    def run_step(self, name: str) -> None:
        """Run the graph of this name on what its buffers hold, to measure it; commit nothing."""
        graphs = self.manifest.graphs
        if name not in graphs:
            raise BackendError(f"no step is called {name!r}; run one of: {', '.join(graphs)}.")
        self._opened(graphs[name]).run(self._state.settled().sides)

    def _refuse(self, call: str, other: str) -> None:
        self._require_open()
        kind = "filtering" if self._is_filter else "learning"
        raise BackendError(f"this bundle is of the {kind} kind: use {other}, not {call}.")
