"""Connect to NATS servers from addresses. The extra `nats` installs nats-py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgefold.runtime.brokers.broker_address import BrokerAddress, parse_address, tls_context
from edgefold.runtime.errors import DataError, Remedy, install_extra

if TYPE_CHECKING:
    from nats.aio.client import Client

PORTS = {"nats": 4222, "nats+tls": 4222}
OPTIONS = ("ca", "cert", "creds", "from", "insecure", "key", "password-file", "stream")
CONNECT_S = 5


def nats_address(text: str) -> BrokerAddress:
    """Read an address with the scheme nats or nats+tls.

    Raises:
        DataError: It is not an address, or nats-py is missing.
    """
    address = parse_address(text, PORTS, OPTIONS)
    if address.options.get("from", "new") != "new":
        raise DataError(f"{address}: the option from has the value new, or is left out.")
    try:
        import nats  # noqa: F401  # only whether it is there
    except ImportError:
        raise DataError(
            f"NATS needs the package nats-py, which is not installed: {install_extra('nats')}.",
            Remedy("connects to NATS servers", install_extra("nats")),
        ) from None
    return address


def options_of(address: BrokerAddress) -> dict[str, Any]:
    """Return the options of `nats.connect` for an address.

    Raises:
        DataError: A file of certificates or credentials cannot be used.
    """
    options = address.options
    given: dict[str, Any] = {}
    if address.user:
        given |= {"user": address.user, "password": address.password}
    if "creds" in options:
        given["user_credentials"] = options["creds"]
    if address.scheme == "nats+tls":
        given["tls"] = tls_context(address)
    return given


async def connect(address: BrokerAddress, options: dict[str, Any]) -> Client:
    """Connect once; a connection that is lost later is not made again by itself.

    Raises:
        DataError: The server refuses the user.
        nats.errors.Error, OSError: The server is not reached.
    """
    import nats
    from nats.errors import Error

    faults: list[Exception] = []

    async def on_error(error: Exception) -> None:
        faults.append(error)

    host = f"[{address.host}]" if ":" in address.host else address.host
    scheme = "tls" if address.scheme == "nats+tls" else "nats"
    try:
        return await nats.connect(
            f"{scheme}://{host}:{address.port}",
            allow_reconnect=False,
            connect_timeout=CONNECT_S,
            ping_interval=10,
            max_outstanding_pings=2,
            error_cb=on_error,
            **options,
        )
    except (Error, OSError) as error:
        text = " ".join(str(fault) for fault in (*faults, error))
        if "uthorization" in text or "uthentication" in text:
            raise DataError(f"the server of {address} refuses the user: {text}.") from None
        raise
