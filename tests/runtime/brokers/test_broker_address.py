"""Addresses of brokers are read as they are documented, and never show a password."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefold.runtime.brokers.broker_address import PASSWORD, parse_address
from edgefold.runtime.errors import DataError

PORTS = {"mqtt": 1883, "mqtts": 8883}
OPTIONS = ("ca", "password-file")


def test_an_address_is_read_in_all_its_parts() -> None:
    text = "mqtts://me:a%40b@broker.local:99/home/+/t,plant/%2C/#?ca=/etc/a%20b.pem"
    address = parse_address(text, PORTS, OPTIONS)
    assert (address.host, address.port, address.user) == ("broker.local", 99, "me")
    assert (address.password, address.options) == ("a@b", {"ca": "/etc/a b.pem"})
    assert address.topics == ("home/+/t", "plant/,/#")
    assert "a@b" not in f"{address} {address!r}"


def test_the_port_is_that_of_the_scheme() -> None:
    assert parse_address("mqtt://h/t", PORTS, OPTIONS).port == 1883
    assert str(parse_address("mqtts://[::1]/t", PORTS, OPTIONS)) == "mqtts://[::1]:8883/t"


@pytest.mark.parametrize(
    "text", ["mqtt://", "mqtt://h", "mqtt://h/", "mqtt:///t", "mqtt://h:x/t", "mqtt://h:0/t"]
)
def test_what_is_no_address_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(DataError, match="write it as mqtt://HOST:PORT/TOPIC"):
        parse_address(text.replace("//h", "//me:secret@h"), PORTS, OPTIONS)


def test_an_error_never_shows_the_password() -> None:
    with pytest.raises(DataError) as caught:
        parse_address("mqtt://me:secret@h/t?what=1", PORTS, OPTIONS)
    assert "secret" not in str(caught.value) and "password-file" in str(caught.value)


def test_a_password_may_be_in_a_file_or_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p").write_text("from file\n")
    monkeypatch.setenv(PASSWORD, "from environment")
    given = f"mqtt://me@h/t?password-file={tmp_path}/p"
    assert parse_address(given, PORTS, OPTIONS).password == "from file"
    assert parse_address("mqtt://me@h/t", PORTS, OPTIONS).password == "from environment"
    with pytest.raises(DataError, match="cannot be read"):
        parse_address("mqtt://me@h/t?password-file=/nowhere", PORTS, OPTIONS)
