"""`edgefold run --on-alarm`: a command for each alarm, which never holds up the loop."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from edgefold.cli.loop.alarm_command import AlarmCommand
from edgefold.cli.loop.alarm_delivery import MOST_WAITING, AlarmDelivery
from edgefold.cli.main import main
from edgefold.runtime.loop.alarm import Alarm

Text = pytest.CaptureFixture[str]
LONG_S = 60.0
KEEP = """\
import os, sys
with open(sys.argv[1], "a") as file:
    names = sorted(name for name in os.environ if name.startswith("EDGEFOLD_"))
    file.write(sys.stdin.read() + " ".join(f"{n}={os.environ[n]}" for n in names) + "\\n")
"""


def alarm(time: str = "t", value: float = 1.5, event: str = "value") -> Alarm:
    return Alarm("roof", event, time, str(value), value, 0, 0.0)


def script(folder: Path, code: str) -> list[str]:
    path = folder / "command.py"
    path.write_text(code)
    return [sys.executable, str(path)]


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; only a broken program waits for `LONG_S`."""
    end_s = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def children() -> set[str]:
    path = Path(f"/proc/{os.getpid()}/task")
    return {pid for task in path.iterdir() for pid in (task / "children").read_text().split()}


def test_a_command_gets_the_alarm_as_json_and_in_variables(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with AlarmDelivery(AlarmCommand([*script(tmp_path, KEEP), str(kept)]), LONG_S) as command:
        command.give(Alarm('roof "a"', "drift", "2024-01-01", "20,5\0", 20.5, 42, -3.25))
        command.give(alarm(value=math.nan))
    first, variables, second, _ = kept.read_text().splitlines()
    assert json.loads(first) == {
        "series": 'roof "a"', "event": "drift", "time": "2024-01-01", "value": 20.5, "since": 42,
        "size": -3.25,
    }  # fmt: skip
    told = 'EDGEFOLD_EVENT=drift EDGEFOLD_SERIES=roof "a" EDGEFOLD_TIME=2024-01-01'
    assert told in variables and "EDGEFOLD_VALUE=20,5" in variables
    missing = json.loads(second)
    assert missing["value"] is None and missing["size"] is None
    assert command.summary == "2 commands started"


def test_the_newest_alarms_wait_and_others_are_dropped(tmp_path: Path) -> None:
    begun, go, kept = tmp_path / "begun", tmp_path / "go", tmp_path / "kept"
    code = (
        "import json, os, sys, time\n"
        f"open({str(begun)!r}, 'w').close()\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
        f"open({str(kept)!r}, 'a').write(json.load(sys.stdin)['time'] + '\\n')\n"
    )
    with AlarmDelivery(AlarmCommand(script(tmp_path, code)), LONG_S) as command:
        command.give(alarm("first"))
        until(begun.exists)
        for n in range(MOST_WAITING + 5):
            command.give(alarm(str(n)))
        assert command.n_dropped == 5
        go.touch()
    assert kept.read_text().split() == ["first", *map(str, range(5, MOST_WAITING + 5))]
    assert "5 alarms without a command" in command.summary


@pytest.mark.long
def test_a_command_that_takes_too_long_is_ended_with_its_children(
    tmp_path: Path, capsys: Text
) -> None:
    own = tmp_path / "own"
    code = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(own)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    before = children()
    with AlarmDelivery(AlarmCommand(script(tmp_path, code), 1.0), LONG_S) as command:
        command.give(alarm())
    assert command.n_failed == 1 and "it took 1 s" in capsys.readouterr().err
    assert children() <= before  # no zombie
    if own.exists():  # on a slow machine the limit may come first
        until(lambda: not Path(f"/proc/{own.read_text()}/cmdline").exists() or is_dead(own))


def is_dead(file: Path) -> bool:
    """Return whether a process whose number a file holds has ended and only waits for init."""
    return "(zombie)" in Path(f"/proc/{file.read_text()}/status").read_text()


def test_the_end_waits_for_a_moment_only_and_leaves_nothing(tmp_path: Path) -> None:
    begun, before = tmp_path / "begun", children()
    code = f"import time\nopen({str(begun)!r}, 'w').close()\ntime.sleep(600)\n"
    with AlarmDelivery(AlarmCommand(script(tmp_path, code)), 0.0) as command:
        command.give(alarm())
        until(begun.exists)
        command.give(alarm())
    assert (command.n_begun, command.n_failed, command.n_dropped) == (1, 1, 1)
    assert children() <= before
    assert "on-alarm" not in [thread.name for thread in threading.enumerate()]


def test_failures_are_reported_at_a_bounded_rate(tmp_path: Path, capsys: Text) -> None:
    gone = script(tmp_path, "raise SystemExit(3)")
    with AlarmDelivery(AlarmCommand(gone), LONG_S) as command:
        for n in range(12):
            command.give(alarm())
            until(lambda n=n: command.n_failed > n)  # type: ignore[misc]
    lines = [line for line in capsys.readouterr().err.splitlines() if "--on-alarm" in line]
    assert len(lines) == 2 and "ended with code 3" in lines[0] and "10 have failed" in lines[1]
    assert command.summary == "12 commands started, 12 failed"


def test_a_command_that_went_away_is_a_failure(tmp_path: Path, capsys: Text) -> None:
    with AlarmDelivery(AlarmCommand([str(tmp_path / "none")])) as command:
        command.give(alarm())
    assert (command.n_begun, command.n_failed) == (1, 1)
    assert "did not start" in capsys.readouterr().err


# The option ---------------------------------------------------------------------------------------


def spike(path: Path) -> Path:
    rows = [f"{i},{(20 + i % 3) if i != 150 else 900}" for i in range(160)]
    path.write_text("\n".join(["t,v", *rows]) + "\n")
    return path


def test_each_alarm_of_a_run_starts_the_command(tmp_path: Path, capsys: Text) -> None:
    source, kept = spike(tmp_path / "log.csv"), tmp_path / "kept"
    words = shlex.join([*script(tmp_path, KEEP), str(kept)])
    assert main(["run", "sensors", "--input", str(source), "--on-alarm", words]) == 0
    told = json.loads(kept.read_text().splitlines()[0])
    assert (told["event"], told["time"], told["value"], told["series"]) == ("value", "150", 900, "")
    assert "on alarm      1 command started\n" in capsys.readouterr().err


def test_a_command_that_fails_does_not_change_the_run(tmp_path: Path) -> None:
    source = spike(tmp_path / "log.csv")
    fails = shlex.join(script(tmp_path, "raise SystemExit(1)"))
    for name, words in (("a.csv", []), ("b.csv", ["--on-alarm", fails])):
        output = ["--output", str(tmp_path / name)]
        assert main(["run", "sensors", "--input", str(source), *output, *words]) == 0
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


@pytest.mark.parametrize("command", ["", "'open", "no-such-program-here x", "/"])
def test_what_is_no_command_is_wrong_usage(tmp_path: Path, command: str, capsys: Text) -> None:
    source = spike(tmp_path / "log.csv")
    with pytest.raises(SystemExit, match="2"):
        main(["run", "sensors", "--input", str(source), "--on-alarm", command])
    assert "--on-alarm" in capsys.readouterr().err


def test_a_model_without_alarms_refuses_the_command(
    tiny_bundle: Path, points_csv: Path, capsys: Text
) -> None:
    words = ["--input", str(points_csv), "--on-alarm", "true"]
    assert main(["run", str(tiny_bundle), *words]) == 1
    assert "--on-alarm" in capsys.readouterr().err
