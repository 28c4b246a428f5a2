"""State what a broker may lose that it has acknowledged, and the setting that prevents it.

A loss is found in mosquitto's file, in a broker's answer to CONNECT, or in the settings of a log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from edgefold.cli.doctor.jetstream_log import JetStreamLog
from edgefold.cli.doctor.mosquitto_settings import MosquittoSettings
from edgefold.cli.doctor.mqtt_broker import MqttLimits
from edgefold.cli.text.numbers import format_bytes
from edgefold.runtime.series.durations import duration
from edgefold.runtime.sources.message import MOST_BYTES

LEAST_QUEUE = 100_000
"""A queue of at least so many messages is not reported; at one a second it is full after a day."""
MOST_SAVED_S = 10.0
"""A broker that saves at least so often is not reported at the start of a loop."""
AWAY = "while the loop is away"
POWER_CUT = "at a power cut or a kill of the broker"
RESTART = "at any restart of the broker"


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """Describes messages that a broker may lose though it has acknowledged them to their sender."""

    event: Annotated[str, "When it happens."]
    lost: Annotated[str, "The messages that are lost then, and why."]
    line: Annotated[str | None, "The setting or command that prevents it; null where none does."]

    def __str__(self) -> str:
        return f"{self.event}: {self.lost}"


def losses_of_mosquitto(settings: MosquittoSettings) -> Iterator[Loss]:
    """Yield what the settings of a mosquitto let it lose, the worst first."""
    yield from losses_at_a_stop(settings)
    if 0 < settings.max_queued_messages < LEAST_QUEUE:
        yield Loss(
            event=AWAY,
            lost=f"all beyond the first {settings.max_queued_messages:,} that wait, as "
            f"max_queued_messages is {settings.max_queued_messages}",
            line=f"max_queued_messages {LEAST_QUEUE}",
        )
    if settings.max_queued_bytes:
        yield Loss(
            event=AWAY,
            lost=f"all beyond the first {format_bytes(settings.max_queued_bytes)} that wait, as "
            f"max_queued_bytes is {settings.max_queued_bytes}",
            line="max_queued_bytes 0",
        )
    if settings.persistent_client_expiration:
        yield Loss(
            event=f"if the loop is away for longer than {settings.persistent_client_expiration}",
            lost="all that wait, as persistent_client_expiration ends its session",
            line="# persistent_client_expiration, which is left out then",
        )
    if not settings.queue_qos0_messages:
        yield Loss(
            event=AWAY,
            lost="those that are published with quality of service 0, which do not wait; publish "
            "with 1, or let them wait",
            line="queue_qos0_messages true",
        )
    if 0 < settings.message_size_limit < MOST_BYTES:
        yield Loss(
            event="always",
            lost=f"those of more than {settings.message_size_limit:,} bytes, as message_size_limit "
            "says",
            line=f"message_size_limit {MOST_BYTES}",
        )


def losses_at_a_stop(settings: MosquittoSettings) -> Iterator[Loss]:
    """Yield what a mosquitto loses when it ends, by the worst of its settings."""
    interval = settings.autosave_interval
    if not settings.persistence:
        yield Loss(
            event=RESTART,
            lost="all that wait, and the loop's session, as persistence is false",
            line="persistence true",
        )
    if interval == 0:
        yield Loss(
            event=POWER_CUT,
            lost="all since its start, as autosave_interval is 0",
            line="autosave_interval 1",
        )
    elif settings.autosave_on_changes and interval > 1:
        yield Loss(
            event=POWER_CUT,
            lost=f"the last {interval:,.0f}, as autosave_interval counts {interval:g} changes",
            line="autosave_interval 1",
        )
    elif not settings.autosave_on_changes and (settings.persistence and interval > 1):
        yield Loss(
            event=POWER_CUT,
            lost=f"those of the last {interval:,.0f} s, as autosave_interval is {interval:g}",
            line="autosave_interval 1",
        )


def is_grave(settings: MosquittoSettings) -> bool:
    """Return whether a loop at its start should speak of what a mosquitto loses when it ends."""
    return (
        not settings.persistence
        or settings.autosave_interval == 0
        or settings.autosave_interval > MOST_SAVED_S
    )


def losses_of_mqtt(limits: MqttLimits) -> Iterator[Loss]:
    """Yield what the answer to CONNECT and to SUBSCRIBE says that a broker loses."""
    if limits.session_expiry_s is not None:
        yield Loss(
            event=f"if the loop is away for longer than {duration(limits.session_expiry_s)}",
            lost="all that wait, as the broker ends the session then",
            line=None,
        )
    for topic, granted in limits.topics.items():
        if granted == "quality of service 0":
            yield Loss(
                event="always",
                lost=f"those of {topic} that do not arrive at once: it is granted with quality of "
                "service 0, and nothing is sent again",
                line=None,
            )


def losses_of_jetstream(log: JetStreamLog) -> Iterator[Loss]:
    """Yield what a log's settings let it lose, the worst first."""
    if log.storage == "memory":
        yield Loss(
            event=RESTART.replace("broker", "server"),
            lost=f"all, as the stream {log.stream} is in memory",
            line="nats stream add NAME --storage file, as a stream cannot change its storage",
        )
    if log.retention == "interest":
        yield Loss(
            event=AWAY,
            lost=f"all, as the stream {log.stream} keeps a message only while a consumer wants it, "
            "and that of the loop goes with it",
            line="nats stream add NAME --retention limits, as a stream cannot leave interest",
        )
    if log.retention == "workqueue":
        yield Loss(
            event="always",
            lost=f"all, as the stream {log.stream} is a work queue, which gives its messages only "
            "to a consumer that acknowledges them",
            line="nats stream add NAME --retention limits",
        )
    if log.storage == "file" and log.sync_interval != "always" and log.replicas == 1:
        interval = log.sync_interval or "sync_interval (2m by default)"
        yield Loss(
            event="at a power cut of the server",
            lost=f"those of the last {interval}, which are not forced to the disk yet",
            line='jetstream { sync_interval: "always" }, from nats-server 2.10 on',
        )
    if log.max_age_s is not None:
        yield Loss(
            event=f"if the loop is away for longer than {duration(log.max_age_s)}",
            lost="those that are older, as the stream's max_age says",
            line=f"nats stream edit {log.stream} --max-age=30d",
        )
    bounds = [f"{log.max_messages:,} messages"] if log.max_messages else []
    bounds += [format_bytes(log.max_bytes)] if log.max_bytes else []
    if bounds and log.discard == "old":
        yield Loss(
            event=AWAY,
            lost=f"the oldest beyond {' or '.join(bounds)}",
            line=f"nats stream edit {log.stream} --max-msgs=-1 --max-bytes=-1",
        )
