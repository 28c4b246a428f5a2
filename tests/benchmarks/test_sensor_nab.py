"""The score of the Numenta Anomaly Benchmark, by hand; no data of the benchmark is here."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.numenta import sensor_nab
from benchmarks.numenta.nab_files import read_corpus, stored
from benchmarks.numenta.nab_score import (
    OUTSIDE,
    PROFILES,
    Labelled,
    best_score,
    labelled,
    n_probation,
    scaled_sigmoid,
    score_at,
    together,
)
from benchmarks.numenta.sensor_nab_table import sensor_nab as tables
from benchmarks.record import ROOT, read_records
from edgefold.runtime.errors import DataError

STANDARD = PROFILES["standard"]
N, WINDOWS = 200, [(50, 54), (100, 119)]
FIRST = 30  # 15 % of 200 rows


def detections(*rows: int) -> np.ndarray:
    """Anomaly scores after the probation: 1 at some rows of the file, else 0."""
    found = np.zeros(N)
    found[list(rows)] = 1
    return found[FIRST:]


def test_the_sigmoid_is_that_of_the_paper() -> None:
    y = np.array([-1.0, -0.5, 0.0, 1.0, 3.0, 3.1])
    expected = [0.98661, 0.84828, 0.0, -0.98661, 2 / (1 + math.exp(15)) - 1, -1.0]
    np.testing.assert_allclose(scaled_sigmoid(y), expected, atol=1e-5)  # five digits are printed


@pytest.mark.parametrize(("n", "first"), [(7, 1), (200, 30), (5000, 750), (22_695, 750)])
def test_the_first_part_of_a_file_is_not_scored(n: int, first: int) -> None:
    assert n_probation(n) == first
    assert len(labelled(n, []).worth) == n - first


def test_a_detection_counts_by_its_place_beside_the_window() -> None:
    rows = labelled(N, WINDOWS)
    worth, window = (np.append(np.zeros(FIRST), part) for part in (rows.worth, rows.window))
    assert worth[49] == -1  # no window before
    assert worth[50] == 1
    last = (2 / (1 + math.exp(-1)) - 1) / (2 / (1 + math.exp(-5)) - 1)
    assert worth[54] == pytest.approx(last)  # one of five rows before the right edge's end
    assert worth[55] == pytest.approx(2 / (1 + math.exp(5 / 4)) - 1)
    assert worth[58] == pytest.approx(2 / (1 + math.exp(5)) - 1)  # a width after
    assert worth[54 + 13] == -1  # beyond three widths
    assert worth[120] == pytest.approx(2 / (1 + math.exp(5 / 19)) - 1)
    assert [window[row] for row in (49, 50, 54, 55, 100, 119, 120)] == [
        *(OUTSIDE, 0, 0, OUTSIDE, 1, 1, OUTSIDE)
    ]


@pytest.mark.parametrize(
    ("rows", "profile", "raw", "silent", "perfect"),
    [
        ((), "standard", -2, -2, 2),
        ((50, 100), "standard", 2, -2, 2),
        ((50, 51, 52, 100), "standard", 2, -2, 2),  # the best of a window counts
        ((40, 50), "standard", -0.11 + 1 - 1, -2, 2),
        ((40, 50), "reward_low_FP_rate", -0.22 + 1 - 1, -2, 2),
        ((40, 50), "reward_low_FN_rate", -0.11 + 1 - 2, -4, 2),
        ((40, 41, 42), "standard", -3 * 0.11 - 2, -2, 2),
    ],
)
def test_scores_are_those_computed_by_hand(
    rows: tuple[int, ...], profile: str, raw: float, silent: float, perfect: float
) -> None:
    found = score_at(labelled(N, WINDOWS), detections(*rows), 1.0, PROFILES[profile])
    assert found.score == pytest.approx(100 * (raw - silent) / (perfect - silent))
    assert found.n_false == sum(row in (40, 41, 42) for row in rows)
    assert found.n_found == len({row // 50 for row in rows if row >= 50})


def test_detections_in_the_probation_do_not_count() -> None:
    rows = labelled(N, [(5, 20), *WINDOWS])
    assert score_at(rows, detections(), 1.0, STANDARD).score == 0
    found = score_at(rows, detections(50, 100), 1.0, STANDARD)
    # A window that nobody can find belongs to the perfect score alone.
    assert found.score == pytest.approx(100 * 4 / (3 + 2))


def test_the_best_threshold_beats_all_others() -> None:
    random = np.random.default_rng(0)
    rows = together([labelled(N, WINDOWS), labelled(N, []), labelled(N, [(60, 80)])])
    assert rows.n_windows == 3
    for n_levels in (4, 1000):  # with many equal scores, and with few
        anomaly = random.integers(n_levels, size=len(rows.worth)) / n_levels
        anomaly[rows.window != OUTSIDE] += 0.3
        for profile in PROFILES.values():
            tried = [score_at(rows, anomaly, at, profile) for at in np.unique(anomaly)]
            found = best_score(rows, anomaly, profile)
            assert found.score == pytest.approx(max(0.0, *(one.score for one in tried)))
            assert found.score == pytest.approx(
                score_at(rows, anomaly, found.threshold, profile).score
            )


def test_the_best_threshold_may_be_silence() -> None:
    found = best_score(labelled(N, WINDOWS), detections(40, 41), STANDARD)
    assert (found.score, found.threshold, found.n_false) == (0.0, math.inf, 0)


def test_the_order_of_anomaly_scores_is_all_that_counts() -> None:
    random = np.random.default_rng(0)
    rows = labelled(N, WINDOWS)
    p_value = random.uniform(0.01, 1, len(rows.worth))
    plain, logged = (best_score(rows, one, STANDARD) for one in (1 - p_value, -np.log10(p_value)))
    assert plain.score == pytest.approx(logged.score)
    assert (plain.n_found, plain.n_false) == (logged.n_found, logged.n_false)


# Files --------------------------------------------------------------------------------------------


@pytest.fixture
def nab(tmp_path: Path) -> Path:
    """A made-up checkout: two series, one with a window, and the results of one detector."""
    windows = {"made/a.csv": [["2020-01-01 10:00:00.000000", "2020-01-01 11:00:00.000000"]]}
    windows["made/b.csv"] = []
    for folder in ("data/made", "labels", "results/some/made"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "labels" / "combined_windows.json").write_text(json.dumps(windows))
    for seed, name in enumerate("ab"):
        values = np.random.default_rng(seed).normal(size=200)
        times = [datetime(2020, 1, 1) + timedelta(minutes=5 * row) for row in range(200)]
        lines = [f"{moment},{value}" for moment, value in zip(times, values, strict=True)]
        path = tmp_path / "data" / "made" / f"{name}.csv"
        path.write_text("\n".join(["timestamp,value", *lines, lines[-1], ""]))
        scores = [f"{line},{int(row == 120)},0" for row, line in enumerate([*lines, lines[-1]])]
        path = tmp_path / "results" / "some" / "made" / f"some_{name}.csv"
        path.write_text("\n".join(["timestamp,value,anomaly_score,label", *scores, ""]))
    perfect_less_a_false_row = (100 * (1 - 0.11 / 2), 100 * (1 - 0.22 / 2), 100 * (1 - 0.11 / 3))
    figures = dict(zip(PROFILES, perfect_less_a_false_row, strict=True))
    (tmp_path / "results" / "final_results.json").write_text(json.dumps({"some": figures}))
    for profile in PROFILES:
        path = tmp_path / "results" / "some" / f"some_{profile}_scores.csv"
        path.write_text("Detector,Threshold\nsome,1.0\n")
    return tmp_path


def test_windows_are_rows_of_a_series(nab: Path) -> None:
    first, second = read_corpus(nab)
    assert (first.name, first.windows, second.windows) == ("made/a.csv", [(120, 132)], [])
    assert len(first.values) == 201


def test_the_corpus_is_asked_for_where_it_is_not(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="git clone"):
        read_corpus(tmp_path)


def test_stored_scores_are_scored_like_ours(nab: Path) -> None:
    corpus = read_corpus(nab)
    assert stored(nab, "none", corpus) is None
    found = sensor_nab.score_others(nab, corpus)["some"]
    # The window is found at its first row; the other file has one false row.
    assert found["stated"]["standard"] == pytest.approx(100 * (2 - 0.11) / 2)
    assert found["best"] == pytest.approx(found["stated"])


class Refuses:
    """Sensors of which every third row is refused and the others are told equally likely."""

    def __init__(self) -> None:
        self.n = 0

    def step(self, moment: datetime, value: float, name: str) -> Any:
        self.n += 1
        if self.n % 3 == 0:
            raise DataError("late")
        return type("Forecast", (), {"p_value": 0.0 if self.n == 1 else 0.01, "alarm": self.n == 4})


def test_a_refused_row_has_no_surprise_and_no_p_value_is_too_small(nab: Path) -> None:
    followed = sensor_nab.follow(Refuses(), read_corpus(nab)[0])  # type: ignore[arg-type]
    assert followed["surprise"][:4].tolist() == pytest.approx([45, 2, 0, 2])
    assert np.flatnonzero(followed["alarm"]).tolist() == [3]
    assert followed["n_refused"] == 67


def test_a_run_writes_a_record(
    nab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "record.json"
    words = ["--nab", str(nab), "--backend", "onnxruntime", "--record", str(path)]
    monkeypatch.setattr(sys, "argv", ["sensor_nab", *words])
    monkeypatch.setattr(sensor_nab, "TRAINED", ("made/b.csv",))
    sensor_nab.main()
    data = json.loads(path.read_text())["data"]
    assert data["n_refused"] == 2  # the repeated last rows
    assert (data["all"]["n_windows"], data["all"]["n_rows"]) == (1, 2 * 171)
    assert (data["unread"]["n_files"], data["unread"]["n_rows"]) == (1, 171)
    for table in tables(data):
        assert {len(row) for row in table.rows} <= {len(table.header)}
    printed = capsys.readouterr().out
    assert "surprise, 1 files that training has not read" in printed
    assert "3 published figures" in printed and "NOT MET" not in printed


def test_the_files_that_training_reads_are_known() -> None:
    spec = importlib.util.spec_from_file_location("extract", ROOT / "data" / "extract_sensors.py")
    assert spec is not None and spec.loader is not None
    extract = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(extract)
    assert sorted(sensor_nab.TRAINED) == sorted(file for file, _ in extract.NAB.values())


def test_the_page_of_sensors_states_the_recorded_scores() -> None:
    data = read_records()["sensor_nab"]["data"]
    page = (ROOT / "docs" / "sensors.md").read_text()
    paragraph = " ".join(page.partition("## The Numenta Anomaly Benchmark")[2].split())
    scores = {
        part: [data[part][kind]["standard"]["score"] for kind in ("surprise", "alarm")]
        for part in ("all", "unread")
    }
    first, second = scores["all"]
    assert f"scores {first:.1f} of 100" in paragraph and f"and {second:.1f} by its" in paragraph
    first, second = scores["unread"]
    assert f"the scores are {first:.1f} and {second:.1f}" in paragraph


def test_files_are_joined_with_their_windows_counted_through() -> None:
    one = Labelled(np.array([-1.0, 1.0]), np.array([OUTSIDE, 0]), 1)
    assert together([one, one]).window.tolist() == [OUTSIDE, 0, OUTSIDE, 1]
