"""What `edgefold run` reads: rows as training read them, JSON lines, cells without a value."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from edgefold.cli.main import main
from edgefold.runtime import RowFormat
from edgefold.runtime.bundle.manifest_file import with_checksum

Text = pytest.CaptureFixture[str]


def run(bundle: Path, *words: object) -> int:
    return main(["run", str(bundle), *(str(word) for word in words)])


def rows_of(path: Path) -> list[list[str]]:
    return [line.split(",") for line in path.read_text().splitlines()]


def retasked(bundle: Path, folder: Path, **task: object) -> Path:
    """A copy of a bundle whose task keeps something more."""
    shutil.copytree(bundle, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["task"] |= task
    (folder / "manifest.json").write_text(json.dumps(with_checksum(manifest)))
    return folder


def test_a_bundle_reads_rows_as_its_training_did(
    series_bundle: Path, series_csv: Path, tmp_path: Path, capsys: Text
) -> None:
    plain, rough, output = tmp_path / "plain.csv", tmp_path / "rough.csv", tmp_path / "rough_p.csv"
    assert run(series_bundle, "--input", series_csv, "--output", plain) == 0
    rows = [line.split(",") for line in series_csv.read_text().split()[1:]]
    lines = ["Note;Level;When", *(f"x,y;{v.replace('.', ',')};{t}" for t, v in rows)]
    rough.write_text("\n".join(lines) + "\n")
    kept = {"columns": ["When", "Level"], "format": RowFormat(decimal=",").to_json()}
    bundle = retasked(series_bundle, tmp_path / "bundle", **kept)
    assert run(bundle, "--input", rough, "--output", output) == 0
    assert output.read_bytes() == plain.read_bytes()
    capsys.readouterr()
    assert run(bundle, "--input", rough, "--output", tmp_path / "o", "--decimal", ".") == 1
    assert "--decimal , reads it" in capsys.readouterr().err
    assert run(bundle, "--input", series_csv, "--output", tmp_path / "o2", "--decimal", ".") == 0


def test_json_lines_give_the_rows_of_a_csv_also_after_a_restart(
    series_bundle: Path, series_csv: Path, tmp_path: Path
) -> None:
    plain, output, source = tmp_path / "p.csv", tmp_path / "j.csv", tmp_path / "rows.jsonl"
    assert run(series_bundle, "--input", series_csv, "--output", plain) == 0
    rows = [line.split(",") for line in series_csv.read_text().split()[1:]]
    lines = [f'{{"value": {v}, "unit": {{"a": 1}}, "time": {t}}}\n' for t, v in rows]
    words = ("--input", source, "--output", output, "--snapshot", tmp_path / "s.npz")
    for end in (25, len(lines)):
        source.write_text("".join(lines[:end]))
        assert run(series_bundle, *words) == 0
    numbers = [[row[1:] for row in rows_of(path)] for path in (plain, output)]
    assert numbers[0] == numbers[1]


def test_rows_without_a_value_are_counted_apart_also_after_a_restart(
    series_bundle: Path, series_csv: Path, tmp_path: Path, capsys: Text
) -> None:
    whole = tmp_path / "whole.csv"
    lines = series_csv.read_text().splitlines()
    for row, cell in ((30, "NA"), (31, ""), (50, "null")):
        lines[row] = f"{lines[row].split(',')[0]},{cell}"
    words = ("--input", series_csv, "--output", whole, "--snapshot", tmp_path / "s.npz")
    for end in (31, len(lines)):
        series_csv.write_text("\n".join(lines[:end]) + "\n")
        assert run(series_bundle, *words, "--strict") == 0
    assert "0 malformed, 3 without a value" in capsys.readouterr().err
    assert {len(row) for row in rows_of(whole)} == {7}
    assert [int(row[0]) for row in rows_of(whole)[1:]] == [
        n for n in range(2, 62) if n not in (31, 32, 51)
    ]


def test_texts_of_the_input_cannot_move_the_columns_of_the_output(
    series_bundle: Path, tmp_path: Path
) -> None:
    bundle = retasked(series_bundle, tmp_path / "dated")
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["task"]["features"] |= {"clock": "date", "step": 86400.0}
    (bundle / "manifest.json").write_text(json.dumps(with_checksum(manifest)))
    source, output = tmp_path / "in.csv", tmp_path / "p.csv"
    source.write_text("time;value\n" + "".join(f"Jan {d}, 2020;40{d}\n" for d in range(1, 9)))
    words = ("--input", source, "--output", output, "--time-format", "%b %d, %Y")
    assert run(bundle, *words) == 0
    with output.open(newline="") as file:
        rows = list(csv.reader(file, strict=True))
    assert {len(row) for row in rows} == {7} and rows[3][1] == "Jan 3, 2020"


def test_a_form_of_dates_is_refused_where_times_are_numbers(
    series_bundle: Path, series_csv: Path, capsys: Text
) -> None:
    assert run(series_bundle, "--input", series_csv, "--time-format", "%Y") == 1
    assert "--time-format" in capsys.readouterr().err
