"""Check the laws of the contract on a subject: a model that runs in PyTorch or as a bundle.

`edgefold verify` and the tests run these checks. A check gives a verdict in words: what was
expected, what was measured, and what to change in the model's file.
"""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from edgefold.export.checks.subjects import TOLERANCES, Arrays, Subject
from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import EdgefoldError
from edgefold.runtime.predictions import Categorical, Gaussian, GaussianMixture, JointGaussian

ROOT = Path(__file__).parents[2]
NORMAL = (Gaussian, GaussianMixture, JointGaussian)
"""Kinds of predictions whose tensor `std` must be positive."""
PASSED, FAILED, SKIPPED = "passed", "FAILED", "skipped"


class CheckFailedError(Exception):
    """Reports that a law does not hold; the message says what to change."""


class NotApplicableError(Exception):
    """Reports that a law does not apply to this subject; the message says why."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Holds the result of one check.

    Attributes:
        name: Names of the subject and of the law, as "bundle: a query writes nothing".
        verdict: The result: "passed", "FAILED" or "skipped".
        detail: The measured number, the reason of a skip, or what to change after a failure.
    """

    name: str
    verdict: str
    detail: str


@dataclass(frozen=True, slots=True)
class Law:
    """Holds a law of the contract and the function that checks it.

    Attributes:
        name: The law as a sentence.
        run: Function that checks the law; it takes a subject and a number of steps, and returns
            what it measured, in words.
    """

    name: str
    run: Callable[[Any, int], str]

    def verdict(self, subject: Subject, n_steps: int = 1000) -> Verdict:
        """Check the law on a subject and return a verdict, also where the model's code fails."""
        try:
            outcome, detail = PASSED, self.run(subject, n_steps)
        except NotApplicableError as reason:
            outcome, detail = SKIPPED, str(reason)
        except (CheckFailedError, EdgefoldError) as failure:
            outcome, detail = FAILED, str(failure)
        except (Exception, SystemExit) as error:  # a model's sys.exit() would end the checks
            outcome, detail = FAILED, explained(error)
        return Verdict(f"{subject.name}: {self.name}", outcome, detail)


def explained(error: BaseException) -> str:
    """Return an error of the model's code as text, with the line of that code where known."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"{frame.filename}:{frame.lineno}" for frame in frames if is_users(frame.filename)]
    return f"{type(error).__name__}: {error}{f' ({lines[-1]})' if lines else ''}"


def is_users(file: str) -> bool:
    """Return whether a file may hold a model's own code, not the exporter's or a package's."""
    ours = (str(ROOT / part) for part in ("export", "runtime", "train/contract.py"))
    return not file.startswith(("<", *ours)) and "site-packages" not in Path(file).parts


# What checks have in common ---------------------------------------------------------------------


def draw(subject: Subject, n: int, seed: int = 0) -> tuple[Array, Array]:
    """Draw n points, or as many as the state takes: x (B, n, X) and y (B, n, Y), scaled."""
    n = n if subject.room is None else min(n, subject.room)
    random = np.random.default_rng(seed)
    lead = (subject.n_streams, n)
    drawn = random.uniform(*subject.input_range, (*lead, subject.n_inputs))
    x = subject.plausible_inputs(drawn)
    noise = random.normal(0, 0.1, (*lead, subject.n_outputs))
    if isinstance(subject.kind, Categorical):
        return x, random.integers(0, subject.kind.n_classes, noise.shape).astype(float)
    return x, np.sin(2 * x.sum(-1, keepdims=True)) + noise


def targets(subject: Subject) -> Array:
    """Return inputs of a query, (B, M, X), evenly spread over the model's range."""
    n = 5 if subject.n_inputs else 1
    points = np.linspace(*subject.input_range, n)[None, :, None]
    return np.broadcast_to(points, (subject.n_streams, n, subject.n_inputs))


def answers(subject: Subject, x: Array, y: Array) -> Arrays:
    """Let a subject learn points x (B, n, X) and y (B, n, Y); return its predictions at `targets`.

    The first half is learned as one chunk, the other points one by one. A filter reads x one by
    one, and its answers to the last x are returned.
    """
    prediction: Arrays = {}
    chunk = 0 if subject.is_filter else x.shape[1] // 2
    if chunk:
        subject.update(x[:, :chunk], y[:, :chunk])
    for row in range(chunk, x.shape[1]):
        if subject.is_filter:
            prediction = subject.step(x[:, row])
        else:
            subject.update(x[:, row : row + 1], y[:, row : row + 1])
    return prediction or subject.query(targets(subject))


