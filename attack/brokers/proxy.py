"""Pass connections on to a server, and cut, stop or slow them at will.

    client ──> port of the proxy ──> port of the server, which may change

It has no thread: whoever uses it waits for `sockets` and then calls `step`.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from contextlib import suppress

BLOCK = 65536
ABORT = struct.pack("ii", 1, 0)
"""The option of a socket that is closed without an orderly end."""
Watch = Callable[[int, bool, bytes], None]
"""Function that gets the connection's number, whether bytes come from the client, and the bytes."""


class _Half:
    """One direction of a connection."""

    def __init__(self, source: socket.socket, target: socket.socket, is_up: bool):
        self.source, self.target, self.is_up = source, target, is_up
        self.waiting = b""
        self.has_ended = False

    def step(self, most: int) -> bytes:
        """Move at most so many bytes; return those that the target took.

        Raises:
            OSError: One of the two sides is gone.
        """
        if not self.waiting and not self.has_ended:
            with suppress(BlockingIOError):
                self.waiting = self.source.recv(BLOCK)
                self.has_ended = not self.waiting
        if not self.waiting:
            if self.has_ended:
                raise ConnectionResetError
            return b""
        try:
            n = self.target.send(self.waiting[:most])
        except BlockingIOError:
            return b""
        block, self.waiting = self.waiting[:n], self.waiting[n:]
        return block


class TcpProxy:
    """Passes connections on.

    Args:
        watch: Function that gets all bytes that were passed on.

    Attributes:
        port: The proxy's own port on loopback.
        target: The server's port; 0 refuses connections.
        is_stopped: Whether no byte passes now, in either direction.
        most: The largest number of bytes that one `step` passes in one direction.
        n_connections: Number of connections so far.
    """

    def __init__(self, watch: Watch = lambda number, is_up, block: None):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self.target, self.is_stopped, self.most = 0, False, BLOCK
        self._watch = watch
        self._connections: dict[int, tuple[_Half, _Half]] = {}
        self.n_connections = 0

    @property
    def sockets(self) -> list[socket.socket]:
        """Return the sockets whose bytes `step` would pass on."""
        if self.is_stopped:
            return [self._listener]
        halves = [half for pair in self._connections.values() for half in pair]
        return [self._listener, *(half.source for half in halves if not half.waiting)]

    def step(self) -> None:
        """Take new connections, and pass on what has come."""
        with suppress(BlockingIOError):
            self._accept()
        if self.is_stopped:
            return
        for number, pair in list(self._connections.items()):
            try:
                for half in pair:
                    if block := half.step(self.most):
                        self._watch(number, half.is_up, block)
            except OSError:
                self._close(number)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        server = socket.socket()
        try:
            if not self.target:
                raise ConnectionRefusedError
            server.connect(("127.0.0.1", self.target))
        except OSError:
            client.close()
            server.close()
            return
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.setblocking(False)
        self.n_connections += 1
        self._connections[self.n_connections] = (
            _Half(client, server, True),
            _Half(server, client, False),
        )

    def _close(self, number: int, abort: bool = False) -> None:
        for half in self._connections.pop(number):
            if abort:
                half.source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
            half.source.close()

    def cut(self, abort: bool = False) -> None:
        """End all connections; what was under way is lost.

        Args:
            abort: Whether both sides see an error instead of an orderly end.
        """
        for number in list(self._connections):
            self._close(number, abort)

    def close(self) -> None:
        """End all connections, and take no more."""
        self.cut()
        self._listener.close()
