"""What stands around the graph functions in C does what `Stream` does, bit for bit.

Both run the same graphs in onnxruntime: the C through stubs that call Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.runtime import Stream
from edgefold.runtime.arrays import Array
from edgefold.runtime.bundle.manifest import Graph, Manifest
from tests.export.native.c_streams import KINDS, CStream
from tests.pairwise import leave_out

StreamOf = Callable[[str], CStream]
BundleOf = Callable[[str], Path]
LEARNING = ("tiny", "scaled", "streams", "shelves", "anp", "cmanp-and")
N_TURNS = 60


def drawn(m: Manifest, rng: Any, n: int) -> tuple[Array | None, Array | None]:
    """n rows (B, n, columns) of x and of y in raw units; None where the model has no such."""
    events = m.prediction.name == "next-event"
    x = rng.uniform(-1.5, 1.5, (m.n_streams, n, m.n_inputs)) * m.scaling_x.scale + m.scaling_x.shift
    if events:  # a gap, and a mark of three
        x[...] = np.stack([np.abs(x[..., 0]), rng.integers(0, 3, x.shape[:2])], -1)
    y = rng.normal(size=(m.n_streams, n, m.n_outputs)) * m.scaling_y.scale + m.scaling_y.shift
    return x if m.n_inputs else None, y if m.n_outputs else None


def of_stream(m: Manifest, rows: Array | None) -> Array | None:
    """Rows as `Stream` takes them."""
    return rows if rows is None or m.n_streams > 1 else rows[0]


def require_same_state(c: CStream, stream: Stream) -> None:
    at, expected = stream._state.at, stream.state()
    assert (c.n_points, c.commit.n_recent) == (at.n_points, at.n_recent)
    for name, array in c.state().items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


def require_same_prediction(c: CStream, found: Mapping[str, Array], n: int) -> None:
    for name, array in c.predictions(n).items():
        expected = found[name] if c.manifest.n_streams > 1 else found[name][None]
        np.testing.assert_array_equal(array, expected, err_msg=name)


def learn(c: CStream, stream: Stream, rng: Any, n: int) -> None:
    """Let both learn the same n points."""
    m = c.manifest
    x, y = drawn(m, rng, n)
    if m.room is not None and stream.n_points + n > m.room:
        assert c.condition(n, x, y) == "FULL"
    elif n == 1:
        stream.update(of_stream(m, x), of_stream(m, y))
        assert c.update(x, y) == "OK"
    else:
        stream.condition(of_stream(m, x), of_stream(m, y))
        assert c.condition(n, x, y) == "OK"


def ask(c: CStream, stream: Stream, rng: Any, n: int) -> None:
    """Ask both for the same n targets."""
    x, _ = drawn(c.manifest, rng, n)
    found = stream.query(of_stream(c.manifest, x)) if x is not None else stream.query()
    assert c.query(n, x) == "OK"
    require_same_prediction(c, found.tensors, n)


@pytest.mark.one_case
@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_in_c_does_what_the_runtime_does(
    stream_of: StreamOf, bundle_of: BundleOf, kind: str
) -> None:
    c, rng = stream_of(kind), np.random.default_rng(4)
    m = c.manifest
    with Stream.open(bundle_of(kind), "onnxruntime") as stream:
        require_same_state(c, stream)
        for turn in range(N_TURNS):
            if m.is_filter:
                x, _ = drawn(m, rng, 1)
                found = stream.step(of_stream(m, x))
                assert c.step(x) == "OK"
                require_same_prediction(c, found.tensors, 1)
            else:
                learn(c, stream, rng, 1 if turn % 3 == 0 else int(rng.integers(2, 20)))
                ask(c, stream, rng, int(rng.integers(1, m.targets + 1)))
            require_same_state(c, stream)
        if m.consolidate_every:
            assert "consolidate" in c.called  # it came when due: points since then agree
        c.reset()
        stream.reset()
        require_same_state(c, stream)


@pytest.mark.parametrize("kind", ["tiny", "streams", "cmanp-and"])
def test_a_stream_in_c_merges_what_the_runtime_merges(
    stream_of: StreamOf, bundle_of: BundleOf, kind: str, tmp_path: Path
) -> None:
    c, rng = stream_of(kind), np.random.default_rng(9)
    other = c.beside()
    with Stream.open(bundle_of(kind), "onnxruntime") as stream:
        learn(other, stream, rng, 150)
        stream.save(tmp_path / "other.npz")
        assert other.load((tmp_path / "other.npz").read_bytes()) == "OK"
        stream.reset()
        for n in (1, 140, 3):  # recent and older sums, and both copies of each
            learn(c, stream, rng, n)
        before = other.state()
        ask(c, stream, rng, 1)
        stream.merge(tmp_path / "other.npz", disjoint=True)
        assert c.merge(other) == "OK"
        require_same_state(c, stream)
        assert c.n_points == 294
        ask(c, stream, rng, 1)  # the cache is made again
        learn(c, stream, rng, 1)
        require_same_state(c, stream)
    for name, array in other.state().items():
        np.testing.assert_array_equal(array, before[name])


def test_a_merge_in_c_that_is_refused_changes_nothing(stream_of: StreamOf) -> None:
    c, rng = stream_of("tiny"), np.random.default_rng(9)
    other = c.beside()
    assert [one.condition(40, *drawn(c.manifest, rng, 40)) for one in (c, other)] == ["OK"] * 2
    before = c.state()

    def spoil(graph: Graph, tensors: Mapping[str, Array]) -> None:
        if graph.step == "merge":
            tensors["finite"][...] = np.inf

    c.spoil = spoil
    assert c.merge(other) == "NOT_FINITE"
    other.commit.n_points = (1 << 62) - 1
    assert c.merge(other) == "FULL"
    assert c.n_points == 40
    for name, array in c.state().items():
        np.testing.assert_array_equal(array, before[name])


def test_a_cache_is_made_once_for_each_state(stream_of: StreamOf) -> None:
    c, rng = stream_of("tiny"), np.random.default_rng(0)
    x, y = drawn(c.manifest, rng, 4)
    assert x is not None
    assert c.condition(4, x, y) == "OK"
    assert [c.query(1, x), c.query(4, x), c.refresh()] == ["OK"] * 3
    assert c.called.count("refresh") == 1
    assert c.update(x[:, :1], None if y is None else y[:, :1]) == "OK"
    assert [c.refresh(), c.query(2, x)] == ["OK"] * 2
    assert c.called.count("refresh") == 2


@pytest.mark.parametrize("kind", leave_out(LEARNING, ["anp", "cmanp-and"]))
def test_values_that_the_runtime_refuses_are_refused(stream_of: StreamOf, kind: str) -> None:
    c, rng = stream_of(kind), np.random.default_rng(1)
    m = c.manifest
    learned = drawn(m, rng, 2)
    assert c.condition(2, *learned) == "OK"
    before = c.state()
    for bad in (np.nan, np.inf, -1.01e9 * max(m.scaling_y.scale) - max(m.scaling_y.shift)):
        for column in range(2):
            rows = drawn(m, rng, 9)
            if rows[column] is None:
                continue
            rows[column][-1, -1, -1] = bad  # type: ignore[index]
            assert c.condition(9, *rows) == "BAD_VALUE"
            assert c.update(*(None if r is None else r[:, -1:] for r in rows)) == "BAD_VALUE"
            if column == 0:
                assert c.query(m.targets, rows[0][:, -m.targets :]) == "BAD_VALUE"  # type: ignore[index]
    x, _ = drawn(m, rng, m.targets + 1)
    assert [c.query(0, x), c.query(m.targets + 1, x)] == ["TOO_MANY"] * 2
    assert c.n_points == 2
    for name, array in c.state().items():
        np.testing.assert_array_equal(array, before[name])


def test_the_largest_lawful_value_is_taken(stream_of: StreamOf) -> None:
    c = stream_of("scaled")
    y = np.full((1, 1, 1), 1e9 * 20 + 400)  # scaled by 20 and 400: 1e9
    assert c.update(np.zeros((1, 1, 1)), y) in ("OK", "NOT_FINITE")
    assert c.update(np.zeros((1, 1, 1)), y + 1e-4) == "BAD_VALUE"


@pytest.mark.parametrize(
    "kind", leave_out(["streams", "cmhp", "anp", "continual-nystrom"], ["anp", "continual-nystrom"])
)
def test_arithmetic_that_is_not_finite_changes_nothing(stream_of: StreamOf, kind: str) -> None:
    c, rng = stream_of(kind), np.random.default_rng(2)
    m = c.manifest

    def spoil(graph: Graph, tensors: Mapping[str, Array]) -> None:
        for tensor in graph.with_role("finite"):
            tensors[tensor.name][-1] = np.nan

    for _ in range(3):
        rows = drawn(m, rng, 1)
        assert (c.step(rows[0]) if m.is_filter else c.update(*rows)) == "OK"
    before = c.state()
    c.spoil = spoil
    assert (c.step(rows[0]) if m.is_filter else c.update(*rows)) == "NOT_FINITE"
    assert c.n_points == 3
    for name, array in c.state().items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)


@pytest.mark.parametrize("kind", ["tiny", "cmhp"])
def test_a_prediction_that_is_not_finite_is_refused(stream_of: StreamOf, kind: str) -> None:
    c, rng = stream_of(kind), np.random.default_rng(2)
    m = c.manifest
    last = m.prediction_tensors[-1]

    wrong = np.nan

    def spoil(graph: Graph, tensors: Mapping[str, Array]) -> None:
        for tensor in graph.with_role("prediction"):
            if tensor.of == last.name:
                tensors[tensor.name][...] = wrong

    c.spoil = spoil
    x, _ = drawn(m, rng, 1)
    assert (c.step(x) if m.is_filter else c.query(1, x)) == "NOT_FINITE"
    wrong = -np.inf  # the filter's last tensor is a log density, where this is an answer
    expected = "OK" if m.is_filter else "NOT_FINITE"
    assert (c.step(x) if m.is_filter else c.query(1, x)) == expected
    assert c.n_points == int(m.is_filter)


@pytest.mark.parametrize("slot", [-1, 10])
def test_a_slot_outside_a_ring_changes_nothing(stream_of: StreamOf, slot: int) -> None:
    c = stream_of("shelves")
    y = np.full((3, 1, 1), 4.0)
    assert c.update(None, y) == "OK"
    before = c.state()

    def spoil(graph: Graph, tensors: Mapping[str, Array]) -> None:
        for tensor in graph.with_role("slot"):
            tensors[tensor.name][1] = slot

    c.spoil = spoil
    assert c.update(None, y) == "BAD_SLOT"
    assert c.n_points == 1
    for name, array in c.state().items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)


@pytest.mark.parametrize("call", ["query", "update", "save"])
def test_rows_that_an_interrupt_kept_from_their_ring_are_written_by_the_next_call(
    stream_of: StreamOf, call: str
) -> None:
    c, rng = stream_of("anp"), np.random.default_rng(3)
    rows = drawn(c.manifest, rng, 1)
    assert c.update(*rows) == "OK"
    before = c.state()
    ring = next(t.name for t in c.manifest.state if t.ring is not None)
    memory = np.frombuffer(getattr(c.memory, c.struct.state[ring].name), np.float32)
    assert memory.any()
    memory[...] = 0  # as it was before the row came
    c.commit.rows_due = 1
    status = {"query": lambda: c.query(1, rows[0]), "update": lambda: c.update(*rows)}
    status["save"] = lambda: c.save()[0]
    assert status[call]() == "OK"
    length = before[ring].shape[1]
    np.testing.assert_array_equal(c.state()[ring][:, 0], before[ring][:, 0])
    assert c.commit.rows_due == 0 and length == 12


def test_a_seed_is_of_each_stream_and_stays_until_the_next_reset(
    stream_of: StreamOf, bundle_of: BundleOf
) -> None:
    c, rng = stream_of("anp"), np.random.default_rng(5)
    seed = 2**63 - 1
    c.reset([seed])
    with Stream.open(bundle_of("anp"), "onnxruntime", seed=seed) as stream:
        for _ in range(3):
            learn(c, stream, rng, 2)
            ask(c, stream, rng, 2)
        require_same_state(c, stream)
    c.reset()
    assert c.state()["seed"] == 0
