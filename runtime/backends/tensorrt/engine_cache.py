"""Engines on disk, so that a board builds each graph once.

    <folder>/<digest of the key>.engine     a line of words, a line of JSON, the plan
    <folder>/<digest of the key>.timing     the same for TensorRT's own timing cache

The line holds the whole key, the plan's length and its SHA-256. An engine is code, so a file is
trusted only if it is whole, is the one asked for, belongs to this user (or to root, who can do
anything anyway) and nobody else may write it; anything else counts as absent and is built again.
A cache that cannot be written costs time at the next start and nothing more.
"""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from edgefold.runtime.hashing import sha256
from edgefold.runtime.manifest_file import PARSE_ERRORS

MAGIC = b"edgefold engine 1\n"
"""The number counts up when the builder's fixed settings change what an engine computes."""
HEADER_BYTES = 4096
NO_HOME = "there is no home folder for a cache; set EDGEFOLD_CACHE"
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class EngineKey:
    """Everything that an engine depends on.

    Build options are no part of it: they change speed alone, and an engine that was built ahead
    with little memory is the one to use.

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


@dataclass(frozen=True, slots=True)
class Entry:
    """An engine in the cache.

    Attributes:
        n_bytes: Of the plan.
        reason: Why it would not be used; "" for a sound one.
    """

    path: Path
    key: EngineKey
    n_bytes: int
    reason: str


def default_folder(environment: Mapping[str, str]) -> Path | None:
    """$EDGEFOLD_CACHE, else $XDG_CACHE_HOME/edgefold, else ~/.cache/edgefold; None without a home.

    An XDG variable that is empty or relative does not count, as its specification has it; our own
    may be relative to the present folder.
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
    """A folder of engines and timing caches. Nothing is written before the first `store`.

    Attributes:
        folder: Where it lies; None if there is no place for one.
    """

    def __init__(self, folder: Path | None = None):
        self.folder = default_folder(os.environ) if folder is None else folder

    def path(self, key: EngineKey) -> Path | None:
        """Where the engine of this key lies, or would lie; None if there is no folder."""
        return self._place(asdict(key), "engine")

    def load(self, key: EngineKey) -> bytes | None:
        """The plan, or None where there is none that can be trusted."""
        return self._load(asdict(key), "engine")

    def store(self, key: EngineKey, plan: bytes) -> str | None:
        """Keep a plan, replacing an older one whole or not at all.

        Returns:
            Why it could not be written, None if it was; the plan is usable in any case.
        """
        return self._store(asdict(key), "engine", plan)

    def refusal(self) -> str | None:
        """Why nothing can be stored, None if something can: to be asked before minutes of building.

        Makes the folder, and a file in it for a moment.
        """
        from tempfile import TemporaryFile  # a stream that opens never needs it

        if self.folder is None:
            return NO_HOME
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with TemporaryFile(dir=self.folder):
                return None
        except OSError as error:
            return f"{self.folder}: {error.strerror}"

    def load_timing(self, variant: str, version: str, device: str) -> bytes:
        """TensorRT's timing cache of this device; b"" where there is none that can be trusted."""
        return self._load(_timing_identity(variant, version, device), "timing") or b""

    def store_timing(self, variant: str, version: str, device: str, timing: bytes) -> str | None:
        """Keep a timing cache; returns why it could not be written."""
        return self._store(_timing_identity(variant, version, device), "timing", timing)

    def entries(self) -> Iterator[Entry]:
        """Every engine whose header can be read, by path; plans are verified.

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
                identity, plan, reason = _read(path)
                key = EngineKey(**{field.name: identity[field.name] for field in fields(EngineKey)})
            except (OSError, *PARSE_ERRORS):
                continue
            if not all(isinstance(word, str) for word in asdict(key).values()):
                continue
            if self.path(key) != path:
                reason = reason or "it lies under another key's name"
            yield Entry(path, key, len(plan), reason)

    def remove(self, entry: Entry) -> None:
        """Delete an engine; one that is gone already is no error."""
        entry.path.unlink(missing_ok=True)

    def _place(self, identity: dict[str, str], suffix: str) -> Path | None:
        if self.folder is None:
            return None
        text = json.dumps(identity, sort_keys=True).encode()
        return self.folder / f"{sha256(text).hexdigest()[:32]}.{suffix}"

    def _load(self, identity: dict[str, str], suffix: str) -> bytes | None:
        place = self._place(identity, suffix)
        if place is None:
            return None
        try:
            found, content, reason = _read(place)
        except (OSError, *PARSE_ERRORS):
            return None
        return content if found == identity and not reason else None

    def _store(self, identity: dict[str, str], suffix: str, content: bytes) -> str | None:
        place = self._place(identity, suffix)
        if place is None:
            return NO_HOME
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(place, identity, content)
        except OSError as error:
            return f"{error.filename2 or error.filename or place}: {error.strerror}"
        return None


def _timing_identity(variant: str, version: str, device: str) -> dict[str, str]:
    return {"flavour": variant, "version": version, "device": device}


def _read(path: Path) -> tuple[dict[str, str], bytes, str]:
    """A file's key and content, and why it is not to be trusted ("" if it is).

    Raises:
        OSError: It cannot be read, or is a link.
        What `PARSE_ERRORS` lists: Its header is none.
    """
    # O_NONBLOCK: a named pipe of that name must not hang the start.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise ValueError("no regular file")
        if file.read(len(MAGIC)) != MAGIC:
            raise ValueError("no engine of this version of edgefold")
        header: dict[str, Any] = json.loads(file.readline(HEADER_BYTES))
        content = file.read()
    reason = ""
    if about.st_uid not in (os.geteuid(), 0):
        reason = f"it belongs to the user {about.st_uid}"
    elif about.st_mode & WRITABLE_BY_OTHERS:
        reason = f"others may write it (mode {stat.S_IMODE(about.st_mode):o})"
    elif len(content) != header["n_bytes"]:
        reason = f"it holds {len(content)} bytes of {header['n_bytes']}"
    elif sha256(content).hexdigest() != header["sha256"]:
        reason = "its content was changed"
    return header["key"], content, reason


def _write(place: Path, identity: dict[str, str], content: bytes) -> None:
    """Write a file beside its place and rename it there; what a killed process left goes first.

    Raises:
        OSError: It cannot be written; nothing is left behind.
    """
    for left in place.parent.glob(f".{place.name}.*"):
        if not _is_alive(left.name.rsplit(".", 2)[1]):
            left.unlink(missing_ok=True)
    header = {"key": identity, "n_bytes": len(content), "sha256": sha256(content).hexdigest()}
    beside = place.with_name(f".{place.name}.{os.getpid()}.{threading.get_ident()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(FileNotFoundError):
        beside.unlink()  # of an earlier process with the same number
    try:
        with open(os.open(beside, flags, 0o600), "wb") as file:
            file.write(MAGIC + json.dumps(header).encode() + b"\n")
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.rename(place)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _is_alive(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
