"""Models that break the contract: the check of the broken law fails, and says where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from edgefold.export.checks.laws import CHECKS, FAILED, PASSED, SKIPPED, Verdict
from edgefold.export.checks.model_laws import MODEL_CHECKS, TorchSubject
from edgefold.export.checks.verification import telling_streams, verify
from edgefold.export.graphs.step_graphs import Sizes
from edgefold.runtime.predictions import Categorical
from edgefold.train.contract import Cache, Prediction, Ring, State, StreamingModel


class Sound(StreamingModel):
    """A running mean of embedded points, which keeps every law."""

    ordered = False

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Linear(2, 8)
        self.head = nn.Linear(9, 2)

    def initial_state(self, n_streams: int = 1) -> State:
        like = self.embed.weight
        return {"total": like.new_zeros(n_streams, 8), "n": like.new_ones(n_streams, 1)}

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        point = torch.tanh(self.embed(torch.cat([x, y], -1)))
        return {"total": state["total"] + point, "n": state["n"] + 1}

    def condition(self, state: State, x: Tensor, y: Tensor, mask: Tensor | None = None) -> State:
        points = torch.tanh(self.embed(torch.cat([x, y], -1)))
        kept = torch.ones_like(x[..., :1]) if mask is None else mask[..., None].to(x.dtype)
        points = torch.where(kept > 0, points, 0.0)
        return {"total": state["total"] + points.sum(1), "n": state["n"] + kept.sum(1)}

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        mean = (cache["total"] / cache["n"])[:, None].expand(-1, x.shape[1], -1)
        told, spread = self.head(torch.cat([mean, x], -1)).chunk(2, -1)
        return {"mean": told, "std": torch.exp(spread)}

    def forward(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, mask: Tensor | None = None
    ) -> Prediction:
        state = self.initial_state(len(x_context))
        return self.query(self.condition(state, x_context, y_context, mask), x_target)

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return self


class Counts(Sound):
    n_seen = 0

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        self.n_seen += 1
        return super().update(state, x * self.n_seen, y)


class StartsEmpty(Sound):
    def initial_state(self, n_streams: int = 1) -> State:
        return {name: 0 * tensor for name, tensor in super().initial_state(n_streams).items()}


class NegativeStd(Sound):
    def query(self, cache: Cache, x: Tensor) -> Prediction:
        return {name: -torch.exp(t) for name, t in super().query(cache, x).items()}


class Deaf(Sound):
    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return {"total": state["total"] * 1}

    condition = StreamingModel.condition


class Grows(Sound):
    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        following = super().update(state, x, y)
        return following | {"n": torch.cat([state["n"], following["n"]], -1)[:, -2:]}

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        return super().query(cache | {"n": cache["n"][:, -1:]}, x)


class LayersFirst(Sound):
    """As torch.nn.GRU keeps its state: the first axis is that of layers, and there are two."""

    def initial_state(self, n_streams: int = 1) -> State:
        like = self.embed.weight
        return {"h": like.new_zeros(2, n_streams, 8)}

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        h = torch.tanh(0.9 * state["h"] + self.embed(torch.cat([x, y], -1)))
        return {"h": torch.stack([h[0], h[1] + h[0]])}

    condition = StreamingModel.condition
    forward = StreamingModel.forward

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        mean = cache["h"][-1][:, None].expand(-1, x.shape[1], -1)
        told, spread = self.head(torch.cat([mean, x], -1)).chunk(2, -1)
        return {"mean": told, "std": torch.exp(spread)}


class Leaves(Sound):
    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        raise SystemExit(0)


class Widens(Sound):
    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return {name: t.double() for name, t in super().update(state, x, y).items()}

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        return super().query({name: t.float() for name, t in cache.items()}, x)

    condition = StreamingModel.condition


class Overflows(Sound):
    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return {name: 2 * t for name, t in super().update(state, x, y).items()}


class OtherChunks(Sound):
    def condition(self, state: State, x: Tensor, y: Tensor, mask: Tensor | None = None) -> State:
        return super().condition(state, x[:, 1:], y[:, 1:], None if mask is None else mask[:, 1:])


class Ordered(Sound):
    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return super().update(state | {"total": 0.9 * state["total"]}, x, y)

    condition = StreamingModel.condition


class QueryWrites(Sound):
    def query(self, cache: Cache, x: Tensor) -> Prediction:
        prediction = super().query(cache, x)
        cache["n"].add_(1)
        return prediction


class StreamsMeet(Sound):
    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return super().update(state, x - x.mean(0), y)


class Hides(Sound):
    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        self.last = y
        return super().update(state, x, y)

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        prediction = super().query(cache, x)
        return prediction | {
            "mean": prediction["mean"] + getattr(self, "last", 0 * x[:, 0])[:, None]
        }

    condition = StreamingModel.condition


class SeesMasked(Sound):
    def condition(self, state: State, x: Tensor, y: Tensor, mask: Tensor | None = None) -> State:
        return super().condition(state, x, y)


class OtherForward(Sound):
    def forward(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, mask: Tensor | None = None
    ) -> Prediction:
        return super().forward(x_context, y_context, x_target)


class OtherDevice(Sound):
    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        torch.manual_seed(1)
        device = Sound()
        device.head = nn.Linear(9, 2)
        return device


class Counted(Sound):
    """Counts values in bins, which NaN has none of."""

    def initial_state(self, n_streams: int = 1) -> State:
        return super().initial_state(n_streams) | {"bins": torch.zeros(n_streams, 4).long()}

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        place = (y[:, 0] + 2).clamp(0, 3).long()
        bins = state["bins"] + nn.functional.one_hot(place, 4)
        return super().update(state, x, y) | {"bins": bins}

    condition = StreamingModel.condition


class LeavesOut(Sound):
    """Has a state that condition() does not touch."""

    def initial_state(self, n_streams: int = 1) -> State:
        return super().initial_state(n_streams) | {"prior": torch.ones(n_streams, 1)}

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        return super().query({**cache, "n": cache["n"] + cache["prior"]}, x)

    forward = StreamingModel.forward


class Raises(Sound):
    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return {"total": state["total"] + x @ self.embed.weight}


class Joins(Sound):
    """Says how two states join; its number of points starts at 1, which must not count twice."""

    def merge(self, state: State, other: State) -> State:
        return {"total": state["total"] + other["total"], "n": state["n"] + other["n"] - 1}


class JoinsTooMuch(Joins):
    def merge(self, state: State, other: State) -> State:
        return {name: state[name] + other[name] for name in state}


class JoinsNothing(Joins):
    def merge(self, state: State, other: State) -> State:
        return {"n": state["n"] + other["n"] - 1}


class JoinsAsFilter(Joins):
    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        return self.update(state, x, x), self.query(state, x[:, None])


class JoinsInOrder(Joins):
    ordered = True


class JoinsInWords(JoinsInOrder):
    no_merge = "points of one day come before those of the next"


class JoinsRings(Joins):
    rings: Mapping[str, Ring] = {"past": Ring(1, "n_points")}

    def initial_state(self, n_streams: int = 1) -> State:
        past = {"past": torch.zeros(n_streams, 3, 1), "n_points": torch.zeros(n_streams).long()}
        return super().initial_state(n_streams) | past


class JoinsOnlyInPyTorch(Joins):
    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        device = Sound()
        device.load_state_dict(self.state_dict())
        return device


PURE = "steps are pure and return the declared names, shapes and types"
FIXED = "names, shapes and types of the state never change"
EMPTY = "the empty state predicts finite numbers"
MERGED_STATE = "merged states are the state of all points"
MERGED = "merged states predict as one that knows all points"
RESTORED = "a restored state continues like an uninterrupted run"


def verdict(model: StreamingModel, law: str) -> Verdict:
    check = next(check for check in (*MODEL_CHECKS, *CHECKS) if check.name == law)
    return check.verdict(TorchSubject(model.eval(), 2), 200)


def test_a_sound_model_keeps_every_law() -> None:
    found = {check.name: verdict(Sound(), check.name).verdict for check in (*MODEL_CHECKS, *CHECKS)}
    assert {name for name, verdict in found.items() if verdict == SKIPPED} == {
        "the device's form predicts the same",  # it has none of its own
        "a full state does what when_full says",  # nor a capacity
        "a whole sequence has the likelihood of its steps",  # nor events
        "masked targets are invisible",  # nor joint predictions
        "an earlier query's targets are invisible",
        MERGED_STATE,  # nor merge()
        MERGED,
    }
    assert set(found.values()) == {PASSED, SKIPPED}


@pytest.mark.parametrize(
    ("broken", "law", "told"),
    [
        (Counts, PURE, "n_seen"),
        (Raises, PURE, "test_verify.py:"),
        (Leaves, PURE, "SystemExit"),
        (Leaves, FIXED, "SystemExit"),
        (Grows, PURE, "(2, 2)"),
        (StartsEmpty, EMPTY, "initial_state()"),
        (NegativeStd, EMPTY, "std is not positive"),
        (Hides, EMPTY, "outside the state"),
        (Deaf, "points change the prediction", "return the new state"),
        (Grows, FIXED, "(2, 2)"),
        (Widens, FIXED, "float64"),
        (Overflows, FIXED, "not finite after 200 points"),
        (Raises, FIXED, "test_verify.py:"),
        (OtherChunks, "a chunk equals single updates", "condition()"),
        (Ordered, "any order of points gives the same prediction", "ordered = True"),
        (QueryWrites, "a query writes nothing", "query()"),
        (StreamsMeet, "streams do not influence each other", "first axis"),
        (Hides, RESTORED, "outside the state"),
        (SeesMasked, "masked rows change nothing, NaN included", "torch.where"),
        (OtherForward, "forward equals the fold", "forward()"),
        (OtherDevice, "the device's form predicts the same", "for_device()"),
        (JoinsTooMuch, MERGED_STATE, "test_verify.py:"),
        (JoinsTooMuch, MERGED, "initial_state() change nothing"),
        (JoinsNothing, MERGED, "merge()"),
        (JoinsAsFilter, PURE, "a filter answers each input"),
        (JoinsInOrder, PURE, "the order of points matters"),
        (JoinsRings, PURE, "it has rings"),
    ],
)
def test_a_broken_law_is_named(broken: Callable[[], StreamingModel], law: str, told: str) -> None:
    found = verdict(broken(), law)
    assert (found.verdict, found.name) == (FAILED, f"PyTorch: {law}")
    assert told in found.detail


def test_a_whole_model_is_verified_in_pytorch_and_as_a_bundle() -> None:
    said: list[str] = []
    report = verify(Sound().eval(), Sizes(8, 4, 2), 100, said.append)
    assert report.passed
    names = [row.name for row in report.rows]
    assert [name for name in names if name.startswith("PyTorch: ")] == [
        f"PyTorch: {check.name}" for check in (*MODEL_CHECKS, *CHECKS)
    ]
    assert [name for name in names if name.startswith("bundle: ")][1:] == [
        f"bundle: {check.name}" for check in CHECKS
    ]
    assert set(said) >= set(names[: -len(CHECKS) - 1]) | set(names[-len(CHECKS) :])


@pytest.mark.parametrize("model", [Counted, LeavesOut])
def test_the_default_methods_serve_models_that_write_only_what_they_must(
    model: Callable[[], StreamingModel],
) -> None:
    found = verify(model().eval(), Sizes(8, 4, 2), 100).rows
    assert [f"{row.name}: {row.detail}" for row in found if row.verdict == FAILED] == []


def test_a_model_that_joins_states_keeps_every_law_and_so_does_its_bundle() -> None:
    report = verify(Joins().eval(), Sizes(8, 4, 2), 100)
    verdicts = {row.name: row.verdict for row in report.rows}
    assert report.passed
    names = (f"PyTorch: {MERGED_STATE}", f"PyTorch: {MERGED}", f"bundle: {MERGED}")
    assert [verdicts[name] for name in names] == [PASSED] * 3


def test_a_model_may_say_why_its_states_do_not_join() -> None:
    found = verdict(JoinsInWords(), MERGED)
    assert (found.verdict, found.detail) == (SKIPPED, JoinsInWords.no_merge)
    assert verdict(JoinsInWords(), PURE).verdict == PASSED


def test_a_device_form_that_cannot_join_states_is_refused() -> None:
    report = verify(JoinsOnlyInPyTorch().eval(), Sizes(8, 4, 1), 100)
    assert report.rows[-1].verdict == FAILED
    assert "its device form Sound has none" in report.rows[-1].detail


def test_graphs_that_predict_something_else_fail() -> None:
    report = verify(OtherDevice().eval(), Sizes(8, 4, 1), 100)
    found = [row.name for row in report.rows if row.verdict == FAILED]
    assert found == [
        "PyTorch: the device's form predicts the same",
        "bundle: the graphs give PyTorch's predictions along a stream",
    ]


def test_a_model_whose_steps_cannot_run_is_not_exported() -> None:
    report = verify(Raises().eval(), Sizes(8, 4, 1), 100)
    assert not report.passed
    assert report.rows[-1] == replace(report.rows[-1], verdict=SKIPPED)


def test_class_scores_are_drawn_as_numbers_of_classes() -> None:
    class Scores(Sound):
        prediction = Categorical(2)

        def update(self, state: State, x: Tensor, y: Tensor) -> State:
            assert bool(((y == 0) | (y == 1)).all())
            return super().update(state, x, y)

        def query(self, cache: Cache, x: Tensor) -> Prediction:
            told = super().query(cache, x)
            return {"scores": torch.cat([told["mean"], told["std"]], -1)}

    assert verdict(Scores(), FIXED).verdict == PASSED


def test_a_state_whose_first_axis_is_that_of_layers_is_refused() -> None:
    assert telling_streams(LayersFirst(), 2) == 3
    report = verify(LayersFirst().eval(), Sizes(8, 4, 2), 40)
    assert report.rows[0].verdict == FAILED
    assert "(2, 3, 8)" in report.rows[0].detail


def test_a_model_that_ends_python_fails_every_check_that_calls_it() -> None:
    report = verify(Leaves().eval(), Sizes(8, 4, 2), 40)
    assert not report.passed and "SystemExit" in report.rows[0].detail
