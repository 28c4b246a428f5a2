"""The papers' tables: what they state, which training a row is, and what the page says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import tables_of_papers
from benchmarks.papers.paper_runs import PaperRun, has_recipe
from benchmarks.papers.papers_page import page, score_of, table_of
from benchmarks.papers.papers_plots import draw_curves
from benchmarks.papers.published_tables import TABLES
from benchmarks.papers.step_times import measure_steps, read_times
from benchmarks.record import ROOT, Record
from edgefold.train.load import parse_settings
from edgefold.train.models.registry import create_model, model_class

GP = TABLES["gp"]
CNP = next(row for row in GP.rows if row.title == "CNP")


@pytest.mark.parametrize("name", TABLES)
def test_a_row_has_a_cell_for_each_column_and_a_model_that_exists(name: str) -> None:
    table = TABLES[name]
    for row in table.rows:
        assert len(row.cells) == len(table.columns)
        assert any(row.cells) or "-" in table.text
        if row.model:
            create_model(row.model, parse_settings(list(row.settings)), None)


def test_the_models_tell_the_same_scores() -> None:
    for row in GP.rows:
        told = model_class(row.model).published.get("gp", {}) if row.model else {}
        of_title = [scores for title, scores in told.items() if title.startswith(f"{row.title},")]
        for scores in of_title:
            assert scores == tuple(cell and cell[0] for cell in row.cells), row.title


def test_a_run_trains_as_the_paper_does(tmp_path: Path) -> None:
    row = next(row for row in GP.rows if row.title == "LBANP (8)")
    run = PaperRun("gp", row, 10_000, seed=1)
    words = " ".join(run.training(tmp_path / "run"))
    assert words.startswith("train gp --model lbanp --preset paper --recipe paper --steps 10000")
    assert "--set n_latents=8" in words and "--seed 1" in words
    assert run.name == "gp-lbanp-n_latents8-10000-1"
    assert [name for name, table in TABLES.items() if not has_recipe(table.task[0])] == [
        *("mooc", "reddit", "gtzan", "thumos14-kinetics", "thumos14-anet"),
    ]


@pytest.mark.long
def test_a_row_is_trained_scored_recorded_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = ["--runs", str(tmp_path / "runs"), "--records", str(tmp_path / "records")]
    words = ["gp", "--models", "cnp", "--steps", "3", "--batches", "2", *folders]
    for _ in range(2):  # the second time there is nothing to train
        with pytest.raises(SystemExit) as ended:
            tables_of_papers.main(words)
        assert ended.value.code == 0
        shown = capsys.readouterr().out
    assert "| CNP " in shown and "RBF" in shown and "not trained" in shown
    (path,) = (tmp_path / "records").glob("*.json")
    record = json.loads(path.read_text())
    assert record["training"]["clip_norm"] is None and record["training"]["warmup"] == 0
    assert record["n_parameters"] == 215_682 and record["curve"][-1][0] == 3
    assert draw_curves("gp", [record], tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 1000


def of_cnp(seed: int, rbf: float, steps: int = 100_000, machine: str = "x86_64") -> Record:
    facts: dict[str, Any]
    scores = {kernel: {"log_likelihood": rbf, "standard_error": 0.01} for kernel in ("rbf",)}
    scores["matern52"] = {"log_likelihood": 0.04, "standard_error": 0.01}
    facts = {"table": "gp", "title": "CNP", "model": "cnp", "settings": [], "curve": [[1, 1.0]]}
    conditions = {"cpu_model": "a processor", "threads": 1}
    training = {"duration_s": 60.0, "steps_done": steps, "machine": f"{machine}, torch 2.11"}
    facts |= {"conditions": conditions, "training": training}
    return {**facts, "steps": steps, "seed": seed, "scores": scores}


@pytest.mark.parametrize(
    ("rbf", "verdict"), [(0.25, "reached"), (0.4, "reached"), (0.1, "RBF 0.16 short")]
)
def test_the_verdict_compares_with_the_paper(tmp_path: Path, rbf: float, verdict: str) -> None:
    (tmp_path / "gp-cnp-100000-0.json").write_text(json.dumps(of_cnp(0, rbf)))
    (tmp_path / "gp-cnp-10-0.json").write_text(json.dumps(of_cnp(0, -9.0, 10)))  # of fewer steps
    table = table_of("gp", tmp_path)
    row = next(row for row in table.rows if row[0] == "CNP")
    assert row[-1] == verdict and row[-3:-1] == ["100,000", "1 minute"]
    assert "Trained on: a processor, 1 thread." in table.note
    assert "no data" not in page(tmp_path)
    assert "Nothing was scored: the data is not in the repository" in page(tmp_path)


def test_a_row_that_a_gpu_trained_says_so(tmp_path: Path) -> None:
    gpu = "NVIDIA H100 80GB HBM3"
    for steps, machine in ((100_000, gpu), (10, "x86_64")):
        record = of_cnp(0, 0.25, steps, machine)
        (tmp_path / f"gp-cnp-{steps}-0.json").write_text(json.dumps(record))
    table = table_of("gp", tmp_path)
    row = next(row for row in table.rows if row[0] == "CNP")
    assert row[-2] == "1 minute, GPU"
    assert f"Trained on: {gpu}; a processor, 1 thread." in table.note


def test_a_table_without_a_column_of_ours_is_not_reached(tmp_path: Path) -> None:
    record = {**of_cnp(0, 0.3), "scores": {}}
    (tmp_path / "gp-cnp-100000-0.json").write_text(json.dumps(record))
    row = next(row for row in table_of("gp", tmp_path).rows if row[0] == "CNP")
    assert row[-1] == "nothing to compare"


def test_seeds_give_a_mean_and_its_error() -> None:
    runs = [of_cnp(seed, value) for seed, value in enumerate((0.1, 0.2, 0.3))]
    rbf, _ = GP.columns
    found = score_of(runs, rbf)
    assert found is not None
    assert found == pytest.approx((0.2, 0.1 / 3**0.5))
    assert score_of([], rbf) is None
    assert score_of(runs, TABLES["emnist"].columns[0]) is None


def test_low_and_turned_scores_are_compared_as_the_paper_gives_them(tmp_path: Path) -> None:
    likelihood = {"log_likelihood": 0.04, "standard_error": 0.01}
    events = {**likelihood, "accuracy": 0.24, "gap_rmse": 0.3, "n_events": 1000}
    record = {**of_cnp(0, 0.0), "table": "mooc", "title": "CMHP", "model": "cmhp"}
    record["scores"] = {"events": events}
    (tmp_path / "mooc-cmhp-1-0.json").write_text(json.dumps(record))
    row = next(row for row in table_of("mooc", tmp_path).rows if row[0] == "CMHP")
    assert row[4:7] == ["0.30", "-0.04 ± 0.01", "0.24 ± 0.01"]
    assert row[-1] == "RMSE 0.13 short"


def test_steps_are_measured_and_kept(tmp_path: Path) -> None:
    times = measure_steps([PaperRun("gp", CNP, 1)], tmp_path)
    assert times.step_s["cnp"] > 0 and read_times("gp", tmp_path) == times
    assert read_times("emnist", tmp_path) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gp", "--models", "cmhp"], "no row of gp is of cmhp"),
        (["emnist"], "emnist needs the balanced split of EMNIST"),
        (["gp", "--device", "cuda"], "PyTorch finds no GPU"),
        (["gtzan"], "state no number of steps"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    if "cuda" in words and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(SystemExit):
        tables_of_papers.main(words)
    assert said in capsys.readouterr().err


def test_without_a_table_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    tables_of_papers.main([])
    shown = capsys.readouterr().out
    assert all(name in shown for name in TABLES)


def test_the_page_is_written_from_the_records() -> None:
    told = (ROOT / "docs" / "papers.md").read_text()
    assert page() in told, "python -m benchmarks tables writes it"
