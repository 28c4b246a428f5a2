"""Keep code on disk that this process will run: engines for a GPU, libraries for a CPU.

    <folder>/<digest of the key>.<kind>     a line of words, a line of JSON, the content

A key names everything that the content depends on, such as the hash of a graph and the kind of GPU.
The JSON holds the key, the content's length, the SHA-256 of content and facts, and the builder's
facts about the content (`facts`), on which nothing depends. The content is code, so a file is
trusted only if it is complete, has the key that was asked for, belongs to this user or to root, and
nobody else may write it or its folder. Any other file counts as absent, and its content is built
again. If the cache cannot be written, the next start takes longer; nothing else changes.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Protocol

from edgefold.runtime.bundle.manifest_file import PARSE_ERRORS
from edgefold.runtime.files import write_atomic
from edgefold.runtime.hashing import sha256

HEADER_BYTES = 4 << 20  # a kernel takes some 400 bytes, a graph has up to some hundreds
NO_HOME = "this user has no home folder for a cache; set EDGEFOLD_CACHE"
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Key(Protocol):
    """A frozen dataclass whose fields name everything that a file's content depends on.

    Attributes:
        suffix: The kind of file, such as "engine", with which the file's name ends.
    """

    suffix: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]


def default_folder(environment: Mapping[str, str]) -> Path | None:
    """Return the folder of the cache, which environment variables can choose.

    It is $EDGEFOLD_CACHE, else $XDG_CACHE_HOME/edgefold, else ~/.cache/edgefold; None for a user
    without a home. An XDG variable that is empty or relative is ignored, as its specification
    demands; EDGEFOLD_CACHE may be relative to the current folder.
    """
    if environment.get("EDGEFOLD_CACHE"):
        return Path(environment["EDGEFOLD_CACHE"]).absolute()
    cache_home = Path(environment.get("XDG_CACHE_HOME", ""))
    if cache_home.is_absolute():
        return cache_home / "edgefold"
    try:
        return Path.home() / ".cache" / "edgefold"
    except RuntimeError:  # a service whose user has no home
        return None


class CodeCache:
    """Keeps files of code in a folder, and writes nothing before the first call of `store`.

    Attributes:
        magic: The first line of each file.
        folder: The folder; None if the user has no home and named no folder.
    """

    magic: ClassVar[bytes]

    def __init__(self, folder: Path | None = None):
        self.folder = default_folder(os.environ) if folder is None else folder

    def path(self, key: Key) -> Path | None:
        """Return the path of the file for a key, which need not exist; None without a folder."""
        if self.folder is None:
            return None
        text = json.dumps(asdict(key), sort_keys=True).encode()
        return self.folder / f"{sha256(text).hexdigest()[:32]}.{key.suffix}"

    def load(self, key: Key) -> bytes | None:
        """Return the content stored under a key, or None if no trusted file holds it."""
        entry = self.find(key)
        return entry[0] if entry else None

    def find(self, key: Key) -> tuple[bytes, dict[str, Any]] | None:
        """Return the content stored under a key and the builder's facts about it.

        Returns None if no trusted file holds them.
        """
        path = self.path(key)
        try:
            header, content, reason = self.read(path) if path else ({}, b"", NO_HOME)
        except (OSError, *PARSE_ERRORS):
            return None
        return (
            (content, facts_of(header)) if header.get("key") == asdict(key) and not reason else None
        )

    def read(self, path: Path) -> tuple[dict[str, Any], bytes, str]:
        """Read a file of the cache and check whether it can be trusted.

        Returns:
            The header (the line of JSON), the content, and the reason why the file cannot be
            trusted; "" if it can.

        Raises:
            OSError: The file cannot be read, or is a link.
            What `PARSE_ERRORS` lists: The file has no valid header.
        """
        with open_code(path) as (file, reason):
            if file.read(len(self.magic)) != self.magic:
                raise ValueError("not a file of this version of edgefold")
            header: dict[str, Any] = json.loads(file.readline(HEADER_BYTES))
            content = file.read()
        if not reason and len(content) != header["n_bytes"]:
            reason = f"it holds {len(content)} bytes of {header['n_bytes']}"
        elif not reason and _digest(content, facts_of(header)) != header["sha256"]:
            reason = "its content was changed"
        return header, content, reason or self.explain_untrusted_folder()

    def header(self, path: Path) -> dict[str, Any]:
        """Read the header of a file of the cache, and nothing of its content; trust is not checked.

        Raises:
            OSError: The file cannot be read, or is a link.
            What `PARSE_ERRORS` lists: The file has no valid header.
        """
        with open_code(path) as (file, _):
            if file.read(len(self.magic)) != self.magic:
                raise ValueError("not a file of this version of edgefold")
            header: dict[str, Any] = json.loads(file.readline(HEADER_BYTES))
            return header

    def store(self, key: Key, content: bytes, facts: Mapping[str, Any] | None = None) -> str | None:
        """Write content under its key, with the builder's facts about it.

        Returns the reason why it could not be written, or None.
        """
        path = self.path(key)
        if path is None:
            return NO_HOME
        header: dict[str, Any] = {"key": asdict(key), "n_bytes": len(content)}
        header |= {"facts": dict(facts)} if facts else {}
        header["sha256"] = _digest(content, facts or {})
        return self.write(path, self.magic + json.dumps(header).encode() + b"\n" + content)

    def write(self, path: Path, data: bytes) -> str | None:
        """Write a file that only this user can read; return why that failed, or None."""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if reason := self.explain_untrusted_folder():
                return reason
            if path.is_symlink():  # replaced, not followed
                path.unlink()
            write_atomic(path, data, mode=0o600)
        except OSError as error:
            return f"{error.filename2 or error.filename or path}: {error.strerror}"
        return None

    def explain_unwritable(self) -> str | None:
        """Return why the cache cannot store anything, or None if it can.

        Call it before a build of minutes. It makes the folder, and a file in it for a moment.
        """
        from tempfile import TemporaryFile  # a stream that opens never needs it

        if self.folder is None:
            return NO_HOME
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with TemporaryFile(dir=self.folder):
                return self.explain_untrusted_folder() or None
        except OSError as error:
            return f"{self.folder}: {error.strerror}"

    def explain_untrusted_folder(self) -> str:
        """Return why no file in the cache's folder can be trusted, or "" if files can be.

        A link to the folder is followed, since the user named it.

        Raises:
            OSError: The folder cannot be examined.
        """
        assert self.folder is not None
        reason = _explain_untrusted(self.folder, follow=True)
        return f"{self.folder}: {reason}; chmod 700 it, or name another" if reason else ""

    def files(self, suffix: str) -> list[Path]:
        """Return the sorted paths of all files with a suffix, such as "engine".

        Raises:
            OSError: The folder is there and cannot be read.
        """
        try:
            paths = sorted(self.folder.iterdir()) if self.folder else []
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [path for path in paths if path.suffix == f".{suffix}"]


@contextmanager
def open_code(path: Path) -> Iterator[tuple[BinaryIO, str]]:
    """Open a file that holds code, for the length of a `with` block.

    Yields:
        The open file, and the reason why its owner or mode forbid to trust it; "" if they do not.

    Raises:
        OSError: The file cannot be read, or is a link.
        ValueError: The path is not a regular file.
    """
    # O_NONBLOCK: a named pipe of that name must not hang the start.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise ValueError("not a regular file")
        yield file, _explain_foreign(about)


def make_private_folder(cache: Path, names: Sequence[str]) -> str:
    """Make a folder inside the cache for engines that a library loads without checking them.

    Args:
        cache: The cache's folder; a link to it is followed, since the user named it.
        names: Folders below it, the outer one first.

    Returns:
        Why the folder cannot be made, or its files cannot be trusted; "" if they can.
    """
    folders = [cache.joinpath(*names[:n]) for n in range(len(names) + 1)]
    try:
        for folder in folders:
            folder.mkdir(mode=0o700, parents=folder == cache, exist_ok=True)
            if reason := _explain_untrusted(folder, follow=folder == cache):
                return f"{folder}: {reason}"
        # Files in it may have any mode: nobody else can reach them.
        if mode := stat.S_IMODE(folders[-1].stat().st_mode) & 0o077:
            return f"{folders[-1]}: others have rights to it (mode {mode:o}); chmod 700 it"
        for file in folders[-1].iterdir():
            if reason := _explain_untrusted(file, is_file=True):
                return f"{file}: {reason}"
    except OSError as error:
        return f"{error.filename or cache}: {error.strerror}"
    return ""


def _explain_untrusted(path: Path, *, follow: bool = False, is_file: bool = False) -> str:
    """Return why a folder, or a file in a closed folder, cannot be trusted; "" if it can.

    Args:
        path: The folder, or a file.
        follow: Whether a link at this path is followed; otherwise it is not trusted.
        is_file: Whether the path is a file; its folder must be closed to others, so it may have any
            mode.
    """
    about = path.stat(follow_symlinks=follow)
    if stat.S_ISLNK(about.st_mode):
        return "it is a link"
    if not (stat.S_ISREG if is_file else stat.S_ISDIR)(about.st_mode):
        return "it is not a file" if is_file else "it is not a folder"
    return _explain_foreign(about, may_be_writable=is_file)


def _explain_foreign(about: os.stat_result, may_be_writable: bool = False) -> str:
    """Return why the owner or mode of a file or folder forbid to trust it, or "" if they do not.

    Args:
        about: The file's or folder's status.
        may_be_writable: Whether other users may have the right to write it.
    """
    if about.st_uid not in (os.geteuid(), 0):
        return f"it belongs to the user {about.st_uid}"
    if not may_be_writable and about.st_mode & WRITABLE_BY_OTHERS:
        return f"others may write it (mode {stat.S_IMODE(about.st_mode):o})"
    return ""


def _digest(content: bytes, facts: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a file's content and facts, as 64 hexadecimal digits."""
    text = json.dumps(facts, sort_keys=True).encode() if facts else b""
    return sha256(content + text).hexdigest()


def facts_of(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return the builder's facts that a file's header holds; empty if it holds none."""
    facts = header.get("facts")
    return facts if isinstance(facts, dict) else {}
