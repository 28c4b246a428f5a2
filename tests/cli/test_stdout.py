"""`--json -`: the record is alone on stdout, whatever else is printed and by whom."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from edgefold.cli.exit_codes import ExitCode

COMMAND = [sys.executable, "-m", "edgefold.cli.main"]
SHORT = ["--updates", "20", "--queries", "20", "--energy-seconds", "0.1"]


def on_stdout(*words: object) -> tuple[str, str]:
    """What a command writes to stdout and to stderr."""
    done = subprocess.run(
        [*COMMAND, *map(str, words)], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout, done.stderr


@pytest.mark.one_case
@pytest.mark.parametrize("command", ["budget", "check", "doctor", "evaluate", "profile"])
def test_the_record_is_alone_on_stdout(
    command: str, bundles: Path, series_bundle: Path, series_csv: Path
) -> None:
    options: dict[str, list[object]] = {
        "budget": [bundles / "tiny", "--device", "raspberry-pi-5"],
        "check": [bundles / "tiny"],
        "doctor": [],
        "evaluate": [series_bundle, "--csv", series_csv],
        "profile": [bundles / "tiny", *SHORT],
    }
    record, text = on_stdout(command, *options[command], "--json", "-")
    assert json.loads(record)["schema"] == 1
    assert len(text.splitlines()) > 3  # what people read


@pytest.mark.long
def test_csv_and_prometheus_go_to_stdout_too(bundles: Path, tmp_path: Path) -> None:
    words = ["profile", bundles / "tiny", *SHORT, "--json", tmp_path / "p.json"]
    assert on_stdout(*words, "--csv", "-")[0].startswith("figure,unit,value,")
    assert on_stdout(*words, "--prometheus", "-")[0].startswith("# HELP edgefold_")
    words = ["compare", tmp_path / "p.json", tmp_path / "p.json", "--anyway"]
    assert json.loads(on_stdout(*words, "--json", "-")[0])["comparisons"]


def test_two_records_cannot_share_stdout(tmp_path: Path) -> None:
    words = [*COMMAND, "profile", str(tmp_path), "--json", "-", "--csv", "-"]
    done = subprocess.run(words, capture_output=True, check=False)
    assert done.returncode == 2 and not done.stdout


def test_what_a_library_in_c_prints_does_not_get_between() -> None:
    code = (
        "import argparse, os\n"
        "from pathlib import Path\n"
        "from edgefold.cli.files import stdout_for_records, write_output\n"
        "args = argparse.Namespace(json=Path('-'))\n"
        "with stdout_for_records(args):\n"
        "    os.write(1, b'a line of a library\\n')\n"
        "    print('a line of a table')\n"
        "    write_output(args.json, '{}\\n')\n"
        "print('afterwards')\n"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "{}\nafterwards\n"
    assert done.stderr == "a line of a library\na line of a table\n"


def test_a_socket_takes_the_record_as_sshd_hands_one_over(bundles: Path) -> None:
    ours, theirs = socket.socketpair()
    words = [*COMMAND, "budget", str(bundles / "tiny"), "--device", "raspberry-pi-5", "--json"]
    for name in ("-", "/dev/stdout"):
        process = subprocess.Popen(
            [*words, name], stdout=theirs.fileno(), stderr=subprocess.DEVNULL
        )
        came = b""
        while b"\n}" not in came:
            came += ours.recv(1 << 20)
        assert process.wait(60) == 0
        assert json.loads(came[: came.index(b"\n}") + 2])["verdict"] == "FITS"
        ours.setblocking(False)
        while True:  # the table of /dev/stdout, which goes there as well
            try:
                if not ours.recv(1 << 20):
                    break
            except BlockingIOError:
                break
        ours.setblocking(True)
    ours.close()
    theirs.close()


@pytest.mark.parametrize("command", ["run", "check"])
def test_what_a_closed_stdout_should_get_is_not_lost_silently(
    command: str, tiny_bundle: Path, points_csv: Path
) -> None:
    words = ["--input", points_csv, "--output", "-"] if command == "run" else ["--json", "-"]
    done = subprocess.run(
        [*COMMAND, command, tiny_bundle, *words],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=lambda: os.close(1),
    )
    assert done.returncode == ExitCode.MACHINE
    assert "standard output is closed" in done.stderr
