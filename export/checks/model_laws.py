"""Run models in PyTorch for the checks, and check the laws that a bundle cannot be tested for."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from edgefold.export.checks.laws import (
    CheckFailedError,
    Law,
    NotApplicableError,
    answers,
    answers_afresh,
    distance,
    draw,
    is_users,
    joined_parts,
    require_close,
    require_learning,
    require_merge,
    targets,
)
from edgefold.export.checks.subjects import Arrays, Subject
from edgefold.export.graphs.step_graphs import Sizes
from edgefold.export.lowering.declare import StepDeclarer
from edgefold.export.lowering.guards import definition
from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import StepRefusedError
from edgefold.runtime.npz import write_npz
from edgefold.train.contract import (
    FINITE,
    State,
    StreamingModel,
    advance,
    can_merge,
    is_filter,
    overrides,
)
from edgefold.train.models.events.event_model import EventModel

STATE_TOLERANCE = 1e-5
"""Largest accepted difference of merged states from one of all points, as a share of a tensor's
largest number: float32 sums of 60 points in another order differ by some 1e-6."""


class TorchSubject(Subject):
    """Runs a model in PyTorch as a device would run it.

    It calls consolidate() where due, refuses a step that is not finite, and puts each new row into
    its ring, the state tensor that holds the last rows.
    """

    name = "PyTorch"

    def __init__(self, model: StreamingModel, n_streams: int = 2):
        self.model, self.n_streams = model, n_streams
        self.n_inputs, self.n_outputs = model.n_inputs, model.n_outputs
        self.kind, self.is_filter = model.prediction, is_filter(model)
        self.ordered, self.has_chunks = model.ordered, overrides(model, "condition")
        self.input_range, self.plausible_inputs = model.input_range, model.plausible_inputs
        self.capacity, self.when_full = model.capacity, model.when_full
        self.no_merge = "" if can_merge(model) else model.no_merge or "the model has no merge()"
        self.current: State = {}
        self._n_recent = 0

    def tensor(self, array: Array) -> Tensor:
        return torch.tensor(array, dtype=torch.float32)

    @torch.no_grad()
    def reset(self) -> None:
        self.current = dict(self.model.initial_state(self.n_streams))
        self._n_recent = 0

    @torch.no_grad()
    def update(self, x: Array, y: Array) -> None:
        n = x.shape[1]
        self._consolidate(n)
        points_x, points_y = self.tensor(x), self.tensor(y)
        if n == 1:
            written = self.model.update(self.current, points_x[:, 0], points_y[:, 0])
        else:
            written = self.model.condition(self.current, points_x, points_y)
        self._commit(written)

    @torch.no_grad()
    def query(self, x: Array) -> Arrays:
        return _arrays(self.model.query(self.model.refresh(self.current), self.tensor(x)))

    @torch.no_grad()
    def step(self, x: Array) -> Arrays:
        self._consolidate(1)
        written, answer = self.model.step(self.current, self.tensor(x))
        self._commit(written)
        return _arrays(answer)

    def _commit(self, written: State) -> None:
        finite = written.get(FINITE)
        if finite is not None and not torch.isfinite(finite).all():
            raise StepRefusedError("the step is not finite; the state is as before.")
        self.current = advance(self.model, self.current, written)

    def _consolidate(self, n: int) -> None:
        every = self.model.consolidate_every
        if every and self._n_recent >= every:
            self.consolidate()
        self._n_recent += n

    @torch.no_grad()
    def consolidate(self) -> None:
        """Bring the sums of the state into their accurate form now."""
        self.current = advance(self.model, self.current, self.model.consolidate(self.current))
        self._n_recent = 0

    def place(self, method: str) -> str:
        line = definition(self.model, method)
        return f" ({line})" if line and is_users(line) else ""

    def state(self) -> Arrays:
        return _arrays(self.current)

    def save(self, path: Path) -> None:
        tensors = {f"state.{name}": array for name, array in self.state().items()}
        n_recent = np.array(self._n_recent)
        write_npz(path.with_suffix(".npz"), {"n_recent": n_recent, **tensors})

    def restore(self, path: Path) -> None:
        self.current, self._n_recent = self._read(path)

    def merge(self, path: Path) -> None:
        other, n_recent = self._read(path)
        with torch.no_grad():
            self._commit(self.model.merge(self.current, other))
        self._n_recent = 0 if self.model.consolidate_every else self._n_recent + n_recent

    def _read(self, path: Path) -> tuple[State, int]:
        with np.load(path.with_suffix(".npz")) as archive:
            state = {name: torch.tensor(archive[f"state.{name}"]) for name in self.current}
            return state, int(archive["n_recent"])


def _declared(subject: TorchSubject, n_steps: int) -> str:
    declarer = StepDeclarer(subject.model, Sizes(8, 4, subject.n_streams))
    steps = declarer.steps()
    return f"{', '.join(step.name for step in steps)}; state {', '.join(declarer.state)}"


def _masked(subject: TorchSubject, n_steps: int) -> str:
    require_learning(subject)
    x, y = (subject.tensor(array) for array in draw(subject, 12))
    mask = torch.rand(x.shape[:2], generator=torch.Generator().manual_seed(0)) < 0.6
    x[~mask], y[~mask] = torch.nan, torch.nan
    points = subject.tensor(targets(subject))
    masked, differences = _predictions(subject.model, x, y, mask, points), []
    for stream in range(subject.n_streams):
        one, rows = slice(stream, stream + 1), mask[stream]
        single = _predictions(subject.model, x[one, rows], y[one, rows], None, points[one])
        differences.append(distance({name: array[one] for name, array in masked.items()}, single))
    problem = (
        f"masked rows of NaN change the prediction{subject.place('condition')}; replace them "
        "before computing: x = torch.where(mask[..., None], x, 0.0)"
    )
    return require_close(differences, subject.tolerance, problem)


def _masked_targets(subject: TorchSubject, n_steps: int) -> str:
    require_learning(subject)
    if not subject.kind.joint:
        raise NotApplicableError("targets are predicted independently of each other")
    query: Callable[..., Mapping[str, Tensor]] = subject.model.query
    points, differences = subject.tensor(targets(subject)), []
    mask = torch.rand(points.shape[:2], generator=torch.Generator().manual_seed(0)) < 0.6
    mask[:, 0] = True
    answers_afresh(subject, *draw(subject, 20))
    with torch.no_grad():
        cache = subject.model.refresh(subject.current)
        masked = _arrays(query(cache, points, mask))
        for stream, rows in enumerate(mask):
            single = _arrays(query(cache, points[:, rows])).items()
            seen = {name: array[stream, rows] for name, array in masked.items()}
            differences.append(distance(seen, {name: array[stream] for name, array in single}))
    problem = f"targets that the mask hides change others{subject.place('query')}"
    return require_close(differences, subject.tolerance, problem)


@torch.no_grad()
def _predictions(
    model: StreamingModel, x: Tensor, y: Tensor, mask: Tensor | None, points: Tensor
) -> Arrays:
    """Return predictions at targets (B, M, X) by the default forward(), not the model's own.

    Points x (B, n, X) and y (B, n, Y) are learned before, except where a mask (B, n) is False.
    """
    return _arrays(StreamingModel.forward(model, x, y, points, mask))


def _forward(subject: TorchSubject, n_steps: int) -> str:
    model = subject.model
    if not overrides(model, "forward"):
        raise NotApplicableError("the model has no forward() of its own")
    points, differences = subject.tensor(targets(subject)), []
    # A state of fixed capacity forgets what forward() still sees: both are given what it can hold.
    for n in (0, 1, min(40, subject.capacity or 40)):
        x, y = (subject.tensor(array) for array in draw(subject, n))
        ragged = torch.ones(x.shape[:2], dtype=torch.bool)
        ragged[0, x.shape[1] // 2 :] = False
        for mask in (None, ragged):
            with torch.no_grad():
                whole = _arrays(model(x, y, points, mask))
            differences.append(distance(whole, _predictions(model, x, y, mask, points)))
    fold = "step() token by token" if subject.is_filter else "query() after update()"
    problem = f"forward() is not {fold}{subject.place('forward')}"
    return require_close(differences, subject.tolerance, problem)


def _whole_sequence(subject: TorchSubject, n_steps: int) -> str:
    model = subject.model
    if not isinstance(model, EventModel):
        raise NotApplicableError("the model is none of events")
    x, _ = draw(subject, 40)
    subject.reset()
    steps = [subject.step(x[:, row])["log_likelihood"] for row in range(x.shape[1])]
    along, differences = np.concatenate(steps, 1), []  # (B, N)
    for mask in (None, np.arange(x.shape[1]) < np.arange(20, 20 + subject.n_streams)[:, None]):
        with torch.no_grad():
            flags = None if mask is None else torch.tensor(mask)
            whole = model.event_log_likelihood(subject.tensor(x), flags).numpy()
        real = np.ones(along.shape, bool) if mask is None else mask
        differences.append(distance({"of": whole[real]}, {"of": along[real]}))
    problem = (
        "event_log_likelihood() is not the log_likelihood of step() along the stream"
        f"{subject.place('event_log_likelihood')}"
    )
    return require_close(differences, subject.tolerance, problem)


def _merged_state(subject: TorchSubject, n_steps: int) -> str:
    require_merge(subject)
    x, y = draw(subject, 60)
    answers_afresh(subject, x, y)
    whole, differences = subject.state(), []
    with tempfile.TemporaryDirectory(prefix="edgefold-") as folder:
        for _ in joined_parts(subject, x, y, Path(folder)):
            found = subject.state()
            if subject.model.consolidate_every:  # whose two levels of sums may be cut anywhere
                subject.consolidate()
                whole = subject.state()
            for name, array in found.items():
                most = max(1.0, float(np.abs(whole[name]).max()))
                differences.append(distance({name: array / most}, {name: whole[name] / most}))
    worst = float(np.max(differences))
    if not worst <= STATE_TOLERANCE:
        raise CheckFailedError(
            f"merge() of parts gives another state than one stream of all points"
            f"{subject.place('merge')}: tensors differ by {worst:.1e} of their largest number. A "
            "model with consolidate() returns what that leaves as it is."
        )
    return f"to {worst:.1e} of each tensor's largest number"


def _for_device(subject: TorchSubject, n_steps: int) -> str:
    device = subject.model.for_device(subject.n_streams).eval()
    if device is subject.model:
        raise NotApplicableError("for_device() gives the model itself")
    other, differences = TorchSubject(device, subject.n_streams), []
    x, y = draw(subject, 400)
    subject.reset()
    other.reset()
    cuts = [0, 1, 2, 40, *range(41, 400, 9)]
    for start, stop in pairwise(n for n in cuts if n <= x.shape[1]):
        points = x[:, start:stop], y[:, start:stop]
        differences.append(distance(answers(other, *points), answers(subject, *points)))
    problem = f"what for_device() gives predicts something else{subject.place('for_device')}"
    return require_close(differences, subject.tolerance, problem)


def _arrays(tensors: Mapping[str, Tensor]) -> Arrays:
    return {name: tensor.detach().numpy().copy() for name, tensor in tensors.items()}


MODEL_CHECKS = (
    Law("steps are pure and return the declared names, shapes and types", _declared),
    Law("masked rows change nothing, NaN included", _masked),
    Law("masked targets are invisible", _masked_targets),
    Law("forward equals the fold", _forward),
    Law("a whole sequence has the likelihood of its steps", _whole_sequence),
    Law("merged states are the state of all points", _merged_state),
    Law("the device's form predicts the same", _for_device),
)
