"""Home Assistant hears of each sensor: devices, states, alarms, and a loop that is gone."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

from edgefold.cli.loop.discovery import LoopIdentity, SeriesDevice, SeriesUnit
from edgefold.cli.main import build_parser
from edgefold.cli.options.metrics_options import series_unit
from edgefold.runtime.errors import DataError, OutputError
from edgefold.runtime.loop.alarm import Alarm
from edgefold.runtime.loop.watcher import RowView, WatchedRow
from tests.brokers import LIMIT_S, Broker, free_port, mosquitto, until
from tests.cli.metrics.test_metric_outlets import waiting_run

pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")

from edgefold.cli.loop.home_assistant import (
    HomeAssistant,
    home_assistant_address,
    require_no_circle,
)

SCHEMA = Path(__file__).with_name("home_assistant_schema.json")
LOOP = LoopIdentity("0a1b", "boiler", "sensors", "1.2", 0)


@contextmanager
def listening(broker: Broker) -> Iterator[dict[str, list[str]]]:
    """All messages of a broker by topic, the retained ones first."""
    from paho.mqtt.client import Client, MQTTv5
    from paho.mqtt.enums import CallbackAPIVersion

    found: dict[str, list[str]] = {}
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
    client.on_connect = lambda client, *_: client.subscribe("#")
    client.on_message = lambda client, data, message: found.setdefault(message.topic, []).append(
        message.payload.decode()
    )
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    try:
        yield found
    finally:
        client.disconnect()
        client.loop_stop()


def one(found: dict[str, list[str]], pattern: str) -> list[str]:
    """The messages of the only topic that matches; none before it comes."""
    topics = [topic for topic in [*found] if re.fullmatch(pattern, topic)]
    assert len(topics) < 2, topics
    return found[topics[0]] if topics else []


def rows(first: int, last: int, spike: int = -1) -> bytes:
    lines = (f"{i},{900 if i == spike else 20 + i * 7919 % 13 / 9}\n" for i in range(first, last))
    return "".join(lines).encode()


CONFIG, STATE, STATUS = "homeassistant/device/.+/config", "edgefold/.+/state", "edgefold/.+/status"


def test_a_run_shows_its_sensor_and_its_alarm_and_that_it_died(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as broker, listening(broker) as found:
        words = ["--home-assistant", f"mqtt://127.0.0.1:{broker.port}?every=0.001&hold=0.001"]
        words += ["--snapshot", str(tmp_path / "boiler.npz"), "--metrics-name", "b"]
        words += ["--home-assistant-unit", "°C,temperature"]
        with waiting_run(tmp_path, *words) as (process, pipe, _):
            os.write(pipe, b"time,value\n" + rows(0, 300))

            def states() -> list[dict[str, Any]]:
                return [json.loads(text) for text in one(found, STATE)]

            until(lambda: bool(states()) and states()[-1]["time"] == "299", "the newest row")
            assert one(found, STATUS)[-1] == "online"
            state = states()[-1]
            assert state["problem"] == "OFF" and state["low"] < state["mean"] < state["high"]
            assert isinstance(state["value"], float) and isinstance(state["log_score"], float)
            config = one(found, CONFIG)[-1]
            payload = json.loads(config)
            assert payload["state_topic"] in found and payload["availability_topic"] in found
            assert payload["components"]["expected"]["unit_of_measurement"] == "°C"
            assert payload["components"]["low"]["device_class"] == "temperature"

            os.write(pipe, rows(300, 301, 300))
            until(lambda: any(s["problem"] == "ON" for s in states()), "the alarm")
            alarm = json.loads(found[payload["components"]["alarm"]["json_attributes_topic"]][-1])
            assert (alarm["event"], alarm["time"], alarm["value"]) == ("value", "300", 900.0)
            os.write(pipe, rows(301, 400))
            until(lambda: states()[-1]["time"] == "399", "the row after it")
            until(lambda: states()[-1]["problem"] == "OFF", "the end of the alarm")
            process.send_signal(signal.SIGKILL)
            until(lambda: one(found, STATUS)[-1] == "offline", "the broker's word for a dead loop")
        with listening(broker) as kept:  # what is retained is the last of each topic
            until(lambda: len(kept) == len(found), "all retained messages")
            assert {topic: [texts[-1]] for topic, texts in found.items()} == kept
        n_told = len(one(found, CONFIG))
        with waiting_run(tmp_path, *words) as (process, pipe, _):
            os.write(pipe, b"time,value\n" + rows(400, 401))
            until(lambda: one(found, STATUS)[-1] == "online", "the next start")
            until(lambda: len(one(found, CONFIG)) > n_told, "its device")
            assert {*one(found, CONFIG)} == {config}, "the same device with each start"
            process.terminate()
            assert process.wait(LIMIT_S) == 0
        until(lambda: one(found, STATUS)[-1] == "offline", "an ordinary end")


@pytest.mark.long
def test_a_broker_that_comes_late_or_forgets_all_gets_all(tmp_path: Path) -> None:
    port = free_port()
    words = ["--home-assistant", f"mqtt://127.0.0.1:{port}/ha"]
    with waiting_run(tmp_path, *words) as (process, pipe, errors):
        os.write(pipe, b"time,value\n" + rows(0, 50))
        until(lambda: "cannot be reached" in errors.read_text(), "a word on the broker")
        config = tmp_path / "m.conf"
        config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nuser root\n")
        from tests.brokers import program

        broker = Broker([program("mosquitto"), "-c", str(config)], port, tmp_path / "m.log")
        try:
            for _ in range(2):
                with listening(broker) as found:
                    wanted = ("ha/device/.+/config", STATE, STATUS)
                    until(lambda: all(one(found, w) for w in wanted), "all of it")  # noqa: B023
                    assert json.loads(one(found, STATE)[-1])["time"] == "49"
                broker.kill()  # without persistence it forgets what it retained
                broker.start()
        finally:
            broker.kill()
        assert process.poll() is None, errors.read_text()


# With a clock of our own --------------------------------------------------------------------------


class Client:
    """Keeps what is published, instead of paho's client."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []

    def publish(self, topic: str, text: str, qos: int, retain: bool) -> Any:
        assert retain
        self.sent.append((topic, text))
        return SimpleNamespace(wait_for_publish=lambda limit_s: None)

    def disconnect(self) -> None: ...

    loop_stop = disconnect


