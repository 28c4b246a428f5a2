"""Publish the rows of a loop into a JetStream log, the key as the message's identity.

The server drops a message whose identity it has seen within the log's window (two minutes unless
the log says otherwise), so that rows that are sent again after a short fault come once.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from edgefold.runtime.brokers.broker_address import BrokerAddress
from edgefold.runtime.brokers.nats_connection import connect, nats_address, options_of
from edgefold.runtime.errors import DataError
from edgefold.runtime.sinks.acknowledged_sink import AcknowledgedSink
from edgefold.runtime.sinks.row_sink import SinkOptions
from edgefold.runtime.sinks.topic_rows import TopicRow, require_topic, safe_topic

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js import JetStreamContext

BATCH = 100
AGAIN_S = 1.0
ANSWER_S = 10.0


def open_nats(path: str, options: SinkOptions) -> NatsSink:
    """Open a subject of a log as an output; the connection is made with the first row.

    Raises:
        DataError: The address is not usable, or nats-py is missing.
    """
    address = nats_address(path)
    require_topic(address, "*>")
    return NatsSink(address, options)


class NatsSink(AcknowledgedSink):
    """Publishes rows below one subject, as SUBJECT.SERIES, or to SUBJECT for a single sensor.

    Args:
        address: The server and the subject.
        options: What the sink must know of the loop.
    """

    def __init__(self, address: BrokerAddress, options: SinkOptions):
        super().__init__(str(address), options)
        self._address, self._nats_options = address, options_of(address)
        self._waiting: deque[TopicRow] = deque()  # rows that are not acknowledged, oldest first
        self._wake = asyncio.Event()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="nats-out", daemon=True)

    def connect(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread.start()

    def send(self, row: TopicRow) -> None:
        self._waiting.append(row)
        self._loop.call_soon_threadsafe(self._wake.set)

    def disconnect(self) -> None:
        self._is_closing = True
        with suppress(RuntimeError):  # the thread has ended by itself
            self._loop.call_soon_threadsafe(self._wake.set)
        self._thread.join(ANSWER_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._work())
        self._loop.close()

    async def _work(self) -> None:
        """Connect and publish until the end, and begin again after each failure."""
        from nats.errors import Error
        from nats.js.errors import NoStreamResponseError

        while not self._is_closing:
            client = None
            try:
                client = await connect(self._address, self._nats_options)
                self.report("is connected")
                await self._publish(client)
            except DataError as error:
                self.report(str(error), is_final=True)
                return
            except NoStreamResponseError:
                self.report(
                    "has no stream that takes these subjects; make it first: nats stream add",
                    is_final=True,
                )
                return
            except (Error, OSError, ssl.SSLError, asyncio.TimeoutError) as error:
                self.report(f"cannot be reached: {str(error) or type(error).__name__}")
                await asyncio.sleep(AGAIN_S)
            finally:
                if client is not None:
                    with suppress(Exception):  # it is thrown away
                        await client.close()

    async def _publish_row(self, log: JetStreamContext, row: TopicRow) -> None:
        subject = safe_topic(self._address.topics[0], row.series, ".", r"[*>\s]")
        identity = {"Nats-Msg-Id": f"{subject} {row.key}"}  # a log may take several outputs
        await log.publish(subject, row.payload, timeout=ANSWER_S, headers=identity)

    async def _publish(self, client: Client) -> None:
        """Publish the rows that wait, a batch at a time and in order, until the end."""
        log = client.jetstream()
        while not self._is_closing or self._waiting:
            self._wake.clear()
            batch = [self._waiting[at] for at in range(min(BATCH, len(self._waiting)))]
            if not batch:
                await self._wake.wait()
                continue
            await asyncio.gather(*(self._publish_row(log, row) for row in batch))
            for _ in batch:
                self._waiting.popleft()
            self.acknowledged(len(batch))
