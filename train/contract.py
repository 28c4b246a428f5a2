"""Define the contract of every streaming model: a state of fixed size, and functions on it.

A contract is the methods that a model must have, and the laws that hold between them.

Two kinds of models share it:

    learning kind    update(state, x, y) -> state      query(cache, x) -> prediction
    filtering kind   step(state, x) -> (state, prediction)

The functions are pure: they read their arguments and return new tensors. They write neither
arguments, nor buffers, nor attributes, and draw no random numbers. The laws, which
`edgefold verify` checks on any model:

    forward(xc, yc, xt)  ==  query(refresh(condition(initial_state(), xc, yc)), xt)
                         ==  the answers of step at xt, after step for each row of xc (filters)
    condition(s, x, y)   ==  update for each row of x and y in turn
    a masked row changes nothing, whatever it holds; streams of a batch do not influence each other
    names, shapes and types of the state never change

A model of the learning kind may say how two states join, `merge(state, other) -> state`:

    merge(condition(s, A), condition(s, B))  ==  condition(s, A and B)      with s = initial_state()
    merge(a, b) == merge(b, a)      merge(merge(a, b), c) == merge(a, merge(b, c))
    merge(a, s) == a                and a merged state is as `consolidate` leaves one

The points of both states must be disjoint: a point that both have learned counts twice. States join
stream by stream.

A method may leave out state tensors of what it returns: these stay as they were. It may add the
entry `finite`, (B,), a number that is finite only if all numbers of the step were. A step in which
`finite` is infinite or NaN is never committed: the state stays as before it. Without this entry the
exporter checks the small tensors of the state.

A model that needs random numbers computes them from the integer state tensor `seed`, (B,), which
the user of a stream sets and which no step changes (`random_numbers`). A model whose state holds a
limited number of points declares this number as `capacity`, and what becomes of a point beyond it
as `when_full`; the first law holds for as many points as the state can hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.bundle.manifest import SEED as SEED
from edgefold.runtime.bundle.manifest import WHEN_FULL as WHEN_FULL
from edgefold.runtime.predictions import Gaussian, PredictionKind
from edgefold.train.batch import Batch
from edgefold.train.published import Published

State = dict[str, Tensor]
"""Everything that a model keeps of the points so far: named tensors of fixed shape and any type,
whose first axis is the streams (B)."""

Cache = dict[str, Tensor]
"""Tensors that `query` reads, computed only from the state."""

Prediction = dict[str, Tensor]
"""Tensors of one prediction by name, in scaled units; the kind of prediction fixes their names."""

FINITE = "finite"


@dataclass(frozen=True, slots=True)
class Ring:
    """Describes a state tensor of which a step returns only one new row, to replace the oldest one.

    The row is written at `counter % length`, with the counter's value before the step. The counter
    is an integer state tensor that starts at 0 and that every step raises by 1. With `slot` the
    step itself returns the place of its row.

    Attributes:
        axis: Axis of the tensor along which its rows lie.
        counter: Name of the state tensor that counts the rows, (B,).
        slot: Name of an entry that the step returns in addition to the state: (B,), int64, the
            place of each stream's row, from 0 to length - 1. Empty where rows follow each other.
    """

    axis: int
    counter: str = ""
    slot: str = ""


class StreamingModel(nn.Module):
    """A model that learns or reads a stream of points and predicts; the base class of all models.

    Override `initial_state`, and `update` and `query` (learning kind), or `step` (filtering kind).
    Shapes: B streams, U points of one chunk, M targets, X inputs, Y outputs; X and Y may be 0.

    Attributes:
        n_inputs: X, the number of inputs of a point.
        n_outputs: Y, the number of outputs of a point.
        prediction: Kind of the predictions, as `Gaussian()`; it fixes which tensors each one has.
        ordered: Whether the order of points matters.
        consolidate_every: Number of points after which `consolidate` must run; 0 for never.
        rings: State tensors that are written one row at a time, by name.
        capacity: Number of points that the state can hold; 0 where any number fits.
        when_full: Rule for a point beyond the capacity: "refuse", "overwrite" the oldest one, or
            "reservoir", by which the state keeps a random sample of all points.
        no_merge: Why two states do not join, although the class has `merge`; "" where they do.
        input_range: Lowest and highest value of most scaled inputs; recorded streams are drawn from
            this range (and made likely by `plausible_inputs`).
        name: Name of the model, kept with every run and bundle; the class's name where it is empty.
        config: Settings that rebuild the model: a dataclass, or a mapping of the constructor's
            arguments.
        presets: Sets of settings by name; the first is taken unless another is asked for.
        training_defaults: Settings of the training that suit a preset, by the preset's name.
        published: Scores of papers to compare with, by task (for images by source, as "emnist" or
            "celeba-32") and then by name of the model; the model's own, if any, come first.
    """

    name: str = ""

    n_inputs: int = 1
    n_outputs: int = 1
    prediction: PredictionKind = Gaussian()
    ordered: bool = True
    consolidate_every: int = 0
    rings: Mapping[str, Ring] = MappingProxyType({})
    capacity: int = 0
    when_full: str = "refuse"
    no_merge: str = ""
    input_range: tuple[float, float] = (-2.0, 2.0)
    config: Any = MappingProxyType({})
    presets: ClassVar[Mapping[str, Any]] = {}
    training_defaults: ClassVar[Mapping[str, Any]] = {}
    published: ClassVar[Published] = {}

    def initial_state(self, n_streams: int = 1) -> State:
        """Return the state of B = n_streams streams before the first point; it may be nonzero."""
        raise NotImplementedError(f"{type(self).__name__} has no initial_state()")

    # Learning kind ------------------------------------------------------------------------------

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        """Learn one point of each stream, x (B, X) and y (B, Y); return the tensors that change."""
        raise NotImplementedError(f"{type(self).__name__} has no update()")

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        """Predict at the inputs x (B, M, X). Without `refresh` the cache is the state itself.

        Each tensor of the prediction is (B, M, *shape of one target). A model whose prediction is
        joint over targets takes a third argument, mask (B, M), True for real targets; without a
        mask all are real. Masked rows may hold any finite inputs, and change no other row.
        """
        raise NotImplementedError(f"{type(self).__name__} has no query()")

    def condition(self, state: State, x: Tensor, y: Tensor, mask: Tensor | None = None) -> State:
        """Learn U points at once: x (B, U, X), y (B, U, Y), mask (B, U), True for real rows.

        Override this method where the model can do it faster than by a loop over `update`: only
        then a bundle gets a graph for it.
        """
        if mask is not None:  # an update need not cope with what masked rows hold
            x, y = (torch.where(mask[..., None], points, 0.0) for points in (x, y))
        for row in range(x.shape[1]):
            following = advance(self, state, self.update(state, x[:, row], y[:, row]))
            state = following if mask is None else _where(mask[:, row], following, state)
        return state

    def refresh(self, state: State) -> Cache:
        """Compute the tensors that `query` reads from the state; by default they are the state.

        Override this method where a part of a query that depends only on the state is expensive.
        """
        return state

    def consolidate(self, state: State) -> State:
        """Return the state, rewritten so that its sums lose no digits; predictions stay the same.

        The runtime calls this between two steps, after every `consolidate_every` points. A filter's
        device form may also do other rare work here, as long as it answers as the filter does.
        """
        return state

    def merge(self, state: State, other: State) -> State:
        """Return the state that knows the points of two states, which have no point in common.

        The laws stand in this module's docstring. A model with `consolidate` joins its recent sums
        with the older ones of both states, as `consolidate` does, and returns empty recent sums:
        the runtime counts no point since the last consolidation afterwards. Tensors that are not
        returned stay those of `state`, as a seed does.
        """
        raise NotImplementedError(f"{type(self).__name__} has no merge()")

    # Filtering kind -----------------------------------------------------------------------------

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        """Read one input of each stream, x (B, X), and answer.

        Returns:
            The state tensors that change, and the prediction, each tensor (B, *shape of one
            target).
        """
        raise NotImplementedError(f"{type(self).__name__} has no step()")

    # Training and deployment --------------------------------------------------------------------

    def forward(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, mask: Tensor | None = None
    ) -> Prediction:
        """Learn all context points from an empty state and predict all targets, for training.

        Override this method where a batched form is faster. A filter reads x_context (B, N, X) and
        then x_target (B, M, X), and returns its answers to x_target, (B, M, *shape of one target).
        It does not read y_context; tokens whose mask (B, N) is False change nothing.
        """
        state = initial_state_for(self, x_context)
        if is_filter(self):
            state, _ = follow(self, state, x_context, mask)
            return follow(self, state, x_target)[1]
        written = self.condition(state, x_context, y_context, mask)
        return self.query(self.refresh(advance(self, state, written)), x_target)

    def log_likelihood(self, batch: Batch) -> Tensor:
        """Return the log-likelihood of each target of a batch in nats, (B, M).

        Where targets are predicted jointly it is (B, 1): the joint log-likelihood divided by the
        number of targets.
        """
        prediction = self(batch.x_context, batch.y_context, batch.x_target, batch.mask)
        likelihood: Tensor = self.prediction.log_likelihood(prediction, batch.y_target, torch)
        return likelihood

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return the loss, (): the mean negative log-likelihood of a target by default.

        Random numbers come only from the generator, so that a resumed training repeats them.
        """
        return -self.log_likelihood(batch).mean()

    def prepare(self, draw: Callable[[int], Batch], generator: torch.Generator) -> None:
        """Set, before the first step of a training, the tensors that gradients do not change.

        By default there are none, and it does nothing.

        Args:
            draw: Returns a batch of training tasks when it is called with their number.
            generator: Source of random numbers.
        """

    @property
    def n_stages(self) -> int:
        """Return the number of stages of a training, which have about equally many steps.

        The learning rate rises and falls in each of them. The first one begins with `prepare`, the
        others with `prepare_stage`.
        """
        return 1

    def prepare_stage(
        self, stage: int, draw: Callable[[int], Batch], generator: torch.Generator
    ) -> None:
        """Set tensors that gradients do not change before stage `stage` of a training, from 1 on.

        The other arguments are those of `prepare`.
        """

    def tokens_read(self, batch: Batch) -> Tensor | None:
        """Return the number of tokens that the prediction of each target attends to, (B, M).

        They are tokens of the context, or latents that stand for it. Return None where the model
        does not count them.
        """
        return None

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        """Return the model rewritten for a device: the same predictions from another state.

        Args:
            n_streams: B, the number of streams, which is fixed on a device.
            dtype: Element type of `refresh`, `query` and the cache: "float32" or "float16". A model
                that ignores it is narrowed by the exporter.
        """
        return self

    def plausible_inputs(self, drawn: FloatArray) -> FloatArray:
        """Return scaled inputs as streams have them, (B, N, X): by default, as they were `drawn`.

        Recorded streams and the checks of the contract get their points from it. Override it where
        columns have a meaning of their own, such as flags or counts.

        Args:
            drawn: Random numbers, evenly distributed over `input_range`, (B, N, X).
        """
        return drawn

    def settings(self) -> dict[str, Any]:
        """Return the settings in `config` as a dictionary for JSON."""
        return asdict(self.config) if is_dataclass(self.config) else dict(self.config)  # type: ignore[arg-type]

    def upgraded(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return weights that an older version of the model saved, under the names of today."""
        return dict(tensors)

    @property
    def summary(self) -> str:
        """Describe the model in a few words, for reports."""
        return type(self).__name__


def overrides(model: StreamingModel | type[StreamingModel], method: str) -> bool:
    """Return whether a model or a class of models overrides an optional method."""
    cls = model if isinstance(model, type) else type(model)
    return getattr(cls, method) is not getattr(StreamingModel, method)


def is_filter(model: StreamingModel | type[StreamingModel]) -> bool:
    """Return whether a model or a class of models is of the filtering kind."""
    return overrides(model, "step")


def can_merge(model: StreamingModel) -> bool:
    """Return whether two states of a model join: it has `merge`, and nothing speaks against it."""
    return overrides(model, "merge") and not model.no_merge


def room_of(model: StreamingModel) -> int | None:
    """Return how many points a model takes before it refuses more; None where it refuses none."""
    return model.capacity if model.capacity and model.when_full == "refuse" else None


def initial_state_for(model: StreamingModel, points: Tensor) -> State:
    """Return the empty state of B streams, on the device of the points (B, ...)."""
    if points.device.type == "cpu":
        state = model.initial_state(len(points))
    else:  # made there: a CUDA graph captures no copy from the CPU
        with points.device:
            state = model.initial_state(len(points))
    return {name: tensor.to(points.device) for name, tensor in state.items()}


def advance(model: StreamingModel, state: State, written: State) -> State:
    """Return the state after a step: tensors (or rows of rings) in `written` replace the old."""
    return commit(model.rings, state, written)


def commit(
    rings: Mapping[str, Ring], state: State, written: State, in_place: bool = False
) -> State:
    """Return the state after a step, as `advance` does, where a model's rings are known by name.

    Args:
        rings: State tensors of which a step returns one row, by name.
        state: The state before the step.
        written: The tensors that the step returned.
        in_place: Whether rings are written where they lie, so that the state before is lost.
    """
    following = dict(state)
    reported = {FINITE, *(ring.slot for ring in rings.values())}
    for name, tensor in written.items():
        if name in reported:
            continue
        ring = rings.get(name)
        if ring is None or tensor.shape == state[name].shape:  # condition() gives whole rings
            following[name] = tensor
        else:
            # Each stream has its own slot: their counters differ after masked rows.
            if ring.slot:
                slot = written[ring.slot]
            else:
                slot = state[ring.counter].long() % state[name].shape[ring.axis]
            put = state[name].scatter_ if in_place else state[name].scatter
            following[name] = put(ring.axis, _along(slot, tensor).expand_as(tensor), tensor)
    return following


def follow(
    model: StreamingModel, state: State, x: Tensor, mask: Tensor | None = None
) -> tuple[State, Prediction]:
    """Let a filter read tokens x (B, N, X); return its state after them, and all its answers.

    Each tensor of the answers is (B, N, *shape). Tokens whose mask (B, N) is False change no state,
    whatever they hold. Without tokens the dictionary of answers is empty.
    """
    if mask is not None:  # a step need not cope with what masked rows hold
        x = torch.where(mask[..., None], x, 0.0)
    answers: list[Prediction] = []
    for row in range(x.shape[1]):
        written, answer = model.step(state, x[:, row])
        following = advance(model, state, written)
        state = following if mask is None else _where(mask[:, row], following, state)
        answers.append(answer)
    names = answers[0] if answers else ()
    return state, {name: torch.stack([answer[name] for answer in answers], 1) for name in names}


def _where(real: Tensor, following: State, state: State) -> State:
    """Return the following state for streams where real (B,) is True, for others the old one."""
    return {
        name: torch.where(_along(real, tensor), tensor, state[name])
        for name, tensor in following.items()
    }


def _along(flags: Tensor, tensor: Tensor) -> Tensor:
    """Reshape numbers (B,), one a stream, so that they broadcast over a tensor (B, ...)."""
    return flags.reshape(-1, *(1,) * (tensor.ndim - 1))
