"""Ask a NATS server about the log (stream) of a subject, and read its own file if it runs here."""

from __future__ import annotations

import asyncio
import re
import ssl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from edgefold.cli.doctor.local_broker import files_of_processes
from edgefold.runtime.brokers.broker_address import BrokerAddress
from edgefold.runtime.brokers.nats_connection import connect, options_of
from edgefold.runtime.errors import DataError
from edgefold.runtime.record_fields import Bytes, Count, Seconds
from edgefold.runtime.sources.jetstream_feed import GONE_S

if TYPE_CHECKING:
    from nats.aio.client import Client

SYNC = re.compile(r"^\s*sync_interval\s*[:=]?\s*\"?(\w+)", re.MULTILINE)
VERSION = re.compile(r"\d+(\.\d+)+")
DEFAULT_SYNC = "2m"


@dataclass(frozen=True, kw_only=True, slots=True)
class JetStreamLog:
    """Describes the log of a subject, as its server says."""

    version: Annotated[str, "The server's version."]
    stream: Annotated[str, "The log's name."]
    storage: Annotated[str, "file or memory."]
    replicas: Annotated[Count, "Servers that hold it."]
    retention: Annotated[str, "limits, interest or workqueue."]
    discard: Annotated[str, "old or new: which messages go when it is full."]
    max_age_s: Annotated[Seconds | None, "Age at which messages are removed; null for never."]
    max_messages: Annotated[Count | None, "Messages that it holds; null for no limit."]
    max_bytes: Annotated[Bytes | None, "Bytes that it holds; null for no limit."]
    n_messages: Annotated[Count, "Messages that it holds now."]
    bytes: Annotated[Bytes, "Bytes that it holds now."]
    sync_interval: Annotated[
        str | None, "Time after which the server forces files to the disk; null is not known."
    ]
    consumer: Annotated[str, "The consumer that a loop makes."]


def ask_jetstream(address: BrokerAddress, root: Path) -> JetStreamLog | str:
    """Ask a server about its log; return a sentence on the reason where it cannot be asked.

    Args:
        address: The server and the subject.
        root: The folder that holds proc, where a server of this machine is looked for; a name that
            does not exist looks for none.
    """
    from nats.errors import Error

    try:
        return asyncio.run(_ask(address, _sync_interval(root)))
    except (Error, DataError, OSError, ssl.SSLError, asyncio.TimeoutError) as error:
        return str(error).rstrip(".") or type(error).__name__


async def _ask(address: BrokerAddress, sync_interval: str | None) -> JetStreamLog:
    client = await connect(address, options_of(address))
    try:
        return _log(address, client, await _stream(address, client), sync_interval)
    finally:
        with suppress(Exception):  # it is thrown away
            await client.close()


async def _stream(address: BrokerAddress, client: Client) -> Any:
    from nats.js.errors import NotFoundError, ServiceUnavailableError

    manager = client.jsm()
    try:
        name = address.options.get("stream") or await manager.find_stream_name_by_subject(
            address.topics[0]
        )
        return await manager.stream_info(name)
    except NotFoundError:
        raise DataError("it has no stream that holds this subject: nats stream add") from None
    except ServiceUnavailableError:
        raise DataError("JetStream is off; start nats-server with -js") from None


def _log(
    address: BrokerAddress, client: Client, info: Any, sync_interval: str | None
) -> JetStreamLog:
    config, state = info.config, info.state
    found = VERSION.search(str(client.connected_server_version))
    version = found[0] if found else "of an unknown version"

    def limit(number: float | None) -> Any:
        return number if number and number > 0 else None

    return JetStreamLog(
        version=f"nats-server {version}",
        stream=config.name,
        storage=_word(config.storage),
        replicas=config.num_replicas or 1,
        retention=_word(config.retention),
        discard=_word(config.discard),
        max_age_s=limit(config.max_age),
        max_messages=limit(config.max_msgs),
        max_bytes=limit(config.max_bytes),
        n_messages=state.messages,
        bytes=state.bytes,
        sync_interval=sync_interval,
        consumer=f"pulls {address.topics[0]} from the number in the snapshot on, acknowledges "
        f"nothing, and is removed {GONE_S:.0f} s after the loop has gone",
    )


def _word(choice: Any) -> str:
    """Return the word of a choice, which the package gives as an enumeration or as a text."""
    return str(getattr(choice, "value", choice))


def _sync_interval(root: Path) -> str | None:
    """Return the interval that the only nats-server of this machine was started with.

    None where none runs here, several do, or its file cannot be read.
    """
    files = [*files_of_processes(root, "nats-server", ("-c", "--config"))]
    if len(files) != 1:
        return None
    if files[0] is None:
        return DEFAULT_SYNC
    try:
        found = SYNC.search(files[0].read_text())
    except (OSError, UnicodeDecodeError):
        return None
    return found[1] if found else DEFAULT_SYNC
