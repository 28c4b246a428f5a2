"""What the benchmarks of attention count and compare with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.attention.attention_cores import (
    Landmarks,
    SelfConsolidating,
    Shape,
    our_core,
    rows_of,
)
from benchmarks.attention.attention_drift import errors, moments
from benchmarks.attention.attention_operations import FORMULAS, counted, measure, requirements
from benchmarks.attention.attention_plots import draw_drift
from benchmarks.attention.attention_tables import attention_drift
from benchmarks.attention.attention_windows import POOL, SHAPE, Leg, Tokens, exact, oldest_first
from edgefold.train.contract import advance


def test_operations_are_counted_as_the_appendix_counts() -> None:
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    assert counted(lambda: a @ b) == {"products": 60}
    assert counted(lambda: torch.exp(a).sum(-1)) == {"exp": 12, "sums": 12}
    assert counted(lambda: torch.softmax(a, -1)) == {"softmax": 15}
    assert counted(lambda: torch.cat([a, a]) / 2) == {"element-wise": 24}
    with pytest.raises(NotImplementedError, match="erf"):
        counted(lambda: torch.erf(a))


@pytest.mark.long
def test_counts_are_the_formulas_and_the_terms_told_at_any_sizes() -> None:
    data = measure(Shape(window=24, width=8, n_heads=2, n_landmarks=3))
    told = {r.what: r for r in requirements(data["published"]) if "counted" in r.what}
    assert len(told) == len(FORMULAS) and all(r.met for r in told.values())


KINDS = (
    *("single", "retroactive", "nystrom fixed", "nystrom means", "hopping"),
    *("nystrom fixed retroactive", "nystrom means retroactive"),
)


@pytest.fixture(scope="module")
def drawn() -> tuple[Tokens, Landmarks]:
    tokens = Tokens()
    return tokens, tokens.landmarks()


@pytest.mark.parametrize("kind", KINDS)
def test_a_core_answers_what_the_window_answers(kind: str, drawn: tuple[Tokens, Landmarks]) -> None:
    (tokens, landmarks), leg = drawn, Leg(kind)
    core = SelfConsolidating(our_core(kind, SHAPE, landmarks, with_ones=True))
    rows = torch.from_numpy(rows_of(kind, tokens.q, tokens.k, tokens.v))
    state, n = core.initial_state(1), 156
    with torch.no_grad():
        for place in tokens.places(0, n):
            written, told = core.step(state, rows[place][None])
            state = advance(core, state, written)
        (answer,) = told.values()
        last = np.array([n - 1])
        found = answer.numpy()
        found = oldest_first(found, last) if leg.has_all_rows else found[:, :, None]
        expected = exact(leg, tokens, landmarks, last, torch.float64).numpy()
    easy = slice(0, 6)  # the heads of deviation 0.5 and 1
    # The inverse of landmarks amplifies rounding: of fixed ones by some tens.
    assert np.abs(found[:, easy] - expected[:, easy]).max() < 1e-5
    assert errors(leg, tokens, landmarks, last, found)["error"]["4"] < 1e-3  # type: ignore[operator]


def test_tokens_of_any_moment_are_drawn_again() -> None:
    first, again = Tokens(), Tokens()
    far = 2_000 * POOL + 17
    assert np.array_equal(first.places(far - 200, far), again.places(far - 200, far))
    assert sorted(first.places(POOL, 2 * POOL)) == list(range(POOL))
    joined = np.concatenate([first.places(POOL - 5, POOL), first.places(POOL, POOL + 5)])
    assert np.array_equal(joined, again.places(POOL - 5, POOL + 5))


def test_moments_are_powers_of_ten_up_to_the_end() -> None:
    assert moments(10_000) == [200, 1_000, 10_000]
    assert moments(2_000) == [200, 1_000, 2_000]


def test_a_lost_answer_is_shown_as_nan() -> None:
    row = {"n_tokens": 200, "error": {"1": 1e-6, "4, outliers": None}}
    row["batch"] = {"1": 1e-6, "4, outliers": 1e-5}
    leg = {"leg": "CoRe", "rows": [row]}
    data = {"cases": ["1", "4, outliers"], "checked": 1000, "legs": [leg]}
    first, second = attention_drift(data)
    assert first.rows[0][2:] == ["1.0e-06", "nan"] and second.rows[1][-1] == "nan"


def test_an_answer_that_is_lost_is_a_cross_and_no_line_leads_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plt = pytest.importorskip("matplotlib.pyplot", reason="matplotlib draws the pictures")
    kept: list[Any] = []
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, _: kept.append(figure))
    lost = [
        {"n_tokens": n, "error": {"4": e, "4, outliers": e}} for n, e in ((200, 1e-6), (1e3, None))
    ]
    whole = [{"n_tokens": n, "error": {"4": 1e-6, "4, outliers": 1e-6}} for n in (200, 1e3)]
    legs = [{"leg": "single", "rows": whole}, {"leg": "CoSi", "rows": lost}]
    draw_drift({"legs": legs, "bound": 1e-5}, tmp_path / "drift.png")
    (figure,) = kept
    curves = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    crosses = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
    assert [np.isfinite(line.get_ydata()).tolist() for line in curves] == [
        [True] * 2,
        [True, False],
    ]
    assert [list(line.get_xdata()) for line in crosses] == [[], [1e3]]
    plt.close(figure)
