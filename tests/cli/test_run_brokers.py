"""`edgefold run` with real brokers: what it learns is what it would learn from a file."""

from __future__ import annotations

import asyncio
import json
import math
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from edgefold.cli.main import main
from tests.brokers import LIMIT_S, Broker, free_port, mosquitto, nats_server, until
from tests.loop_process import LoopProcess

pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
pytest.importorskip("nats", reason="nats-py is not installed")

pytestmark = pytest.mark.usefixtures("compiled_sensors")

Row = tuple[str, dict[str, Any]]


def rows(first: int, last: int) -> list[Row]:
    """Rows of two sensors, as topics and payloads; dots part the names where NATS reads them."""
    found = []
    for i in range(first, last):
        value = round(20 + 5 * math.sin(i / 7), 3)
        found.append(("plant/pump", {"time": 1_764_300_000 + i, "value": value}))
        if i % 2:
            found.append(("plant/fan", {"ts": (1_764_300_000 + i) * 1000, "speed": i % 5}))
    return found


def publish(broker: Broker, messages: Iterable[Row]) -> None:
    """Publish by MQTT, and wait until the broker has acknowledged each message."""
    from paho.mqtt.client import Client, MQTTv5
    from paho.mqtt.enums import CallbackAPIVersion

    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    infos = [client.publish(topic, json.dumps(row), qos=1) for topic, row in messages]
    for info in infos:
        info.wait_for_publish(LIMIT_S)
        assert info.is_published()
    client.disconnect()
    client.loop_stop()


def by_sensor(output: Path) -> dict[str, list[str]]:
    """The rows of an output after its header, by the sensor that they name."""
    found: dict[str, list[str]] = {}
    for line in output.read_text().splitlines()[1:]:
        name, _, rest = line.partition(",")
        found.setdefault(name, []).append(rest)
    return found


def expected(folder: Path, messages: Iterable[Row]) -> dict[str, list[str]]:
    """Return the rows that a run over a file with the same messages writes."""
    from edgefold.runtime.sources.message import Message
    from edgefold.runtime.sources.message_rows import MessageKeys, MessageRows

    table = MessageRows(MessageKeys(), of_sensors=True)
    lines = [
        line
        for topic, row in messages
        for line in table.lines(Message(topic, json.dumps(row).encode(), 0.0))
    ]
    source, output = folder / "expected.jsonl", folder / "expected.csv"
    source.write_bytes(b"".join(lines))
    words = ["run", "sensors", "--input", str(source), "--output", str(output)]
    assert main([*words, "--stream", "series", "--streams", "8", "--force"]) == 0
    return by_sensor(output)


def subscribed(folder: Path) -> None:
    """Wait until a loop has subscribed; before that a broker keeps nothing for it."""
    log = folder / "mosquitto.log"
    until(lambda: "Sending SUBACK to edgefold-" in log.read_text(), "the loop's subscription")


def test_rows_of_mqtt_are_learned_as_those_of_a_file_whoever_is_killed(tmp_path: Path) -> None:
    messages = rows(0, 120)
    with mosquitto(tmp_path, "log_type all") as broker:
        url = f"mqtt://127.0.0.1:{broker.port}/plant/#"
        first = LoopProcess(tmp_path, url, "--every", "20")
        subscribed(tmp_path)
        publish(broker, messages[:50])
        first.wait_for(50)
        first.end(signal.SIGKILL)
        publish(broker, messages[50:90])  # while the loop is away
        second = LoopProcess(tmp_path, url, "--every", "20")
        second.wait_for(90)
        broker.stop()
        broker.start()
        publish(broker, messages[90:])
        second.wait_for(len(messages))
        assert second.end() == 0
    assert by_sensor(tmp_path / "out.csv") == expected(tmp_path, messages)
    assert "is away: the connection broke" in second.errors.read_text()
    assert "is connected" in second.errors.read_text()
    assert "resumed: written again" in second.errors.read_text()  # from the journal


def test_a_message_that_comes_again_is_known_by_its_numbers(tmp_path: Path) -> None:
    messages = [("a", {"boot": 1, "n": n, "time": 2e8 + n, "value": n % 3}) for n in range(30)]
    restarted = {"boot": 2, "n": 0, "time": 2e8 + 30, "value": 1}
    again = [*messages[:20], *messages[5:], ("a", restarted)]
    with mosquitto(tmp_path, "log_type all") as broker:
        loop = LoopProcess(tmp_path, f"mqtt://127.0.0.1:{broker.port}/a", "--sequence", "boot,n")
        subscribed(tmp_path)
        publish(broker, again)
        loop.wait_for(31)
        assert loop.end() == 0
    values = [row.split(",")[1] for row in by_sensor(tmp_path / "out.csv")["a"]]
    assert values == [*(str(n % 3) for n in range(30)), "1"]
    assert "15 messages came again" in loop.errors.read_text()


