"""Refuse a loop that would receive the messages that it publishes itself."""

from __future__ import annotations

from collections.abc import Sequence

from edgefold.runtime.brokers.broker_address import BrokerAddress
from edgefold.runtime.brokers.mqtt_connection import PORTS, mqtt_address
from edgefold.runtime.brokers.nats_connection import nats_address
from edgefold.runtime.errors import OutputError

WILDCARDS = {"mqtt": ("/", "+", "#"), "nats": (".", "*", ">")}
"""Holds for each protocol the sign between parts, and what stands for one part and for the rest."""


def refuse_own_messages(source: str, outputs: Sequence[tuple[str, str | None]]) -> None:
    """Raise OutputError if an output publishes what the input receives.

    Args:
        source: The input's name.
        outputs: Pairs of an option and the output's name, or None.

    Raises:
        OutputError: A topic of the input covers one below an output's topic.
        DataError: An address cannot be used.
    """
    taken = _address(source)
    for option, name in outputs if taken else ():
        given = _address(name or "")
        if taken is None or given is None or _server(taken) != _server(given):
            continue
        signs = WILDCARDS[_protocol(taken)]
        for wanted in taken.topics:
            if _covers(wanted, given.topics[0], signs):
                raise OutputError(
                    f"{option} publishes below {given.topics[0]}, and --input receives {wanted}: "
                    "the loop would learn from its own messages. Choose another topic."
                )


def _protocol(address: BrokerAddress) -> str:
    return "mqtt" if address.scheme in PORTS else "nats"


def _server(address: BrokerAddress) -> tuple[str, str, int]:
    return _protocol(address), address.host.lower(), address.port


def _address(name: str) -> BrokerAddress | None:
    if name.startswith(("mqtt://", "mqtts://")):
        return mqtt_address(name, ("retain",))
    return nats_address(name) if name.startswith(("nats://", "nats+tls://")) else None


def _covers(wanted: str, prefix: str, signs: tuple[str, str, str]) -> bool:
    """Return whether a topic with wildcards covers a prefix, or any topic below it."""
    separator, one, rest = signs
    parts, own = wanted.split(separator), prefix.split(separator)
    for part, fixed in zip(parts, own, strict=False):
        if part == rest:
            return True
        if part not in (one, fixed):
            return False
    return len(parts) >= len(own)
