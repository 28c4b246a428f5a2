"""The benchmark of candidates: scores by formula, and a pair whose verdict is known."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.loop.candidates import (
    Law,
    Models,
    expected_gain,
    followed,
    law,
    log_score,
    pair,
    wider,
)
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
    one, other = (models.predictions(scale, stream) for scale in (0.8, 4.0))
    better, worse = followed(one, other, stream), followed(other, one, stream)
    assert better["promoted_after"] > 0 and better["expected_until"] > 0
    assert worse["promoted_after"] == 0
    assert worse["expected"] == pytest.approx(-better["expected"])


def test_wider_bands_are_worse_by_what_is_asked() -> None:
    stream = law(12, 100, 0.2)
    right = stream.means, np.full(100, 0.2)
    gain = expected_gain(wider(right, stream), right, stream).mean()
    assert 0.02 <= gain < 0.022
    # Of right bands that are c times as wide: log c - (1 - 1/c^2)/2 nats, but for the cut.
    factor = wider(right, stream)[1][0] / 0.2
    assert gain == pytest.approx(math.log(factor) - 0.5 * (1 - factor**-2), rel=0.01)


def test_the_table_shows_what_was_counted() -> None:
    close = {"n_streams": 3, "n_rows": 5000, "gain_nats": 0.02, "spread_nats": 0.3}
    data = {
        **{"risk": 0.05, "n_pairs": 4, "n_rows": 2000, "n_better": 2, "n_promoted": 1},
        **{"n_wrong": 0, "n_better_promoted": 1},
        "noise_known": {**close, "n_soon": 3, "median_rows": 1200, "slowest_rows": 2000},
        "noise_unknown": {**close, "n_soon": 0, "median_rows": None, "slowest_rows": None},
    }
    pairs, streams = candidates(data)
    assert pairs.rows[0] == ["4", "2,000", "2", "1", "1", "0"]
    assert streams.rows[0][1:] == ["3", "0.020 nats", "0.30 nats", "3", "1,200", "2,000"]
    assert streams.rows[1][1:] == ["3", "0.020 nats", "0.30 nats", "0", "", ""]
