"""Publish the rows of a loop by MQTT 5 with quality of service 1, the key as a user property."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgefold.runtime.brokers.broker_address import BrokerAddress
from edgefold.runtime.brokers.client_name import client_name
from edgefold.runtime.brokers.mqtt_connection import (
    FIRST_REFUSAL,
    KEEPALIVE_S,
    disconnect,
    loss,
    mqtt_address,
    mqtt_client,
    reason_of_failure,
    refusal,
)
from edgefold.runtime.sinks.acknowledged_sink import AcknowledgedSink
from edgefold.runtime.sinks.row_sink import SinkOptions
from edgefold.runtime.sinks.topic_rows import TopicRow, require_topic, safe_topic

if TYPE_CHECKING:
    from paho.mqtt.client import Client


def open_mqtt(path: str, options: SinkOptions) -> MqttSink:
    """Open a topic as an output; the connection is made with the first row.

    Raises:
        DataError: The address is not usable, or paho-mqtt is missing.
    """
    address = mqtt_address(path, ("retain",))
    require_topic(address, "+#")
    return MqttSink(address, options)


class MqttSink(AcknowledgedSink):
    """Publishes rows below one topic, as TOPIC/SERIES, or to TOPIC for a single sensor.

    Args:
        address: The broker and the topic.
        options: What the sink must know of the loop.
    """

    def __init__(self, address: BrokerAddress, options: SinkOptions):
        super().__init__(str(address), options)
        self._address = address
        # A client of another name than that of the input, whose session it would take over.
        name = f"{client_name(options.snapshot)}-{options.option.strip('-')}"
        self._client = mqtt_client(address, name)
        self._retains = address.options.get("retain", "0") != "0"

    def connect(self) -> None:
        client = self._client
        client.on_connect, client.on_connect_fail = self._connected, self._failed
        client.on_publish, client.on_disconnect = self._published, self._disconnected
        client.max_queued_messages_set(0)
        client.connect_async(self._address.host, self._address.port, keepalive=KEEPALIVE_S)
        client.loop_start()

    def _connected(self, client: Client, data: Any, flags: Any, reason: Any, *_: Any) -> None:
        if reason.is_failure:
            text, may_help = refusal(reason, self._address)
            self.report(f"refuses the connection: {text}", not may_help)
        else:
            self.report("is connected")

    def _failed(self, client: Client, data: Any) -> None:
        text, may_help = reason_of_failure()
        self.report(f"cannot be reached: {text}", not may_help)

    def _disconnected(self, client: Client, data: Any, flags: Any, reason: Any, *_: Any) -> None:
        if reason.is_failure:
            self.report(loss(reason))

    def _published(self, client: Client, data: Any, mid: int, reason: Any, *_: Any) -> None:
        if reason.value >= FIRST_REFUSAL:
            self.report(f"refuses a row: {reason}", is_final=True)
        self.acknowledged()

    def send(self, row: TopicRow) -> None:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.UserProperty = [("key", row.key)]
        topic = safe_topic(self._address.topics[0], row.series, "/", "[+#\0]")
        self._client.publish(topic, row.payload, 1, self._retains, properties)

    def disconnect(self) -> None:
        disconnect(self._client)
