from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor

from edgefold.export.graphs.step_graphs import Sizes
from edgefold.export.lowering.cache import GraphCache
from edgefold.export.lowering.steps import lower
from edgefold.runtime.errors import ExportError
from edgefold.runtime.predictions import JointGaussian
from edgefold.train.contract import Ring, State, StreamingModel, advance
from edgefold.train.models.constant_memory.cmanp import Cmanp, CmanpConfig
from tests.export.lowering.small_models import (
    N_STREAMS,
    Array,
    Filter,
    Gru,
    Welford,
    Window,
    normal,
    run_step,
)

SIZES = Sizes(chunk=4, targets=3, streams=N_STREAMS)

ROUNDING = 2e-6  # float32 in another order of additions, values around 1


def tiny_cmanp() -> Cmanp:
    torch.manual_seed(0)
    return Cmanp(CmanpConfig(2, 1, 2, 32, 2, 16, 48)).eval()


def close(found: Array, expected: Tensor) -> bool:
    wanted = expected.numpy()
    return np.allclose(found.reshape(wanted.shape), wanted, rtol=0, atol=ROUNDING)


def names(made: Any) -> dict[str, int]:
    return {graph.name: graph.width for graph in made.steps}


def test_a_recurrent_model_runs_as_in_pytorch_along_a_stream() -> None:
    torch.manual_seed(0)
    model = Gru().eval()
    made = lower(model, SIZES)
    assert names(made) == {"update": 1, "query": 3, "query_one": 1}
    state, held = model.initial_state(N_STREAMS), dict(made.state)
    for step in range(20):
        x, y = normal(N_STREAMS, 2, seed=step), normal(N_STREAMS, 1, seed=100 + step)
        with torch.no_grad():
            state = advance(model, state, model.update(state, *map(torch.from_numpy, (x, y))))
        written = run_step(made, "update", held, x=x, y=y)
        assert np.array_equal(written["finite", "finite"], [0, 0])
        held["hidden"] = written["state", "hidden"]
    for graph, width in (("query", 3), ("query_one", 1)):
        x = normal(N_STREAMS, width, 2)
        with torch.no_grad():
            expected = model.query(state, torch.from_numpy(x))
        found = run_step(made, graph, held, x=x)
        assert all(close(found["prediction", name], t) for name, t in expected.items())


def test_points_targets_and_predictions_are_rows_in_the_graphs() -> None:
    made = lower(Gru().eval(), SIZES)
    query = made.of_step("query")[1]
    assert {t.role: t.shape for t in query.outputs} == {"prediction": (N_STREAMS * 3, 1)}


@pytest.mark.long
def test_a_ring_gives_one_row_a_step_and_the_counter_stays_an_integer() -> None:
    model = Window().eval()
    made = lower(model, SIZES)
    assert names(made) == {"update": 1, "query": 1}  # nothing to ask but the next value
    assert made.rings == {"past": 1}
    assert made.state["n_points"].dtype == np.int64
    row = next(t for t in made.steps[0].outputs if t.role == "row")
    assert (row.name, row.of, row.shape) == ("past_row", "past", (N_STREAMS, 1, 2))
    assert {t.role for graph in made.steps for t in graph.inputs} == {"points.y", "state"}
    held, points = dict(made.state), []
    for step in range(6):
        y = normal(N_STREAMS, 2, seed=step)
        points.append(y)
        written = run_step(made, "update", held, y=y)
        held["past"] = held["past"].copy()
        held["past"][:, step % 4] = written["row", "past"][:, 0]
        held["n_points"] = written["state", "n_points"]
    mean = run_step(made, "query", held)["prediction", "mean"].reshape(N_STREAMS, 2)
    assert np.allclose(mean, np.mean(points[-4:], axis=0), rtol=0, atol=ROUNDING)


