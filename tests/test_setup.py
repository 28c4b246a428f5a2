"""setup.py refuses the setuptools that JetPack 6's pip takes from the system."""

from __future__ import annotations

import os
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
