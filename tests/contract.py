"""The contract that every model keeps, in PyTorch and as a bundle on any backend: one suite.

A subject is one way to run a model. Give a `Subject` to a subclass of `Contract` and pytest runs
the whole suite on it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

Array = NDArray[Any]

# float32 sums in another order, seen through two blocks: some 1e-7 of values around 1.
ORDER = 2e-5

SETTINGS = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,  # every example resets the subject
        HealthCheck.differing_executors,  # subclasses share the tests; each has its own subject
    ],
)


class Subject(ABC):
    """One stream or more of one model, run in one way; x is (B, n, X), raw units."""

    n_streams: int
    n_inputs: int
    n_outputs: int
    commutative = True  # the order of points does not matter
    tolerance = ORDER  # of predictions after the same points in another order or chunking

    @abstractmethod
    def reset(self) -> None:
        """Forget everything."""

    @abstractmethod
    def update(self, x: Array, y: Array) -> None:
        """Fold n points."""

    @abstractmethod
    def query(self, x: Array) -> tuple[Array, Array]:
        """Mean and std, each (B, M, Y), copied."""

    @abstractmethod
    def state(self) -> dict[str, Array]:
        """Copies of the state's tensors."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Keep the state on disk."""

    @abstractmethod
    def restore(self, path: Path) -> None:
        """Take it back."""


def draw(subject: Subject, n: int, seed: int = 0) -> tuple[Array, Array]:
    """A stream of n points."""
    random = np.random.default_rng(seed)
    x = random.uniform(-2, 2, (subject.n_streams, n, subject.n_inputs))
    y = np.sin(2 * x.sum(-1, keepdims=True)) + random.normal(
        0, 0.1, (subject.n_streams, n, subject.n_outputs)
    )
    return x, y


class Contract:
    """The suite; subclasses provide the fixture `subject`."""

    targets = np.linspace(-2, 2, 5)

    def ask(self, subject: Subject) -> Array:
        x = np.broadcast_to(
            self.targets[None, :, None], (subject.n_streams, len(self.targets), subject.n_inputs)
        )
        return np.stack(subject.query(x))

    def test_the_empty_state_gives_one_finite_prior(self, subject: Subject) -> None:
        subject.reset()
        prior = self.ask(subject)
        assert np.isfinite(prior).all()
        assert (prior[1] > 0).all()
        subject.update(*draw(subject, 3))
        subject.reset()
        assert np.array_equal(self.ask(subject), prior)

    def test_points_change_the_prediction(self, subject: Subject) -> None:
        subject.reset()
        prior = self.ask(subject)
        subject.update(*draw(subject, 20))
        assert np.abs(self.ask(subject) - prior).max() > 100 * ORDER

    @SETTINGS
    @given(cuts=st.sets(st.integers(1, 89), max_size=12))
    def test_any_chunking_equals_single_updates(self, subject: Subject, cuts: set[int]) -> None:
        x, y = draw(subject, 90)
        subject.reset()
        for start, stop in pairwise([0, *sorted(cuts), 90]):
            subject.update(x[:, start:stop], y[:, start:stop])
        chunked = self.ask(subject)
        subject.reset()
        for row in range(90):
            subject.update(x[:, row : row + 1], y[:, row : row + 1])
        assert np.allclose(chunked, self.ask(subject), rtol=0, atol=subject.tolerance)

    @SETTINGS
    @given(seed=st.integers(0, 1 << 16))
    def test_any_order_of_points_gives_the_same_prediction(
        self, subject: Subject, seed: int
    ) -> None:
        if not subject.commutative:
            pytest.skip("this model's stream is ordered")
        x, y = draw(subject, 70)
        order = np.random.default_rng(seed).permutation(70)
        subject.reset()
        subject.update(x, y)
        straight = self.ask(subject)
        subject.reset()
        subject.update(x[:, order], y[:, order])
        assert np.allclose(straight, self.ask(subject), rtol=0, atol=subject.tolerance)

    def test_the_state_keeps_names_shapes_types_and_bytes(self, subject: Subject) -> None:
        subject.reset()
        before = {n: (a.shape, a.dtype, a.nbytes) for n, a in subject.state().items()}
        x, y = draw(subject, 10_000)
        for row in range(10_000):
            subject.update(x[:, row : row + 1], y[:, row : row + 1])
        after = subject.state()
        assert before == {n: (a.shape, a.dtype, a.nbytes) for n, a in after.items()}
        assert all(np.isfinite(a).all() for a in after.values())

    def test_a_query_leaves_the_state_bit_identical(self, subject: Subject) -> None:
        subject.reset()
        subject.update(*draw(subject, 40))
        before = subject.state()
        first = self.ask(subject)
        assert np.array_equal(first, self.ask(subject))
        after = subject.state()
        assert all(np.array_equal(before[name], after[name]) for name in before)

    def test_other_streams_are_invisible(self, subject: Subject) -> None:
        if subject.n_streams == 1:
            pytest.skip("one stream only")
        x, y = draw(subject, 50)
        subject.reset()
        subject.update(x, y)
        first = self.ask(subject)[:, 0]
        y[1:] = -5 * y[1:]
        x[1:] = x[1:, ::-1]
        subject.reset()
        subject.update(x, y)
        assert np.array_equal(first, self.ask(subject)[:, 0])

    def test_restoring_equals_an_uninterrupted_run(self, subject: Subject, tmp_path: Path) -> None:
        x, y = draw(subject, 300)
        subject.reset()
        subject.update(x[:, :200], y[:, :200])
        subject.save(tmp_path / "state")
        for row in range(200, 300):
            subject.update(x[:, row : row + 1], y[:, row : row + 1])
        straight = self.ask(subject)
        subject.reset()
        subject.update(*draw(subject, 7, seed=1))
        subject.restore(tmp_path / "state")
        for row in range(200, 300):
            subject.update(x[:, row : row + 1], y[:, row : row + 1])
        assert np.array_equal(straight, self.ask(subject))


SubjectFixture = Iterator[Subject]