@pytest.mark.long
def test_a_model_with_refresh_and_consolidate_runs_as_in_pytorch() -> None:
    model = Welford().eval()
    made = lower(model, SIZES)
    assert set(names(made)) == {"update", "consolidate", "refresh", "query", "query_one"}
    assert made.consolidate_every == 8
    assert made.cache["offset"] == ((N_STREAMS, 3), np.dtype(np.float32))
    held = dict(made.state)
    total = np.zeros((N_STREAMS, 1), np.float32)
    for step in range(9):
        y = normal(N_STREAMS, 1, seed=step)
        total += y
        for name in ("update", "consolidate") if step == 7 else ("update",):
            written = run_step(made, name, held, y=y)
            held |= {of: array for (role, of), array in written.items() if role == "state"}
    cache = {of: array for (_, of), array in run_step(made, "refresh", held).items()}
    found = run_step(made, "query", cache, x=normal(N_STREAMS, 3, 1))
    expected = np.repeat(total / 9, 3, axis=1).ravel()
    assert np.allclose(found["prediction", "mean"].ravel(), expected, rtol=0, atol=ROUNDING)
    assert np.array_equal(found["prediction", "std"].ravel(), np.full(6, 14))


def test_tensors_that_a_step_does_not_touch_are_no_part_of_it() -> None:
    update = lower(Welford().eval(), SIZES).steps[0]
    assert {(t.role, t.of) for t in update.inputs} == {
        *(("points.y", "y"), ("state", "recent"), ("state", "x")),
    }
    assert {t.of for t in update.outputs} == {"recent", "x", "finite"}


def test_names_of_one_graph_never_meet() -> None:
    """The state has tensors named x, mean and mask, as inputs and predictions are named."""
    for graph in lower(Welford().eval(), SIZES).steps:
        found = [t.name for t in (*graph.inputs, *graph.outputs)]
        assert len(found) == len(set(found))
        declared = [v.name for v in (*graph.model.graph.input, *graph.model.graph.output)]
        assert declared == found


@pytest.mark.long
def test_a_filter_has_one_step_that_moves_its_state_along() -> None:
    made = lower(Filter().eval(), SIZES)
    assert names(made) == {"step": 1}
    held = dict(made.state)
    answers = []
    for step in range(4):
        written = run_step(made, "step", held, x=np.full((N_STREAMS, 3), step + 1, np.float32))
        answers.append(written["prediction", "delayed"][0, 0])
        held = {of: array for (role, of), array in written.items() if role == "state"}
    assert answers == [0, 0, 1, 2]


class Grown(Welford):
    """A state with two small tensors and a large one."""

    consolidate_every = 0
    consolidate = StreamingModel.consolidate

    def initial_state(self, n_streams: int = 1) -> State:
        large = torch.zeros(n_streams, 5000)
        small = {"a": torch.zeros(n_streams, 4), "b": torch.zeros(n_streams, 2, 3)}
        return {**small, "large": large, "mean": torch.zeros(n_streams, 1)}

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return {name: state[name] * y.reshape(-1, *(1,) * (state[name].ndim - 1)) for name in state}

    refresh = StreamingModel.refresh

    def query(self, cache: State, x: Tensor) -> State:
        mean = cache["mean"][:, None].expand(-1, x.shape[1], -1)
        return {"mean": mean, "std": mean.exp()}


@pytest.mark.long
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["a", "b", "mean"])
def test_the_default_check_is_finite_only_if_every_small_tensor_is(name: str, bad: float) -> None:
    made = lower(Grown().eval(), SIZES)
    held = {of: array.copy() for of, array in made.state.items()}
    held["a"][:] = 3e38  # finite, though the sum is not
    y = np.ones((N_STREAMS, 1), np.float32)
    assert np.array_equal(run_step(made, "update", held, y=y)["finite", "finite"], [0, 0])
    held[name].reshape(N_STREAMS, -1)[1, -1] = bad
    found = run_step(made, "update", held, y=y)["finite", "finite"]
    assert np.isfinite(found).tolist() == [True, False]


