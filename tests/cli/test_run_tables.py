"""`edgefold run sensors` finds in a table what `edgefold forecast` finds, and keeps it."""

from __future__ import annotations

import json
import os
import shlex
import threading
from pathlib import Path

import pytest

from edgefold.cli.main import main
from edgefold.runtime.loop.sensor_rows import find_columns
from edgefold.runtime.rows.csv_reader import N_LINES
from edgefold.runtime.sources.input_file import InputFile
from tests.rough_files import ROUGH_FILES

pytestmark = pytest.mark.usefixtures("compiled_sensors")

Text = pytest.CaptureFixture[str]
SHARE = 0.2
"""The part of a rough file that is read: season and forecasts are there by then."""


def forecast(capsys: Text, *words: str) -> list[str]:
    """Forecast a table; returns the words of the command that goes on with it."""
    assert main(["forecast", *words]) == 0
    command = capsys.readouterr().out.splitlines()[-1]
    assert command.startswith("go on ")
    words = tuple(shlex.split(command.removeprefix("go on")))
    assert words[:2] == ("edgefold", "run")
    return list(words[1:])


def piped(path: Path, *texts: str) -> threading.Thread:
    """Write texts into a named pipe, one after the other, and close it."""
    os.mkfifo(path)

    def write() -> None:
        with path.open("w") as pipe:
            for text in texts:
                pipe.write(text)
                pipe.flush()

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    return thread


@pytest.mark.one_case
@pytest.mark.parametrize("name", ROUGH_FILES)
def test_the_command_that_forecast_prints_gives_the_same_forecasts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Text
) -> None:
    monkeypatch.chdir(tmp_path)
    rough = ROUGH_FILES[name]()
    source = Path(rough.name)
    source.write_text(rough.text(SHARE))
    words = forecast(capsys, rough.name)
    assert main(words) == 0
    expected = Path(f"{source.stem}-forecast.csv").read_bytes()
    assert Path(f"{source.stem}-run.csv").read_bytes() == expected
    thread = piped(tmp_path / "pipe", rough.text(SHARE))
    assert main(["run", "sensors", "--input", "pipe", "--output", "pipe.csv"]) == 0
    thread.join()
    assert Path("pipe.csv").read_bytes() == expected


@pytest.mark.long
def test_names_and_options_are_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Text
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = ["when;roof, left;$HOME;place"]
    lines += [f"{2000 + i};{i % 7},5;{i % 5},25;a{i % 2} b" for i in range(60)]
    Path("my table.csv").write_text("\n".join(lines) + "\n")
    options = ("--columns", '"roof, left",$HOME', "--series", "place", "--false-alarms", "0.01")
    words = forecast(capsys, "my table.csv", *options)
    assert words[words.index("--streams") + 1] == "4"
    assert main(words) == 0
    output = Path("my table-run.csv").read_bytes()
    assert output == Path("my table-forecast.csv").read_bytes()
    assert b"a1 b $HOME" in output


@pytest.mark.one_case
@pytest.mark.parametrize("name", ["german_dates", "minutes_of_four_sensors", "daily_with_blanks"])
def test_a_run_that_stops_resumes_to_the_same_bytes(name: str, tmp_path: Path) -> None:
    rough = ROUGH_FILES[name]()
    source, snapshot = tmp_path / rough.name, tmp_path / "s.npz"
    outputs = tmp_path / "whole.csv", tmp_path / "parts.csv"
    source.write_text(rough.text(SHARE))
    assert main(["run", "sensors", "--input", str(source), "--output", str(outputs[0])]) == 0
    for share in (0.03, 0.1, SHARE):
        source.write_text(rough.text(share))
        words = ["--output", str(outputs[1]), "--snapshot", str(snapshot)]
        assert main(["run", "sensors", "--input", str(source), *words]) == 0
    assert outputs[0].read_bytes() == outputs[1].read_bytes()


