"""Why a broker refuses a connection, in words."""

from __future__ import annotations

import pytest

from edgefold.runtime.brokers.mqtt_connection import mqtt_address, refusal


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ("", "(no user was given;"),
        ("me@", "(the user me with no password was given;"),
        ("me:secret@", "(the user me with a password was given;"),
    ],
)
def test_a_refusal_says_who_asked(user: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGEFOLD_BROKER_PASSWORD", raising=False)
    codes = pytest.importorskip("paho.mqtt.reasoncodes", reason="paho-mqtt is not installed")
    from paho.mqtt.packettypes import PacketTypes

    reason = codes.ReasonCode(PacketTypes.CONNACK, "Not authorized")
    text, may_help = refusal(reason, mqtt_address(f"mqtt://{user}hub/home"))
    assert words in text and "secret" not in text and not may_help
