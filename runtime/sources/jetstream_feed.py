"""Receive the messages of a JetStream log by NATS, each with its number in the log.

    server's log ──> consumer from number n+1 ──> asyncio thread ──> queue ──take──> rows
                                                   (at most MOST_WAITING wait)

The loop's snapshot keeps the number of the last message, so nothing is acknowledged and the server
remembers nothing. A consumer is made for each connection and again whenever its own count has a
gap, the server was silent for too long, or it is gone: it always goes on behind the last message
that was received, so that none is lost and none comes twice.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any

from edgefold.runtime.brokers.broker_address import BrokerAddress
from edgefold.runtime.brokers.nats_connection import connect, options_of
from edgefold.runtime.errors import DataError
from edgefold.runtime.sources.message import MOST_BYTES, Message, MessageFeed

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js.api import StreamConfig

MOST_WAITING = 1000
BATCH = 256
"""Number of messages that are asked for together."""
HEARTBEAT_S = 2.0
SILENCE_S = 3 * HEARTBEAT_S
"""A server that sends neither messages nor heartbeats for so long is asked again."""
REQUEST_S = 30.0
AGAIN_S = 1.0
PAUSE_S = 0.01
CANCEL_S = 0.5
GONE_S = 60.0
"""Seconds after which the server removes a consumer that is not used."""


class _AgainError(Exception):
    """Raised where the consumer must be made again; the message says why, or is empty."""


class JetStreamFeed(MessageFeed):
    """Receives the messages of one subject.

    Args:
        address: The server and the subject; the option `stream` names the log, `from=new` begins
            with the messages that come then.
        tell: Function that gets a sentence for the user, such as that the server is away.

    Attributes:
        name: The server and subject.
        n_lost: Number of messages that the log had removed before they were received.
        away_since: The time since which the server is away; None while it is connected.
    """

    is_numbered = True

    def __init__(self, address: BrokerAddress, tell: Callable[[str], None]):
        self.name = str(address)
        if len(address.topics) != 1:
            raise DataError(
                f"{self.name} names {len(address.topics)} subjects; name one, with the wildcards "
                "* and > for several."
            )
        self._address, self._subject, self._tell = address, address.topics[0], tell
        self._options = options_of(address)
        self._queue: Queue[Message] = Queue(MOST_WAITING)
        self._news: deque[tuple[str, bool]] = deque()
        self._last_news = ""
        self._last = 0  # number of the last message that was received
        self._stream = self._created = ""  # of the log
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_closing = self._has_judged = False
        self.n_lost = 0

    def open(self, place: dict[str, Any]) -> None:
        self._last = int(place.get("position", 0))
        self._stream = str(place.get("stream", ""))
        self._created = str(place.get("created", ""))
        self.away_since = time.time()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="nats", daemon=True)
        self._thread.start()

    # In the feed's thread -------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._task = self._loop.create_task(self._receive())
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        self._loop.close()

    async def _receive(self) -> None:
        """Connect and receive until `close`, and begin again after each failure."""
        from nats.errors import Error

        while not self._is_closing:
            client = None
            try:
                client = await connect(self._address, self._options)
                await self._follow(client)
            except DataError as error:
                self._news.append((str(error), True))
                return
            except (Error, OSError, ssl.SSLError, asyncio.TimeoutError, _AgainError) as error:
                if text := str(error) or type(error).__name__:
                    self._news.append((f"is not reached: {text}", False))
            finally:
                if self.away_since is None:
                    self.away_since = time.time()
                if client is not None:
                    with suppress(Exception):  # it is thrown away
                        await client.close()
            await asyncio.sleep(AGAIN_S)

    async def _follow(self, client: Client) -> None:
        """Find the log, then receive its messages; make a consumer again where one is broken."""
        await self._find_log(client)
        self._news.append(("is connected", False))
        self.away_since = None
        while not self._is_closing:
            inbox = client.new_inbox()
            answers = await client.subscribe(inbox, pending_msgs_limit=-1, pending_bytes_limit=-1)
            consumer = await self._consumer(client)
            try:
                await self._pull(client, consumer, inbox, answers)
            except _AgainError:
                if not client.is_connected:
                    raise
            finally:
                with suppress(Exception):
                    await answers.unsubscribe()

    async def _find_log(self, client: Client) -> None:
        from nats.js.errors import NotFoundError

        manager, wanted = client.jsm(), self._address.options.get("stream", self._stream)
        try:
            name = wanted or await manager.find_stream_name_by_subject(self._subject)
            info = await manager.stream_info(name)
        except NotFoundError:
            raise DataError(
                f"the server of {self.name} has no stream {wanted or 'that holds this subject'}; "
                "make it first: nats stream add."
            ) from None
        self._require_log(info.config)
        created = str(info.created)
        if self._created and created != self._created:
            raise DataError(
                f"the stream {name} of {self.name} was removed and made again after the snapshot, "
                "and its numbers begin anew. Start over with --force."
            )
        if not self._created and self._address.options.get("from") == "new":
            self._last = max(self._last, info.state.last_seq)
        if self._last and info.state.first_seq > self._last + 1:
            n = info.state.first_seq - self._last - 1
            self.n_lost += n
            self._news.append(
                (f"has removed {n:,} messages that were not received yet; give its stream a "
                 "larger limit", False)
            )  # fmt: skip
        self._stream, self._created = name, created

    def _require_log(self, config: StreamConfig) -> None:
        """Report a log that does not keep what the loop has not received.

        Raises:
            DataError: The log gives its messages only to a consumer that acknowledges them.
        """
        if config.retention == "workqueue":
            raise DataError(
                f"the stream {config.name} of {self.name} is a work queue, which forgets what was "
                "read; take one with the retention limits: nats stream add."
            )
        if self._has_judged:
            return
        self._has_judged = True
        if config.retention == "interest":
            self._news.append(
                (f"keeps messages of the stream {config.name} only while somebody receives them: "
                 "those that come while the loop is away are lost (retention interest)", False)
            )  # fmt: skip
        if config.storage == "memory":
            self._news.append(
                (f"has the stream {config.name} in memory: its restart loses all messages", False)
            )

    async def _consumer(self, client: Client) -> str:
        """Make a consumer that begins behind the last message, and return its name."""
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=self._last + 1,
            ack_policy=AckPolicy.NONE,
            filter_subject=self._subject,
            inactive_threshold=GONE_S,
        )
        return (await client.jsm().add_consumer(self._stream, config)).name

    async def _pull(self, client: Client, consumer: str, inbox: str, answers: Any) -> None:
        """Ask for messages in batches and take them, until the consumer is broken."""
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{consumer}"
        asked = {
            "batch": BATCH,
            "expires": int(REQUEST_S * 1e9),
            "idle_heartbeat": int(HEARTBEAT_S * 1e9),
        }
        request, n_expected, count = json.dumps(asked).encode(), 0, 0
        while not self._is_closing:
            if n_expected <= 0:
                await client.publish(subject, request, reply=inbox)
                n_expected = BATCH
            try:
                message = await answers.next_msg(SILENCE_S)
            except Exception as error:  # nats-py raises several for a silent or lost connection
                raise _AgainError(str(error)) from error
            status = (message.headers or {}).get("Status", "") if not message.data else ""
            if status == "100":  # a heartbeat
                continue
            if status in ("404", "408"):  # the request has ended
                n_expected = 0
                continue
            if status:
                raise _AgainError(f"status {status}")
            n_expected -= 1
            count += 1
            await self._take_in(message, count)

    async def _take_in(self, message: Msg, count: int) -> None:
        """Put a message into the queue; `count` is the number that the consumer must give it."""
        place = message.metadata
        if place.sequence.consumer != count or place.sequence.stream <= self._last:
            raise _AgainError
        own = Message(
            message.subject,
            message.data[:MOST_BYTES],
            place.timestamp.timestamp(),
            number=place.sequence.stream,
        )
        while self._queue.full():
            await asyncio.sleep(PAUSE_S)
        self._queue.put_nowait(own)
        self._last = own.number

    # In the loop's thread -------------------------------------------------------------------------

    @property
    def holds_message(self) -> bool:
        return not self._queue.empty()

    def take(self, wait_s: float) -> Message | None:
        if self._news:
            self._report()
        try:
            return self._queue.get(wait_s > 0, wait_s if wait_s > 0 else None)
        except Empty:
            return None

    def _report(self) -> None:
        """Print what happened to the connection; raise DataError if the feed has ended."""
        while self._news:
            text, is_final = self._news.popleft()
            if is_final:
                raise DataError(text)
            is_new = text != (self._last_news or "is connected")
            if is_new:
                self._tell(f"the server of {self.name} {text}")
            self._last_news = "" if text == "is connected" else text

    def acknowledge(self, n: int) -> None:
        """Do nothing: the snapshot keeps the place in the log."""

    def place(self) -> dict[str, Any]:
        return {"stream": self._stream, "created": self._created}

    def notes(self) -> list[tuple[str, str]]:
        if not self.n_lost:
            return []
        sentence = f"{self.n_lost:,} messages had been removed from the log before they were read"
        return [("lost", sentence)]

    def close(self) -> None:
        if self._thread is None:
            return
        self._is_closing = True
        while self._thread.is_alive():
            with suppress(RuntimeError):  # the thread has just ended by itself
                self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())
            # Before Python 3.12 `asyncio.wait_for` loses a cancellation that comes with a message.
            self._thread.join(CANCEL_S)
        self._thread = None
