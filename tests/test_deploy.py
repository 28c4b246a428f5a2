"""What deploy/ holds works: units, their commands, the pipe they read, the rule for sensors."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from edgefold.cli.main import build_parser
from tests.cli.conftest import point_lines

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
UNITS = sorted(path.name for path in DEPLOY.glob("*@.*"))
PROGRAM = "/opt/edgefold/bin/edgefold"
ENGINE = "edgefold-engine@.service"
LOOP, SENSORS = "edgefold@.service", "edgefold-sensors@.service"
MQTT = "edgefold-mqtt@.service"
CPU_LOOPS = ["edgefold-cpu@.service", SENSORS]
LOOPS = [LOOP, *CPU_LOOPS]
PAGES = ("jetson.md", "monitoring.md", "running.md")


def settings(unit: str) -> list[tuple[str, str]]:
    """Assignments in order; a key may come more than once."""
    lines = (DEPLOY / unit).read_text().splitlines()
    pairs = [line.partition("=") for line in lines if re.match(r"\w+=", line)]
    return [(key, value) for key, _, value in pairs]


def commands() -> list[tuple[str, str]]:
    return [(u, value) for u in UNITS for key, value in settings(u) if key.startswith("Exec")]


def test_systemd_knows_every_key_of_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    for unit in UNITS:  # the program is not installed here, which systemd would refuse
        (tmp_path / unit).write_text((DEPLOY / unit).read_text().replace(PROGRAM, "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(unit.replace("@", "@s") for unit in UNITS)],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = [line for line in done.stderr.splitlines() if str(tmp_path) in line]
    assert (done.returncode, complaints) == (0, [])


def test_systemd_knows_every_key_of_the_drop_in_for_a_serial_line(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    page = (ROOT / "docs" / "serial.md").read_text()
    drop_in = (
        page.partition("```\n[Service]\n")[2].partition("```")[0].replace(PROGRAM, "/bin/true")
    )
    assert "DeviceAllow=char-ttyUSB r" in drop_in
    for unit in UNITS:
        (tmp_path / unit).write_text((DEPLOY / unit).read_text().replace(PROGRAM, "/bin/true"))
    (tmp_path / f"{SENSORS}.d").mkdir()
    (tmp_path / f"{SENSORS}.d" / "override.conf").write_text(f"[Service]\n{drop_in}")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", SENSORS.replace("@", "@s")],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = [line for line in done.stderr.splitlines() if str(tmp_path) in line]
    assert (done.returncode, complaints) == (0, [])


@pytest.mark.parametrize(("unit", "command"), [c for c in commands() if PROGRAM in c[1]])
def test_the_units_commands_parse(unit: str, command: str) -> None:
    program, *argv = shlex.split(command.replace("%i", "sensor"))
    assert program == PROGRAM
    folder = Path(build_parser(argv).parse_args(argv).bundle)
    if unit in (SENSORS, MQTT):
        assert folder.name == "sensors" and (folder / "manifest.json").exists()
    else:
        assert folder == Path("/opt/edgefold/bundles/sensor")


def test_a_failed_build_of_engines_does_not_end_the_loop_for_good() -> None:
    """systemd cancels the start of a unit whose requirement fails, and never tries it again."""
    loop = settings(LOOP)
    required = " ".join(value for key, value in loop if key in ("Requires", "BindsTo", "Requisite"))
    assert "edgefold-engine" not in required
    engine = "edgefold-engine@%i.service"
    assert ("Wants", engine) in loop
    assert engine in dict(loop)["After"].split()
    # The first command fails while there are no engines; each new start asks for them again.
    first = next(value for key, value in loop if key.startswith("ExecStart"))
    assert first == f"/usr/bin/systemctl is-active --quiet {engine}"
    assert ("RemainAfterExit", "yes") in settings(ENGINE)  # is-active after it has ended, too
    assert ("Restart", "on-failure") in loop


@pytest.mark.parametrize("device", ["nvmap", "nvidiactl", ""])
def test_the_engines_wait_for_the_gpus_device_file(device: str, tmp_path: Path) -> None:
    command = next(value for key, value in settings(ENGINE) if key == "ExecStartPre")
    if device:
        (tmp_path / device).touch()
    here = command.replace("/dev/", f"{tmp_path}/").replace("timeout 60", "timeout 0.2")
    assert (subprocess.run(shlex.split(here), check=False).returncode == 0) == bool(device)


@pytest.mark.parametrize("loop", LOOPS)
def test_each_loop_reads_the_pipe_of_its_own_socket_and_resumes(loop: str) -> None:
    pairs, socket = settings(loop), loop.replace(".service", ".socket")
    assert socket in UNITS and ("ListenFIFO", "/run/edgefold/%i") in settings(socket)
    required = dict(pairs)["Requires"].split()
    assert required == [socket.replace("@", "@%i")] and ("StandardInput", "socket") in pairs
    command = dict(pairs)["ExecStart"]
    assert "--input -" in command and "--snapshot state.npz" in command
    assert ("Type", "notify") in pairs and ("WatchdogSec", "60") in pairs


def test_the_loop_of_a_broker_is_watched_and_reaches_the_network_only() -> None:
    pairs = settings(MQTT)
    assert ("Type", "notify") in pairs and ("WatchdogSec", "60") in pairs
    assert ("RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6") in pairs
    assert ("PrivateDevices", "yes") in pairs and ("ProtectSystem", "strict") in pairs


def test_the_loop_of_a_broker_publishes_alarms_where_the_tutorial_listens() -> None:
    """Whoever moves from the tutorial's command to the unit keeps the topics of the alarms."""
    page = (ROOT / "docs" / "brokers.md").read_text()
    (typed,) = set(re.findall(r"--alarms mqtt://house@localhost(/\S+)", page))
    of_unit = shlex.split(dict(settings(MQTT))["ExecStart"])
    assert of_unit[of_unit.index("--alarms") + 1] == "${EDGEFOLD_BROKER}" + typed
    assert f"mosquitto_sub -u house -P PASSWORD -t '{typed[1:]}/#'" in page


