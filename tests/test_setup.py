"""What a wheel holds beside the packages, and which setuptools may build it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(("version", "builds"), [("59.6.0", False), ("77.0.3", True)])
def test_an_old_setuptools_is_refused_with_the_command_that_helps(
    version: str, builds: bool, tmp_path: Path
) -> None:
    """pip 22.0.2 takes the system's setuptools 59.6.0, which installs UNKNOWN 0.0.0."""
    (tmp_path / "setuptools.py").write_text(
        f"__version__ = {version!r}\ndef setup(): print('it builds')\n"
    )
    done = subprocess.run(
        [sys.executable, str(ROOT / "setup.py")],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0, "it builds" in done.stdout) == (builds, builds)
    assert ("pip install --upgrade pip" in done.stderr) != builds


def test_the_pages_of_a_wheel_find_the_examples_and_units_that_they_link() -> None:
    """docs/, examples/ and deploy/ lie side by side in share/edgefold, as they do here."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 or later reads pyproject.toml")
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    files = setuptools["data-files"]
    patterns = [pattern for of_folder in files.values() for pattern in of_folder]
    for folder, (pattern, *_) in files.items():
        assert Path(pattern).parent == Path(folder).relative_to("share/edgefold")
    installed = {path.resolve() for pattern in patterns for path in ROOT.glob(pattern)}
    folders = [ROOT / name for name in ("docs", "examples", "deploy")]
    for page in (path for path in installed if path.suffix == ".md"):
        for target in re.findall(r"\]\(([^)\s#:]+)[#)]?", page.read_text()):
            path = (page.parent / target).resolve()
            beside = any(path.is_relative_to(folder) for folder in folders)
            pictures = path.suffix in (".png", ".svg")  # they take megabytes
            if beside and path.is_file() and not pictures:
                assert path in installed, f"{page} links {target}, which a wheel does not hold"
