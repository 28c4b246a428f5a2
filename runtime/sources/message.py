"""Define a message of a broker, and the contract of what receives messages.

A feed is a connection to one broker. Two kinds differ in who remembers what was received:

    acknowledged      the broker forgets a message once it is acknowledged (MQTT); until then it
                      sends it again, so a journal keeps messages and then acknowledges them
    numbered          the broker keeps a log with numbers (JetStream); the snapshot keeps the number
                      and nothing is acknowledged
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Protocol

HEAD = struct.Struct("<?dH")
"""Whether a connection begins, the time of receipt, the length of the topic."""
MOST_BYTES = 65536
"""A payload is cut after so many bytes, and then refused as a row."""


@dataclass(frozen=True, slots=True)
class Message:
    """Holds one message as it was received.

    Attributes:
        topic: The topic or subject.
        payload: The content.
        received: This machine's time of receipt, in seconds since 1970.
        begins: Whether it is the first message of a connection, after which the broker may send
            again what was received before.
        number: The message's number in the broker's log or in the journal; 0 before it has one.
    """

    topic: str
    payload: bytes
    received: float
    begins: bool = False
    number: int = 0

    def to_bytes(self) -> bytes:
        """Return the message without its number, as the journal keeps it."""
        topic = self.topic.encode()
        return HEAD.pack(self.begins, self.received, len(topic)) + topic + self.payload

    @classmethod
    def from_bytes(cls, record: bytes, number: int) -> Message:
        """Return the message that `to_bytes` wrote."""
        begins, received, length = HEAD.unpack_from(record)
        end = HEAD.size + length
        topic = record[HEAD.size : end].decode()
        return cls(topic, record[end:], received, begins, number)


class MessageFeed(Protocol):
    """Receives messages from one broker.

    A class that inherits from it need not define the methods that have a body here.

    Attributes:
        name: The broker and topics without a password, for messages.
        unit: The word for a message, "message" or "line".
        is_numbered: Whether messages come from a log with numbers, so that a place in it is enough
            to go on and nothing is acknowledged.
        away_since: This machine's clock, in seconds since 1970, since which the broker is away;
            None while it is connected, and before `open`.
    """

    name: str
    is_numbered: bool
    unit: str = "message"
    away_since: float | None = None

    def open(self, place: dict[str, Any]) -> None:
        """Connect, and begin to receive.

        Args:
            place: The place of an earlier run, as `place` returned it; {} without one. It holds
                "position", the number of the last message that needs not come again.

        Raises:
            DataError: The broker refuses the user, the topics or the place.
        """

    def take(self, wait_s: float) -> Message | None:
        """Return the next message; None if none comes within `wait_s` seconds."""

    @property
    def holds_message(self) -> bool:
        """Return whether `take` has a message already."""

    def acknowledge(self, n: int) -> None:
        """Let the broker forget the next `n` messages, in the order in which they were taken."""

    def place(self) -> dict[str, Any]:
        """Return, as a JSON object, what `open` needs besides the position to go on later."""

    def retire(self) -> None:
        """Let the broker forget this client when it disconnects, as no later run goes on."""
        return

    def notes(self) -> list[tuple[str, str]]:
        """Return remarks for the summary of a run, as pairs of label and sentence."""

    def close(self) -> None:
        """Disconnect; a second call does nothing."""
