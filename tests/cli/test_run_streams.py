"""`edgefold run` with several sensors: each row as if its sensor had a loop of its own."""

from __future__ import annotations

import csv
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgefold.cli.main import main

Text = pytest.CaptureFixture[str]
NAMES = ("roof", "north wall", 'yard, "old"')
N_ROWS = 50


def run(bundle: Path, *words: object) -> int:
    return main(["run", str(bundle), *(str(word) for word in words)])


def cells(i: int) -> Iterator[str]:
    """The cells of three sensors: some empty, one that is no number, and a jump of one sensor."""
    for k in range(len(NAMES)):
        if (i * 7 + k * 5) % 11 == 3:
            yield "NA" if i % 2 else ""
        elif (i, k) == (20, 1):
            yield "oops"
        else:
            yield f"{400 + 5 * k + 5 * math.sin(i / (2 + k)) + 1e30 * ((i, k) == (30, 2)):.3f}"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """The same rows long and wide, and of each sensor alone."""
    found = {name: tmp_path / f"{name}.csv" for name in ("long", "wide", "0", "1", "2")}
    rows: dict[str, list[list[str]]] = {"long": [["sensor", "time", "value"]]}
    rows["wide"] = [["time", *NAMES]]
    rows |= {str(k): [["time", "value"]] for k in range(3)}
    for i in range(N_ROWS):
        line = list(cells(i))
        rows["wide"].append([str(i), *line])
        for k, cell in enumerate(line):
            if cell not in ("", "NA"):
                rows["long"].append([NAMES[k], str(i), cell])
                rows[str(k)].append([str(i), cell])
    for name, path in found.items():
        with path.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows[name])
    return found


