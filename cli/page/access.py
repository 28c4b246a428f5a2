"""Decide who may read the page: whoever is on this machine, or whoever has the token.

    loopback, no token     requests whose Host is this machine's; another Host may be a foreign page
                           that had its name resolved to 127.0.0.1 (DNS rebinding)
    token                  /?token=T sets a cookie and leads to /, so that the token does not stay
                           in the address; every request needs the cookie

The cookie is derived from the token: it holds over restarts and does not show the token.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
from collections.abc import Mapping
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, quote, urlsplit

from edgefold.runtime.errors import DataError

LEAST_LENGTH, MOST_LENGTH = 16, 200
COOKIE_S = 400 * 86400
OWN_NAMES = ("localhost", "127.0.0.1", "[::1]")


class PageAddress(NamedTuple):
    """Holds where the page is served: a host's name or address, and a port (0 takes a free one)."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Return whether only this machine reaches the host."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def url(self) -> str:
        """Return the address for a browser, without a token."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"


def read_token(path: Path) -> str:
    """Return the token in the first line of a file.

    Raises:
        DataError: The file cannot be read, or its first line is no token.
    """
    try:
        token = path.read_text().partition("\n")[0].strip()
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read the token in {path} ({error}).") from None
    if not re.fullmatch(rf"[!-~]{{{LEAST_LENGTH},{MOST_LENGTH}}}", token):
        raise DataError(
            f"the first line of {path} is not a token of {LEAST_LENGTH} to {MOST_LENGTH} printable "
            "characters without spaces; make one with `head -c 24 /dev/urandom | base64`."
        )
    return token


def new_token() -> str:
    """Return a token of 192 random bits."""
    return secrets.token_urlsafe(24)


class PageAccess:
    """Decides which requests are served.

    Args:
        token: The token; "" serves whoever reaches the page under a name of this machine.
        host: The host under which the page is served.
    """

    def __init__(self, token: str, host: str = "127.0.0.1"):
        self._token, self._own = token, {*OWN_NAMES, f"[{host}]" if ":" in host else host}
        self._value = hmac.new(token.encode(), b"edgefold page", sha256).hexdigest()

    def cookie_for(self, path: str, port: int) -> str | None:
        """Return the cookie to set if a request's path holds the right token, else None."""
        given = parse_qs(urlsplit(path).query).get("token", [""])[0]
        if not self._token or not _is_same(given, self._token):
            return None
        return f"{_name(port)}={self._value}; Max-Age={COOKIE_S}; Path=/; HttpOnly; SameSite=Lax"

    def allows(self, headers: Mapping[str, str], port: int) -> bool:
        """Return whether a request with these headers is served; `port` is the page's own."""
        if headers.get("Sec-Fetch-Site", "none") == "cross-site" and (
            headers.get("Sec-Fetch-Mode") != "navigate"
        ):
            return False
        if not self._token:
            host = headers.get("Host", "")
            return re.sub(r":\d+$", "", host).lower() in self._own
        try:
            cookies = SimpleCookie(headers.get("Cookie", ""))
        except CookieError:
            return False
        found = cookies.get(_name(port))
        return found is not None and _is_same(found.value, self._value)

    def url(self, address: PageAddress) -> str:
        """Return the address with the token, if there is one."""
        return address.url + (f"?token={quote(self._token, safe='')}" if self._token else "")


def _name(port: int) -> str:
    # Browsers send the cookies of all ports of a host.
    return f"edgefold-page-{port}"


def _is_same(given: str, right: str) -> bool:
    """Compare two texts in a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), right.encode())
