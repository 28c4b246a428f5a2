"""The Debian package's files agree with the program and with deploy/."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from edgefold.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
DEBIAN = ROOT / "packaging" / "debian"


def test_the_manual_page_has_every_command_in_the_order_of_the_help() -> None:
    text = (DEBIAN / "edgefold.1").read_text().partition(".SH COMMANDS")[2].partition(".SH")[0]
    assert re.findall(r"^\.B (\w+)$", text, re.MULTILINE) == list(COMMANDS)


def test_a_purge_removes_what_the_package_makes_outside_of_its_files() -> None:
    purge = (DEBIAN / "edgefold.postrm").read_text()
    for made in ("/var/lib/edgefold", "/var/cache/edgefold", "deluser", "delgroup"):
        assert made in purge


@pytest.mark.parametrize("unit", sorted((ROOT / "deploy").glob("*.service")), ids=lambda p: p.name)
def test_the_units_of_the_package_run_its_program_and_read_its_options(unit: Path) -> None:
    rules = (DEBIAN / "rules").read_text().replace("\\\n", " ").replace("$$", "$")
    expressions = re.findall(r"-e '([^']*)'", rules)
    assert len(expressions) == 3
    words = [word for expression in expressions for word in ("-e", expression)]
    done = subprocess.run(["sed", *words, unit], capture_output=True, text=True, check=True)
    assert "/opt/edgefold/bin" not in done.stdout
    if "edgefold run" in unit.read_text():
        before, _, after = done.stdout.partition("\nExecStart=")
        start = after.partition("\n")[0]
        assert before.splitlines()[-2:] == [
            "EnvironmentFile=-/etc/default/edgefold",
            "EnvironmentFile=-/etc/default/edgefold-%i",
        ]
        assert start.startswith("/usr/bin/edgefold run ") and start.endswith(" $OPTIONS")
