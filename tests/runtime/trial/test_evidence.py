"""A worse model is promoted with at most the stated probability, whenever one looks."""

from __future__ import annotations

import json
import math
import random

import pytest

from edgefold.runtime.trial.evidence import BOUND_NATS, Evidence

RISK = 0.05


def promoted_after(differences: list[float]) -> int:
    """Number of rows until the evidence is enough; 0 if it never is."""
    evidence = Evidence()
    for difference in differences:
        evidence.add(difference)
        if evidence.log_e >= -math.log(RISK):
            return evidence.n
    return 0


def draws(chance: random.Random, mean: float, spread: float, n: int) -> list[float]:
    return [mean + spread * chance.gauss(0, 1) for _ in range(n)]


@pytest.mark.long
@pytest.mark.parametrize("spread", [0.02, 0.3, 1.5])
def test_equal_models_are_promoted_within_the_stated_risk(spread: float) -> None:
    chance = random.Random(5)
    n = sum(promoted_after(draws(chance, 0.0, spread, 2000)) > 0 for _ in range(200))
    # Of 200 draws of probability 0.05 more than 20 come up with probability 6e-4.
    assert n <= 20


def test_heavy_tails_and_dependence_do_not_break_the_promise() -> None:
    chance = random.Random(6)
    n = 0
    for _ in range(200):
        level, differences = 0.0, []
        for _ in range(1500):
            level = 0.95 * level + chance.gauss(0, 0.05)  # volatility that comes and goes
            size = math.exp(4 * level) * chance.choice((0.1, 0.1, 3.0))
            differences.append(chance.choice((-1, 1)) * size)
        n += promoted_after(differences) > 0
    assert n <= 20


def test_one_better_by_two_hundredths_of_a_nat_is_promoted_within_5000_rows() -> None:
    chance = random.Random(7)
    n = sum(promoted_after(draws(chance, 0.02, 0.2, 5000)) > 0 for _ in range(100))
    assert n >= 95


def test_a_single_row_never_decides() -> None:
    evidence = Evidence()
    evidence.add(1e9)
    assert evidence.total == BOUND_NATS and evidence.log_e < -math.log(RISK)
    evidence.add(math.nan)
    assert evidence.n == 1


def test_the_evidence_comes_back_exactly() -> None:
    evidence = Evidence()
    for difference in draws(random.Random(8), 0.1, 1.0, 100):
        evidence.add(difference)
    again = Evidence.from_json(json.loads(json.dumps(evidence.to_json())))
    assert again.to_json() == evidence.to_json() and again.log_e == evidence.log_e


@pytest.mark.parametrize("form", [{"n": -1}, {"n": 1.0}, {"total": math.inf}, {"spread": -1.0}])
def test_damaged_evidence_is_refused(form: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="damaged"):
        Evidence.from_json({**Evidence().to_json(), **form})
