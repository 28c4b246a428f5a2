"""`edgefold run --alarms`: a file for the alarms alone, which resumes as the output does."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from edgefold.cli.main import main

pytestmark = pytest.mark.usefixtures("compiled_sensors")

Text = pytest.CaptureFixture[str]
SPIKES = (150, 190)


def write(path: Path, n: int = 220) -> Path:
    lines = [f"{i},{20 + i % 3 if i not in SPIKES else 900 + i},{30 + i % 4}" for i in range(n)]
    path.write_text("\n".join(["t,roof,wall", *lines]) + "\n")
    return path


def run(*words: object) -> int:
    return main(["run", "sensors", *(str(word) for word in words)])


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_file_holds_the_alarms_of_the_output(tmp_path: Path) -> None:
    words = ("--input", write(tmp_path / "in.csv"), "--force", "--output", tmp_path / "out.csv")
    assert run(*words, "--alarms", tmp_path / "a.csv") == 0
    rows = [row for row in read(tmp_path / "out.csv") if row["alarm"] == "1"]
    alarms = read(tmp_path / "a.csv")
    assert [*alarms[0]] == ["series", "event", "time", "value", "since", "size"]
    names = ("series", "event", "time", "value")
    assert [[a[n] for n in names] for a in alarms] == [[row[n] for n in names] for row in rows]
    assert next(alarm["time"] for alarm in alarms if alarm["series"] == "roof") == str(SPIKES[0])

    assert run(*words, "--alarms", tmp_path / "a.jsonl") == 0
    first = json.loads((tmp_path / "a.jsonl").read_text().splitlines()[0])
    assert first == {
        "series": "roof", "event": "value", "time": "150", "value": 1050.0, "since": 0,
        "size": None,
    }  # fmt: skip
    assert run(*words, "--value", "wall", "--alarms", tmp_path / "one.csv") == 0
    assert (tmp_path / "one.csv").read_text().startswith("event,time,value,since,size\n")


@pytest.mark.parametrize("name", ["csv", "jsonl"])
def test_it_resumes_without_a_line_twice(tmp_path: Path, name: str) -> None:
    source = write(tmp_path / "in.csv")
    assert run("--input", source, "--alarms", tmp_path / f"whole.{name}") == 0
    words = ("--alarms", tmp_path / f"part.{name}", "--snapshot", tmp_path / "s.npz")
    for n in (120, 151, 160, 220):
        assert run("--input", write(source, n), *words, "--every", 7) == 0
        if n == 160:  # written after the snapshot, as before a kill
            with (tmp_path / f"part.{name}").open("a") as file:
                file.write("torn")
    parts = [(tmp_path / f"{part}.{name}").read_text() for part in ("part", "whole")]
    assert parts[0] == parts[1] and parts[0].count("value") >= len(SPIKES)


def test_what_exists_is_kept_and_a_lost_name_is_asked_for(tmp_path: Path, capsys: Text) -> None:
    source, alarms = write(tmp_path / "in.csv"), tmp_path / "a.csv"
    alarms.write_text("mine")
    words = ("--input", source, "--snapshot", tmp_path / "s.npz")
    assert run(*words, "--alarms", alarms) == 1
    assert "a.csv exists" in capsys.readouterr().err and alarms.read_text() == "mine"
    assert run(*words, "--alarms", alarms, "--force") == 0
    assert len(read(alarms)) >= len(SPIKES)
    assert run(*words) == 1
    assert "name it with --alarms" in capsys.readouterr().err
    assert run(*words, "--alarms", tmp_path / "b.csv") == 1
    assert "with --alarms" in capsys.readouterr().err


def test_it_may_be_added_to_a_run_that_has_begun(tmp_path: Path) -> None:
    source, words = tmp_path / "in.csv", ("--snapshot", tmp_path / "s.npz")
    assert run("--input", write(source, 160), *words) == 0
    assert run("--input", write(source), *words, "--alarms", tmp_path / "a.csv") == 0
    times = [row["time"] for row in read(tmp_path / "a.csv")]
    assert "190" in times and "150" not in times


def test_files_that_cannot_be_its_own_are_refused(
    tmp_path: Path, tiny_bundle: Path, points_csv: Path, capsys: Text
) -> None:
    source, output = write(tmp_path / "in.csv"), tmp_path / "o.csv"
    assert run("--input", source, "--output", output, "--alarms", output) == 1
    assert "are the same file" in capsys.readouterr().err and not output.exists()
    with pytest.raises(SystemExit, match="2"):
        run("--input", source, "--output", "-", "--alarms", "-")
    words = ["--input", str(points_csv), "--alarms", str(tmp_path / "a.csv")]
    assert main(["run", str(tiny_bundle), *words]) == 1
    assert "--alarms" in capsys.readouterr().err


def test_alarms_alone_go_to_standard_output(tmp_path: Path, capfd: Text) -> None:
    assert run("--input", write(tmp_path / "in.csv"), "--alarms", "-") == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "series,event,time,value,since,size" and lines[1].startswith("roof,value,")
