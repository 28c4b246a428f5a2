"""Find the bundles that are shipped with the package: the general model of sensors, and gp-tiny.

A board has neither torch nor a compiler, so the bundles themselves are shipped, and nothing is
exported or fetched when a program opens one. `gp-tiny` is a small model of any function of one
number, with which every command can be tried; it is `checkpoints/gp-tiny` as exported with
`--chunk 8 --targets 8`.
"""

from __future__ import annotations

from pathlib import Path

from edgefold.runtime.errors import BundleError

SENSORS = "sensors"
"""The word that stands for the general model of sensors on the command line."""
SHIPPED = (SENSORS, "gp-tiny")
"""The words that stand for shipped bundles on the command line."""
FOLDER = Path(__file__).parents[1] / "shipped_bundles"


def shipped_bundle(name: str = SENSORS) -> Path:
    """Return the folder of a shipped bundle, one of `SHIPPED`.

    Raises:
        BundleError: This installation was made without the bundle.
    """
    folder = _folder(name)
    if not (folder / "manifest.json").is_file():
        raise BundleError(
            f"the shipped bundle {name} is not in this installation ({folder}); install the "
            "package again, or name a bundle's folder."
        )
    return folder


def named_bundle(bundle: str) -> str:
    """Return a bundle's folder: that of a shipped one for its word, any other text unchanged.

    A folder of that name in the current folder goes first.
    """
    is_word = bundle in SHIPPED and not Path(bundle).exists()
    return str(shipped_bundle(bundle)) if is_word else bundle


def word_of(bundle: str) -> str:
    """Return the word that stands for a shipped bundle's folder; any other folder unchanged."""
    return next((word for word in SHIPPED if bundle == str(_folder(word))), bundle)


def _folder(name: str) -> Path:
    return FOLDER / name.replace("-", "_")  # a package of Python, so that wheels hold it
