"""`edgefold run` on a full disk, under signals and on pipes."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.main import main
from edgefold.runtime import Stream

COMMAND = [sys.executable, "-m", "edgefold.cli.main", "run"]
Text = pytest.CaptureFixture[str]


def run(bundle: Path, *words: object) -> int:
    return main(["run", str(bundle), *(str(word) for word in words)])


def rows_of(path: Path) -> list[list[str]]:
    return [line.split(",") for line in path.read_text().splitlines()]


def record_of(snapshot: Path) -> dict[str, object]:
    with np.load(snapshot) as archive:
        record: dict[str, object] = json.loads(archive["extra.loop"].tobytes())
    return record


# A full disk -------------------------------------------------------------------------------------


def test_a_full_device_is_one_line(tiny_bundle: Path, points_csv: Path, capsys: Text) -> None:
    assert run(tiny_bundle, "--input", points_csv, "--output", "/dev/full") == ExitCode.MACHINE
    error = capsys.readouterr().err
    assert "/dev/full cannot be written: No space left" in error and error.count("\n") == 1


def limited(n_bytes: int, *words: object) -> subprocess.CompletedProcess[str]:
    """The command with a limit on the size of any file it writes."""
    return subprocess.run(
        [*COMMAND, *(str(word) for word in words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes)),
    )


@pytest.mark.long
@pytest.mark.parametrize("full", ["output", "snapshot"])
def test_when_the_disk_fills_up_the_snapshot_stays_whole_and_the_run_goes_on_later(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path, full: str
) -> None:
    output, snapshot, whole = (tmp_path / name for name in ("p.csv", "s.npz", "whole.csv"))
    assert run(tiny_bundle, "--input", points_csv, "--output", whole) == 0
    lines = points_csv.read_text().splitlines()
    points_csv.write_text("\n".join(lines[:31]) + "\n")
    words = ("--input", points_csv, "--output", output, "--snapshot", snapshot, "--every", 10)
    assert run(tiny_bundle, *words) == 0
    before = snapshot.read_bytes()
    points_csv.write_text("\n".join(lines) + "\n")
    limit = output.stat().st_size + 100 if full == "output" else len(before) // 2
    if full == "output":  # the snapshot must fit below the output's limit: make the output long
        padding = "".join(f"{row}\n" for row in lines[1:31]) * (len(before) // 900)
        points_csv.write_text("x1,x2,y1\n" + padding)
        for path in (output, snapshot, whole):
            path.unlink()
        assert run(tiny_bundle, *words) == 0
        before, limit = snapshot.read_bytes(), output.stat().st_size + 100
        assert limit > len(before)
        with points_csv.open("a") as file:
            file.write("\n".join(lines[1:]) + "\n")
        assert run(tiny_bundle, "--input", points_csv, "--output", whole) == 0
    done = limited(limit, tiny_bundle, *words)
    assert done.returncode == ExitCode.MACHINE and done.stderr.count("\n") == 1
    assert (output if full == "output" else snapshot).name in done.stderr
    assert snapshot.read_bytes() == before
    assert not snapshot.with_name("s.npz.tmp").exists()
    assert run(tiny_bundle, *words) == 0
    assert output.read_bytes() == whole.read_bytes()


# Signals and pipes -------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_leaves_with_zero(
    tiny_bundle: Path, tmp_path: Path, number: int
) -> None:
    output, snapshot = tmp_path / "p.csv", tmp_path / "s.npz"
    words = ["--input", "-", "--output", str(output), "--snapshot", str(snapshot)]
    process = subprocess.Popen(
        [*COMMAND, str(tiny_bundle), *words],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin and process.stderr
    process.stdin.write("x1,x2,y1\n" + "0.1,0.2,0.3\n" * 10)
    process.stdin.flush()
    deadline = time.monotonic() + 60
    while not (output.exists() and len(rows_of(output)) == 11):  # rows come out as they come in
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(number)  # the pipe is silent and stays open
    assert process.wait(60) == 0
    error = process.stderr.read()
    process.stdin.close()
    process.stderr.close()
    assert "10 updates" in error and "resumes from" in error
    assert record_of(snapshot)["counters"]["rows"] == 10  # type: ignore[index]
    with Stream.open(tiny_bundle) as stream:
        stream.restore(snapshot)
        assert stream.n_points == 10


@pytest.mark.long
@pytest.mark.parametrize("header", ["", "x1,x2,y1\n"])
def test_a_pipe_goes_on_with_what_comes(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path, header: str
) -> None:
    output, whole = tmp_path / "p.csv", tmp_path / "whole.csv"
    lines = points_csv.read_text().splitlines()
    words = ["--input", "-", "--output", str(output), "--snapshot", str(tmp_path / "s.npz")]
    parts = ["\n".join(lines[:31]) + "\n", header + "\n".join(lines[31:]) + "\n"]
    for part in parts:
        done = subprocess.run(
            [*COMMAND, str(tiny_bundle), *words],
            input=part,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
    assert run(tiny_bundle, "--input", points_csv, "--output", whole) == 0
    shifted = [row[1:] for row in rows_of(output)]
    assert shifted == [row[1:] for row in rows_of(whole)]


def test_standard_output_carries_rows_alone(tiny_bundle: Path, points_csv: Path) -> None:
    done = subprocess.run(
        [*COMMAND, str(tiny_bundle), "--input", str(points_csv), "--output", "-"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.startswith("line,x1") and done.stdout.count("\n") == 61
    assert "60 updates" in done.stderr


# Standard streams --------------------------------------------------------------------------------


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("streams", "source"),
    [("<&-", "CSV"), (">&-", "CSV"), ("2>&-", "CSV"), ("<&- >&- 2>&-", "CSV"), ("<&-", "-")],
)
def test_closed_standard_streams_are_no_fault(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path, streams: str, source: str
) -> None:
    output = tmp_path / "p.csv"
    words = [*COMMAND, str(tiny_bundle), "--output", str(output), "--input"]
    words.append(str(points_csv) if source == "CSV" else source)
    done = subprocess.run(
        ["sh", "-c", f'"$@" {streams}', "sh", *words], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    if source == "-":
        assert done.returncode == 1 and "holds no lines" in done.stderr
    else:
        assert done.returncode == 0 and len(rows_of(output)) == 61


@pytest.mark.one_case
@pytest.mark.parametrize("bad", ["", "what,ever\n"])
def test_a_full_stderr_changes_nothing(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path, bad: str
) -> None:
    output = tmp_path / "p.csv"
    with points_csv.open("a") as file:
        file.write(bad * 30)
    command = [*COMMAND, str(tiny_bundle), "--input", str(points_csv), "--output", str(output)]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stderr=full, check=False)
        assert done.returncode == (1 if bad else 0)  # 30 refused rows at the end are an alarm
        assert subprocess.run([*COMMAND, "none", "--input", "-"], stderr=full).returncode == 1
    assert len(rows_of(output)) == 61
