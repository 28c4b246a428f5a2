"""Publish messages in a given order, and send again what the broker has not acknowledged.

A publisher has no thread: whoever uses it waits for `sockets` and then calls `step`. A connection
that is lost is made again, and everything from the first unacknowledged message on is sent again.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Protocol

from attack.brokers import mqtt_packets
from attack.brokers.servers import ServerError

AGAIN_S = 0.03
SILENCE_S = 5.0
"""A broker that acknowledges nothing for so long is connected again."""
STREAM = "schedule"


class Sent(Protocol):
    """A message as a publisher needs it."""

    @property
    def topic(self) -> str: ...

    @property
    def payload(self) -> bytes: ...


class Publisher:
    """Publishes messages.

    Args:
        port: The broker's port on loopback.
        messages: The messages in the order in which they are sent; one may come several times.
        window: The most messages that are sent and not acknowledged.

    Attributes:
        allowed: The number of messages that may be sent by now.
        acknowledged: For each message that was acknowledged, by its place: when, in seconds.
        sent: For each message, by its place: when it was sent last before it was acknowledged.
        n_again: Number of messages that were sent again.
        is_stopped: Whether nothing is sent or read now.
    """

    def __init__(self, port: int, messages: Sequence[Sent], window: int):
        self._port, self._messages, self._window = port, messages, window
        self.allowed = 0
        self.acknowledged: dict[int, float] = {}
        self.sent: dict[int, float] = {}
        self.n_again = 0
        self.is_stopped = False
        self._socket: socket.socket | None = None
        self._is_open = False
        self._again_s = self._heard_s = 0.0
        self._read = self._write = b""
        self._next = self._n_first = 0  # the next message on this connection
        self._most_sent = -1

    @property
    def n_done(self) -> int:
        """Return the number of messages from the first one on that are acknowledged."""
        while self._n_first in self.acknowledged:
            self._n_first += 1
        return self._n_first

    @property
    def sockets(self) -> list[socket.socket]:
        """Return the sockets at which `step` would read."""
        return [self._socket] if self._socket and not self.is_stopped else []

    def step(self) -> None:
        """Connect, read acknowledgements, and send what may be sent."""
        if self.is_stopped:
            return
        try:
            self._step(time.monotonic())
        except OSError:
            self.lose()

    def _step(self, now_s: float) -> None:
        if self._socket is None:
            if now_s < self._again_s:
                return
            self._socket = socket.create_connection(("127.0.0.1", self._port))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setblocking(False)
            self._read = self._write = b""
            self._is_open, self._next, self._heard_s = False, self.n_done, now_s
            self._begin()
        with suppress(BlockingIOError):
            block = self._socket.recv(65536)
            if not block:
                raise ConnectionResetError
            self._read += block
            self._heard_s = now_s
            self._take()
        if now_s > self._heard_s + SILENCE_S and (self._n_open or not self._is_open):
            raise ConnectionResetError
        if not self._n_open:
            self._heard_s = now_s
        if self._is_open:
            self._send()
        if self._write:
            with suppress(BlockingIOError):
                self._write = self._write[self._socket.send(self._write) :]

    @property
    def _n_open(self) -> int:
        return self._next - self.n_done

    def _send(self) -> None:
        while self._next < min(self.allowed, len(self._messages), self.n_done + self._now_open):
            place = self._next
            if place not in self.acknowledged:
                again = place <= self._most_sent
                self.n_again += again
                self.sent[place] = time.monotonic()
                self._write += self._packet(place, self._messages[place], again)
                self._most_sent = max(self._most_sent, place)
            self._next += 1

    @property
    def _now_open(self) -> int:
        """Return the most messages that may be open now."""
        return self._window

    def _begin(self) -> None:
        """Write what opens a connection."""

    def _take(self) -> None:
        """Read acknowledgements."""

    def _packet(self, place: int, message: Sent, again: bool) -> bytes:
        raise NotImplementedError

    def _acknowledge(self, place: int) -> None:
        self.acknowledged.setdefault(place, time.monotonic())

    def lose(self) -> None:
        """Lose the connection, as by a fault; it is made again after a moment."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._again_s = time.monotonic() + AGAIN_S

    def close(self) -> None:
        """Close the connection."""
        self.lose()