def shown(query: str = "") -> tuple[HomeAssistant, Client, list[float], list[str]]:
    now, told = [100.0], list[str]()
    address = home_assistant_address(f"mqtt://h{query}")
    it: Any = HomeAssistant(address, LOOP, [], told.append, lambda: now[0])
    it._client = client = Client()
    return it, client, now, told


def row(time: int, series: str = "a", event: str = "", alarm: bool = False) -> WatchedRow:
    view = RowView(1.0, 2.0, 0.5, 3.0, float("nan"))
    whole = Alarm(series, event, str(time), "1", 1.0, 4, 0.0) if alarm else None
    return WatchedRow(series, time, float("nan"), str(time), view, whole, event)


def learn(it: HomeAssistant, row: WatchedRow) -> None:
    it.row(row)
    it.line()


def states(client: Client) -> list[tuple[str, str]]:
    """Time and problem of each state since the last call."""
    found = [json.loads(text) for topic, text in client.sent if topic.endswith("/state")]
    client.sent.clear()
    return [(state["time"], state["problem"]) for state in found]


def connect(it: HomeAssistant) -> None:
    it._connected(None, None, None, SimpleNamespace(is_failure=False), None)  # type: ignore[arg-type]
    it.idle()


def test_states_are_sent_at_most_each_interval_and_the_newest_one_wins() -> None:
    it, client, now, _ = shown("?every=10")
    connect(it)
    for time in range(5):
        learn(it, row(time))
    assert states(client) == [("0", "OFF")]
    now[0] += 9.9
    it.idle()
    assert states(client) == []
    now[0] += 0.1
    it.idle()
    it.idle()
    assert states(client) == [("4", "OFF")]


def test_an_alarm_is_sent_at_once_and_holds_as_long_as_its_event() -> None:
    it, client, now, _ = shown("?every=10&hold=60")
    connect(it)
    learn(it, row(0))
    learn(it, row(1, event="drift", alarm=True))
    assert states(client) == [("0", "OFF"), ("1", "ON")]
    now[0] += 100.0
    learn(it, row(2, event="drift"))
    assert states(client) == [("2", "ON")]
    learn(it, row(3))
    assert states(client) == [("3", "OFF")], "the event is over, and was seen long enough"


def test_a_short_alarm_ends_after_its_hold_without_a_further_row() -> None:
    it, client, now, _ = shown("?every=10&hold=60")
    connect(it)
    learn(it, row(0, event="value", alarm=True))
    learn(it, row(1))
    now[0] += 30.0
    it.idle()
    assert states(client)[-1] == ("1", "ON")
    now[0] += 30.0
    it.idle()
    assert states(client) == [("1", "OFF")]
    now[0] += 500.0
    it.idle()
    assert states(client) == []