def rows_of(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


WIDE = ("--value", ",".join(f'"{name.replace(chr(34), chr(34) * 2)}"' for name in NAMES))
FORMS: dict[str, tuple[object, ...]] = {
    "long": ("--stream", "sensor", "--streams", 3),
    "wide": WIDE,
}


@pytest.mark.parametrize("form", FORMS)
def test_each_sensor_is_predicted_as_if_it_were_alone(
    series_bundle: Path, files: dict[str, Path], tmp_path: Path, form: str, capsys: Text
) -> None:
    output = tmp_path / "p.csv"
    assert run(series_bundle, "--input", files[form], "--output", output, *FORMS[form]) == 0
    error = capsys.readouterr().err
    header, *found = rows_of(output)
    assert header == ["line", "stream", "time", "value", "prediction", "std", "error", "anomaly"]
    for k, name in enumerate(NAMES):
        alone = tmp_path / f"p{k}.csv"
        assert run(series_bundle, "--input", files[str(k)], "--output", alone) == 0
        own = [row[2:] for row in found if row[1] == name]
        assert own == [row[1:] for row in rows_of(alone)[1:]] and len(own) > 40
        line = next(text for text in error.splitlines() if text.startswith(name))
        n_bad = {0: "0", 1: "1", 2: "1"}[k]
        assert line.removeprefix(name).split()[:3] == [str(len(own)), str(len(own) - 6), n_bad]
    assert "2 malformed" in error


@pytest.mark.parametrize("form", FORMS)
def test_what_was_stopped_resumes_to_the_same_bytes(
    series_bundle: Path, files: dict[str, Path], tmp_path: Path, form: str, capsys: Text
) -> None:
    source, whole, output = files[form], tmp_path / "whole.csv", tmp_path / "p.csv"
    assert run(series_bundle, "--input", source, "--output", whole, *FORMS[form]) == 0
    summary = capsys.readouterr().err.split("rows  ")[1].split("this run")[0]
    lines = source.read_text().splitlines()
    words = ("--input", source, "--output", output, "--snapshot", tmp_path / "s.npz", *FORMS[form])
    for n in (5, 21, 22, len(lines)):
        source.write_text("\n".join(lines[:n]) + "\n")
        assert run(series_bundle, *words) == 0
    assert output.read_bytes() == whole.read_bytes()
    assert capsys.readouterr().err.split("rows  ")[-1].split("this run")[0] == summary


def test_a_sensor_too_many_is_refused_by_name_until_more_are_allowed(
    series_bundle: Path, files: dict[str, Path], tmp_path: Path, capsys: Text
) -> None:
    output = tmp_path / "p.csv"
    words = ("--input", files["long"], "--output", output, "--snapshot", tmp_path / "s.npz")
    assert run(series_bundle, *words, "--stream", "sensor", "--streams", 2) == 1  # rows were lost
    error = capsys.readouterr().err
    assert "yard" in error and "--streams 2" in error
    assert any(t.startswith("WARNING") and "no slot" in t for t in error.splitlines())
    assert "46 rows" in next(t for t in error.splitlines() if t.startswith("no sensor"))
    assert {row[1] for row in rows_of(output)[1:]} == set(NAMES[:2])
    with files["long"].open("a") as file:
        file.writelines(f"{name},{60 + i},400\n" for i in range(5) for name in ("roof", "new"))
    assert run(series_bundle, *words, "--stream", "sensor", "--streams", 3) == 0
    assert [row[1] for row in rows_of(output)[-10:]] == ["roof", "new"] * 5
    assert run(series_bundle, *words, "--stream", "sensor", "--streams", 2) == 1
    assert "--streams 3" in capsys.readouterr().err


def test_a_sensor_whose_rows_are_all_refused_is_named_and_the_others_go_on(
    series_bundle: Path, tmp_path: Path, capsys: Text
) -> None:
    source, output = tmp_path / "in.csv", tmp_path / "p.csv"
    lines = [f"{i},{400 + i},{'oops' if i > 9 else 300 + i}" for i in range(40)]
    source.write_text("time,good,broken\n" + "\n".join(lines) + "\n")
    assert run(series_bundle, "--input", source, "--output", output, "--value", "good,broken") == 1
    warning = next(t for t in capsys.readouterr().err.splitlines() if t.startswith("WARNING"))
    assert "broken (30)" in warning and "good" not in warning
    assert sum(row[1] == "good" for row in rows_of(output)) == 40


def test_more_sensors_than_a_snapshot_holds_are_refused_at_the_start(
    series_bundle: Path,
    files: dict[str, Path],
    tmp_path: Path,
    capsys: Text,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ("--input", files["long"], "--stream", "sensor", "--output", tmp_path / "p.csv")
    kept = ("--snapshot", tmp_path / "s.npz", "--streams")
    assert run(series_bundle, *words, *kept, 3) == 0
    n_bytes = (tmp_path / "s.npz").stat().st_size
    monkeypatch.setattr("edgefold.runtime.loop.loop_snapshot.EXTRA_BYTES", n_bytes + 3 * 2048)
    for n, code in ((3, 0), (30, 1)):
        assert run(series_bundle, *words, *kept, n, "--force") == code
    (tmp_path / "p.csv").unlink()
    assert run(series_bundle, *words, "--streams", 30) == 0


def test_strict_counts_no_part_of_the_line_that_it_stops_at(
    series_bundle: Path, tmp_path: Path, capsys: Text
) -> None:
    source = tmp_path / "in.csv"
    text = "time,a,b\n" + "".join(f"{i},400,300\n" for i in range(9))
    words = ("--input", source, "--output", tmp_path / "p.csv", "--snapshot", tmp_path / "s.npz")
    for _ in range(3):
        source.write_text(f"{text}9,,oops\n")
        assert run(series_bundle, *words, "--value", "a,b", "--strict") == 1
    source.write_text(f"{text}9,,300\n")
    assert run(series_bundle, *words, "--value", "a,b", "--strict") == 0
    assert "0 malformed, 1 without a value" in capsys.readouterr().err


def test_points_of_several_sensors_come_long(
    tiny_bundle: Path, tmp_path: Path, capsys: Text
) -> None:
    from tests.cli.conftest import point_lines

    source, output, alone = tmp_path / "in.csv", tmp_path / "p.csv", tmp_path / "alone.csv"
    lines = point_lines(30)
    pairs = [f"{line},{name}" for line in lines for name in ("a", "b")]
    source.write_text("x1,x2,y1,who\n" + "\n".join(pairs) + "\n")
    words = ("--stream", "who", "--streams", 4)
    assert run(tiny_bundle, "--input", source, "--output", output, *words) == 0
    source.write_text("x1,x2,y1\n" + "\n".join(lines) + "\n")
    assert run(tiny_bundle, "--input", source, "--output", alone) == 0
    for name in ("a", "b"):
        own = [row[2:] for row in rows_of(output)[1:] if row[1] == name]
        assert own == [row[1:] for row in rows_of(alone)[1:]]


@pytest.mark.parametrize("form", FORMS)
def test_strict_stops_before_the_bad_row_of_one_sensor(
    series_bundle: Path, files: dict[str, Path], tmp_path: Path, form: str, capsys: Text
) -> None:
    source, whole, output = files[form], tmp_path / "whole.csv", tmp_path / "p.csv"
    words = ("--input", source, *FORMS[form], "--every", 7)
    kept = ("--output", output, "--snapshot", tmp_path / "s.npz", "--strict")
    assert run(series_bundle, *words, *kept) == 1
    error = capsys.readouterr().err
    assert "stream north wall" in error and error.count("\n") == 1
    source.write_text(source.read_text().replace("oops", "401").replace("1" + "0" * 30, "402"))
    text = source.read_text()
    mended = [line for line in text.splitlines() if len(line) < 60]
    source.write_text("\n".join(mended) + "\n")
    assert run(series_bundle, *words, *kept) in (0, 1)
    assert run(series_bundle, *words, "--output", whole) == 0
    assert whole.read_bytes().startswith(output.read_bytes())


@pytest.mark.parametrize(
    "words",
    [
        ("--stream", "sensor"),
        ("--streams", 3),
        ("--streams", 3, "--value", "a,b"),
        ("--stream", "sensor", "--streams", 2, "--value", "a,b"),
        ("--value", "a,,b"),
        ("--value", "a,a"),
        ("--stream", "sensor", "--streams", 0),
        ("--stream", "sensor", "--streams", 10**6),
    ],
)
def test_options_that_leave_it_open_are_wrong_usage(
    series_bundle: Path, files: dict[str, Path], words: tuple[object, ...], capsys: Text
) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(series_bundle, "--input", files["long"], *words)
    assert stopped.value.code == 2


def test_slots_count_against_the_memory_limit(series_bundle: Path, files: dict[str, Path]) -> None:
    def code(n: int) -> tuple[int, str]:
        """In a process of its own: what this one has loaded would count."""
        words = ("--input", str(files["long"]), "--stream", "sensor", "--streams", str(n))
        command = [sys.executable, "-m", "edgefold.cli.main", "run", str(series_bundle), *words]
        ended = subprocess.run(
            [*command, "--memory-limit", "500MB"], check=False, capture_output=True, text=True
        )
        return ended.returncode, ended.stderr

    assert code(3)[0] == 0
    refused, error = code(10_000)
    assert refused == 3
    assert "slots" in error and "serve fewer streams" in error


@pytest.mark.parametrize("form", FORMS)
def test_the_snapshot_of_one_sensor_is_not_taken_for_several(
    series_bundle: Path, files: dict[str, Path], tmp_path: Path, form: str, capsys: Text
) -> None:
    words = ("--output", tmp_path / "p.csv", "--snapshot", tmp_path / "s.npz")
    assert run(series_bundle, "--input", files["0"], *words) == 0
    before = (tmp_path / "p.csv").read_bytes()
    assert run(series_bundle, "--input", files[form], *words, *FORMS[form]) == 1
    assert (tmp_path / "p.csv").read_bytes() == before


def test_an_alarm_is_of_one_sensor_and_of_the_runs_in_which_its_rows_come(
    series_bundle: Path, tmp_path: Path, capsys: Text
) -> None:
    """B is refused from its 6th row on, up to exactly 20; C now and then; A is learned."""
    lines = ["sensor,time,value"]
    for i in range(30):
        lines += [f"A,{i},400", f"C,{i},{'oops' if i % 2 else 400}"]
        lines += [f"B,{i},{'oops' if i > 4 else 400}"] * (i < 25)
    source = tmp_path / "rows.csv"
    source.write_text("\n".join(lines) + "\n")
    files = ("--input", source, "--output", tmp_path / "p.csv", "--snapshot", tmp_path / "s.npz")
    words = (*files, "--stream", "sensor", "--streams", 3)
    assert run(series_bundle, *words) == 1
    error = capsys.readouterr().err
    alarms = [text for text in error.splitlines() if text.startswith("edgefold: WARNING")]
    assert len(alarms) == 1 and "stream B" in alarms[0]
    with source.open("a") as file:
        file.writelines(f"A,{i},400\n" for i in range(30, 35))
    assert run(series_bundle, *words) == 0
    assert "WARNING" not in capsys.readouterr().err
    with source.open("a") as file:
        file.write("time\n" * 30 + "B,25,400\n")
    assert run(series_bundle, *words) == 0
    ends = [text for text in capsys.readouterr().err.splitlines() if "learned again from" in text]
    assert ["stream B" in end for end in ends] == [True, False]
    assert all("line 122 on" in end for end in ends)


def test_a_restart_with_fewer_sensors_names_those_of_the_snapshot(
    series_bundle: Path, files: dict[str, Path], tmp_path: Path, capsys: Text
) -> None:
    words = ("--input", files["wide"], "--snapshot", tmp_path / "s.npz")
    assert run(series_bundle, *words, *WIDE) == 0
    capsys.readouterr()
    assert run(series_bundle, *words, "--value", "roof") == 1
    assert "north wall" in capsys.readouterr().err