def test_rows_of_jetstream_are_learned_as_those_of_a_file_whoever_is_killed(
    tmp_path: Path,
) -> None:
    messages = [(topic.replace("/", "."), row) for topic, row in rows(0, 120)]

    async def fill(part: list[Row]) -> None:
        import nats

        client = await nats.connect(f"nats://127.0.0.1:{server.port}")
        log = client.jetstream()
        await log.add_stream(name="plant", subjects=["plant.>"])
        for subject, row in part:
            await log.publish(subject, json.dumps(row).encode(), timeout=LIMIT_S)
        await client.close()

    with nats_server(tmp_path) as server:
        asyncio.run(fill(messages[:50]))
        url = f"nats://127.0.0.1:{server.port}/plant.>"
        first = LoopProcess(tmp_path, url, "--every", "20")
        first.wait_for(50)
        first.end(signal.SIGKILL)
        asyncio.run(fill(messages[50:90]))
        second = LoopProcess(tmp_path, url, "--every", "20")
        second.wait_for(90)
        server.kill()
        server.start()
        asyncio.run(fill(messages[90:]))
        second.wait_for(len(messages))
        assert second.end() == 0
    assert by_sensor(tmp_path / "out.csv") == {
        name.replace("plant/", "plant."): lines
        for name, lines in expected(tmp_path, rows(0, 120)).items()
    }


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["run", "sensors", *words]) == 1
    return capsys.readouterr().err


def test_a_broker_that_refuses_the_user_ends_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mosquitto(tmp_path, "allow_anonymous false") as broker:
        url = f"mqtt://me:wrong@127.0.0.1:{broker.port}/a"
        error = refused(["--input", url], capsys)
    assert "refuses the connection: Not authorized" in error
    assert "wrong" not in error


def test_a_subject_without_a_log_ends_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with nats_server(tmp_path) as server:
        error = refused(["--input", f"nats://127.0.0.1:{server.port}/a"], capsys)
    assert "no stream that holds this subject" in error


def test_a_broker_that_is_away_is_waited_for(tmp_path: Path) -> None:
    loop = LoopProcess(tmp_path, f"mqtt://127.0.0.1:{free_port()}/a")
    until(lambda: "cannot be reached" in loop.errors.read_text(), "a line on the broker")
    assert loop.end() == 0
    assert "Connection refused" in loop.errors.read_text()


def test_a_wrong_option_of_an_address_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "has no option 'x'" in refused(["--input", "mqtt://h/a?x=1"], capsys)
    assert "names 2 subjects" in refused(["--input", "nats://h/a,b"], capsys)


def test_numbers_that_identify_messages_need_a_broker(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "sensors", "--input", "-", "--sequence", "n"])
    assert "--sequence" in capsys.readouterr().err


def test_rows_and_alarms_are_published_and_the_state_waits_for_the_broker(tmp_path: Path) -> None:
    from paho.mqtt.client import Client, MQTTv5
    from paho.mqtt.enums import CallbackAPIVersion

    lines = [f"{i},{20 + 5 * math.sin(i / 7):.2f}" for i in range(200)]
    lines[150] = "150,400"
    source = tmp_path / "rows.csv"
    source.write_text("\n".join(["time,value", *lines]) + "\n")
    heard: list[tuple[str, dict[str, Any], Any]] = []
    with mosquitto(tmp_path, "log_type all", "max_queued_messages 10000") as broker:
        listener = Client(CallbackAPIVersion.VERSION2, client_id="listener", protocol=MQTTv5)
        listener.on_message = lambda client, data, message: heard.append(
            (message.topic, json.loads(message.payload), message.properties)
        )
        listener.connect("127.0.0.1", broker.port)
        listener.subscribe("out/#", 1)
        listener.loop_start()
        until(lambda: "Sending SUBACK to listener" in (tmp_path / "mosquitto.log").read_text(), "")
        url = f"mqtt://127.0.0.1:{broker.port}/out"
        words = ["run", "sensors", "--input", str(source), "--snapshot", str(tmp_path / "s.npz")]
        assert main([*words, "--output", f"{url}/rows", "--alarms", f"{url}/alarms"]) == 0
        until(lambda: len(heard) >= 201, "all messages")
        listener.disconnect()
        listener.loop_stop()
    published = [row for topic, row, _ in heard if topic == "out/rows"]
    alarms = [(row, properties) for topic, row, properties in heard if topic == "out/alarms"]
    assert [row["value"] for row in published] == [float(line.split(",")[1]) for line in lines]
    assert published[100]["mean"] == pytest.approx(published[100]["value"], abs=5)
    (alarm, properties) = alarms[0]
    assert (alarm["time"], alarm["value"], alarm["event"]) == ("150", 400, "value")
    assert properties.UserProperty == [("key", "150 value")]


