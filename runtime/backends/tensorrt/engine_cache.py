"""Engines on disk, so that a board builds each graph once.

    <folder>/<digest of the key>.engine     a line of words, a line of JSON, the plan
    <folder>/<digest of the key>.timing     the same for TensorRT's own timing cache
    <folder>/<digest of the key>.kernels    the same for what TensorRT-RTX compiles when it runs

The JSON holds the whole key, the content's length, what the builder told of an engine, on which
nothing depends (`engine_facts`), and the SHA-256 of both. An engine is code, so a file is trusted
only if it is whole, is the one asked for, belongs to this user or to root, and nobody else may
write it or its folder. Any other file counts as absent, and the engine is built again. If the
cache cannot be written, the next start takes longer; nothing else changes.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from edgefold.runtime.files import write_atomic
from edgefold.runtime.hashing import sha256
from edgefold.runtime.manifest_file import PARSE_ERRORS

MAGIC = b"edgefold engine 1\n"
"""Its number rises when the builder's fixed settings change what an engine computes."""
HEADER_BYTES = 4 << 20  # a kernel takes some 400 bytes, a graph has up to some hundreds
NO_HOME = "this user has no home folder for a cache; set EDGEFOLD_CACHE"
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class EngineKey:
    """Everything that an engine depends on.

    Build options do not belong to it: they change speed alone, and an engine that was built ahead
    with little memory should be used.

    Attributes:
        graph_sha256, weights_sha256: Of the graph's file and of the weights beside it.
        variant: "tensorrt" or "tensorrt_rtx".
        version: TensorRT's.
        device: `Device.kind`; "" for TensorRT-RTX, whose engines fit every device of a capability.
        compute_capability: As "8.7".
        precision: The bundle's, as its manifest names it.
    """

    graph_sha256: str
    weights_sha256: str
    variant: str
    version: str
    device: str
    compute_capability: str
    precision: str
    suffix: ClassVar[str] = "engine"


@dataclass(frozen=True, slots=True)
class TimingKey:
    """Everything that TensorRT's timing cache depends on; see `EngineKey`."""

    variant: str
    version: str
    device: str
    suffix: ClassVar[str] = "timing"


@dataclass(frozen=True, slots=True)
class KernelKey:
    """Everything that kernels compiled by TensorRT-RTX depend on; see `EngineKey`.

    Attributes:
        device: `Device.kind`.
        cuda_version: The newest CUDA that the driver supports, as "13.0".
    """

    variant: str
    version: str
    device: str
    cuda_version: str
    suffix: ClassVar[str] = "kernels"


Key = EngineKey | TimingKey | KernelKey


@dataclass(frozen=True, slots=True)
class Entry:
    """Describes an engine in the cache.

    Attributes:
        n_bytes: Of the plan.
        reason: Why it would not be used; "" if it would.
        facts: What the builder told of it; empty for an engine of an older edgefold.
    """

    path: Path
    key: EngineKey
    n_bytes: int
    reason: str
    facts: dict[str, Any]


