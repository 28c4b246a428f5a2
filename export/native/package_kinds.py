"""Name the kinds of packages, and write the files of one: a library of C, or an extension."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefold.export.native.packages.layout import KINDS as LIBRARIES
from edgefold.export.native.packages.layout import library_of, package_files
from edgefold.export.native.postgres.extension import extension_files
from edgefold.runtime.bundle.manifest import Manifest

if TYPE_CHECKING:
    from edgefold.export.native.generator import NativeSource

POSTGRES = "postgres"
KINDS = tuple(sorted((*LIBRARIES, POSTGRES)))


def files_of_kind(
    kind: str, manifest: Manifest, native: NativeSource, mark: str = ""
) -> dict[str, str]:
    """Return all files of a package by their paths, with `/` between folders.

    Args:
        kind: One of `KINDS`.
        manifest: The bundle's manifest.
        native: The generated C.
        mark: Sentence for files that have no comments, as JSON.

    Raises:
        ExportError: The bundle gives no package of this kind.
    """
    if kind == POSTGRES:
        return extension_files(manifest, native)
    return package_files(kind, library_of(manifest, native), mark)
