"""What judges schedules of brokers finds the faults that it is for."""

from __future__ import annotations

import socket
import struct
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from attack.brokers import mqtt_packets
from attack.brokers.mqtt_packets import Packets
from attack.brokers.plan import Plan, Published, draw
from attack.brokers.proxy import TcpProxy
from attack.brokers.stage import Losses
from attack.brokers.traffic import Traffic
from attack.kinds.broker_schedules import missing_rows, not_lost_by_broker
from attack.outcomes import random_of

MESSAGES = tuple(Published("a", b"%d" % n, (("a", f"t{n}", 1.0),)) for n in range(4))


def plan(broker: str = "mosquitto", order: tuple[int, ...] = (0, 1, 2, 3)) -> Plan:
    none = ((), (), (), 1, "a", False, True, 1.0, 0)
    return Plan(broker, MESSAGES, order, len(order), *none)


def delivered(number: int, payload: bytes) -> bytes:
    """A message of MQTT 5 as a broker sends it."""
    body = struct.pack(">H", 1) + b"a" + struct.pack(">H", number) + b"\0" + payload
    return bytes([mqtt_packets.PUBLISH << 4 | 2, len(body)]) + body


def acknowledged(number: int) -> bytes:
    return bytes([mqtt_packets.PUBACK << 4, 2]) + struct.pack(">H", number)


def test_packets_are_found_however_the_bytes_are_cut() -> None:
    whole = mqtt_packets.publish("a/b", b"x" * 300, 7, True) + acknowledged(9)
    packets = Packets()
    found = [packet for byte in whole for packet in packets.take(bytes([byte]))]
    assert [kind for kind, _, _ in found] == [mqtt_packets.PUBLISH, mqtt_packets.PUBACK]
    assert found[0][2].endswith(b"x" * 300) and mqtt_packets.number_of(found[1][2]) == 9


def test_only_what_was_sent_on_the_same_connection_may_be_acknowledged() -> None:
    traffic = Traffic(MESSAGES)
    traffic.watch(1, False, delivered(5, b"0"))
    traffic.watch(2, True, acknowledged(5))
    assert (traffic.n_foreign, traffic.acknowledged) == (1, set())
    traffic.watch(1, True, acknowledged(5))
    assert (traffic.n_foreign, traffic.acknowledged) == (1, {0})


def test_a_message_behind_a_later_one_is_no_promise() -> None:
    traffic = Traffic(MESSAGES)
    for number, payload in ((1, b"2"), (2, b"1"), (3, b"2")):
        traffic.watch(1, False, delivered(number, payload))
        traffic.watch(1, True, acknowledged(number))
    assert traffic.acknowledged == traffic.sent == {2}


def test_a_proxy_passes_bytes_on_until_it_is_cut() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        passed: list[bytes] = []
        proxy = TcpProxy(lambda number, is_up, block: passed.append(block))
        proxy.target = server.getsockname()[1]
        with closing(proxy), closing(socket.create_connection(("127.0.0.1", proxy.port))) as client:
            client.sendall(b"row")
            while not passed:
                proxy.step()
            connection, _ = server.accept()
            with closing(connection):
                assert connection.recv(10) == b"row"
                proxy.cut()
                assert client.recv(10) == connection.recv(10) == b""


def written(folder: Path, *places: int) -> Path:
    lines = "".join(f"a,t{place},1\n" for place in places)
    (folder / "out.csv").write_text(f"series,time,value\n{lines}")
    return folder


def test_rows_that_are_missing_doubled_or_out_of_order_are_found(tmp_path: Path) -> None:
    assert missing_rows(plan(), written(tmp_path, 0, 1, 2, 3)) == set()
    assert missing_rows(plan(), written(tmp_path, 0, 3)) == {1, 2}
    assert missing_rows(plan(), written(tmp_path, 0, 1, 1)) == "a row was learned twice"
    assert missing_rows(plan(), written(tmp_path, 1, 0)) == "rows were learned out of order"


def stage(kills: list[float], saves: list[float], promised: set[int], back_s: float = 0.0) -> Any:
    """Return what a schedule leaves whose publisher has message n acknowledged at n seconds."""
    publisher = SimpleNamespace(
        acknowledged={n: float(n) for n in range(9)}, sent={n: n - 0.1 for n in range(9)}
    )
    return SimpleNamespace(
        traffic=SimpleNamespace(acknowledged=promised, sent=promised, subscribed=[0.0, back_s]),
        publisher=publisher,
        losses=Losses(saves, kills),
    )


@pytest.mark.parametrize(
    ("kills", "saves", "promised", "is_lost"),
    [
        ([2.5], [], set(), True),
        ([2.5], [2.2], set(), False),
        ([2.5], [1.5], set(), True),
        ([1.5], [0.5], set(), False),
        ([2.5], [], {2}, False),
        ([], [], set(), False),
    ],
)
def test_a_message_is_lost_by_the_broker_only_if_it_was_killed_before_it_saved(
    kills: list[float], saves: list[float], promised: set[int], is_lost: bool
) -> None:
    assert (not not_lost_by_broker(plan(), stage(kills, saves, promised), 2)) == is_lost


@pytest.mark.parametrize(
    ("back_s", "sent", "is_lost"),
    [(2.5, set(), True), (1.95, set(), True), (1.95, {2}, False), (1.8, set(), False)],
)
def test_a_message_that_comes_before_the_loop_is_back_may_be_lost(
    back_s: float, sent: set[int], is_lost: bool
) -> None:
    """The broker has forgotten the session with its kill, and takes the message at 1.9 to 2 s."""
    found = stage([1.5], [], set(), back_s)
    found.traffic.sent = sent
    assert (not not_lost_by_broker(plan(), found, 2)) == is_lost


def test_a_save_without_a_session_brings_none_back() -> None:
    """The broker is killed, saves before the loop has come back, and is killed again."""
    found = stage([1.2, 1.6], [1.4], set(), back_s=1.95)
    assert not not_lost_by_broker(plan(), found, 2)
    found.traffic.subscribed.insert(1, 1.3)  # it had come back before the save
    assert not_lost_by_broker(plan(), found, 2)


def test_a_copy_behind_later_messages_does_not_bring_a_lost_one_back() -> None:
    order = (0, 1, 2, 3, 2)  # the copy is acknowledged after the kill
    assert not not_lost_by_broker(plan(order=order), stage([2.5], [], set()), 2)


def test_a_log_loses_nothing() -> None:
    assert not_lost_by_broker(plan("jetstream"), stage([2.5], [], set()), 2)


@pytest.mark.parametrize("number", range(40))
def test_every_schedule_sends_all_messages_of_a_topic_in_order(number: int) -> None:
    found = draw(
        random_of("broker_schedules", number), ("jetstream", "mosquitto")[number % 2], ("a",)
    )
    firsts = list(dict.fromkeys(found.order))
    assert sorted(firsts) == list(range(len(found.messages)))
    for topic in found.topics:
        places = [
            place
            for place in firsts
            if (message := found.messages[place]).topic == topic and message.rows
        ]
        assert places == sorted(places)
    assert len({message.payload for message in found.messages}) == len(found.messages)
