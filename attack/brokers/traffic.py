"""Note which messages pass between a broker and a loop by MQTT, and which ones are acknowledged."""

from __future__ import annotations

import time
from collections.abc import Mapping

from attack.brokers import mqtt_packets
from attack.brokers.mqtt_packets import Packets


class Traffic:
    """Reads the packets that a proxy passes on.

    Args:
        places: For each payload, the message's place in the plan.

    Attributes:
        delivered: Places of messages that were sent to the loop, with connection and moment.
        acknowledged: For each message that the loop has acknowledged, by its place: when.
        subscribed: Moments at which the broker confirmed the loop's subscription.
        n_foreign: Number of acknowledgements of what was not sent on the same connection.
        n_resumed: Number of connections at which the broker knew the session.
    """

    def __init__(self, places: Mapping[bytes, int]):
        self._places = places
        self._packets: dict[tuple[int, bool], Packets] = {}
        self._open: dict[tuple[int, int], int] = {}  # connection and packet -> message
        self.delivered: list[tuple[int, int, float]] = []
        self.acknowledged: dict[int, float] = {}
        self.subscribed: list[float] = []
        self.n_foreign = self.n_resumed = 0

    def watch(self, connection: int, is_up: bool, block: bytes) -> None:
        """Read the bytes that one side of a connection has sent."""
        packets = self._packets.setdefault((connection, is_up), Packets())
        now_s = time.monotonic()
        for kind, _, body in packets.take(block):
            if kind == mqtt_packets.PUBLISH:
                number, payload = mqtt_packets.message_of(body)
                place = self._places[payload]
                self._open[connection, number] = place
                self.delivered.append((place, connection, now_s))
            elif kind == mqtt_packets.PUBACK:
                key = connection, mqtt_packets.number_of(body)
                if key in self._open:
                    self.acknowledged.setdefault(self._open.pop(key), now_s)
                else:
                    self.n_foreign += 1
            elif kind == mqtt_packets.SUBACK:
                self.subscribed.append(now_s)
            elif kind == mqtt_packets.CONNACK:
                self.n_resumed += body[0] & 1
