"""The benchmark of candidates: scores by formula, and a pair whose verdict is known."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.loop.candidates import Law, Models, followed, law, log_score, pair
from benchmarks.loop.candidates_table import candidates


def test_the_log_score_is_that_of_a_normal_law() -> None:
    score = log_score(np.array([1.0]), np.array([0.0]), np.array([2.0]))
    assert score[0] == -0.125 - math.log(2) - 0.5 * math.log(2 * math.pi)


def test_a_stream_and_a_pair_are_those_of_their_seed() -> None:
    one, again = law(3, 50), law(3, 50)
    assert isinstance(one, Law) and one.y.tolist() == again.y.tolist()
    assert abs((one.y - one.means).std() / one.noise - 1) < 0.5
    assert pair(3) == pair(3) and abs(pair(4)[1] / pair(4)[0] - 1) < 0.006


def test_the_better_of_two_models_is_promoted_and_the_worse_is_not(tmp_path: Path) -> None:
    models, stream = Models(tmp_path), law(11, 250, 0.1)
    better = followed(models, 0.8, 4.0, stream)
    worse = followed(models, 4.0, 0.8, stream)
    assert better["promoted_after"] > 0 and better["expected_until"] > 0
    assert worse["promoted_after"] == 0
    assert worse["expected"] == pytest.approx(-better["expected"])


def test_the_table_shows_what_was_counted() -> None:
    data = {
        **{"risk": 0.05, "n_pairs": 4, "n_rows": 2000, "n_better": 2, "n_promoted": 1},
        **{"n_wrong": 0, "n_better_promoted": 1, "n_streams": 3, "n_soon": 0},
        "close": {"gain_nats": 0.02, "spread_nats": 0.3},
        "rows_until_promoted": {"median": None, "slowest": None},
    }
    pairs, streams = candidates(data)
    assert pairs.rows[0] == ["4", "2,000", "2", "1", "1", "0"]
    assert streams.rows[0] == ["3", "0.020 nats", "0.30 nats", "0", "", ""]