@pytest.mark.long
def test_cmanps_graphs_predict_what_the_trained_form_predicts() -> None:
    model = tiny_cmanp()
    made = lower(model, SIZES)
    assert names(made) == {
        **{"update": 1, "condition": 4, "consolidate": 0},
        **{"refresh": 0, "query": 3, "query_one": 1, "merge": 0},
    }
    state, held = model.initial_state(N_STREAMS), dict(made.state)
    mask = np.array([[True, False, True, True], [True, True, False, False]])
    for step in range(6):
        x, y = normal(N_STREAMS, 4, 2, seed=step), normal(N_STREAMS, 4, 1, seed=50 + step)
        points = [torch.from_numpy(array) for array in (x, y)]
        with torch.no_grad():
            state = model.condition(state, points[0], points[1], torch.from_numpy(mask))
            state = model.update(state, points[0][:, 0], points[1][:, 0])
        x[~mask], y[~mask] = np.nan, np.inf
        written = [run_step(made, "condition", held, x=x, y=y, mask=mask)]
        held |= {of: array for (role, of), array in written[0].items() if role == "state"}
        for name in ("update", "consolidate") if step == 3 else ("update",):
            written.append(run_step(made, name, held, x=x[:, :1], y=y[:, :1]))
            held |= {of: array for (role, of), array in written[-1].items() if role == "state"}
    cache = {of: array for (_, of), array in run_step(made, "refresh", held).items()}
    x = normal(N_STREAMS, 3, 2)
    with torch.no_grad():
        expected = model.query(model.refresh(state), torch.from_numpy(x))
    found = run_step(made, "query", cache, x=x)
    assert all(close(found["prediction", name], tensor) for name, tensor in expected.items())


@pytest.mark.long
def test_half_precision_lies_behind_the_state_only() -> None:
    made = lower(tiny_cmanp(), SIZES, "float16")
    assert {g.name for g in made.steps if g.precision == "float16"} == {
        *("refresh", "query", "query_one"),
    }
    assert {dtype for _, dtype in made.cache.values()} == {np.dtype(np.float16)}
    assert {array.dtype for array in made.state.values()} == {np.dtype(np.float32)}
    outputs = [t.dtype for g in made.of_step("query") for t in g.outputs]
    assert outputs == ["float32"] * 4


def test_the_same_model_gives_the_same_bytes() -> None:
    caches = (GraphCache(max_bytes=0), GraphCache(max_bytes=0))  # nothing stays in them
    torch.manual_seed(0)
    model = Gru().eval()
    first, second = (
        [
            graph.model.SerializeToString(deterministic=True)
            for graph in lower(model, SIZES, cache=c).steps
        ]
        for c in caches
    )
    assert first == second


def test_graphs_hold_nothing_of_where_they_were_made() -> None:
    for graph in lower(Gru().eval(), SIZES).steps:
        assert graph.model.ir_version <= 10
        assert b"small_models" not in graph.model.SerializeToString()
        assert not graph.model.metadata_props
        assert all(i.domain == "" and i.version <= 18 for i in graph.model.opset_import)
        onnx.checker.check_model(graph.model, full_check=True)


def test_lowering_leaves_the_model_as_it_was() -> None:
    model = Gru()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    lower(model, SIZES)
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def model_with(**overrides: Any) -> StreamingModel:
    """A GRU whose class has other attributes."""
    return type("Broken", (Gru,), overrides)().eval()  # type: ignore[no-any-return]


def returning(**tensors: Callable[[Tensor], Tensor]) -> Any:
    """An update that returns what functions of the hidden state give."""
    return lambda self, state, x, y: {n: f(state["hidden"]) for n, f in tensors.items()}