def test_a_later_pipe_is_read_as_the_first_one_was(tmp_path: Path, capsys: Text) -> None:
    snapshot, output = str(tmp_path / "s.npz"), tmp_path / "out.csv"
    words = ["--output", str(output), "--snapshot", snapshot]
    first = "".join(f"0{1 + i}.02.2024 00:00;{i},5;{i}\n" for i in range(9))
    # By themselves these rows have a point, another date form, and no header.
    second = "".join(f"{10 + i}.02.2024 00:00;{i};{i}\n" for i in range(9))
    for n, text in enumerate(("Zeit;Wert;Nummer\n" + first, second)):
        thread = piped(tmp_path / f"pipe{n}", text)
        assert main(["run", "sensors", "--input", str(tmp_path / f"pipe{n}"), *words]) == 0
        thread.join()
    rows = [line.split(",")[:3] for line in output.read_text().splitlines()[1:]]
    assert len(rows) == 36 and rows[0] == ["Wert", "01.02.2024 00:00", "0.5"]
    assert rows[-1] == ["Nummer", "18.02.2024 00:00", "8"]
    again = ["run", "sensors", "--input", str(tmp_path / "pipe1"), *words]
    assert main([*again, "--value", "Wert"]) == 1


def test_what_is_given_is_taken(tmp_path: Path) -> None:
    rough = ROUGH_FILES["minutes_of_four_sensors"]()
    source, output = tmp_path / rough.name, tmp_path / "out.csv"
    source.write_text(rough.text(0.03))
    words = ["run", "sensors", "--input", str(source), "--output", str(output)]
    assert main([*words, *rough.options]) == 0
    header, row, *_ = output.read_text().splitlines()
    assert (
        header.startswith("time,value,mean") and row.split(",")[1] == rough.lines[1].split(",")[3]
    )


LIVE = {
    "dates": ("time,value\n2024-01-01 00:00,21.5\n", ("time",), ("value",), "dates"),
    "no header": ("2024-01-01 00:00;21,5\n", ("column 1",), ("column 2",), "dates"),
    "JSON": ('{"ts": 1700000000, "v": 2.5}\n', ("ts",), ("v",), "unix time"),
    "numbers": ("0;21,5\n", ("column 1",), ("column 2",), "numbers"),
    "named": ("t,a,b\n7,1,2\n", ("t",), ("a", "b"), "numbers"),
    "no clock": ("a,b,c\n7,1,2\n", (), ("a", "b", "c"), "rows"),
}


@pytest.mark.one_case
@pytest.mark.parametrize("form", LIVE)
def test_a_live_pipe_is_not_waited_for_after_its_first_row(form: str, tmp_path: Path) -> None:
    text, time, values, clock = LIVE[form]
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)  # it stays open, and silent
    source = InputFile(str(tmp_path / "pipe"))
    os.write(writer, text.encode())
    table = find_columns(source)
    assert table is not None
    choice = table.choice
    assert (choice.time, choice.values, choice.clock) == (time, values, clock)
    assert source.readline(65536) == text.encode().splitlines(keepends=True)[0]
    os.close(writer)
    source.close()


def test_a_pipe_is_read_no_further_than_needed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    os.write(writer, b"".join(b"%09d,21.5\n" % i for i in range(4 * N_LINES)))
    source = InputFile(str(tmp_path / "pipe"))
    assert len(source.first_lines(lambda lines: True)) == N_LINES
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert len(os.read(reader, 1 << 16)) > 2 * N_LINES * 15
    for fd in (reader, writer):
        os.close(fd)
    source.close()