class MqttPublisher(Publisher):
    """Publishes with quality of service 1, as a new client at each connection."""

    def _begin(self) -> None:
        self._packets = mqtt_packets.Packets()
        self._write = mqtt_packets.connect("publisher")

    def _take(self) -> None:
        block, self._read = self._read, b""
        for kind, _, body in self._packets.take(block):
            if kind == mqtt_packets.CONNACK:
                if body[1]:
                    raise ConnectionResetError
                self._is_open = True
            elif kind == mqtt_packets.PUBACK:
                self._acknowledge(mqtt_packets.number_of(body) - 1)

    def _packet(self, place: int, message: Sent, again: bool) -> bytes:
        return mqtt_packets.publish(message.topic, message.payload, place + 1, again)


class NatsPublisher(Publisher):
    """Publishes into a JetStream log, with a number by which the server knows a message or without.

    After each connection the first message is sent on its own: a server that starts refuses
    messages until its log is open, and the order must not change by that.

    Args:
        port: The server's port on loopback.
        messages: The messages in the order in which they are sent.
        window: The most messages that are sent and not acknowledged.
        names: Whether each message has a name, by which the server drops it if it comes again.
    """

    def __init__(self, port: int, messages: Sequence[Sent], window: int, names: bool):
        super().__init__(port, messages, window)
        self._names = names
        self._is_ready = False

    def _begin(self) -> None:
        self._is_ready = False
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}
        words = json.dumps({**options, "lang": "attack", "version": "1", "protocol": 1})
        self._write = f"CONNECT {words}\r\nSUB ack.* 1\r\nPING\r\n".encode()

    @property
    def _now_open(self) -> int:
        return self._window if self._is_ready else 1

    def _take(self) -> None:
        while b"\r\n" in self._read:
            line, _, rest = self._read.partition(b"\r\n")
            words = line.split()
            kind = words[0].upper() if words else b""
            if kind in (b"MSG", b"HMSG"):
                size = int(words[-1])
                if len(rest) < size + 2:
                    return
                self._read = rest[size + 2 :]
                answer = json.loads(rest[:size]) if kind == b"MSG" else {"error": "nobody answers"}
                if "error" in answer:
                    raise ConnectionResetError(str(answer["error"]))
                self._is_ready = True
                self._acknowledge(int(words[1].rpartition(b".")[2]))
                continue
            self._read = rest
            if kind == b"PONG":
                self._is_open = True
            elif kind == b"PING":
                self._write += b"PONG\r\n"
            elif kind == b"-ERR":
                raise ConnectionResetError(line.decode())

    def _packet(self, place: int, message: Sent, again: bool) -> bytes:
        head, payload = f"{message.topic} ack.{place}", message.payload
        if not self._names:
            return f"PUB {head} {len(payload)}\r\n".encode() + payload + b"\r\n"
        name = f"NATS/1.0\r\nNats-Msg-Id: {place}\r\n\r\n".encode()
        sizes = f"{len(name)} {len(name) + len(payload)}"
        return f"HPUB {head} {sizes}\r\n".encode() + name + payload + b"\r\n"


def create_stream(port: int, subjects: str) -> None:
    """Make the log of the subjects in files.

    Raises:
        ServerError: The server refuses.
    """
    config = {
        "name": STREAM,
        "subjects": [subjects],
        "storage": "file",
        "retention": "limits",
        "num_replicas": 1,
    }
    body = json.dumps(config).encode()
    with closing(socket.create_connection(("127.0.0.1", port), 30.0)) as connection:
        connection.sendall(
            b'CONNECT {"verbose":false}\r\nSUB made 1\r\n'
            + f"PUB $JS.API.STREAM.CREATE.{STREAM} made {len(body)}\r\n".encode()
            + body
            + b"\r\n"
        )
        text = b""
        while b'"type"' not in text:
            block = connection.recv(65536)
            if not block:
                break
            text += block
        if b'"created"' not in text:
            raise ServerError(f"the log was not made: {text[-300:]!r}")
