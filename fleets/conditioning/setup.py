"""Say how rows become points of a model: everything that a process needs besides its units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from edgefold.fleets.tables.columns import LakeColumn
from edgefold.fleets.tables.lake import LakeFile
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.errors import BundleError

WINDOW_ROWS = 1 << 20
"""The most points that wait to be sorted by group. Results depend on it, so it is no option."""


class RowSlice(NamedTuple):
    """Names consecutive row groups of a file.

    Attributes:
        file: The file.
        first: The index of the first row group.
        last: The index of the row group after the last one.
    """

    file: LakeFile
    first: int
    last: int

    @property
    def start(self) -> int:
        """Return the number of the first row in the file."""
        return self.file.first_row(self.first)

    @property
    def stop(self) -> int:
        """Return the number of the last row in the file plus 1."""
        return self.file.first_row(self.last)

    @property
    def words(self) -> str:
        """Return the slice as messages name it."""
        return f"rows {self.start:,} to {self.stop - 1:,} of {self.file.path}"


@dataclass(frozen=True, slots=True)
class ConditionSetup:
    """Holds what is the same for all units of a plan; it can be pickled.

    Attributes:
        bundle: The bundle's folder.
        bundle_hash: The bundle's hash.
        x: Names of the columns of inputs.
        y: Names of the columns of outputs.
        by: Names of the columns whose values form groups; none for one state of all rows.
        columns: Descriptions of all columns, those of the filter too.
        filter: The expression that chooses rows; None for all.
        skip_bad: Whether rows with values that no model takes are left out and counted.
        backend: The name of the backend.
        backend_version: Its version, and of a compiled library also the generator and the compiler.
        engine_cache: Folder of engines and compiled libraries; None for the default one.
        batch_rows: The most rows that are read at once.
        window_rows: The most points that wait to be sorted by group.
    """

    bundle: Path
    bundle_hash: str
    x: tuple[str, ...]
    y: tuple[str, ...]
    by: tuple[str, ...]
    columns: Mapping[str, LakeColumn]
    filter: str | None
    skip_bad: bool
    backend: str
    backend_version: str
    engine_cache: Path | None
    batch_rows: int
    window_rows: int = WINDOW_ROWS


def require_fitting(manifest: Manifest, x: Sequence[str], y: Sequence[str]) -> None:
    """Raise BundleError if a bundle cannot be conditioned on rows with these columns."""
    place = manifest.path
    if manifest.is_filter:
        raise BundleError(
            f"{place} predicts and learns in one step, row by row: `edgefold run` takes its rows. "
            "Tables condition bundles with a step update."
        )
    if manifest.n_streams != 1:
        raise BundleError(
            f"{place} was exported for {manifest.n_streams} streams at once; export it for one."
        )
    sizes = {"x": len(manifest.scaling_x.shift), "y": len(manifest.scaling_y.shift)}
    for option, names in (("x", x), ("y", y)):
        if len(names) != sizes[option]:
            raise BundleError(
                f"--{option} names {len(names)} columns ({', '.join(names) or 'none'}), and the "
                f"model of {place} takes {sizes[option]} for {option}."
            )
