"""Ask an MQTT broker what it grants: one connection, and one subscription that receives nothing.

    CONNECT ──> CONNACK (limits) ──> SUBSCRIBE ──> SUBACK (quality of service of each topic)
            ──> $SYS/broker/version, where the broker has it ──> DISCONNECT, which ends the session

The loop's own session is not touched: the client has a name of its own.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from edgefold.runtime.brokers.broker_address import BrokerAddress
from edgefold.runtime.brokers.client_name import client_name
from edgefold.runtime.brokers.mqtt_connection import (
    FIRST_REFUSAL,
    NO_EXPIRY,
    disconnect,
    mqtt_client,
    reason_of_failure,
    refusal,
    subscribe,
)
from edgefold.runtime.record_fields import Bytes, Count, Seconds

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage

ANSWER_S = 10.0
VERSION_S = 2.0
VERSION = "$SYS/broker/version"
WINDOW = 65535


@dataclass(frozen=True, kw_only=True, slots=True)
class MqttLimits:
    """Describes what an MQTT broker grants a client, as its answer to CONNECT says."""

    version: Annotated[str | None, "Its name and version, where it publishes them."]
    receive_maximum: Annotated[
        Count, "Messages that a client may send it without an acknowledgement."
    ]
    maximum_qos: Annotated[Count, "The highest quality of service."]
    session_expiry_s: Annotated[
        Seconds | None, "Time that it keeps the session of a client that is away; null is for ever."
    ]
    maximum_packet_bytes: Annotated[Bytes | None, "The largest packet; null names no limit."]
    retain: Annotated[bool, "Whether it keeps retained messages."]
    wildcard_subscriptions: Annotated[bool, "Whether topics may hold + and #."]
    shared_subscriptions: Annotated[bool, "Whether clients may share a subscription."]
    topics: Annotated[
        dict[str, Annotated[str, "Quality of service, or why it is refused."]],
        "Each topic of the address.",
    ]


class _Dialogue:
    """Holds what one connection has answered; paho's thread changes it."""

    def __init__(self, address: BrokerAddress):
        self._address = address
        self._asked: int | None = 0  # the number of the subscription to the address's topics
        self.properties: Any = None
        self.granted: list[Any] = []
        self.version: str | None = None
        self.reason = "it does not answer"
        self.has_granted, self.has_version = threading.Event(), threading.Event()
        self.is_over = threading.Event()

    def connected(
        self, client: Client, data: Any, flags: Any, reason: Any, properties: Any
    ) -> None:
        if reason.is_failure:
            self.reason, _ = refusal(reason, self._address)
            self.reason = f"it refuses the connection: {self.reason}"
            return self.is_over.set()
        self.properties = properties
        _, self._asked = subscribe(client, self._address.topics)
        client.subscribe(VERSION, 0)

    def failed(self, client: Client, data: Any) -> None:
        self.reason, _ = reason_of_failure()
        self.is_over.set()

    def disconnected(self, client: Client, data: Any, flags: Any, reason: Any, *_: Any) -> None:
        self.is_over.set()

    def subscribed(
        self, client: Client, data: Any, mid: int, reasons: Any, properties: Any
    ) -> None:
        if mid == self._asked:
            self.granted = [*reasons]
            self.has_granted.set()
        elif reasons[0].value >= FIRST_REFUSAL:
            self.has_version.set()

    def received(self, client: Client, data: Any, message: MQTTMessage) -> None:
        if message.topic == VERSION:
            self.version = message.payload.decode(errors="replace")
            self.has_version.set()


def ask_mqtt(address: BrokerAddress) -> MqttLimits | str:
    """Ask a broker what it grants; return a sentence on the reason where it cannot be asked.

    Raises:
        DataError: paho-mqtt is missing, or a file of certificates or keys cannot be used.
    """
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    client, dialogue = mqtt_client(address, client_name(None)), _Dialogue(address)
    client.on_connect, client.on_connect_fail = dialogue.connected, dialogue.failed
    client.on_subscribe, client.on_disconnect = dialogue.subscribed, dialogue.disconnected
    client.on_message = dialogue.received
    asked = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    asked.SessionExpiryInterval = NO_EXPIRY  # as the loop does, so that the answer is of its kind
    client.connect_async(address.host, address.port, clean_start=True, properties=asked)
    client.loop_start()
    try:
        step_s, waited_s = 0.05, 0.0
        while waited_s < ANSWER_S and not dialogue.is_over.is_set():
            if dialogue.has_granted.wait(step_s):
                dialogue.has_version.wait(VERSION_S)
                return _limits(dialogue, address)
            waited_s += step_s
        return dialogue.reason
    finally:
        disconnect(client, ends_session=True)


def _limits(dialogue: _Dialogue, address: BrokerAddress) -> MqttLimits:
    def given(name: str, default: Any) -> Any:
        return getattr(dialogue.properties, name, default)

    expiry = given("SessionExpiryInterval", NO_EXPIRY)
    return MqttLimits(
        version=dialogue.version,
        receive_maximum=given("ReceiveMaximum", WINDOW),
        maximum_qos=given("MaximumQoS", 2),
        session_expiry_s=None if expiry == NO_EXPIRY else float(expiry),
        maximum_packet_bytes=given("MaximumPacketSize", None),
        retain=bool(given("RetainAvailable", 1)),
        wildcard_subscriptions=bool(given("WildcardSubscriptionAvailable", 1)),
        shared_subscriptions=bool(given("SharedSubscriptionAvailable", 1)),
        topics={
            topic: f"refused: {reason}"
            if reason.value >= FIRST_REFUSAL
            else f"quality of service {reason.value}"
            for topic, reason in zip(address.topics, dialogue.granted, strict=False)
        },
    )
