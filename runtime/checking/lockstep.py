"""Run one bundle on two backends, A and B, and name the first graph whose results differ.

    points ──┬─> A   update ─> refresh ─> query ...    every output of every run is kept
             └─> B   update ─> refresh ─> query ...    and compared with A's, run by run

Both backends run the same stream twice:

    alone   before each run of a graph on B, the state and the cache that it reads are replaced by
            A's: a difference is then the graph's own error, so this pass names the faulty graph
    along   B runs on its own state, as in normal use: a difference is all error so far

`edgefold.runtime.checking.tensor_differences` explains how tensors are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.backends.base import (
    Backend,
    BoundStep,
    Contender,
    DeviceBuffer,
    EngineOptions,
)
from edgefold.runtime.backends.opening import open_backend
from edgefold.runtime.bundle.manifest import Graph, Manifest
from edgefold.runtime.bundle.signature import load_expected
from edgefold.runtime.checking.golden import Golden, query_all, rows_of
from edgefold.runtime.checking.tensor_differences import Pass, PassTally
from edgefold.runtime.errors import StepRefusedError
from edgefold.runtime.stream.state_slots import StateSlots
from edgefold.runtime.stream.stream import Stream

N_QUERIES = 100  # along the stream, besides those at the golden stream's moments


@dataclass(frozen=True, slots=True)
class LockstepReport:
    """Holds the differences between two backends that ran the same stream.

    Attributes:
        bound: The largest relative difference that passes.
        n_points: Number of points of the stream.
        a, b: Facts of the two backends, such as name, device and version.
        alone: The pass in which each run of B reads A's state and cache.
        along: The pass in which B reads its own state and cache.
        never_ran: Names of the bundle's graphs that ran in neither pass.
    """

    bound: float
    n_points: int
    a: dict[str, Any]
    b: dict[str, Any]
    alone: Pass
    along: Pass
    never_ran: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Return whether B agreed with A within the bound in both passes."""
        return self.alone.passed and self.along.passed


def run_lockstep(
    path: str | Path,
    a: Contender,
    b: Contender,
    bound: float | None = None,
    n_points: int | None = None,
    engine: EngineOptions | None = None,
    progress: Callable[[str], None] = lambda line: None,
    expect_hash: str | None = None,
) -> LockstepReport:
    """Compare two backends on one bundle, graph after graph.

    Args:
        path: The bundle's folder.
        a: The backend that counts as right.
        b: The backend that is compared with A.
        bound: The largest relative difference that passes; None for the bundle's own tolerance.
        n_points: Number of rows to draw from the golden stream with a fixed seed, at most as many
            as the state holds; None for the golden stream itself.
        engine: Settings with which TensorRT builds, keeps and launches its engines.
        progress: Function that gets a line of text now and then.
        expect_hash: The hash that the bundle must have; None accepts any hash.

    Raises:
        BundleError, BackendError: The bundle or a backend does not open, or a graph failed.
        StepRefusedError: A refused a step, so the bundle or the points are at fault.
    """
    manifest = load_expected(path, expect_hash)
    golden = Golden.load(manifest)
    if n_points is not None:
        golden = _drawn(golden, min(n_points, manifest.room or n_points))
    bound = golden.tolerance if bound is None else bound
    leader, follower = _Watch(leads=True), _Watch(leads=False)
    with ExitStack() as opened:
        streams = [
            opened.enter_context(_open(manifest, contender, watch, engine or EngineOptions()))
            for contender, watch in ((a, leader), (b, follower))
        ]
        passes: list[Pass] = []
        for name, is_alone in (("alone", True), ("along the stream", False)):
            leader.tally = follower.tally = tally = PassTally(manifest, bound, is_alone)
            refused = _drive(streams, golden, tally, partial(_report, progress, name))
            passes.append(tally.result(refused))
        report_a, report_b = (stream.backend_report for stream in streams)
    ran = {tensor.graph for done in passes for tensor in done.tensors}
    never_ran = tuple(name for name in manifest.graphs if name not in ran)
    alone, along = passes
    return LockstepReport(bound, golden.x.shape[1], report_a, report_b, alone, along, never_ran)


def _report(progress: Callable[[str], None], name: str, n_points: int, of: int) -> None:
    progress(f"{name}: {n_points:,} of {of:,} points")


def _drawn(golden: Golden, n: int) -> Golden:
    """Return a golden stream of n points that are drawn at random, with a fixed seed, from another.

    Every model accepts such points, whatever its x and y mean. The recorded predictions do not fit
    the new stream and must not be used.
    """
    rows = np.random.default_rng(0).integers(0, golden.x.shape[1], n)
    return replace(
        golden,
        x=golden.x[:, rows],
        y=golden.y[:, rows],
        n_condition=min(golden.n_condition, n),
        moments=np.array([n]),
    )


