"""A sink of a broker lets a snapshot wait until each row is acknowledged."""

from __future__ import annotations

import threading

import pytest

from edgefold.runtime.errors import DataError, OutputError
from edgefold.runtime.sinks import acknowledged_sink
from edgefold.runtime.sinks.acknowledged_sink import AcknowledgedSink
from edgefold.runtime.sinks.mqtt_sink import open_mqtt
from edgefold.runtime.sinks.nats_sink import open_nats
from edgefold.runtime.sinks.row_sink import SinkOptions
from edgefold.runtime.sinks.topic_rows import TopicRow


class Sink(AcknowledgedSink):
    """Hands rows to a test, which acknowledges them."""

    def __init__(self, options: SinkOptions):
        super().__init__("broker", options)
        self.sent: list[TopicRow] = []
        self.is_connected = False

    def connect(self) -> None:
        self.is_connected = True

    def send(self, row: TopicRow) -> None:
        self.sent.append(row)

    def disconnect(self) -> None:
        self.is_connected = False


def begun(options: SinkOptions | None = None) -> Sink:
    sink = Sink(options or SinkOptions())
    sink.begin("time,value\n")
    return sink


def test_a_snapshot_waits_until_all_rows_are_acknowledged() -> None:
    sink = begun()
    sink.write("1,2\n2,3\n")
    waits = threading.Thread(target=sink.sync)
    waits.start()
    sink.acknowledged()
    assert waits.is_alive()
    sink.acknowledged()
    waits.join(60)
    assert not waits.is_alive()
    sink.close()
    assert not sink.is_connected and [row.key for row in sink.sent] == ["1", "2"]


def test_a_broker_that_is_away_holds_the_loop_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledged_sink, "MOST_OPEN", 3)
    told: list[str] = []
    n_idle = 0

    def idle() -> None:
        nonlocal n_idle
        n_idle += 1
        if n_idle == 2:
            sink.acknowledged()

    sink = begun(SinkOptions(tell=told.append, idle=idle))
    sink.report("cannot be reached: refused")
    sink.write("1,1\n2,2\n3,3\n4,4\n")
    assert n_idle == 2 and len(sink.sent) == 4
    assert told == ["the broker of broker cannot be reached: refused"]
    sink.acknowledged(3)
    sink.close()


def test_after_a_stop_a_broker_that_is_away_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledged_sink, "GRACE_S", 0.0)
    sink = begun(SinkOptions(stop=lambda: True))
    sink.write("1,1\n")
    with pytest.raises(OutputError, match="has not acknowledged 1 rows"):
        sink.sync()
    sink.close()  # does not wait again
    assert not sink.is_connected


def test_a_broker_that_refuses_ends_the_run() -> None:
    sink = begun()
    sink.write("1,1\n")
    sink.report("refuses a row: Not authorized", is_final=True)
    with pytest.raises(OutputError, match="refuses a row: Not authorized"):
        sink.sync()
    sink.close()


def test_each_news_is_given_once_until_it_changes() -> None:
    told: list[str] = []
    sink = begun(SinkOptions(tell=told.append))
    for text in ("is connected", "is away", "is away", "is connected", "is away"):
        sink.report(text)
    sink.sync()
    assert [text.removeprefix("the broker of broker ") for text in told] == [
        "is away",
        "is connected",
        "is away",
    ]
    sink.close()


@pytest.mark.parametrize("path", ["mqtt://h/a/#", "mqtt://h/a,b", "mqtt://h/+/b"])
def test_rows_are_published_under_one_topic_of_mqtt(path: str) -> None:
    pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
    with pytest.raises(DataError, match="one topic"):
        open_mqtt(path, SinkOptions())


@pytest.mark.parametrize("path", ["nats://h/a.>", "nats://h/a,b"])
def test_rows_are_published_under_one_subject_of_nats(path: str) -> None:
    pytest.importorskip("nats", reason="nats-py is not installed")
    with pytest.raises(DataError, match="one topic or subject"):
        open_nats(path, SinkOptions())