def default_folder(environment: Mapping[str, str]) -> Path | None:
    """Choose $EDGEFOLD_CACHE, else $XDG_CACHE_HOME/edgefold, else ~/.cache/edgefold.

    Returns None for a user without a home. An XDG variable that is empty or relative is ignored, as
    its specification demands; our own may be relative to the current folder.
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


class EngineCache:
    """Keeps engines and timing caches in a folder. Nothing is written before the first `store`.

    Attributes:
        folder: The folder; None if the user has no home and named none.
    """

    def __init__(self, folder: Path | None = None):
        self.folder = default_folder(os.environ) if folder is None else folder

    def path(self, key: Key) -> Path | None:
        """Return the file of this key, which need not exist; None if there is no folder."""
        if self.folder is None:
            return None
        text = json.dumps(asdict(key), sort_keys=True).encode()
        return self.folder / f"{sha256(text).hexdigest()[:32]}.{key.suffix}"

    def load(self, key: Key) -> bytes | None:
        """Return the content, or None where there is none that can be trusted."""
        found = self.find(key)
        return found[0] if found else None

    def find(self, key: Key) -> tuple[bytes, dict[str, Any]] | None:
        """Return what `load` returns with what the builder told of it; None as `load`."""
        path = self.path(key)
        try:
            header, content, reason = _read(path) if path else ({}, b"", NO_HOME)
            reason = reason or self._explain_untrusted_folder()
        except (OSError, *PARSE_ERRORS):
            return None
        return (
            (content, _facts(header)) if header.get("key") == asdict(key) and not reason else None
        )

    def store(self, key: Key, content: bytes, facts: Mapping[str, Any] | None = None) -> str | None:
        """Keep content under its key, with what the builder told of it.

        Returns why it could not be written, or None.
        """
        path = self.path(key)
        if path is None:
            return NO_HOME
        header: dict[str, Any] = {"key": asdict(key), "n_bytes": len(content)}
        header |= {"facts": dict(facts)} if facts else {}
        header["sha256"] = _digest(content, facts or {})
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if reason := self._explain_untrusted_folder():
                return reason
            if path.is_symlink():  # replaced, not followed
                path.unlink()
            data = MAGIC + json.dumps(header).encode() + b"\n" + content
            write_atomic(path, data, mode=0o600)
        except OSError as error:
            return f"{error.filename2 or error.filename or path}: {error.strerror}"
        return None

    def explain_unwritable(self) -> str | None:
        """Return why nothing can be stored, or None; ask before minutes of building.

        Makes the folder, and a file in it for a moment.
        """
        from tempfile import TemporaryFile  # a stream that opens never needs it

        if self.folder is None:
            return NO_HOME
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with TemporaryFile(dir=self.folder):
                return self._explain_untrusted_folder() or None
        except OSError as error:
            return f"{self.folder}: {error.strerror}"

    def _explain_untrusted_folder(self) -> str:
        """Return why nothing in the folder can be trusted, or ""; raises OSError.

        A link to it is followed, since the user named it.
        """
        assert self.folder is not None
        reason = _explain_untrusted(self.folder, follow=True)
        return f"{self.folder}: {reason}; chmod 700 it, or name another" if reason else ""

    def entries(self) -> Iterator[Entry]:
        """List every engine whose header can be read, by path; plans are verified.

        Raises:
            OSError: The folder is there and cannot be read.
        """
        try:
            paths = sorted(self.folder.iterdir()) if self.folder else []
        except (FileNotFoundError, NotADirectoryError):
            return
        for path in paths:
            if path.suffix != ".engine":
                continue
            try:
                header, plan, reason = _read(path)
                identity = header["key"]
                key = EngineKey(**{field.name: identity[field.name] for field in fields(EngineKey)})
            except (OSError, *PARSE_ERRORS):
                continue
            if not all(isinstance(word, str) for word in asdict(key).values()):
                continue
            reason = reason or self._explain_untrusted_folder()
            if self.path(key) != path:
                reason = reason or "it lies under another key's name"
            yield Entry(path, key, len(plan), reason, _facts(header))


def make_private_folder(cache: Path, names: Sequence[str]) -> str:
    """Make a folder inside the cache whose engines a library loads without looking at them.

    Args:
        cache: The cache's folder; a link to it is followed, since the user named it.
        names: Folders below it, the outer one first.

    Returns:
        Why what lies there cannot be trusted, or could not be made; "" if it can be.
    """
    folders = [cache.joinpath(*names[:n]) for n in range(len(names) + 1)]
    try:
        for folder in folders:
            folder.mkdir(mode=0o700, parents=folder == cache, exist_ok=True)
            if reason := _explain_untrusted(folder, follow=folder == cache):
                return f"{folder}: {reason}"
        # Files in it may have any mode: nobody else gets at them.
        if mode := stat.S_IMODE(folders[-1].stat().st_mode) & 0o077:
            return f"{folders[-1]}: others have rights to it (mode {mode:o}); chmod 700 it"
        for file in folders[-1].iterdir():
            if reason := _explain_untrusted(file, is_file=True):
                return f"{file}: {reason}"
    except OSError as error:
        return f"{error.filename or cache}: {error.strerror}"
    return ""


def _explain_untrusted(path: Path, *, follow: bool = False, is_file: bool = False) -> str:
    """Return why a folder, or a file in a folder that is closed to others, cannot be trusted."""
    about = path.stat(follow_symlinks=follow)
    if stat.S_ISLNK(about.st_mode):
        return "it is a link"
    if not (stat.S_ISREG if is_file else stat.S_ISDIR)(about.st_mode):
        return "it is no file" if is_file else "it is no folder"
    if about.st_uid not in (os.geteuid(), 0):
        return f"it belongs to the user {about.st_uid}"
    if not is_file and about.st_mode & WRITABLE_BY_OTHERS:
        return f"others may write it (mode {stat.S_IMODE(about.st_mode):o})"
    return ""


def _digest(content: bytes, facts: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a file's content and facts."""
    told = json.dumps(facts, sort_keys=True).encode() if facts else b""
    return sha256(content + told).hexdigest()


def _facts(header: Mapping[str, Any]) -> dict[str, Any]:
    found = header.get("facts")
    return found if isinstance(found, dict) else {}


def _read(path: Path) -> tuple[dict[str, Any], bytes, str]:
    """Return a file's header, its content, and why it cannot be trusted ("" if it can).

    Raises:
        OSError: It cannot be read, or is a link.
        What `PARSE_ERRORS` lists: It has no valid header.
    """
    # O_NONBLOCK: a named pipe of that name must not hang the start.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise ValueError("not a regular file")
        if file.read(len(MAGIC)) != MAGIC:
            raise ValueError("not an engine of this version of edgefold")
        header: dict[str, Any] = json.loads(file.readline(HEADER_BYTES))
        content = file.read()
    reason = ""
    if about.st_uid not in (os.geteuid(), 0):
        reason = f"it belongs to the user {about.st_uid}"
    elif about.st_mode & WRITABLE_BY_OTHERS:
        reason = f"others may write it (mode {stat.S_IMODE(about.st_mode):o})"
    elif len(content) != header["n_bytes"]:
        reason = f"it holds {len(content)} bytes of {header['n_bytes']}"
    elif _digest(content, _facts(header)) != header["sha256"]:
        reason = "its content was changed"
    return header, content, reason
