"""The contract that every model keeps, in PyTorch and as a bundle on any backend: one suite.

A subject is one way to run a model. Give a `Subject` to a subclass of `Contract` and pytest runs
the whole suite on it: the product's own checks, and the laws that hold for any chunking and order.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgefold.export.checks.laws import (
    CHECKS,
    PASSED,
    SKIPPED,
    Law,
    answers,
    distance,
    draw,
    targets,
)
from edgefold.export.checks.subjects import Subject
from edgefold.runtime.arrays import Array

__all__ = ["Array", "Contract", "Subject", "draw"]

SETTINGS = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,  # every example resets the subject
        HealthCheck.differing_executors,  # subclasses share the tests; each has its own subject
    ],
)


def hold(check: Law, subject: Subject, n_steps: int = 10_000) -> None:
    """Fail with a check's words."""
    found = check.verdict(subject, n_steps)
    if found.verdict == SKIPPED:
        pytest.skip(found.detail)
    assert found.verdict == PASSED, found.detail


class Contract:
    """The suite; subclasses provide the fixture `subject`, and `n_steps` where 500 say little."""

    n_steps = 500

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
    def test_the_contract_holds(self, subject: Subject, check: Law) -> None:
        hold(check, subject, self.n_steps)

    @pytest.mark.long
    def test_the_state_never_changes_its_form_along_a_long_stream(self, subject: Subject) -> None:
        (check,) = (law for law in CHECKS if law.name.endswith("the state never change"))
        hold(check, subject)

    @SETTINGS
    @given(cuts=st.sets(st.integers(1, 89), max_size=12))
    def test_any_chunking_equals_single_updates(self, subject: Subject, cuts: set[int]) -> None:
        if not subject.has_chunks:
            pytest.skip("chunks are loops")
        x, y = draw(subject, 90)
        n = x.shape[1]
        subject.reset()
        for start, stop in pairwise([0, *sorted(cut for cut in cuts if cut < n), n]):
            subject.update(x[:, start:stop], y[:, start:stop])
        chunked = subject.query(targets(subject))
        subject.reset()
        for row in range(n):
            subject.update(x[:, row : row + 1], y[:, row : row + 1])
        assert distance(chunked, subject.query(targets(subject))) <= subject.tolerance

    @SETTINGS
    @given(seed=st.integers(0, 1 << 16))
    def test_any_order_of_points_gives_the_same_prediction(
        self, subject: Subject, seed: int
    ) -> None:
        if subject.ordered:
            pytest.skip("this model's stream is ordered")
        x, y = draw(subject, 70)
        order = np.random.default_rng(seed).permutation(x.shape[1])
        subject.reset()
        straight = answers(subject, x, y)
        subject.reset()
        assert distance(answers(subject, x[:, order], y[:, order]), straight) <= subject.tolerance
