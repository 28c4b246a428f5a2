"""Note which messages pass between a broker and a loop by MQTT, and which ones are acknowledged."""

from __future__ import annotations

import time
from collections.abc import Sequence

from attack.brokers import mqtt_packets
from attack.brokers.mqtt_packets import Packets
from attack.brokers.plan import Published


class Traffic:
    """Reads the packets that a proxy passes on.

    Args:
        messages: The messages of the plan.

    Attributes:
        acknowledged: Places of messages that the loop has acknowledged when no later one of their
            topic had been sent to it. After a later one a message is known by its numbers, also
            where the broker has lost its first copy.
        sent: Places of messages that were sent to the loop before any later one of their topic: the
            loop knows a copy that comes behind a later one by its numbers, and drops it.
        subscribed: Moments at which the broker confirmed the loop's subscription.
        n_foreign: Number of acknowledgements of what was not sent on the same connection.
        n_resumed: Number of connections at which the broker knew the session.
    """

    def __init__(self, messages: Sequence[Published]):
        self._places = {message.payload: place for place, message in enumerate(messages)}
        self._topics = [message.topic for message in messages]
        self._newest: dict[str, int] = {}
        self._packets: dict[tuple[int, bool], Packets] = {}
        self._open: dict[tuple[int, int], set[int]] = {}  # connection and packet -> message
        self.acknowledged, self.sent = set[int](), set[int]()
        self.subscribed: list[float] = []
        self.n_foreign = self.n_resumed = 0

    def watch(self, connection: int, is_up: bool, block: bytes) -> None:
        """Read the bytes that one side of a connection has sent."""
        packets = self._packets.setdefault((connection, is_up), Packets())
        now_s = time.monotonic()
        for kind, _, body in packets.take(block):
            if kind == mqtt_packets.PUBLISH:
                number, payload = mqtt_packets.message_of(body)
                self._open[connection, number] = self._send(self._places[payload])
            elif kind == mqtt_packets.PUBACK:
                key = connection, mqtt_packets.number_of(body)
                if key in self._open:
                    self.acknowledged |= self._open.pop(key)
                else:
                    self.n_foreign += 1
            elif kind == mqtt_packets.SUBACK:
                self.subscribed.append(now_s)
            elif kind == mqtt_packets.CONNACK:
                self.n_resumed += body[0] & 1

    def _send(self, place: int) -> set[int]:
        """Note that a message was sent to the loop; return its place if none after it was."""
        topic = self._topics[place]
        newest = self._newest[topic] = max(self._newest.get(topic, place), place)
        in_turn = {place} if place == newest else set[int]()
        self.sent |= in_turn
        return in_turn
