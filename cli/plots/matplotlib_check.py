"""Find out whether matplotlib can draw, before the work whose figures it is to draw.

Where the system's matplotlib was built for another NumPy, pip takes it for installed, and its
import fails. The import is tried in a child process: it takes memory that a measured process must
not hold.
"""

from __future__ import annotations

import importlib.util
from typing import IO, Any

from edgefold.runtime.child_process import child_process
from edgefold.runtime.errors import OutputError, Remedy

NEWER = "pip install --upgrade 'matplotlib>=3.8.4'"  # the first that was built for NumPy 2


def require_matplotlib(option: str) -> None:
    """Import matplotlib in a child process.

    Args:
        option: The option that needs it, such as "--html", for the message.

    Raises:
        ModuleNotFoundError: It is not installed.
        OutputError: It is installed, but its import fails.
    """
    missing = ModuleNotFoundError(f"matplotlib is needed for {option}", name="matplotlib")
    if importlib.util.find_spec("matplotlib") is None:
        raise missing
    with child_process(__name__, {}) as child:
        ending = child.wait()
    if ending.code:
        raise OutputError(
            f"{option} needs matplotlib; it is installed, but the process that imports it "
            f"{ending.describe()}. Where it was built for another NumPy, {NEWER} brings one that "
            "fits.",
            Remedy("a matplotlib that fits the installed NumPy", NEWER),
        ) from missing  # the exit code is that of a missing package


def main(request: dict[str, Any], answer: IO[bytes]) -> None:
    """Import what the pictures need; this runs in the child. Nothing is answered."""
    import matplotlib.figure  # noqa: F401
