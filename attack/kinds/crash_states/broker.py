"""Play an MQTT broker with a persistent session, or a JetStream log, inside the process of a run.

The first sends each message that is not acknowledged, in order, and again after each connection;
the second sends each one behind the number that it is asked for. Time goes on with each message and
each wait, so that a run is the same each time.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from edgefold.runtime.sources import broker_source
from edgefold.runtime.sources.message import Message, MessageFeed
from edgefold.runtime.sources.message_source import MessageSource

TAKE_S = 0.01
RECEIVED_S = 1_764_300_000.0


@dataclass(frozen=True, slots=True)
class Script:
    """Says what a broker sends to one run, and when.

    Attributes:
        messages: Topics and payloads of all messages, those before `first` too.
        first: Number of the first message that the broker sends.
        stop: Number of the message before which the run is asked to stop.
        late: For each message, how often a client waits in vain before it comes.
        breaks: Numbers of messages before which the connection breaks once.
        is_log: Whether the broker keeps a log.
    """

    messages: Sequence[tuple[str, bytes]]
    first: int
    stop: int
    late: Sequence[int]
    breaks: frozenset[int] = frozenset()
    is_log: bool = False


class PlayedFeed(MessageFeed):
    """Receives the messages of a script, in place of `MqttFeed`.

    Args:
        script: What the broker sends.
        note_acknowledged: Function that gets the number of messages that the broker has forgotten.
        window: The number of unacknowledged messages at which the broker pauses.
    """

    is_numbered = False
    name = "mqtt://broker/#"

    def __init__(self, script: Script, note_acknowledged: Callable[[int], None], window: int):
        self._script, self._note, self._window = script, note_acknowledged, window
        self._late = list(script.late)
        self._breaks = set(script.breaks)
        self._next = self.n_acknowledged = script.first
        self._taken: deque[tuple[int, int]] = deque()  # connection and message
        self._connection, self._begins = 1, True
        self.now_s = 0.0

    def open(self, place: dict[str, Any]) -> None:
        return

    @property
    def _may_send(self) -> bool:
        return self._next < self._script.stop and self._next - self.n_acknowledged < self._window

    @property
    def holds_message(self) -> bool:
        return self._may_send and not self._late[self._next]

    def take(self, wait_s: float) -> Message | None:
        self.now_s += TAKE_S
        if self._next in self._breaks:
            self._breaks.remove(self._next)
            self._connect_again()
        if not self.holds_message:
            self.now_s += max(wait_s, 0.0)
            if self._may_send:
                self._late[self._next] -= 1
            elif self._next >= self._script.stop:
                signal.raise_signal(signal.SIGTERM)
            return None
        number, (topic, payload) = self._next, self._script.messages[self._next]
        # The time is that of the message, so that it is the same when the message comes again.
        received = RECEIVED_S + 60 * number
        message = Message(topic, payload, received, self._begins, (number + 1) * self.is_numbered)
        self._taken.append((self._connection, number))
        self._next, self._begins = number + 1, False
        return message

    def _connect_again(self) -> None:
        self._next = self.n_acknowledged
        self._connection, self._begins = self._connection + 1, True

    def acknowledge(self, n: int) -> None:
        for _ in range(n):
            connection, number = self._taken.popleft()
            if connection == self._connection:
                assert number == self.n_acknowledged, "messages are acknowledged in order"
                self.n_acknowledged = number + 1
                self._note(self.n_acknowledged)

    def place(self) -> dict[str, Any]:
        return {"connected": True}

    def notes(self) -> list[tuple[str, str]]:
        return []

    def close(self) -> None:
        return


class PlayedLog(PlayedFeed):
    """Receives the messages of a script, in place of `JetStreamFeed`.

    Args:
        script: What the log holds.
        note_acknowledged: Function that gets the number of messages that the loop is done with.
    """

    is_numbered = True
    name = "nats://broker/home"

    def __init__(self, script: Script, note_acknowledged: Callable[[int], None]):
        super().__init__(script, note_acknowledged, len(script.messages))
        self._begins = False

    def open(self, place: dict[str, Any]) -> None:
        self._next = self.n_acknowledged = int(place["position"])
        self._note(self._next)

    def _connect_again(self) -> None:
        """Go on behind the last message that was received."""


def play_broker(script: Script, note_acknowledged: Callable[[int], None]) -> None:
    """Let the next source of this process receive from a broker that plays a script."""

    def feed(address: Any, client_id: str, is_kept: bool, window: int, *_: Any) -> PlayedFeed:
        return PlayedFeed(script, note_acknowledged, window)

    def log(address: Any, tell: Any) -> PlayedLog:
        return PlayedLog(script, note_acknowledged)

    true_source: Any = MessageSource

    def source(played: PlayedFeed, *more: Any, **named: Any) -> Any:
        return true_source(played, *more, **named, clock=lambda: played.now_s)

    setattr(broker_source, "MqttFeed", feed)  # noqa: B010  # a class has another type
    setattr(broker_source, "JetStreamFeed", log)  # noqa: B010
    setattr(broker_source, "MessageSource", source)  # noqa: B010
