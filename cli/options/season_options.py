"""Declare --longest-season, and write the bundle for shorter seasons that it asks for."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgefold.runtime.predictions.sensor_forecast import LEAST_LONGEST, LONGEST


def add_longest_season(parser: argparse.ArgumentParser, more: str) -> None:
    """Declare --longest-season; `more` ends its help."""
    parser.add_argument(
        "--longest-season",
        type=season_length,
        metavar="N",
        help="of the bundle sensors: as a bundle for seasons of at most N slots "
        f"({LEAST_LONGEST} to {LONGEST}), with less memory and the same forecasts; hourly values "
        f"take 24 for a day, 168 for a week{more}",
    )


def season_length(text: str) -> int:
    """Read the length in slots of the longest season of a bundle, for argparse."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not LEAST_LONGEST <= number <= LONGEST:
        raise argparse.ArgumentTypeError(
            f"{text[:20]!r} is not a whole number of slots from {LEAST_LONGEST} to {LONGEST}"
        )
    return number


def named(bundle: str | Path, longest: int | None) -> str:
    """Return how a bundle is named where its output is shown, as "sensors --longest-season 24"."""
    from edgefold.runtime.sensors.shipped_bundle import word_of

    return word_of(str(bundle)) + (f" --longest-season {longest}" if longest else "")


@contextmanager
def with_shorter_seasons(bundle: Path, longest: int, out: Path | None = None) -> Iterator[Path]:
    """Write a bundle for seasons of at most `longest` slots, and yield its folder.

    Args:
        bundle: The whole bundle.
        longest: The longest season, in slots.
        out: Where the new bundle stays; the very same one may lie there already. With None it is
            deleted after the block.

    Raises:
        BackendError: The package that reads the graphs is not installed.
        BundleError: The bundle is damaged.
        ExportError: The bundle cannot be written so.
        OutputError: Something else lies at `out`.
    """
    from edgefold.runtime.errors import OutputError, missing_build_extra

    try:
        from edgefold.export.bundle_files import new_folder
        from edgefold.export.shorter_seasons import shorten_seasons
    except ModuleNotFoundError as error:
        raise missing_build_extra(error) from error
    with tempfile.TemporaryDirectory(prefix="edgefold-") as temporary:
        folder = Path(temporary) / "bundle"
        shorten_seasons(bundle, longest, folder)
        if out is None:
            yield folder
            return
        if not _is_same(out, folder):
            if out.exists() and not (out.is_dir() and not any(out.iterdir())):
                raise OutputError(f"{out} exists and is not this bundle; choose another --out.")
            with new_folder(out, force=False) as new:
                shutil.copytree(folder, new, dirs_exist_ok=True)
    yield out


def _is_same(place: Path, folder: Path) -> bool:
    """Return whether a bundle lies at `place`, whole, and is the one in `folder`."""
    from edgefold.runtime.bundle.manifest_file import load_manifest
    from edgefold.runtime.errors import BundleError

    try:
        return load_manifest(place).bundle_hash == load_manifest(folder).bundle_hash
    except BundleError:
        return False