BREACHES = {
    "another name": ({"update": returning(other=lambda h: h)}, "other"),
    "another shape": ({"update": returning(hidden=lambda h: h[:, :2])}, r"\(2, 2\)"),
    "another type": ({"update": returning(hidden=lambda h: h.double())}, "float64"),
    "complex": ({"update": returning(hidden=lambda h: torch.complex(h, h))}, "complex"),
    "no dict": ({"update": lambda self, state, x, y: state["hidden"]}, "Tensor"),
    "no tensor": ({"update": lambda self, state, x, y: {"hidden": 1.0}}, "float"),
    "a finite of another shape": (
        {"update": returning(finite=lambda h: h.sum())},
        "finite",
    ),
    "a state that stays": ({"update": lambda self, state, x, y: state}, "changes no tensor"),
    "no std": ({"query": lambda self, cache, x: {"mean": x[..., :1]}}, "std"),
    "a mean of another shape": (
        {"query": lambda self, cache, x: {"mean": x, "std": x}},
        "mean",
    ),
    "consolidate without its rate": ({"consolidate": lambda self, state: state}, "consolidate"),
    "a rate without consolidate": ({"consolidate_every": 3}, "consolidate"),
    "streams that do not lead": (
        {"initial_state": lambda self, n=1: {"hidden": torch.zeros(6, n)}},
        "hidden",
    ),
    "no state": ({"initial_state": lambda self, n=1: {}}, "initial_state"),
    "a ring without its counter": ({"rings": {"hidden": Ring(1, "n")}}, "rings"),
    "no update": ({"update": StreamingModel.update}, "update"),
    "an error of its own": ({"update": lambda self, state, x, y: x @ x[0, :1]}, "test_steps.py:"),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_a_breach_of_the_contract_is_named(breach: str) -> None:
    overrides, named = BREACHES[breach]
    with pytest.raises(ExportError, match=named):
        lower(model_with(**overrides), SIZES)


@pytest.mark.parametrize(("first", "rise"), [(3, 1), (0, 0), (0, 2)])
def test_a_ring_whose_counter_disagrees_with_the_device_is_refused(first: int, rise: int) -> None:
    class Disagreeing(Window):
        def initial_state(self, n_streams: int = 1) -> State:
            state = super().initial_state(n_streams)
            return {**state, "n_points": state["n_points"] + first}

        def update(self, state: State, x: Tensor, y: Tensor) -> State:
            written = super().update(state, x, y)
            return {**written, "n_points": state["n_points"] + rise}

    with pytest.raises(ExportError, match="counter n_points"):
        lower(Disagreeing().eval(), SIZES)


class Together(Gru):
    """Targets that know of each other: their mean is shared among those that are real."""

    prediction = JointGaussian(2)

    def query(self, cache: State, x: Tensor, mask: Tensor | None = None) -> State:
        told = super().query(cache, x)
        real = torch.ones_like(x[..., :1]) if mask is None else mask[..., None].float()
        mean = (told["mean"] * real).sum(1, keepdim=True) / real.sum(1, keepdim=True)
        factor = (mean * real)[..., None].expand(-1, -1, -1, 2)
        return {**told, "mean": mean + 0 * told["mean"], "factor": factor}


@pytest.mark.long
def test_wide_queries_of_joint_predictions_take_a_mask() -> None:
    torch.manual_seed(0)
    model = Together().eval()
    made = lower(model, SIZES)
    query, query_one = (
        next(graph for graph in made.steps if graph.name == name) for name in ("query", "query_one")
    )
    masks = [t for t in query.inputs if t.role == "targets.mask"]
    assert [(t.shape, t.dtype) for t in masks] == [((N_STREAMS, 3), "bool")]
    assert all(t.role != "targets.mask" for t in query_one.inputs)
    state = model.initial_state(N_STREAMS)
    x, mask = normal(N_STREAMS, 3, 2), np.array([[True, True, False], [True, False, False]])
    found = run_step(made, "query", made.state, x=x, mask=mask)
    with torch.no_grad():
        expected = model.query(state, *map(torch.from_numpy, (x, mask)))
    assert all(close(found["prediction", name], t) for name, t in expected.items())
    x[~mask] = 9.0  # what is hidden
    again = run_step(made, "query", made.state, x=x, mask=mask)
    assert np.array_equal(again["prediction", "factor"], found["prediction", "factor"])