def answers_afresh(subject: Subject, x: Array, y: Array) -> Arrays:
    """Reset a subject, then give it points and return its predictions, as `answers` does."""
    subject.reset()
    return answers(subject, x, y)


def distance(one: Arrays, other: Arrays) -> float:
    """Return the largest |one - other| / max(1, |other|) of two predictions; NaN if one is NaN."""
    differences = [
        np.max(np.abs(one[name] - other[name]) / np.maximum(1, np.abs(other[name])))
        for name in other
    ]
    return float(np.max(differences))


def require_close(differences: float | Sequence[float], tolerance: float, problem: str) -> str:
    """Refuse differences that are NaN or above a tolerance; return the largest one in words.

    The error, CheckFailedError, begins with `problem`.
    """
    worst = float(np.max(differences))
    if not worst <= tolerance:
        raise CheckFailedError(f"{problem}: predictions differ by {worst:.1e}.")
    return f"to {worst:.1e}"


def require_learning(subject: Subject) -> None:
    """Raise NotApplicableError for a filter, which has no update() and query()."""
    if subject.is_filter:
        raise NotApplicableError("a model with step() takes one input at a time")


# Checks of any subject --------------------------------------------------------------------------


def _empty_state(subject: Subject, n_steps: int) -> str:
    first = 1 if subject.is_filter else 0
    x, y = draw(subject, 3)
    prediction = answers_afresh(subject, x[:, :first], y[:, :first])
    for name, array in prediction.items():
        if not np.isfinite(array).all():
            raise CheckFailedError(
                f"{name} of the empty state is not finite{subject.place('query')}; give "
                "initial_state() values from which a prediction can be computed."
            )
    if isinstance(subject.kind, NORMAL) and not (prediction["std"] > 0).all():
        raise CheckFailedError("std is not positive; end with softplus(...) + 1e-3, or exp.")
    answers(subject, x, y)
    if distance(answers_afresh(subject, x[:, :first], y[:, :first]), prediction) > 0:
        raise CheckFailedError(
            "after three points and a reset it predicts something else: something is kept outside "
            "the state. Put it into initial_state() and return it."
        )
    return "and a reset brings it back"


def _points_matter(subject: Subject, n_steps: int) -> str:
    x, y = draw(subject, 20)
    few = slice(-1, None) if subject.is_filter else slice(0)
    before = answers_afresh(subject, x[:, few], y[:, few])
    change, n = distance(answers_afresh(subject, x, y), before), x.shape[1]
    if not change > TOLERANCES["float32"]:
        at = subject.place("step" if subject.is_filter else "update")
        raise CheckFailedError(
            f"{n} points change the prediction by {change:.1e}{at}; return the new state, under "
            "the names that initial_state() gives, and read it."
        )
    return f"by {change:.1e} after {n}"


def _fixed_point(subject: Subject, n_steps: int) -> str:
    subject.reset()
    before = {name: (array.shape, array.dtype) for name, array in subject.state().items()}
    at = subject.place("step" if subject.is_filter else "update")
    x, y = draw(subject, n_steps)
    all_that_fit = ", all that it holds" if x.shape[1] < n_steps else ""
    n_steps = x.shape[1]
    for row in range(n_steps):
        points = x[:, row : row + 1], y[:, row : row + 1]
        _ = subject.step(x[:, row]) if subject.is_filter else subject.update(*points)
        if row and row < n_steps - 1:
            continue
        after = subject.state()
        for name in {**before, **after}:
            form = (after[name].shape, after[name].dtype) if name in after else None
            if form != before.get(name):
                raise CheckFailedError(
                    f"the state's {name} is {_form(before.get(name))} at the start and "
                    f"{_form(form)} after {row + 1} points{at}; return it in the shape and type "
                    "of initial_state()."
                )
    for name, array in after.items():
        if not np.isfinite(array).all():
            raise CheckFailedError(
                f"the state's {name} is not finite after {n_steps} points{at}; bound what grows."
            )
    return f"over {n_steps} points{all_that_fit}"


