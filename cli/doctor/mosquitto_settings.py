"""Read what a mosquitto on this machine keeps, and how long, from its configuration.

The file is the one that a running mosquitto was started with, or Debian's; the broker itself tells
none of this to a client. Names and defaults are those of mosquitto.conf(5).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from edgefold.cli.doctor.local_broker import files_of_processes
from edgefold.runtime.errors import DataError
from edgefold.runtime.record_fields import Bytes, Count, Index, Seconds

DEBIAN = "etc/mosquitto/mosquitto.conf"
DEFAULT_PORT = 1883
MOST_DEPTH = 5
"""Files that include files are followed so far."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MosquittoSettings:
    """Describes what the configuration of a mosquitto says on the messages that it keeps."""

    files: Annotated[list[Annotated[str, "A file."]], "The files of the configuration."]
    ports: Annotated[list[Annotated[Index, "A port."]], "The ports on which it listens."]
    persistence: Annotated[bool, "Whether it writes its database to the disk."] = False
    autosave_interval: Annotated[
        Seconds, "Time between two writes of the database; 0 writes it only at its end."
    ] = 1800.0
    autosave_on_changes: Annotated[
        bool, "Whether autosave_interval is a number of changes instead of seconds."
    ] = False
    max_queued_messages: Annotated[Count, "Messages that wait for a client; 0 has no limit."] = 1000
    max_queued_bytes: Annotated[Bytes, "Bytes that wait for a client; 0 has no limit."] = 0
    max_inflight_messages: Annotated[
        Count, "Messages that are sent without an acknowledgement; 0 has no limit."
    ] = 20
    message_size_limit: Annotated[Bytes, "The largest payload; 0 has no limit."] = 0
    queue_qos0_messages: Annotated[
        bool, "Whether messages of quality of service 0 wait for a client that is away."
    ] = False
    persistent_client_expiration: Annotated[
        str, "Time after which the session of a client that is away ends; empty keeps it for ever."
    ] = ""


def find_settings(root: Path, port: int) -> MosquittoSettings | None:
    """Return the settings of the mosquitto of this machine that listens on a port.

    Args:
        root: The folder that holds etc and proc.
        port: The port.

    Returns:
        None where no file is found, may be read, or names the port.
    """
    started = files_of_processes(root, "mosquitto", ("-c", "--config-file"))
    for path in (*started, root / DEBIAN):
        with suppress(DataError):
            if path is not None and port in (settings := read_settings(path, root)).ports:
                return settings
    return None


def read_settings(path: Path, root: Path = Path("/")) -> MosquittoSettings:
    """Read a configuration with all files that it includes; of a repeated name the last one counts.

    Args:
        path: The file.
        root: The folder in which the included folders lie.

    Raises:
        DataError: A file cannot be read, or a value is none.
    """
    files: list[str] = []
    ports: list[int] = []
    found: dict[str, Any] = {}
    kinds: dict[str, type] = {f.name: type(f.default) for f in fields(MosquittoSettings)}
    for name, words in _lines(path, root, files):
        try:
            if name in ("listener", "port"):
                ports += [int(words[0])] if words[0] != "0" else []  # 0 is a socket of the system
            elif name in kinds and name not in ("files", "ports"):
                read = _switch if kinds[name] is bool else kinds[name]
                found[name] = read(words[0])
        except (IndexError, ValueError) as error:
            line = " ".join([name, *words])
            raise DataError(
                f"{path}: mosquitto does not know the line {line!r} ({error})."
            ) from None
    return MosquittoSettings(files=files, ports=ports or [DEFAULT_PORT], **found)


def _lines(
    path: Path, root: Path, files: list[str], depth: int = 1
) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the words of each line of a file and of those that it includes."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(
            f"the configuration {path} cannot be read ({reason}); run the command as a user who "
            "may read it, or name a copy with --broker-config."
        ) from None
    files.append(str(path))
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "include_dir" and len(words) > 1 and depth < MOST_DEPTH:
            folder = root / words[1].lstrip("/")
            for inner in sorted(folder.glob("*.conf")):
                yield from _lines(inner, root, files, depth + 1)
            continue
        yield words[0], words[1:]


def _switch(word: str) -> bool:
    if word not in ("true", "false"):
        raise ValueError(f"{word} is neither true nor false")
    return word == "true"
