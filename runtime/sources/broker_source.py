"""Open the source of rows for the address of a message broker."""

from __future__ import annotations

from pathlib import Path

from edgefold.runtime.brokers.client_name import client_name
from edgefold.runtime.brokers.mqtt_connection import mqtt_address, require_filters
from edgefold.runtime.brokers.nats_connection import nats_address
from edgefold.runtime.sources.jetstream_feed import JetStreamFeed
from edgefold.runtime.sources.journal import Journal
from edgefold.runtime.sources.message_rows import MessageRows
from edgefold.runtime.sources.message_source import MessageSource
from edgefold.runtime.sources.mqtt_feed import MqttFeed
from edgefold.runtime.sources.row_source import SourceOptions


def open_mqtt(path: str, options: SourceOptions) -> MessageSource:
    """Open the topics of an MQTT broker; the connection is made when the first row is asked for.

    Raises:
        DataError: The address is not usable, or paho-mqtt is missing.
    """
    address, snapshot = mqtt_address(path), options.snapshot
    require_filters(address)
    feed = MqttFeed(
        *(address, client_name(snapshot), snapshot is not None, options.window, options.tell),
        options.retires,
    )
    journal = Journal(Path(f"{snapshot}.journal"), options.journal_bytes) if snapshot else None
    rows = MessageRows(options.keys, options.of_sensors, options.tell)
    return MessageSource(
        feed, rows, journal, max(1, options.window // 2), options.sync_s, options.stop, options.idle
    )


def open_jetstream(path: str, options: SourceOptions) -> MessageSource:
    """Open the subject of a JetStream log; the connection is made when the first row is asked for.

    Raises:
        DataError: The address is not usable, or nats-py is missing.
    """
    feed = JetStreamFeed(nats_address(path), options.tell)
    rows = MessageRows(options.keys, options.of_sensors, options.tell)
    return MessageSource(feed, rows, None, stop=options.stop, idle=options.idle)
