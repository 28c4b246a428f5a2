"""`edgefold deploy --service` writes units that fit the board, and systemd takes them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from edgefold.cli.main import build_parser, main
from edgefold.cli.remote.units import (
    Service,
    commands_of,
    service_of,
    units_folder,
    units_for,
)
from edgefold.runtime.errors import BoardError
from tests.cli.remote.boards import USER, Pc, Sshd

Text = pytest.CaptureFixture[str]
MQTT = Service("edgefold-mqtt", "home")


def text_of(service: Service, folder: str, user: str, home: str, name: str) -> str:
    """The text of one unit for a board."""
    (content,) = (f.source for f in units_for(service, folder, user, home) if f.name == name)
    assert isinstance(content, bytes)
    return content.decode()


def test_a_unit_below_a_home_names_its_folder_and_its_user() -> None:
    text = text_of(MQTT, "/home/pi/edgefold", "pi", "/home/pi", "edgefold-mqtt@.service")
    assert "/opt/edgefold" not in text and "User=pi\n" in text
    assert "ExecStart=/home/pi/edgefold/bin/edgefold run sensors" in text
    assert "ProtectHome=read-only" in text
    assert "EDGEFOLD_CACHE=/home/pi/.cache/edgefold\n" in text
    socket = text_of(
        Service("edgefold-cpu", "a"), "/home/pi/e", "pi", "/home/pi", "edgefold-cpu@.socket"
    )
    assert "SocketUser=pi\nSocketGroup=pi\n" in socket


def test_what_root_deploys_to_opt_is_the_unit_of_the_docs() -> None:
    own = (units_folder() / "edgefold-mqtt@.service").read_text()
    assert text_of(MQTT, "/opt/edgefold", "root", "/root", "edgefold-mqtt@.service") == own


def test_a_folder_that_the_service_cannot_read_is_refused() -> None:
    with pytest.raises(BoardError):
        units_for(MQTT, "/root/edgefold", "root", "/root")
    with pytest.raises(BoardError):
        units_for(MQTT, "/home/pi/my board", "pi", "/home/pi")


@pytest.mark.parametrize("kind", ["edgefold", "edgefold-cpu", "edgefold-sensors", "edgefold-mqtt"])
def test_every_service_has_units_that_systemd_knows(kind: str, tmp_path: Path) -> None:
    service = service_of(f"{kind}@boiler.service")
    files = units_for(service, "/home/pi/edgefold", "pi", "/home/pi")
    assert f"{kind}@.service" in {file.name for file in files}
    for file in files:
        assert isinstance(file.source, bytes)
        text = file.source.decode()
        for line in re.findall(r"^ExecStart\w*=(/home/pi/edgefold/bin/edgefold .*)$", text, re.M):
            argv = shlex.split(line.replace("%i", "boiler"))[1:]
            assert build_parser(argv).parse_args(argv).bundle is not None
        known = text.replace("/home/pi/edgefold/bin/edgefold", "/bin/true")
        (tmp_path / file.name).write_text(known)
    commands = commands_of(service, files, "/home/pi/edgefold", "pi")
    assert commands[0] == f"sudo cp /home/pi/edgefold/units/{kind}/* /etc/systemd/system/"
    assert f"{kind}@boiler.service" in commands[-1]
    assert ("socket" in commands[-1]) == (kind != "edgefold-mqtt")
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(f.name.replace("@", "@s") for f in files)],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line for line in done.stderr.splitlines() if str(tmp_path) in line] == []


@pytest.mark.parametrize(
    "text", ["edgefold-mqtt", "edgefold-mqtt@", "other@a", "edgefold-mqtt@a b"]
)
def test_other_names_are_no_service(text: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["deploy", "kitchen", "--service", text])


def test_the_units_are_on_the_board_and_the_commands_printed(
    pc: Pc, kitchen: Sshd, tmp_path: Path, capsys: Text
) -> None:
    folder = tmp_path / "opt"
    words = ["deploy", "kitchen", "--service", "edgefold-mqtt@home", "--board-dir", str(folder)]
    assert main([*words, "--ssh-config", str(pc.config)]) == 6
    assert f"no {folder}/bin/edgefold" in capsys.readouterr().err
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/edgefold").write_text("#!/bin/sh\n")
    (folder / "bin/edgefold").chmod(0o755)
    assert main([*words, "--ssh-config", str(pc.config), "--dry-run"]) == 0
    assert not (folder / "units").exists() and "would be written" in capsys.readouterr().out
    assert main([*words, "--ssh-config", str(pc.config)]) == 0
    shown = capsys.readouterr()
    unit = (folder / "units/edgefold-mqtt/edgefold-mqtt@.service").read_text()
    assert f"ExecStart={folder}/bin/edgefold run sensors" in unit
    assert f"edgefold-mqtt@home, written for the user {USER}" in " ".join(shown.out.split())
    assert f"systemctl enable --now {MQTT}.service" in shown.err