def _open(manifest: Manifest, contender: Contender, watch: _Watch, engine: EngineOptions) -> Stream:
    backend, report = open_backend(contender.backend, manifest, contender.threads, engine)
    try:
        return Stream(manifest, cast(Backend, _Watched(backend, watch)), report, buffered=False)
    except BaseException:
        backend.close()
        raise


def _drive(
    streams: list[Stream], golden: Golden, tally: PassTally, progress: Callable[[int, int], None]
) -> str | None:
    """Do every update and query of a pass on both streams, first on A, then on B.

    Args:
        streams: The streams of A and B.
        golden: The points and targets.
        tally: The collector of this pass's differences.
        progress: Function that gets the number of points so far, and of all points.

    Returns:
        The reason why B refused a step, which ends the pass; None if B refused none.
    """
    n_points, every = golden.x.shape[1], max(1, golden.x.shape[1] // N_QUERIES)
    for stream in streams:
        stream.reset()
    for done, act in chain(
        _actions(streams[0].manifest, golden, every), _merges(streams[0], n_points)
    ):
        tally.n_points = done
        act(streams[0])
        try:
            act(streams[1])
        except StepRefusedError as error:
            return str(error)
        if done % every == 0:
            progress(done, n_points)
    return None


def _actions(
    manifest: Manifest, golden: Golden, every: int
) -> Iterator[tuple[int, Callable[[Stream], object]]]:
    """Yield all actions of a pass, each of which updates or queries one stream.

    Args:
        manifest: The bundle's manifest.
        golden: The points and targets.
        every: Number of points between two queries; more queries come at the golden stream's
            moments.

    Yields:
        The number of points that the stream has received after the action, and a function that does
        the action (update, step or query) on the stream that it gets.
    """
    one = manifest.n_streams == 1
    moments = golden.moments.tolist()
    queried = {*moments, *range(0, golden.x.shape[1] + 1, every)}

    def query(stream: Stream) -> object:
        return query_all(stream, golden.targets)

    begun = max((m for m in moments if m < golden.n_condition), default=0)  # by single points
    done = 0
    while True:
        if done in queried and not manifest.is_filter:
            yield done, query
        if done == golden.x.shape[1]:
            return
        stop = golden.n_condition if done == begun and golden.n_condition else done + 1
        x, y = (rows_of(array, done, stop, one) for array in (golden.x, golden.y))
        done = stop
        if manifest.is_filter:
            yield done, partial(_filter, x)
        else:
            yield done, partial(_learn, x, y)


def _merges(leader: Stream, n_points: int) -> Iterator[tuple[int, Callable[[Stream], object]]]:
    """Yield the action that joins A's state once more, where the model's states join.

    So both backends run `merge` on the same second state, at the end of the stream.
    """
    if leader.manifest.of_step("merge") and leader.room is None:
        slots = StateSlots(leader.manifest, 1)
        leader.take(slots, 0)
        yield n_points, partial(_merge, slots)


def _merge(slots: StateSlots, stream: Stream) -> None:
    stream.merge_slot(slots, 0, disjoint=True)  # only the arithmetic matters here


def _filter(x: FloatArray | None, stream: Stream) -> None:
    stream.step(x)


def _learn(x: FloatArray | None, y: FloatArray | None, stream: Stream) -> None:
    stream.update(x, y)


# Watching -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Watch:
    """States whether a watched backend is A or B, and which object collects its results.

    Attributes:
        leads: True for A, False for B.
        tally: The collector of the present pass's differences; None before the first pass.
    """

    leads: bool
    tally: PassTally | None = None


class _Watched:
    """Wraps backend A or B, and passes the tensors of each run of a graph to a `PassTally`.

    All other members are those of the wrapped backend.
    """

    def __init__(self, backend: Backend, watch: _Watch):
        self._backend, self._watch = backend, watch
        self._staged: dict[str, dict[str, Array]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def allocate_host(self, graph: Graph) -> dict[str, Array]:
        self._staged[graph.name] = arrays = self._backend.allocate_host(graph)
        return arrays

    def bind(self, graph: Graph, placed: Mapping[str, DeviceBuffer]) -> BoundStep:
        bound, watch = self._backend.bind(graph, placed), self._watch
        staged = self._staged[graph.name]
        read = {t.of: placed[t.name] for t in graph.inputs if t.name in placed}

        def outputs() -> dict[str, Array]:
            return {
                t.name: placed[t.name].read() if t.name in placed else staged[t.name].copy()
                for t in graph.outputs
            }

        def step() -> None:
            tally = watch.tally
            if tally is None:
                bound()
            elif watch.leads:
                bound()
                tally.keep(read, outputs())
            else:
                tally.feed(read)
                bound()
                tally.compare(graph, outputs())

        return step
