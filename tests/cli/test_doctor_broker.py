"""`edgefold doctor --input` says what a broker may lose, from its answers and from its files."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgefold.cli.doctor.broker import examine_broker, remedies_of
from edgefold.cli.doctor.broker_losses import (
    losses_of_jetstream,
    losses_of_mosquitto,
    losses_of_mqtt,
)
from edgefold.cli.doctor.jetstream_log import JetStreamLog
from edgefold.cli.doctor.local_broker import is_local
from edgefold.cli.doctor.mosquitto_settings import (
    MosquittoSettings,
    find_settings,
    read_settings,
)
from edgefold.cli.doctor.mqtt_broker import MqttLimits
from edgefold.cli.loop.message_input import warn_of_losses
from edgefold.cli.main import main
from edgefold.runtime.errors import DataError
from edgefold.runtime.record_fields import as_json
from tests.brokers import free_port, mosquitto, nats_server

Text = pytest.CaptureFixture[str]
SAFE = MosquittoSettings(
    files=[],
    ports=[1883],
    persistence=True,
    autosave_interval=1,
    max_queued_messages=100_000,
    queue_qos0_messages=True,
)
LIMITS = MqttLimits(
    version=None,
    receive_maximum=20,
    maximum_qos=2,
    session_expiry_s=None,
    maximum_packet_bytes=None,
    retain=True,
    wildcard_subscriptions=True,
    shared_subscriptions=True,
    topics={"home/#": "quality of service 1"},
)
LOG = JetStreamLog(
    version="nats-server 2.10.1",
    stream="plant",
    storage="file",
    replicas=1,
    retention="limits",
    discard="old",
    max_age_s=None,
    max_messages=None,
    max_bytes=None,
    n_messages=0,
    bytes=0,
    sync_interval="always",
    consumer="",
)


def lost_with(**settings: Any) -> list[tuple[str, str, str | None]]:
    """Return event, messages and line of what a safe mosquitto loses after these changes."""
    found = losses_of_mosquitto(replace(SAFE, **settings))
    return [(loss.event, loss.lost, loss.line) for loss in found]


# A mosquitto's files ------------------------------------------------------------------------------


def test_debians_file_and_the_folder_that_it_includes_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "etc/mosquitto/conf.d"
    folder.mkdir(parents=True)
    (folder.parent / "mosquitto.conf").write_text(
        "# Debian's\npersistence true\nautosave_interval 60\ninclude_dir /etc/mosquitto/conf.d\n"
    )
    (folder / "house.conf").write_text("listener 1884 0.0.0.0\nautosave_interval 1\n")
    (folder / "README").write_text("persistence false\n")
    assert find_settings(tmp_path, 1883) is None  # it does not listen there
    settings = find_settings(tmp_path, 1884)
    assert settings is not None and settings.persistence
    assert settings.autosave_interval == 1
    assert len(settings.files) == 2


def test_the_file_of_a_running_mosquitto_is_found(tmp_path: Path) -> None:
    process = tmp_path / "proc/71"
    process.mkdir(parents=True)
    (process / "cmdline").write_bytes(b"/usr/sbin/mosquitto\0-c\0/own/m.conf\0")
    (tmp_path / "own").mkdir()
    (tmp_path / "own/m.conf").write_text("listener 1999\npersistent_client_expiration 14d\n")
    settings = find_settings(tmp_path, 1999)
    assert settings is not None and settings.persistent_client_expiration == "14d"


def test_a_line_without_a_value_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.conf"
    path.write_text("persistence maybe\n")
    with pytest.raises(DataError):
        read_settings(path)
    with pytest.raises(DataError):
        read_settings(tmp_path / "none.conf")
    assert find_settings(tmp_path, 1883) is None


# What is lost -------------------------------------------------------------------------------------


def test_a_safe_mosquitto_loses_nothing() -> None:
    assert lost_with() == []


@pytest.mark.parametrize(
    ("settings", "event", "words", "line"),
    [
        ({"persistence": False}, "at any restart of the broker", "all", "persistence true"),
        ({"autosave_interval": 1800}, "power cut", "the last 1,800 s", "autosave_interval 1"),
        ({"autosave_interval": 0}, "power cut", "all since its start", "autosave_interval 1"),
        (
            {"autosave_interval": 50, "autosave_on_changes": True},
            "power cut",
            "the last 50",
            "autosave_interval 1",
        ),
        ({"max_queued_messages": 1000}, "away", "1,000", "max_queued_messages 100000"),
        ({"max_queued_bytes": 5000}, "away", "5000", "max_queued_bytes 0"),
        ({"persistent_client_expiration": "2d"}, "2d", "session", "# persistent_client"),
        ({"queue_qos0_messages": False}, "away", "service 0", "queue_qos0_messages true"),
        ({"message_size_limit": 100}, "always", "100 bytes", "message_size_limit 65536"),
    ],
)
def test_each_setting_of_a_mosquitto_is_one_loss_with_its_line(
    settings: dict[str, Any], event: str, words: str, line: str
) -> None:
    ((found_event, lost, found_line),) = lost_with(**settings)
    assert event in found_event and words in lost
    assert found_line is not None and found_line.startswith(line)


def test_a_session_that_ends_and_a_topic_of_quality_0_are_losses() -> None:
    assert not [*losses_of_mqtt(LIMITS)]
    short = replace(LIMITS, session_expiry_s=86400.0, topics={"a": "quality of service 0"})
    first, second = losses_of_mqtt(short)
    assert "1 day" in first.event and "a is granted" not in first.lost
    assert "those of a" in second.lost


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"storage": "memory"}, "at any restart of the server: all"),
        ({"retention": "interest"}, "only while a consumer wants it"),
        ({"retention": "workqueue"}, "work queue"),
        ({"sync_interval": "2m"}, "those of the last 2m"),
        ({"sync_interval": None}, "sync_interval (2m by default)"),
        ({"max_age_s": 3600.0}, "longer than 1 hour"),
        ({"max_messages": 500}, "the oldest beyond 500 messages"),
    ],
)
def test_each_setting_of_a_log_is_one_loss(changes: dict[str, Any], words: str) -> None:
    assert not [*losses_of_jetstream(LOG)]
    (loss,) = losses_of_jetstream(replace(LOG, **changes))
    assert words in str(loss)


# Real brokers -------------------------------------------------------------------------------------


def test_a_real_mosquitto_is_asked_and_its_file_read(tmp_path: Path, capsys: Text) -> None:
    pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
    with mosquitto(tmp_path, "max_inflight_messages 50", "max_queued_messages 7") as server:
        url = f"mqtt://localhost:{server.port}/home/%23"
        code = main(["doctor", "--input", url, "--json", str(tmp_path / "doctor.json")])
        text = " ".join(capsys.readouterr().out.split())
    record = json.loads((tmp_path / "doctor.json").read_text())
    found = record["broker"]
    assert code in (0, 6)  # 6 where no backend opens here
    assert found["answers"] and found["is_local"]
    assert found["mqtt"]["topics"] == {"home/#": "quality of service 1"}
    assert found["mosquitto"]["max_inflight_messages"] == 50
    assert [advice["command"] for advice in record["advice"] if advice["kind"] == "safer"] == [
        "autosave_interval 1",
        "max_queued_messages 100000",
        "queue_qos0_messages true",
    ]
    pytest.importorskip("jsonschema", reason="pip install --group test")
    from tests.cli.test_records import errors

    assert not errors("doctor", record)
    assert "those of the last 1,800 s, as autosave_interval is 1800 autosave_interval 1" in text


def test_a_loop_warns_at_its_start_of_a_mosquitto_that_seldom_saves(
    tmp_path: Path, capsys: Text
) -> None:
    place = tmp_path / "etc/mosquitto"
    place.mkdir(parents=True)
    (place / "mosquitto.conf").write_text("listener 1999\npersistence true\n")
    warn_of_losses("mqtt://127.0.0.1:1999/home/a", tmp_path)
    assert "doctor --input mqtt://127.0.0.1:1999/home/a" in capsys.readouterr().err
    (place / "mosquitto.conf").write_text("listener 1999\npersistence true\nautosave_interval 5\n")
    warn_of_losses("mqtt://127.0.0.1:1999/home/a", tmp_path)
    warn_of_losses("rows.csv", tmp_path)
    assert not capsys.readouterr().err


def test_a_broker_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
    report = examine_broker(f"mqtt://127.0.0.1:{free_port()}/a", root=tmp_path)
    assert not report.answers and report.reason
    assert "mqtt" not in as_json(report) and not report.losses


def test_a_real_log_is_asked(tmp_path: Path) -> None:
    nats = pytest.importorskip("nats", reason="nats-py is not installed")

    async def make(port: int) -> None:
        client = await nats.connect(f"nats://127.0.0.1:{port}")
        await client.jetstream().add_stream(
            name="plant", subjects=["plant.>"], storage="memory", max_msgs=9
        )
        await client.close()

    with nats_server(tmp_path) as server:
        asyncio.run(make(server.port))
        report = examine_broker(f"nats://127.0.0.1:{server.port}/plant.>")
        missing = examine_broker(f"nats://127.0.0.1:{server.port}/other")
    assert report.answers and report.jetstream.storage == "memory"
    assert report.jetstream.max_messages == 9
    assert [remedy.what.partition(":")[0] for remedy in remedies_of(report)] == [
        "at any restart of the server",
        "while the loop is away",
    ]
    assert not missing.answers and "no stream" in str(missing.reason)


def test_an_input_that_is_no_broker_is_refused() -> None:
    with pytest.raises(DataError):
        examine_broker("rows.csv")
    with pytest.raises(SystemExit, match="2"):
        main(["doctor", "--broker-config", "m.conf"])
    assert is_local("127.0.0.1") and not is_local("192.0.2.1")  # of RFC 5737, of no machine
