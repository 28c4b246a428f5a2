"""Find the files that patterns name, in an order that does not depend on the file system."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from urllib.parse import unquote

from edgefold.runtime.errors import DataError

ENDS = (".parquet", ".parq", ".pq")
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""Hive, Spark and pyarrow write this name for a value that is missing."""


def find_files(patterns: Sequence[str]) -> list[str]:
    """Return the paths of all files that the patterns name, each file once.

    Files are sorted by their absolute path, folder by folder, so that the order is the same for any
    order of patterns, and after the lake has moved.

    Args:
        patterns: Files, folders (all Parquet files below them), or globs, in which `**` stands for
            any number of folders.

    Raises:
        DataError: A pattern names no file.
    """
    places: dict[str, str] = {}
    for pattern in patterns:
        found = list(_matches(pattern))
        if not found:
            raise DataError(f"no Parquet file is named by {pattern!r}{_advice(pattern)}")
        for path in found:
            places.setdefault(os.path.realpath(path), path)
    return sorted(places.values(), key=lambda path: os.path.abspath(path).split(os.sep))


def _matches(pattern: str) -> Iterator[str]:
    # A path that exists is taken as it is, although brackets in it would be a glob.
    found = [pattern] if os.path.exists(pattern) else glob.glob(pattern, recursive=True)
    for path in found:
        if not os.path.isdir(path):
            yield path
        elif not pattern.endswith("**"):  # which matches all folders and all files by itself
            yield from _below(path)


def _below(folder: str) -> Iterator[str]:
    """Yield the Parquet files below a folder, but for hidden ones and those that begin with _."""
    for place, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        for name in names:
            if name.lower().endswith(ENDS) and not name.startswith((".", "_")):
                yield os.path.join(place, name)


def _refuse(error: OSError) -> None:
    raise DataError(
        f"the folder {error.filename} cannot be listed ({error.strerror}); give yourself "
        "permission, or name the files."
    ) from error


def _advice(pattern: str) -> str:
    if os.path.isdir(pattern):
        return f": the folder has no file that ends with {', '.join(ENDS)}."
    folder = os.path.dirname(pattern) or "."
    if glob.has_magic(pattern):
        parts = pattern.split(os.sep)
        first = next(i for i, part in enumerate(parts) if glob.has_magic(part))
        folder = os.sep.join(parts[:first]) or "."
        if first and parts[:first] != [""] and not os.path.isdir(folder):
            return f"; the folder {folder} does not exist."
        return (
            "; * stands for a part of one name, and ** for any number of folders, as in "
            "'lake/**/*.parquet'. A folder's own name takes all Parquet files below it."
        )
    near: list[str] = []
    if os.path.isdir(folder):
        near = get_close_matches(os.path.basename(pattern), os.listdir(folder), 1)
    return f"; is {os.path.join(folder, near[0])} meant?" if near else "; check the path."


def partition_values(path: str) -> dict[str, str | None]:
    """Return the values that the folders of a file name, as `site=3` does, by column.

    Args:
        path: The file's path, of which each folder counts.
    """
    values: dict[str, str | None] = {}
    for part in path.split(os.sep)[:-1]:
        name, equals, text = part.partition("=")
        if equals and name:
            values[unquote(name)] = None if text == NO_VALUE else unquote(text)
    return values


def near_names(name: str, names: list[str]) -> str:
    """Return words that name the columns most like a missing one, or all if there are few."""
    folded = {each.casefold(): each for each in names}
    near = get_close_matches(name.casefold(), folded, 3, 0.5)
    if near:
        return f"is {' or '.join(repr(folded[each]) for each in near)} meant?"
    listed = ", ".join(names[:12])
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return f"it has {listed}{more}." if names else "it has none."