def _form(form: tuple[tuple[int, ...], np.dtype[Any]] | None) -> str:
    return f"{form[0]} {form[1]}" if form else "missing"


def _chunks(subject: Subject, n_steps: int) -> str:
    require_learning(subject)
    if not subject.has_chunks:
        raise NotApplicableError("the model has no condition() of its own: chunks are loops")
    x, y = draw(subject, 90)
    subject.reset()
    n = x.shape[1]
    for start, stop in pairwise([*(cut for cut in (0, 1, 4, 8, 41, 43) if cut < n), n]):
        subject.update(x[:, start:stop], y[:, start:stop])
    chunked = subject.query(targets(subject))
    subject.reset()
    for row in range(n):
        subject.update(x[:, row : row + 1], y[:, row : row + 1])
    difference = distance(chunked, subject.query(targets(subject)))
    problem = f"condition() on chunks is not update() on their points{subject.place('condition')}"
    return require_close(difference, subject.tolerance, problem)


def _any_order(subject: Subject, n_steps: int) -> str:
    if subject.ordered:
        raise NotApplicableError("the order of points matters (`ordered`)")
    require_learning(subject)
    x, y = draw(subject, 70)
    order = np.random.default_rng(1).permutation(x.shape[1])
    straight = answers_afresh(subject, x, y)
    difference = distance(answers_afresh(subject, x[:, order], y[:, order]), straight)
    problem = "the same points in another order change the prediction; set ordered = True"
    return require_close(difference, subject.tolerance, problem)


def _query_writes_nothing(subject: Subject, n_steps: int) -> str:
    require_learning(subject)
    at = subject.place("query")
    first = answers_afresh(subject, *draw(subject, 40))
    before = subject.state()
    if distance(subject.query(targets(subject)), first) > 0:
        raise CheckFailedError(
            f"a second query gives another prediction{at}; query() must depend on its arguments "
            "alone."
        )
    for name, array in subject.state().items():
        if not np.array_equal(array, before[name], equal_nan=True):
            raise CheckFailedError(f"query() changes the state's {name}{at}; compute on a copy.")
    return "and repeats itself"


def _targets_apart(subject: Subject, n_steps: int) -> str:
    require_learning(subject)
    if not subject.kind.joint:
        raise NotApplicableError("targets are predicted independently of each other")
    points = targets(subject)
    few = points[:, :-2]
    answers_afresh(subject, *draw(subject, 20))
    first = subject.query(few)
    subject.query(0.5 * points)  # other numbers stay in what a query of few leaves free
    problem = "what an earlier query asked for changes a later one; hide it by the mask"
    return require_close(distance(subject.query(few), first), 0.0, problem)


def _streams_apart(subject: Subject, n_steps: int) -> str:
    if subject.n_streams == 1:
        raise NotApplicableError("one stream only")
    x, y = draw(subject, 50)
    first = {name: array[:1] for name, array in answers_afresh(subject, x, y).items()}
    x[1:], y[1:] = x[1:, ::-1].copy(), y[1:, ::-1].copy()
    again = {name: array[:1] for name, array in answers_afresh(subject, x, y).items()}
    problem = (
        "other points in stream 1 change what stream 0 predicts; keep the first axis (B) apart in "
        "sums, means and indices"
    )
    return require_close(distance(again, first), subject.tolerance / 20, problem)


def _restored(subject: Subject, n_steps: int) -> str:
    x, y = draw(subject, 300)
    n = 2 * x.shape[1] // 3

    def follow() -> list[Arrays]:
        moments = [n] * (not subject.is_filter) + [n, n + 1, x.shape[1]]
        return [answers(subject, x[:, i:j], y[:, i:j]) for i, j in pairwise(moments)]

    with tempfile.TemporaryDirectory(prefix="edgefold-") as folder:
        path = Path(folder) / "state"
        answers_afresh(subject, x[:, :n], y[:, :n])
        subject.save(path)
        straight = follow()
        answers_afresh(subject, *draw(subject, 7, seed=1))
        subject.restore(path)
        differences = [distance(*pair) for pair in zip(follow(), straight, strict=True)]
    problem = (
        "a saved state that is restored predicts something else: something is kept outside the "
        "state. Put it into initial_state() and return it"
    )
    return require_close(differences, 0.0, problem)


