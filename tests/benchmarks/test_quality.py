"""Which runs the quality benchmark does, and what its table says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.models.quality import BUDGETS, Run, preset_of, requirements
from benchmarks.models.quality_papers import ORDER, order, published
from benchmarks.models.quality_table import COLUMNS, quality
from benchmarks.models.trainings import recorded, steps_done


def record(model: str, rbf: float, seed: int = 0) -> dict[str, Any]:
    scores = {
        kernel: {"log_likelihood": value, "standard_error": 0.01}
        for kernel, value in (("rbf", rbf), ("matern52", rbf - 0.2))
    }
    training = {"duration_s": 60.0}
    run = {"task": "gp", "model": model, "preset": "small", "budget": "tiny", "seed": seed}
    return {**run, "n_parameters": 1000, "training": training, "scores": scores}


def test_the_order_of_the_models_is_judged_where_both_are_there() -> None:
    found = requirements([record("cnp", 0.2), record("canp", 0.5), record("tnp-d", 1.0)], "gp")
    assert {r.what: r.met for r in found} == {"gp: cnp, then canp": True}
    found = requirements([record("lbanp", 1.0), record("cmanp", 1.2), record("tnp-d", 1.1)], "gp")
    assert [r.met for r in found] == [True, False, False]  # the last: they are 0.2 nats apart


def test_scores_are_means_over_seeds() -> None:
    found = requirements([record("cnp", 0.4), record("cnp", 0.2, 1), record("anp", 0.3)], "gp")
    assert found[0].measured.startswith("0.200, 0.200,") and found[0].met


def test_a_difference_within_two_standard_errors_breaks_no_order() -> None:
    # Each mean of two columns has the error 0.01 / 2**0.5: that of a difference is 0.01.
    for lead, met in ((0.019, True), (0.021, False)):
        found = requirements([record("cnp", 0.3 + lead), record("canp", 0.3)], "gp")
        assert [r.met for r in found] == [met]


def test_the_table_ranks_models_and_shows_the_papers_columns() -> None:
    runs = [record("cnp", 0.2), record("canp", 0.4), record("canp", 0.6, 1)]
    budget = {"steps": 1000, "warmup": 100, "n_batches": 300}
    data = {"task": "gp", "runs": runs, "published": published("gp"), "budget": budget}
    (table,) = quality(data)
    assert [row[0] for row in table.rows] == ["canp, small", "cnp, small"]
    assert table.rows[0][3:] == ["0.500 ± 0.100", "0.300 ± 0.100", "0.79", "0.62"]
    assert all(len(row) == len(table.header) for row in table.rows)


def test_every_published_row_fits_its_columns() -> None:
    for task, columns in COLUMNS.items():
        assert {len(row) for row in published(task).values()} == {len(columns)}
    assert published("gp")["cmanp"] == [1.24, 0.80]
    assert published("images")["tnp-d"] == [3.89, 5.41, None, 1.46, 1.31]


def test_of_images_the_order_is_asked_that_the_papers_state() -> None:
    assert tuple(order("gp")) == ORDER
    of_images = order("images")
    assert ("cnp", "canp") in of_images and ("tnp-d", "tnp-nd") in of_images
    assert ("lbanp", "tnp-d") not in of_images  # 3.97, then 3.89 on CelebA of 32 pixels
    assert ("lbanp", "lbanp-end") not in of_images  # no figure is published


def test_a_run_resumes_its_folder_and_is_not_done_twice(tmp_path: Path) -> None:
    run = Run("gp", "cmanp", preset_of("cmanp", "no such"), "tiny", 3)
    assert run.preset == "small" and "--resume" not in run.training(tmp_path)
    (tmp_path / "config.json").touch()
    words = run.training(tmp_path)
    assert words[-1] == "--resume" and words[words.index("--seed") + 1] == "3"
    assert recorded([run], tmp_path) == {}
    (tmp_path / f"{run.name}.json").write_text(json.dumps(record("cmanp", 1.0)))
    assert list(recorded([run], tmp_path)) == [run.name]


def test_the_steps_that_are_done_are_read_from_the_history(tmp_path: Path) -> None:
    assert steps_done(tmp_path) == 0
    (tmp_path / "history.jsonl").write_text('{"step": 50}\n{"step": 100}\n')
    assert steps_done(tmp_path) == 100
    assert BUDGETS["tiny"].steps == 1_000
