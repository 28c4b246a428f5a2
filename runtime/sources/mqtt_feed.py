"""Receive messages by MQTT 5 with quality of service 1.

    broker ──> paho's thread ──> queue ──take──> journal, rows ──acknowledge──> broker

The broker keeps the session of a client with a fixed name, and with it each message that is not
acknowledged. It stops sending while `window` messages are unacknowledged, so the queue has a bound
and a slow loop slows the broker. Quality of service 2 is not asked for: it ends at the client and
promises nothing about what is learned. The flag DUP is not looked at, since a broker that was
restarted may send known messages without it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any

from edgefold.runtime.brokers.broker_address import BrokerAddress
from edgefold.runtime.brokers.mqtt_connection import (
    FIRST_REFUSAL,
    KEEPALIVE_S,
    NO_EXPIRY,
    disconnect,
    loss,
    mqtt_client,
    reason_of_failure,
    refusal,
    subscribe,
)
from edgefold.runtime.errors import DataError
from edgefold.runtime.series.durations import duration
from edgefold.runtime.sources.message import MOST_BYTES, Message, MessageFeed

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage

MOST_UNKEPT = 10_000
"""At most so many messages of quality of service 0 wait, which no window bounds; others are
dropped."""
CLOSE_S, STEP_S = 1e-3, 2e-6
"""Messages that come at the same time, or up to `CLOSE_S` earlier as the clock was corrected,
get times `STEP_S` apart: of two rows with one time the second would be refused."""


class MqttFeed(MessageFeed):
    """Receives the messages of one or several topics from one broker.

    Args:
        address: The broker and the topics.
        client_id: The client's name, under which the broker keeps the session.
        is_kept: Whether the broker keeps the session while this client is away.
        window: The number of unacknowledged messages at which the broker pauses.
        tell: Function that gets a sentence for the user, such as that the broker is away.
        retires: Whether only the messages that wait are received, and the topics left.

    Attributes:
        name: The broker and topics.
        away_since: The time since which the broker is away; None while it is connected.
        n_dropped: Number of messages of quality of service 0 that were dropped.
        n_sessions_lost: Number of times that the broker had forgotten the session.
    """

    is_numbered = False

    def __init__(
        self,
        address: BrokerAddress,
        client_id: str,
        is_kept: bool,
        window: int,
        tell: Callable[[str], None],
        retires: bool = False,
    ):
        self.name = str(address)
        self._retires, self._is_retired = retires, False
        self._address, self._is_kept, self._window, self._tell = address, is_kept, window, tell
        self._client = mqtt_client(address, client_id)
        self._client_id = address.options.get("client-id", client_id)
        # Not SimpleQueue: in CPython 3.11 its `get` may wait for ever after a signal.
        self._queue: Queue[tuple[int, int, Message]] = Queue()  # connection, packet
        self._news: deque[tuple[str, bool]] = deque()  # a sentence, and whether it is final
        self._taken: deque[tuple[int, int]] = deque()  # connection and packet, not acknowledged
        self._connection = 0  # counts connections
        self._is_open = False  # whether the last of them is open
        self._turns = threading.Lock()  # a connection does not end while messages are acknowledged
        self._begins = self._had_session = False
        self._dropped: list[str] = []  # topics of an earlier command
        self._last_news = ""
        self._received_s = 0.0
        self.n_dropped = self.n_sessions_lost = 0

    def open(self, place: dict[str, Any]) -> None:
        """Begin to connect; the connection is made and kept by a thread."""
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.ReceiveMaximum = self._window
        if self._is_kept:
            properties.SessionExpiryInterval = NO_EXPIRY
        client, self.away_since = self._client, time.time()
        self._had_session = bool(place.get("connected"))
        former = place.get("topics")
        self._dropped = [
            topic
            for topic in (former if isinstance(former, list) else ())
            if isinstance(topic, str) and topic not in self._address.topics
        ]
        client.on_connect, client.on_subscribe = self._connected, self._subscribed
        client.on_connect_fail, client.on_disconnect = self._failed, self._disconnected
        client.on_message = self._received
        client.connect_async(
            self._address.host,
            self._address.port,
            keepalive=KEEPALIVE_S,
            clean_start=not self._is_kept,
            properties=properties,
        )
        client.loop_start()

    # In paho's thread -----------------------------------------------------------------------------

    def _connected(
        self, client: Client, data: Any, flags: Any, reason: Any, properties: Any
    ) -> None:
        if reason.is_failure:
            text, may_help = refusal(reason, self._address)
            self._news.append(
                (f"refuses the connection: {text}", not (may_help or self._connection))
            )
            return
        if self._is_kept and self._had_session and not flags.session_present:
            self.n_sessions_lost += 1
            self._news.append(
                ("has forgotten the session; messages sent meanwhile may be missing", False)
            )
        elif self._last_news or not self._connection:
            self._news.append(("is connected", False))
        expiry_s = getattr(properties, "SessionExpiryInterval", NO_EXPIRY)
        if self._is_kept and expiry_s != NO_EXPIRY and not self._connection:
            self._news.append(
                (f"keeps the session for {duration(expiry_s)}: if the loop is away for longer, "
                 "messages are lost", False)
            )  # fmt: skip
        self._had_session = True
        self._connection += 1
        self._begins = self._is_open = True
        self.away_since = None
        if self._retires:
            client.unsubscribe([*self._address.topics, *self._dropped])
            return
        if self._dropped:  # the session still has the topics of an earlier command
            client.unsubscribe(self._dropped)
        subscribe(client, self._address.topics)

    def _subscribed(
        self, client: Client, data: Any, mid: int, reasons: Any, properties: Any
    ) -> None:
        for topic, reason in zip(self._address.topics, reasons, strict=False):
            if reason.value >= FIRST_REFUSAL:
                self._news.append((f"refuses the topic {topic}: {reason}", True))
            elif not reason.value:
                self._news.append(
                    (f"sends the topic {topic} with quality of service 0: what is lost on the way "
                     "or comes while the loop is away is not sent again", False)
                )  # fmt: skip

    def _failed(self, client: Client, data: Any) -> None:
        text, may_help = reason_of_failure()
        self._news.append((f"cannot be reached: {text}", not (may_help or self._connection)))

    def _disconnected(self, client: Client, data: Any, flags: Any, reason: Any, *_: Any) -> None:
        with self._turns:  # paho drops later what is not sent yet, before it connects again
            self._is_open = False
        if self.away_since is None:
            self.away_since = time.time()
        if reason.is_failure:
            self._news.append((loss(reason), False))

    def _received(self, client: Client, data: Any, message: MQTTMessage) -> None:
        if not message.qos and self._queue.qsize() >= MOST_UNKEPT:
            self.n_dropped += 1
            return
        received = time.time()
        if 0 <= self._received_s - received < CLOSE_S:
            received = self._received_s + STEP_S
        self._received_s = received
        with suppress(UnicodeDecodeError):  # a topic that is no text; the standard forbids it
            own = Message(
                message.topic, bytes(message.payload[:MOST_BYTES]), received, self._begins
            )
            self._begins = False
            self._queue.put((self._connection, message.mid * (message.qos > 0), own))

    # In the loop's thread -------------------------------------------------------------------------

    @property
    def holds_message(self) -> bool:
        return not self._queue.empty()

    def take(self, wait_s: float) -> Message | None:
        if self._news:
            self._report()
        try:
            connection, packet, message = self._queue.get(wait_s > 0, wait_s or None)
        except Empty:
            return None
        self._taken.append((connection, packet))
        return message

    def _report(self) -> None:
        """Print what happened to the connection, each news once until it changes.

        Raises:
            DataError: The broker refuses, and waiting cannot change it.
        """
        while self._news:
            text, is_final = self._news.popleft()
            sentence = f"the broker of {self.name} {text}"
            if is_final:
                raise DataError(f"{sentence}.")
            if text != self._last_news:
                self._tell(sentence)
            self._last_news = "" if text == "is connected" else text

    def acknowledge(self, n: int) -> None:
        with self._turns:
            for _ in range(n):
                connection, packet = self._taken.popleft()
                # An earlier connection's messages come again; their numbers may mean others then.
                if packet and self._is_open and connection == self._connection:
                    self._client.ack(packet, 1)

    def place(self) -> dict[str, Any]:
        return {"connected": self._had_session, "topics": list(self._address.topics)}

    def notes(self) -> list[tuple[str, str]]:
        notes = []
        if self._is_kept:
            text = f"the broker keeps it under the name {self._client_id}"
            if self._is_retired:
                text = f"ended; the broker keeps nothing under the name {self._client_id}"
            notes.append(("session", text))
        if self.n_dropped:
            notes.append(
                ("dropped", f"{self.n_dropped:,} messages of quality of service 0 came faster than "
                 "they were learned; publish with 1, and the broker waits")
            )  # fmt: skip
        if self.n_sessions_lost:
            notes.append(
                ("session", f"forgotten by the broker {self.n_sessions_lost:,} times; messages "
                 "sent meanwhile may be missing")
            )  # fmt: skip
        return notes

    def retire(self) -> None:
        """Let the broker end the session at the disconnect, unless it is away."""
        self._is_retired = self._is_open

    def close(self) -> None:
        disconnect(self._client, self._is_retired)