def _full(subject: Subject, n_steps: int) -> str:
    if not subject.capacity:
        raise NotApplicableError("any number of points fits (`capacity`)")
    require_learning(subject)
    n, at = subject.capacity, subject.place("update")
    x, y = draw(subject, n)
    full = answers_afresh(subject, x, y)
    if subject.room is not None:
        before = subject.state()
        try:
            subject.update(x[:, :1], y[:, :1])
        except EdgefoldError:
            same = all(np.array_equal(a, before[name]) for name, a in subject.state().items())
            if same and distance(subject.query(targets(subject)), full) == 0:
                return f"the point after {n} is refused, and the state stays as it is"
        raise CheckFailedError(
            f"a point is taken beyond the capacity of {n}{at}; let `finite` be NaN where the state "
            "is full, or set when_full to what becomes of the point."
        )
    more = answers(subject, *draw(subject, 2 * n, seed=1))
    if not all(np.isfinite(array).all() for array in (*more.values(), *subject.state().values())):
        raise CheckFailedError(f"beyond the capacity of {n} something is not finite{at}.")
    if not distance(more, full) > 0:
        raise CheckFailedError(f"{2 * n} points beyond the capacity change no prediction{at}.")
    return f"{2 * n} points beyond {n} still count"


def joined_parts(subject: Subject, x: Array, y: Array, folder: Path) -> Iterator[int]:
    """Let a subject learn parts of points apart and join them; yield the number of parts, 2 to 6.

    Points x (B, n, X) and y (B, n, Y) are cut into parts of any size, some of them empty, which
    are joined in any order and any tree. Snapshots of the parts are written into `folder`.
    """
    random, n = np.random.default_rng(2), x.shape[1]
    for n_parts in range(2, 7):
        cuts = np.sort(random.integers(0, n + 1, n_parts - 1))
        cuts[0] *= n_parts % 2  # of an even number of parts the first is empty
        paths = [folder / f"{n_parts}-{part}" for part in range(n_parts)]
        for rows, path in zip(np.split(random.permutation(n), cuts), paths, strict=True):
            answers_afresh(subject, x[:, rows], y[:, rows])
            subject.save(path)
        join_snapshots(subject, paths, random)
        yield n_parts


def join_snapshots(subject: Subject, paths: list[Path], random: np.random.Generator) -> None:
    """Leave a subject with the joined states of snapshots, in any order and any tree.

    The first file is written again with each state that was joined, and the list gets shorter.
    """
    while len(paths) > 1:
        random.shuffle(paths)
        subject.restore(paths[0])
        subject.merge(paths.pop())
        subject.save(paths[0])


def require_merge(subject: Subject) -> None:
    """Raise NotApplicableError for a subject whose states do not join."""
    require_learning(subject)
    if subject.no_merge:
        raise NotApplicableError(subject.no_merge)


def _merged(subject: Subject, n_steps: int) -> str:
    require_merge(subject)
    x, y = draw(subject, 300)
    whole = answers_afresh(subject, x, y)
    with tempfile.TemporaryDirectory(prefix="edgefold-") as folder:
        differences = [
            distance(subject.query(targets(subject)), whole)
            for _ in joined_parts(subject, x, y, Path(folder))
        ]
    problem = (
        f"merge() of parts does not know what one stream knows{subject.place('merge')}; add what "
        "the states sum up, and let merging with initial_state() change nothing"
    )
    return require_close(differences, subject.tolerance / 2, problem)


CHECKS = (
    Law("the empty state predicts finite numbers", _empty_state),
    Law("points change the prediction", _points_matter),
    Law("names, shapes and types of the state never change", _fixed_point),
    Law("a chunk equals single updates", _chunks),
    Law("any order of points gives the same prediction", _any_order),
    Law("a query writes nothing", _query_writes_nothing),
    Law("an earlier query's targets are invisible", _targets_apart),
    Law("streams do not influence each other", _streams_apart),
    Law("a full state does what when_full says", _full),
    Law("merged states predict as one that knows all points", _merged),
    Law("a restored state continues like an uninterrupted run", _restored),
)
