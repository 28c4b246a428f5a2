"""Examine the broker of an input: what it grants, what it keeps, and what it may lose.

Nothing is learned or acknowledged, and the session of a loop is not touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from edgefold.cli.doctor.broker_losses import (
    Loss,
    losses_of_jetstream,
    losses_of_mosquitto,
    losses_of_mqtt,
)
from edgefold.cli.doctor.jetstream_log import JetStreamLog, ask_jetstream
from edgefold.cli.doctor.local_broker import is_local
from edgefold.cli.doctor.mosquitto_settings import (
    MosquittoSettings,
    find_settings,
    read_settings,
)
from edgefold.cli.doctor.mqtt_broker import MqttLimits, ask_mqtt
from edgefold.runtime.brokers.mqtt_connection import mqtt_address, require_filters
from edgefold.runtime.brokers.nats_connection import nats_address
from edgefold.runtime.errors import DataError, Remedy
from edgefold.runtime.record_fields import MISSING
from edgefold.runtime.sources.row_source import prefix_of

NOWHERE = Path("/nowhere")


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokerReport:
    """Describes the broker of an input, and what it may lose."""

    name: Annotated[str, "The broker and its topics, without a password."]
    answers: Annotated[bool, "Whether it could be asked."]
    reason: Annotated[str | None, "Why it could not."]
    is_local: Annotated[bool, "Whether its host is this machine."]
    mqtt: MqttLimits = MISSING
    mosquitto: MosquittoSettings = MISSING
    jetstream: JetStreamLog = MISSING
    losses: Annotated[list[Loss], "What it may lose that it has acknowledged."]


def examine_broker(url: str, config: Path | None = None, root: Path = Path("/")) -> BrokerReport:
    """Ask the broker of an input, and read its configuration where it runs on this machine.

    Args:
        url: The input, as `edgefold run` takes it.
        config: A configuration of mosquitto; None looks for that of a mosquitto of this machine.
        root: The folder that holds etc and proc.

    Raises:
        DataError: The address or the configuration cannot be used, or a package is missing.
    """
    prefix = prefix_of(url)
    if not prefix:
        raise DataError(f"{url} names no broker; write it as mqtt://HOST/TOPIC or nats://...")
    if prefix.startswith("nats"):
        return _examine_jetstream(url, config, root)
    address = mqtt_address(url)
    require_filters(address)
    is_here = is_local(address.host)
    settings = read_settings(config) if config else None
    if settings is None and is_here:
        settings = find_settings(root, address.port)
    answer = ask_mqtt(address)
    limits = answer if isinstance(answer, MqttLimits) else None
    losses = [
        *(losses_of_mosquitto(settings) if settings else ()),
        *(losses_of_mqtt(limits) if limits else ()),
    ]
    return BrokerReport(
        name=str(address),
        answers=limits is not None,
        reason=None if isinstance(answer, MqttLimits) else answer,
        is_local=is_here,
        mqtt=limits or MISSING,
        mosquitto=settings or MISSING,
        losses=losses,
    )


def _examine_jetstream(url: str, config: Path | None, root: Path) -> BrokerReport:
    address = nats_address(url)
    if config is not None:
        raise DataError(f"{address}: a configuration is read of mosquitto only.")
    is_here = is_local(address.host)
    answer = ask_jetstream(address, root if is_here else NOWHERE)
    log = answer if isinstance(answer, JetStreamLog) else None
    return BrokerReport(
        name=str(address),
        answers=log is not None,
        reason=None if isinstance(answer, JetStreamLog) else answer,
        is_local=is_here,
        jetstream=log or MISSING,
        losses=[*losses_of_jetstream(log)] if log else [],
    )


def remedies_of(report: BrokerReport) -> list[Remedy]:
    """Return a piece of advice for each loss, with the line that prevents it."""
    return [Remedy(str(loss), loss.line) for loss in report.losses]