@pytest.mark.parametrize("loop", CPU_LOOPS)
def test_a_loop_on_the_processor_reaches_no_device_and_no_network(loop: str) -> None:
    pairs = settings(loop)
    assert ("PrivateDevices", "yes") in pairs and ("RestrictAddressFamilies", "AF_UNIX") in pairs
    assert not any(key == "SupplementaryGroups" for key, _ in pairs)
    assert "tensorrt" not in dict(pairs)["ExecStart"]


def test_the_engine_is_built_by_the_user_and_in_the_folder_that_the_loop_reads() -> None:
    # An engine that belongs to somebody else is not trusted, and would be built again.
    shared = ("User", "SupplementaryGroups", "CacheDirectory", "Environment")
    loop, engine = (dict(settings(unit)) for unit in (LOOP, ENGINE))
    assert {key: loop[key] for key in shared} == {key: engine[key] for key in shared}


def test_the_pages_name_every_file_and_show_no_other() -> None:
    page = "".join((ROOT / "docs" / name).read_text() for name in PAGES)
    linked = set(re.findall(r"\(\.\./deploy/([^)]+)\)", page))
    files = (path for path in DEPLOY.rglob("*") if path.is_file())
    assert linked == {path.relative_to(DEPLOY).as_posix() for path in files}


