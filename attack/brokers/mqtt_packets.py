"""Write the few MQTT packets of a publisher, and read the packets that pass by a proxy."""

from __future__ import annotations

import struct
from collections.abc import Iterator

CONNECT, CONNACK, PUBLISH, PUBACK, SUBACK = 1, 2, 3, 4, 9
TWICE = 0x08
"""The flag of a packet that is sent again."""


def _packet(kind: int, flags: int, body: bytes) -> bytes:
    return bytes([kind << 4 | flags]) + _length(len(body)) + body


def _length(n: int) -> bytes:
    out = bytearray()
    while True:
        n, digit = n >> 7, n & 127
        out.append(digit | 128 if n else digit)
        if not n:
            return bytes(out)


def _text(text: str) -> bytes:
    content = text.encode()
    return struct.pack(">H", len(content)) + content


def connect(client: str) -> bytes:
    """Return the packet that opens a new session of MQTT 3.1.1 without a limit of silence."""
    return _packet(CONNECT, 0, _text("MQTT") + bytes([4, 2, 0, 0]) + _text(client))


def publish(topic: str, payload: bytes, number: int, again: bool) -> bytes:
    """Return the packet of a message of quality of service 1; `number` is the packet's."""
    flags = 2 | (TWICE if again else 0)
    return _packet(PUBLISH, flags, _text(topic) + struct.pack(">H", number) + payload)


class Packets:
    """Cuts a stream of bytes into packets."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, block: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Yield the kind, the flags and the body of each packet that is whole now."""
        self._rest += block
        while (end := self._end()) is not None:
            head, self._rest = self._rest[:end], self._rest[end:]
            body = head[1 + _n_digits(head) :]
            yield head[0] >> 4, head[0] & 15, body

    def _end(self) -> int | None:
        """Return where the first packet ends; None if it is not whole."""
        rest, n = self._rest, 0
        for place in range(1, min(5, len(rest))):
            n |= (rest[place] & 127) << 7 * (place - 1)
            if not rest[place] & 128:
                return 1 + place + n if len(rest) >= 1 + place + n else None
        return None


def _n_digits(packet: bytes) -> int:
    return next(place for place in range(1, 5) if not packet[place] & 128)


def number_of(body: bytes) -> int:
    """Return the packet's number of an acknowledgement."""
    return int(struct.unpack_from(">H", body)[0])


def message_of(body: bytes) -> tuple[int, bytes]:
    """Return the packet's number and the payload of a message of MQTT 5 that needs an answer."""
    (length,) = struct.unpack_from(">H", body)
    number, place = number_of(body[2 + length :]), 4 + length
    n = shift = 0
    while True:  # the length of the properties, which are skipped
        digit, place = body[place], place + 1
        n |= (digit & 127) << shift
        shift += 7
        if not digit & 128:
            return number, body[place + n :]
