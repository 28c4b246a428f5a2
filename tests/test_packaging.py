"""The Debian package's files agree with the program and with deploy/."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib  # this test runs where the developers work, on Python 3.11

from edgefold.cli.doctor import backends
from edgefold.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
DEBIAN = ROOT / "packaging" / "debian"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


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


WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("edgefold.export", "edgefold.train")):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from edgefold.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("command", ["check", "run", "forecast"])
def test_a_device_needs_neither_export_nor_training(command: str, tmp_path: Path) -> None:
    """The Debian package leaves both out."""
    table = tmp_path / "table.csv"
    table.write_text("x,y\n" + "".join(f"{n / 10},{n % 7}\n" for n in range(40)))
    words = {
        "check": ["gp-tiny"],
        "run": ["gp-tiny", "--input", str(table), "--output", str(tmp_path / "p.csv")],
        "forecast": [str(table), "--out", str(tmp_path / "f.csv")],
    }[command]
    done = without_export(command, *words)
    assert done.returncode == 0, done.stderr


def test_a_command_that_is_left_out_names_the_wheel() -> None:
    done = without_export("build", "gp-tiny")
    assert done.returncode == 6 and "a wheel in a virtual environment has them" in done.stderr


def test_doctor_needs_no_export_where_a_library_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_levels_of_wheel", lambda processor: ["sensors x86-64-v3"])
    monkeypatch.setitem(sys.modules, "edgefold.export.native.toolchain.compilers", None)
    found = backends._compile("native")
    assert found["version"] == "no compiler" and "sensors x86-64-v3" in found["detail"]


def without_export(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of an installation without edgefold.export and edgefold.train."""
    command = [sys.executable, "-c", WITHOUT, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_the_files_of_the_page_are_package_data() -> None:
    folder = ROOT / "cli" / "page"
    patterns = PYPROJECT["tool"]["setuptools"]["package-data"]["edgefold.cli.page"]
    shipped = {path for pattern in patterns for path in folder.glob(pattern)}
    own = {path for path in folder.iterdir() if path.is_file() and path.suffix != ".py"}
    assert shipped == own and len(own) == 4
