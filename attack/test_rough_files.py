"""Every rough file goes through train, evaluate, export, run and restart with one option at most.

Slow, since each file trains a model: `make test-attack` runs it, plain pytest does not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

from edgefold.cli.main import main
from tests.rough_files import ROUGH_FILES, RoughFile, hourly_with_holes

ROOT = Path(__file__).parents[1]
Command = Callable[..., tuple[int, str, str]]
TINY = ("--set", "n_latents=8", "--set", "width=16", "--set", "n_heads=2", "--set", "n_blocks=1")
COUNTS = re.compile(r"([\d,]+) updates, ([\d,]+) predictions, ([\d,]+) malformed")


@pytest.fixture
def edgefold(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command: exit code, stdout, stderr; a traceback fails the test."""

    def run(*words: object) -> tuple[int, str, str]:
        try:
            code = main([str(word) for word in words])
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, error = capsys.readouterr()
        assert "Traceback" not in error, error
        return code, out, error

    return run


def trained(edgefold: Command, rough: RoughFile, folder: Path) -> tuple[Path, Path]:
    """The file, and the bundle of a short training on it."""
    csv, run, bundle = folder / rough.name, folder / "run", folder / "bundle"
    csv.write_text(rough.text())
    words = ("--csv", csv, *rough.options, "--steps", 30, *TINY, "--threads", 1, "--out", run)
    code, _, error = edgefold("train", "series", *words)
    assert code == 0, error
    code, _, error = edgefold("export", run, "--out", bundle, "--parity-steps", 128)
    assert code == 0, error
    return csv, bundle


@pytest.mark.parametrize("name", ROUGH_FILES)
def test_a_rough_file_goes_all_the_way(name: str, edgefold: Command, tmp_path: Path) -> None:
    """It is scored on its real rows, each is learned once, and a restart changes nothing."""
    rough = ROUGH_FILES[name]()
    assert sum(option.startswith("--") for option in rough.options) <= 1
    csv, bundle = trained(edgefold, rough, tmp_path)

    for folder in (tmp_path / "run", bundle):  # scored on the real rows of the last fifth alone
        code, _, error = edgefold("evaluate", folder, "--csv", csv, "--json", tmp_path / "s.json")
        assert code == 0, error
        record = json.loads((tmp_path / "s.json").read_text())
        assert {s["n"] for s in record["scores"].values()} == {rough.n_held_out}

    whole = tmp_path / "whole.csv"
    words = ("--output", whole, "--snapshot", tmp_path / "whole.npz", "--every", 10)
    code, _, error = edgefold("run", bundle, "--input", csv, *words)
    assert code == 0, error
    counts = COUNTS.search(error)
    assert counts, error
    updates, predictions, malformed = (int(n.replace(",", "")) for n in counts.groups())
    assert (updates, malformed) == (rough.n_rows, rough.n_bad)
    assert predictions == rough.n_rows - rough.n_history
    lines = whole.read_text().splitlines()
    assert len(lines) == len(set(lines))  # no row twice

    live, output = tmp_path / f"live-{rough.name}", tmp_path / "live.csv"
    words = ("--output", output, "--snapshot", tmp_path / "live.npz", "--every", 10)
    live.write_text(rough.text(0.5))
    assert edgefold("run", bundle, "--input", live, *words)[0] == 0
    with live.open("a") as file:
        file.write(rough.text()[len(rough.text(0.5)) :])
    assert edgefold("run", bundle, "--input", live, *words)[0] == 0
    assert output.read_text() == whole.read_text()


def test_hourly_rows_are_refused_by_a_weekly_bundle(edgefold: Command, tmp_path: Path) -> None:
    """By evaluate and by run, in a line with both paces in words."""
    weekly = ROOT / "data" / "co2_weekly.csv"
    lines = tuple(weekly.read_text().splitlines())
    rough = RoughFile("co2.csv", lines, (), len(lines) - 1, 53)
    _, bundle = trained(edgefold, rough, tmp_path)
    hourly = tmp_path / "hourly.csv"
    hourly.write_text(hourly_with_holes().text())
    output = tmp_path / "predictions.csv"
    asked = (
        ("evaluate", "--csv", hourly, "--mend"),
        ("run", "--input", hourly, "--output", output),
    )
    for command, *words in asked:
        code, _, error = edgefold(command, bundle, *words)
        assert code == 1
        line = error.splitlines()[-1]
        assert "1 hour" in line and "7 days" in line