def test_rows_are_published_into_a_log_once_though_they_are_sent_again(tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("time,value\n" + "".join(f"{i},{i % 7}\n" for i in range(60)))

    async def found() -> list[dict[str, Any]]:
        import nats

        client = await nats.connect(f"nats://127.0.0.1:{server.port}")
        info = await client.jsm().stream_info("out")
        rows = []
        for number in range(1, info.state.last_seq + 1):
            message = await client.jsm().get_msg("out", number)
            rows.append(json.loads(message.data or b""))
        await client.close()
        return rows

    async def prepare() -> None:
        import nats

        client = await nats.connect(f"nats://127.0.0.1:{server.port}")
        await client.jetstream().add_stream(name="out", subjects=["out.>"])
        await client.close()

    with nats_server(tmp_path) as server:
        asyncio.run(prepare())
        url = f"nats://127.0.0.1:{server.port}/out.rows"
        words = ["run", "sensors", "--input", str(source), "--output", url]
        assert main(words) == 0
        assert main(words) == 0  # without a snapshot everything is sent again
        rows = asyncio.run(found())
    assert [row["time"] for row in rows] == [str(i) for i in range(60)]


def test_an_output_without_a_log_ends_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("time,value\n" + "".join(f"{i},{i % 7}\n" for i in range(60)))
    with nats_server(tmp_path) as server:
        url = f"nats://127.0.0.1:{server.port}/out.rows"
        assert main(["run", "sensors", "--input", str(source), "--output", url]) == 1
    assert "has no stream that takes these subjects" in capsys.readouterr().err


@pytest.mark.parametrize("topic", ["a/#/b", "a+", "a/b#", "x,a/+b/c"])
def test_a_wildcard_in_the_wrong_place_is_refused(
    topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "cannot be subscribed to" in refused(["--input", f"mqtt://h/{topic}"], capsys)


def test_an_unknown_kind_of_address_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(["--input", "mqt://h/a"], capsys)
    assert "an address begins with mqtt://, mqtts://, nats://" in error


def test_topics_of_an_earlier_command_are_left(tmp_path: Path) -> None:
    with mosquitto(tmp_path, "log_type all") as broker:
        url = f"mqtt://127.0.0.1:{broker.port}"
        first = LoopProcess(tmp_path, f"{url}/old/#")
        subscribed(tmp_path)
        publish(broker, [("old/a", {"time": 2e8, "value": 1})])
        first.wait_for(1)
        assert first.end() == 0
        second = LoopProcess(tmp_path, f"{url}/new/#")
        until(lambda: "new/#" in (tmp_path / "mosquitto.log").read_text(), "the new topic")
        log = tmp_path / "mosquitto.log"
        until(lambda: "UNSUBACK" in log.read_text(), "the end of the old topic")
        publish(broker, [("old/a", {"time": 2e8 + 1, "value": 1}), ("new/a", {"value": 2})])
        second.wait_for(2)
        assert second.end() == 0
    assert {*by_sensor(tmp_path / "out.csv")} == {"old/a", "new/a"}
    assert len(by_sensor(tmp_path / "out.csv")["old/a"]) == 1


@pytest.mark.long
def test_a_retired_loop_learns_what_waits_and_leaves_nothing_in_the_broker(tmp_path: Path) -> None:
    messages = rows(0, 60)
    with mosquitto(tmp_path, "log_type all") as broker:
        url = f"mqtt://127.0.0.1:{broker.port}/plant/#"
        first = LoopProcess(tmp_path, url)
        subscribed(tmp_path)
        publish(broker, messages[:30])
        first.wait_for(30)
        assert first.end() == 0
        publish(broker, messages[30:])
        last = LoopProcess(tmp_path, url, "--retire")
        assert last.process.wait(LIMIT_S) == 0
        publish(broker, rows(60, 70))  # nobody waits for these
        again = LoopProcess(tmp_path, url)
        until(lambda: "has forgotten the session" in last.errors.read_text(), "a new session")
        assert again.end() == 0
    assert by_sensor(tmp_path / "out.csv") == expected(tmp_path, messages)
    assert "ended; the broker keeps nothing under the name edgefold-" in last.errors.read_text()


@pytest.mark.parametrize("words", [["--input", "mqtt://h/a"], ["--input", "nats://h/a"]])
def test_only_a_loop_with_a_session_is_retired(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--snapshot", str(tmp_path / "s.npz")] if "nats" in words[1] else []
    with pytest.raises(SystemExit, match="2"):
        main(["run", "sensors", *words, *options, "--retire"])
    assert "argument --retire" in capsys.readouterr().err
