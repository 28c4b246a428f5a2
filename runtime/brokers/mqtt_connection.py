"""Make MQTT 5 clients from addresses, and explain in words why a broker cannot be reached.

paho-mqtt's own thread holds the connection and connects again after it was lost; delays double from
1 s to `LONGEST_DELAY_S`. The extra `mqtt` installs it.
"""

from __future__ import annotations

import ssl
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgefold.runtime.brokers.broker_address import (
    PASSWORD,
    BrokerAddress,
    parse_address,
    tls_context,
)
from edgefold.runtime.errors import DataError, Remedy, install_extra

if TYPE_CHECKING:
    from paho.mqtt.client import Client
    from paho.mqtt.reasoncodes import ReasonCode

PORTS = {"mqtt": 1883, "mqtts": 8883}
CONNECTION_OPTIONS = ("ca", "cert", "client-id", "insecure", "key", "password-file")
LONGEST_DELAY_S = 30
KEEPALIVE_S = 60
NO_EXPIRY = 0xFFFFFFFF
"""A session with this expiry is kept for ever."""
FIRST_REFUSAL = 0x80
"""Reason codes from this one on are refusals."""
FINAL = {"Bad user name or password", "Banned", "Client identifier not valid", "Not authorized",
         "Unsupported protocol version", "Server moved"}  # fmt: skip
"""Reasons of a broker that waiting does not change."""
UNSPECIFIED = "Unspecified error"
OF_THE_USER = {"Bad user name or password", "Not authorized"}


def mqtt_address(text: str, options: tuple[str, ...] = ()) -> BrokerAddress:
    """Read an address with the scheme mqtt or mqtts; `options` are known besides the common ones.

    Raises:
        DataError: It is not an address, or names an option that is not known.
    """
    return parse_address(text, PORTS, (*CONNECTION_OPTIONS, *options))


def require_filters(address: BrokerAddress) -> None:
    """Raise DataError if a topic has a wildcard where MQTT allows none."""
    for topic in address.topics:
        *parts, last = topic.split("/")
        bad = next((p for p in parts if "#" in p or ("+" in p and p != "+")), "")
        if ("#" in last and last != "#") or ("+" in last and last != "+"):
            bad = last
        if bad:
            raise DataError(
                f"{topic} cannot be subscribed to: + stands for one whole part, # for all parts at "
                f"the end, and {bad} is neither."
            )


def require_paho() -> None:
    """Raise DataError if paho-mqtt is not installed."""
    try:
        import paho.mqtt.client  # noqa: F401  # only whether it is there
    except ImportError:
        raise DataError(
            f"MQTT needs the package paho-mqtt, which is not installed: {install_extra('mqtt')}.",
            Remedy("connects to MQTT brokers", install_extra("mqtt")),
        ) from None


def mqtt_client(address: BrokerAddress, client_id: str) -> Client:
    """Make a client that is not connected yet, with manual acknowledgements.

    Args:
        address: The broker.
        client_id: The client's name at the broker, unless the address names one.

    Raises:
        DataError: paho-mqtt is missing, or a file of certificates or keys cannot be used.
    """
    require_paho()
    from paho.mqtt.client import Client, MQTTv5
    from paho.mqtt.enums import CallbackAPIVersion

    options = address.options
    client = Client(
        CallbackAPIVersion.VERSION2,
        client_id=options.get("client-id", client_id),
        protocol=MQTTv5,
        manual_ack=True,
    )
    client.reconnect_delay_set(1, LONGEST_DELAY_S)
    if address.user:
        client.username_pw_set(address.user, address.password or None)
    if address.scheme == "mqtts":
        client.tls_set_context(tls_context(address))
    return client


def subscribe(client: Client, topics: Sequence[str]) -> tuple[Any, int | None]:
    """Subscribe to topics with quality of service 1; return paho's result and the number.

    Retained messages are the last state and not news: they are not sent.
    """
    from paho.mqtt.subscribeoptions import SubscribeOptions

    options = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND)
    return client.subscribe([(topic, options) for topic in topics])


def disconnect(client: Client, ends_session: bool = False) -> None:
    """Disconnect a client, and end its thread.

    Args:
        client: The client.
        ends_session: Whether the broker keeps nothing under the client's name.
    """
    properties = None
    if ends_session:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = Properties(PacketTypes.DISCONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = 0
    client.disconnect(properties=properties)
    client.loop_stop()


def reason_of_failure() -> tuple[str, bool]:
    """Return why the connection that is being made failed, and whether waiting can help.

    It is called from paho's `on_connect_fail`, while the error is being handled.
    """
    error = sys.exc_info()[1]
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})", False
    if isinstance(error, OSError):
        return error.strerror or str(error), True
    return str(error) or "the connection was refused", True


def loss(reason: ReasonCode) -> str:
    """Return how a connection ended, for a sentence that begins with the broker.

    paho-mqtt itself gives the reason "Unspecified error" where the connection broke without one.
    """
    if str(reason) == UNSPECIFIED:
        return "is away: the connection broke"
    return f"closed the connection: {reason}"


def refusal(reason: ReasonCode, address: BrokerAddress) -> tuple[str, bool]:
    """Return why a broker refused a connection, and whether waiting can help."""
    text = str(reason)
    if text in OF_THE_USER:
        given = "a password" if address.password else "no password"
        whose = f"the user {address.user} with {given}" if address.user else "no user"
        text += f" ({whose} was given; see {PASSWORD})"
    return text, str(reason) not in FINAL
