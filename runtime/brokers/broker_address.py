"""Read the address of a broker and its topics, such as mqtts://user@host:8883/home/+/temperature.

    SCHEME://[USER[:PASSWORD]@]HOST[:PORT]/TOPIC[,TOPIC...][?OPTION=VALUE&...]

A password in a command is seen by every user of the machine, so it may also come from the variable
EDGEFOLD_BROKER_PASSWORD or from the file of the option password-file.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from edgefold.runtime.errors import DataError

PASSWORD = "EDGEFOLD_BROKER_PASSWORD"


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Holds the parts of an address.

    Attributes:
        scheme: The part before ://.
        host: Name or address of the broker.
        port: Its port.
        topics: The topics, with the broker's own wildcards.
        user: The user; "" for none.
        password: The password; "" for none.
        options: The options after ?, by name.
    """

    scheme: str
    host: str
    port: int
    topics: tuple[str, ...]
    user: str = ""
    password: str = field(default="", repr=False)
    options: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}/{','.join(self.topics)}"


def parse_address(
    text: str, ports: Mapping[str, int], known: Sequence[str], most_topics: int = 100
) -> BrokerAddress:
    """Read an address.

    Args:
        text: The address.
        ports: The port of each scheme where the address names none.
        known: The names of all options.
        most_topics: The largest number of topics.

    Raises:
        DataError: The address is not as the module says; the message never shows a password.
    """
    scheme, _, rest = text.partition("://")
    rest, _, query = rest.partition("?")
    authority, _, path = rest.partition("/")
    credentials, _, place = authority.rpartition("@")
    form = f"{scheme}://HOST:PORT/TOPIC"
    shown = f"{scheme}://{place}/{path}"
    host, port = _host_and_port(place, ports[scheme], shown, form)
    topics = tuple(unquote(topic) for topic in path.split(",") if topic)
    if not 1 <= len(topics) <= most_topics:
        raise DataError(f"{shown} names {len(topics)} topics; write it as {form}.")
    options = {}
    for part in query.split("&") if query else ():
        name, _, value = part.partition("=")
        if name not in known:
            raise DataError(
                f"{shown} has no option {name!r}; the options are {', '.join(sorted(known))}."
            )
        options[name] = unquote(value)
    user, _, password = credentials.partition(":")
    return BrokerAddress(
        scheme, host, port, topics, unquote(user), _password(unquote(password), options), options
    )


def tls_context(address: BrokerAddress) -> ssl.SSLContext:
    """Return the settings of TLS for the options ca, cert, key and insecure of an address.

    Raises:
        DataError: A file of certificates or keys cannot be used.
    """
    options = address.options
    files = [options[name] for name in ("ca", "cert", "key") if name in options]
    try:
        context = ssl.create_default_context(cafile=options.get("ca"))
        if "cert" in options:
            context.load_cert_chain(options["cert"], options.get("key"))
    except (OSError, ssl.SSLError) as error:
        raise DataError(
            f"the files of TLS ({', '.join(files)}) of {address} cannot be used: {error}."
        ) from None
    if options.get("insecure"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _host_and_port(place: str, default: int, shown: str, form: str) -> tuple[str, int]:
    if place.startswith("["):  # an IPv6 address
        host, _, port = place[1:].partition("]")
        port = port.removeprefix(":")
    else:
        host, _, port = place.partition(":")
    if not host or (port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536)):
        raise DataError(f"{shown} is not the address of a broker; write it as {form}.")
    return host, int(port or default)


def _password(given: str, options: Mapping[str, str]) -> str:
    if given:
        return given
    if path := options.get("password-file"):
        try:
            return Path(path).read_text().strip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"the password file {path} cannot be read ({error}).") from None
    return os.environ.get(PASSWORD, "")
