"""Find the bundle of the general model of sensors that is shipped with the package.

A board has neither torch nor a compiler, so the bundle itself is shipped, and nothing is exported
or fetched when a program opens it.
"""

from __future__ import annotations

from pathlib import Path

from edgefold.runtime.errors import BundleError

SHIPPED = "sensors"
"""The word that stands for the shipped bundle on the command line."""
FOLDER = Path(__file__).parents[1] / "shipped_bundles" / SHIPPED


def shipped_bundle() -> Path:
    """Return the folder of the shipped bundle.

    Raises:
        BundleError: This installation was made without the bundle.
    """
    if not (FOLDER / "manifest.json").is_file():
        raise BundleError(
            f"the general model of sensors is not in this installation ({FOLDER}); install the "
            "package again, or name a bundle's folder."
        )
    return FOLDER