def said_by_the_code() -> str:
    """Every string of the folders that a board runs; a blank stands where a value is put in."""
    found = []
    for folder in ("cli", "runtime", "devices"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return "\n".join(found)


def test_the_page_quotes_the_messages_as_the_code_says_them() -> None:
    page = (ROOT / "docs" / "jetson.md").read_text()
    table = page.partition("| the line says |")[2].partition("\n\n")[0]
    cells = [line.split(" | ")[0] for line in table.splitlines()[2:]]
    quotes = [quote for cell in cells for quote in re.findall(r"`([^`]+)`", cell)]
    assert len(quotes) >= 15
    said = said_by_the_code()
    for quote in quotes:
        for part in re.split(r"\.\.\.|cuda[A-Z]?\w*|\(\d+\)", quote):
            words = part.strip(" .:/()")
            assert words in said, f"{quote}: {words}"


# The loop below the socket unit -------------------------------------------------------------------


@contextmanager
def loop_on(pipe: int, bundle: Path, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The unit's own command, with the pipe that systemd holds as its standard input."""
    command = dict(settings(LOOP))["ExecStart"]
    words = shlex.split(command.replace("tensorrt", "onnxruntime"))[3:]
    argv = [sys.executable, "-m", "edgefold.cli.main", "run", str(bundle), *words]
    process = subprocess.Popen(argv, stdin=pipe, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for_rows(output: Path, n_rows: int) -> None:
    """Until the loop has written a header and so many rows."""
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s:
        if output.exists() and len(output.read_text().splitlines()) > n_rows:
            return
        time.sleep(0.02)
    raise AssertionError(f"{n_rows} rows did not come")


@pytest.mark.long
def test_writers_come_and_go_and_rows_wait_while_the_loop_restarts(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    fifo, output = tmp_path / "rows", tmp_path / "predictions.csv"
    os.mkfifo(fifo)
    held = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)  # as systemd opens ListenFIFO=
    lines = point_lines(9)
    try:
        with loop_on(held, tiny_bundle, tmp_path) as first:
            for chunk in (["x1,x2,y1", *lines[:2]], lines[2:5]):
                fifo.write_text("\n".join(chunk) + "\n")  # opens and closes: no end for the loop
            wait_for_rows(output, 5)
            first.send_signal(signal.SIGTERM)
            assert first.wait(60) == 0
        fifo_end = os.open(fifo, os.O_WRONLY)
        os.write(fifo_end, ("\n".join(lines[5:]) + "\n").encode())  # nobody reads now
        os.close(fifo_end)
        with loop_on(held, tiny_bundle, tmp_path) as second:
            wait_for_rows(output, 9)
            second.send_signal(signal.SIGTERM)
            assert second.wait(60) == 0
    finally:
        os.close(held)
    with np.load(tmp_path / "state.npz") as archive:
        assert b'"rows": 9' in archive["extra.loop"].tobytes()


# The rule -----------------------------------------------------------------------------------------

ASSIGNMENT = re.compile(r'([A-Z]+(?:\{\w+\})?)(==|\+=|=)"([^"]*)"')


def rule() -> list[tuple[str, str, str]]:
    text = (DEPLOY / "70-edgefold-power.rules").read_text()
    (line,) = (line for line in text.splitlines() if line and not line.startswith("#"))
    found = ASSIGNMENT.findall(line)
    assert ", ".join(f'{key}{sign}"{value}"' for key, sign, value in found) == line
    return found


def test_the_rule_matches_power_monitors_alone_and_sets_no_rights_of_device_nodes() -> None:
    assert [(key, sign) for key, sign, _ in rule()] == [
        ("ACTION", "=="),
        ("SUBSYSTEM", "=="),
        ("ATTR{name}", "=="),
        ("RUN", "+="),
    ]
    assert dict((key, value) for key, _, value in rule())["ATTR{name}"] == "ina3221|ina238"


def test_the_rule_makes_readings_readable_and_nothing_writable(tmp_path: Path) -> None:
    before = {"in1_input": 0o400, "curr1_crit": 0o600, "reset": 0o200, "uevent": 0o644}
    for name, mode in before.items():
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    (run,) = (value for key, _, value in rule() if key == "RUN")
    subprocess.run(shlex.split(run.replace("/sys%p", str(tmp_path))), check=True)
    after = {name: (tmp_path / name).stat().st_mode & 0o777 for name in before}
    assert after == {"in1_input": 0o444, "curr1_crit": 0o644, "reset": 0o200, "uevent": 0o644}