def test_a_named_event_without_an_alarm_is_no_problem() -> None:
    it, client, _, _ = shown()
    connect(it)
    learn(it, row(0, event="quiet"))
    assert states(client) == [("0", "OFF")]


def test_an_anomaly_of_another_model_is_a_problem() -> None:
    it, client, _, _ = shown()
    connect(it)
    learn(it, row(0, event="anomaly"))
    alarms = [text for topic, text in client.sent if topic.endswith("/alarm")]
    assert json.loads(alarms[0])["event"] == "anomaly" and states(client) == [("0", "ON")]


def test_without_a_broker_only_the_newest_states_wait() -> None:
    it, client, _, told = shown()
    for time in range(1000):
        learn(it, row(time, f"s{time % 300}"))
    assert not client.sent and len(it._states) == 200
    assert len(told) == 1 and "200" in told[0]
    connect(it)
    assert len(states(client)) == 200
    it._disconnected(None, None, None, SimpleNamespace(is_failure=True))  # type: ignore[arg-type]
    learn(it, row(1000, "s1"))
    assert not client.sent
    connect(it)
    assert ("1000", "OFF") in states(client)


def test_topics_and_identities_are_such_as_home_assistant_reads() -> None:
    names = ("", "Küche/Temp °C", "a" * 100, "kitchen temp", "kitchen/temp")
    devices = [
        SeriesDevice(LOOP, name, [SeriesUnit("Küche*", "°C", "temperature")]) for name in names
    ]
    topics = {device.topic("homeassistant") for device in devices}
    assert len(topics) == len({d.state_topic for d in devices}) == len(names)
    for topic in topics:
        assert re.fullmatch(r"homeassistant/device/[a-zA-Z0-9_-]+/config", topic)
    assert devices[0].payload()["device"]["name"] == "boiler"
    assert devices[1].payload()["components"]["high"]["unit_of_measurement"] == "°C"
    assert "unit_of_measurement" not in devices[3].payload()["components"]["high"]
    few = LOOP._replace(has_score=False, has_band=False, expire_s=90)
    components = SeriesDevice(few, "a").payload()["components"]
    assert {*components} == {"expected", "alarm"}
    assert all(component["expire_after"] == 90 for component in components.values())


@pytest.mark.parametrize("series", ["", "home/Küche/temperature", "x" * 100])
@pytest.mark.parametrize("loop", [LOOP, LOOP._replace(expire_s=90, has_band=False)])
def test_home_assistant_accepts_the_payload(loop: LoopIdentity, series: str) -> None:
    """The schema was recorded from Home Assistant; scripts/check-home-assistant runs itself."""
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    units = [SeriesUnit("home/*", "°C", "temperature")]
    payload = SeriesDevice(loop, series, units).payload()
    assert not [error.message for error in validator.iter_errors(payload)]
    expected = payload["components"]["expected"]
    for damage in ({"unit_of_measurement": "kg", "device_class": "temperature"}, {"colour": 1}):
        spoiled = payload | {"components": {"expected": expected | damage}}
        assert not validator.is_valid(spoiled), damage


def test_addresses_and_units_are_read() -> None:
    address = home_assistant_address("mqtt://u@h:1884?every=5")
    assert (address.port, address.user, address.topics) == (1884, "u", ("homeassistant",))
    assert home_assistant_address("mqtts://h/my/ha").topics == ("my/ha",)
    for text in ("http://h", "mqtt://h/a,b", "mqtt://h/+", "mqtt://h?every=x", "mqtt://h?hold=-1"):
        with pytest.raises(DataError):
            home_assistant_address(text)
    assert series_unit("°C,temperature") == SeriesUnit("*", "°C", "temperature")
    assert series_unit("*/hum=%,humidity") == SeriesUnit("*/hum", "%", "humidity")
    argv = ["run", "sensors", "--input", "-", "--home-assistant-unit", "a="]
    with pytest.raises(SystemExit):
        build_parser(argv).parse_args(argv)


@pytest.mark.parametrize("topic", ["#", "edgefold/#", "homeassistant/device/+/config", "+/0a1b/#"])
def test_a_loop_that_would_learn_its_own_forecasts_is_refused(topic: str) -> None:
    address = home_assistant_address("mqtt://h")
    with pytest.raises(OutputError):
        require_no_circle(address, f"mqtt://H:1883/{topic}", LOOP)
    require_no_circle(address, f"mqtt://h:1884/{topic}", LOOP)
    require_no_circle(address, "mqtt://h/home/#", LOOP)
    require_no_circle(address, "data.csv", LOOP)