def test_a_pipe_that_is_stopped_before_its_first_row_is_no_fault(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    asked = iter([False])
    source = InputFile(str(tmp_path / "pipe"), lambda: next(asked, True))
    assert find_columns(source) is None
    os.close(writer)
    source.close()


def taking_turns() -> str:
    """A log of two sensors, each of which reports at times of its own."""
    rows = [f"2024-01-01T00:{i:02}:01,roof,20\n2024-01-01T00:{i:02}:31,wall,500" for i in range(30)]
    return "\n".join(["time,sensor,value", *rows]) + "\n"


@pytest.mark.parametrize("is_pipe", [False, True])
def test_sensors_that_report_at_times_of_their_own_have_streams(
    is_pipe: bool, tmp_path: Path, capsys: Text
) -> None:
    source, output = tmp_path / "log.csv", tmp_path / "out.csv"
    words = ["run", "sensors", "--input", str(source), "--output", str(output)]
    if is_pipe:
        thread = piped(source, taking_turns())
    else:
        source.write_text(taking_turns())
    assert main(words) == 0
    if is_pipe:
        thread.join()
    names = [line.split(",")[0] for line in output.read_text().splitlines()]
    assert names == ["series", *["roof", "wall"] * 30]


def test_words_that_may_be_names_are_refused_with_the_options_of_run(
    tmp_path: Path, capsys: Text
) -> None:
    source, output = tmp_path / "log.csv", tmp_path / "out.csv"
    source.write_text(taking_turns().replace("sensor", "which").replace("500", "20"))
    words = ["run", "sensors", "--input", str(source), "--output", str(output)]
    assert main(words) == 1
    assert "--stream which" in capsys.readouterr().err and not output.exists()
    assert main([*words, "--stream", ""]) == 0
    assert len(output.read_text().splitlines()) == 61


def test_a_key_that_comes_late_is_reported(tmp_path: Path, capsys: Text) -> None:
    source = tmp_path / "late.jsonl"
    rows = [json.dumps({"time": i, "a": i % 5} | ({"b": 1} if i > 410 else {})) for i in range(430)]
    source.write_text("\n".join(rows) + "\n")
    words = ["run", "sensors", "--input", str(source), "--output", str(tmp_path / "out.csv")]
    assert main(words) == 0
    assert "the key b comes in 19 lines" in capsys.readouterr().err


def test_lines_that_end_with_cr_are_called_so(tmp_path: Path, capsys: Text) -> None:
    source = tmp_path / "mac.csv"
    source.write_text("time,value\r1,2\r2,3\r")
    words = ["--output", str(tmp_path / "o.csv"), "--snapshot", str(tmp_path / "s.npz")]
    assert main(["run", "sensors", "--input", str(source), *words]) == 1
    assert "CR alone" in capsys.readouterr().err


def test_rows_of_a_file_that_the_pipe_gave_already_are_skipped(
    tmp_path: Path, capsys: Text
) -> None:
    rows = [f"2024-01-01 {i // 60:02}:{i % 60:02},{20 + i % 7}\n" for i in range(90)]
    log, output = tmp_path / "log.csv", tmp_path / "out.csv"
    words = ["--output", str(output), "--snapshot", str(tmp_path / "s.npz")]
    thread = piped(tmp_path / "pipe", "time,value\n" + "".join(rows[20:60]))
    assert main(["run", "sensors", "--input", str(tmp_path / "pipe"), *words]) == 0
    thread.join()
    capsys.readouterr()
    log.write_text("time,value\n" + "".join(rows[:70]) + "broken\n")
    assert main(["run", "sensors", "--input", str(log), *words]) == 0
    error = capsys.readouterr().err
    assert "60 rows of" in error and "skipped" in error
    assert "line 72" in error  # of the file, whose last line is broken
    with log.open("a") as file:
        file.write("".join(rows[70:]))
    assert main(["run", "sensors", "--input", str(log), *words]) == 0
    times = [line.split(",")[0] for line in output.read_text().splitlines()[1:]]
    assert times == [row.split(",")[0] for row in rows[20:]]


def test_an_alarm_is_printed_when_it_is_asked_for(tmp_path: Path, capsys: Text) -> None:
    source = tmp_path / "log.csv"
    rows = [f"{i},{(20 + i % 3) if i != 150 else 900}" for i in range(160)]
    source.write_text("\n".join(["t,v", *rows]) + "\n")
    words = ["run", "sensors", "--input", str(source), "--force", "--output"]
    assert main([*words, str(tmp_path / "a.csv")]) == 0
    assert "ALARM" not in capsys.readouterr().err
    assert main([*words, str(tmp_path / "b.csv"), "--print-alarms"]) == 0
    assert "ALARM: value at 150, value 900" in capsys.readouterr().err


def test_the_memory_of_many_sensors_is_reported(
    tmp_path: Path, capsys: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgefold.cli.forecasting.MANY", 2)
    source = tmp_path / "log.csv"
    source.write_text(taking_turns())
    words = ["--input", str(source), "--output", str(tmp_path / "out.csv")]
    assert main(["run", "sensors", *words]) == 0
    assert "2 series take some" in capsys.readouterr().err


def test_a_pipe_with_a_header_of_old_windows_is_read(tmp_path: Path) -> None:
    rows = "".join(f"{1 + i:02}.02.2024 00:00;{i},5;ok\n" for i in range(20))
    text = f"Zeit;Wert °C;Größe\n{rows}"
    source, pipe, output = tmp_path / "log.csv", tmp_path / "pipe", tmp_path / "out.csv"
    source.write_bytes(text.encode("cp1252"))
    os.mkfifo(pipe)
    thread = threading.Thread(target=lambda: pipe.write_bytes(source.read_bytes()), daemon=True)
    thread.start()
    assert main(["run", "sensors", "--input", str(pipe), "--output", str(output)]) == 0
    thread.join()
    assert len(output.read_text().splitlines()) == 21
