"""A filter of classes from training to the board: one row in, the class's name out."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from edgefold.cli.main import main
from edgefold.runtime.bundle.manifest_file import with_checksum
from edgefold.train.checkpoints import load_model
from edgefold.train.tasks.sequences.sequence_scores import answers, scaled
from edgefold.train.tasks.sequences.sequence_sources import exercises

SPOTTER = f"{Path(__file__).parents[2]}/examples/keyword_spotter.py:KeywordSpotter"
N_ROWS = 50


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, its bundle, and rows of a recording that was held out."""
    folder = tmp_path_factory.mktemp("classes")
    train = ["train", "sequences", "--source", "exercises", "--model", SPOTTER]
    sizes = ["--set", "width=8", "--steps", "3", "--warmup", "1", "--batch", "4"]
    assert main([*train, *sizes, "--out", str(folder / "run")]) == 0
    export = ["export", str(folder / "run"), "--model", SPOTTER, "--parity-steps", "128"]
    assert main([*export, "--out", str(folder / "bundle")]) == 0
    rows = exercises().held_out[0].tokens(0, N_ROWS)
    lines = [",".join(f"{value:.4f}" for value in row) for row in rows]
    (folder / "rows.csv").write_text("\n".join(["ax,ay,az,wx,wy,wz", *lines]) + "\n")
    return folder


def run(folder: Path, bundle: Path) -> list[dict[str, str]]:
    output = folder / "out.csv"
    output.unlink(missing_ok=True)
    rows = ["--input", str(folder / "rows.csv"), "--columns", "ax,ay,az,wx,wy,wz"]
    assert main(["run", str(bundle), *rows, "--output", str(output)]) == 0
    return list(csv.DictReader(output.read_text().splitlines()))


def test_each_row_has_the_name_of_its_class_and_its_probability(folder: Path) -> None:
    found = run(folder, folder / "bundle")
    assert len(found) == N_ROWS
    model, _ = load_model(folder / "run", SPOTTER)
    sequences = exercises()
    (log_probabilities,) = answers(model, sequences.held_out[:1], sequences)
    for row, expected in zip(found, log_probabilities, strict=False):
        assert row["class"] == sequences.classes[expected.argmax()]
        assert float(row["probability"]) == pytest.approx(
            np.exp(expected.max()), abs=1e-4
        )  # rows have 4 decimals
        scores = torch.tensor([float(row[f"scores{k + 1}"]) for k in range(7)])
        assert torch.allclose(scores.log_softmax(-1), torch.tensor(expected).float(), atol=1e-3)


def test_a_bundle_without_names_writes_the_number_of_the_class(
    folder: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    for file in (folder / "bundle").iterdir():
        (bundle / file.name).write_bytes(file.read_bytes())
    manifest = json.loads((bundle / "manifest.json").read_text())
    named = run(folder, bundle)
    manifest["task"]["classes"] = manifest["task"]["classes"][:-1]  # not as many as the model has
    (bundle / "manifest.json").write_text(json.dumps(with_checksum(manifest)))
    numbered = run(folder, bundle)
    classes = list(exercises().classes)
    assert [classes.index(row["class"]) for row in named] == [int(row["class"]) for row in numbered]


def test_raw_rows_are_scaled_as_in_training(folder: Path) -> None:
    manifest = json.loads((folder / "bundle" / "manifest.json").read_text())
    sequences = exercises()
    tokens = sequences.held_out[0].tokens(0, 1)
    x = manifest["points"]["x"]
    mine = (tokens - np.array(x["shift"])) / np.array(x["scale"])
    assert np.allclose(mine, scaled(tokens, sequences).numpy(), atol=1e-6)
