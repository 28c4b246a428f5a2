"""The MQTT feed acknowledges a message on the connection on which it came, and on no other."""

from __future__ import annotations

import signal
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edgefold.runtime.sources.mqtt_feed import MqttFeed

pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")

from edgefold.runtime.brokers.mqtt_connection import loss, mqtt_address


class FakeClient:
    """Stands for paho's client, which calls the feed from its thread."""

    def __init__(self) -> None:
        self.acknowledged: list[int] = []

    def subscribe(self, topics: Any) -> None:
        pass

    def ack(self, packet: int, qos: int) -> None:
        self.acknowledged.append(packet)


class Connections:
    """Calls a feed as paho does."""

    def __init__(self, feed: MqttFeed):
        self.client = FakeClient()
        self._feed: Any = feed
        setattr(feed, "_client", self.client)  # noqa: B010  # its type is paho's

    def begin(self) -> None:
        flags, reason = SimpleNamespace(session_present=True), SimpleNamespace(is_failure=False)
        self._feed._connected(self.client, None, flags, reason, None)

    def end(self) -> None:
        self._feed._disconnected(self.client, None, None, SimpleNamespace(is_failure=True))

    def send(self, packet: int) -> None:
        message = SimpleNamespace(topic="a", payload=b"1", qos=1, mid=packet)
        self._feed._received(self.client, None, message)


@pytest.fixture
def feed() -> MqttFeed:
    return MqttFeed(mqtt_address("mqtt://h/a"), "name", True, 20, lambda sentence: None)


def test_messages_are_acknowledged_in_the_order_in_which_they_were_taken(feed: MqttFeed) -> None:
    connections = Connections(feed)
    connections.begin()
    for packet in (7, 8, 9):
        connections.send(packet)
        assert feed.take(1.0) is not None
    feed.acknowledge(2)
    assert connections.client.acknowledged == [7, 8]


def test_a_message_of_an_earlier_connection_is_never_acknowledged(feed: MqttFeed) -> None:
    """Until the broker has answered, a new connection is open for paho and not for the feed."""
    connections = Connections(feed)
    connections.begin()
    for packet in (7, 8, 9):
        connections.send(packet)
        assert feed.take(1.0) is not None
    connections.end()
    feed.acknowledge(1)  # paho may be connecting again now, and would send it then
    connections.begin()
    feed.acknowledge(1)
    connections.send(7)  # another message may have this number now
    message = feed.take(1.0)
    assert message is not None and message.begins
    feed.acknowledge(2)
    assert connections.client.acknowledged == [7]


def test_a_signal_at_the_end_of_a_wait_does_not_make_it_endless(feed: MqttFeed) -> None:
    wait_s, connections = 0.002, Connections(feed)
    connections.begin()
    rescue = threading.Timer(20.0, lambda: connections.send(1))
    rescue.start()
    former = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        for n in range(200):
            signal.setitimer(signal.ITIMER_REAL, wait_s * (0.8 + 0.3 * n / 200))
            assert feed.take(wait_s) is None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, former)
        rescue.cancel()


def test_a_session_that_ends_and_a_topic_without_acknowledgements_are_reported() -> None:
    told: list[str] = []
    feed = MqttFeed(mqtt_address("mqtt://h/a"), "name", True, 20, told.append)
    flags, reason = SimpleNamespace(session_present=False), SimpleNamespace(is_failure=False)
    connections, own = Connections(feed), cast("Any", feed)
    limits = SimpleNamespace(SessionExpiryInterval=86400)
    own._connected(connections.client, None, flags, reason, limits)
    own._subscribed(connections.client, None, 1, [SimpleNamespace(value=0)], None)
    assert feed.take(0.0) is None
    assert len(told) == 3
    assert "1 day" in told[1] and "quality of service 0" in told[2]


def test_messages_that_come_at_the_same_time_get_times_of_their_own(
    feed: MqttFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter((100.0, 100.0, 99.9995, 100.5, 50.0, 50.0))
    monkeypatch.setattr("edgefold.runtime.sources.mqtt_feed.time.time", lambda: next(times))
    connections, received = Connections(feed), []
    for packet in range(1, 7):
        connections.send(packet)
        message = feed.take(1.0)
        assert message is not None
        received.append(message.received)
    rounded = [round(1e6 * time_s) for time_s in received]
    first, rest = rounded[:4], rounded[4:]
    assert first == sorted({*first}) and rest == sorted({*rest})
    assert received[3] == 100.5
    assert received[4] == 50.0  # a clock that was set back is no burst


def test_a_connection_that_breaks_has_no_reason_of_the_broker() -> None:
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.reasoncodes import ReasonCode

    assert loss(ReasonCode(PacketTypes.DISCONNECT, "Unspecified error")).startswith("is away")
    assert loss(ReasonCode(PacketTypes.DISCONNECT, "Server shutting down")) == (
        "closed the connection: Server shutting down"
    )
