"""Give the metrics of a loop to Prometheus: over HTTP, or as a file for node-exporter.

    GET /metrics ──> a thread ──> collector       answers also while the loop hangs, and shows it
    loop's thread, every 15 s ──> collector ──> FILE.prom

The file needs no port and no network. It is replaced as a whole and not forced to the disk: after a
power cut it is written again within seconds, and each fsync would wear flash storage.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import MetricsHandler

from edgefold.cli.metrics.families import LoopCollector
from edgefold.runtime.errors import OutputError
from edgefold.runtime.loop.watcher import LoopWatcher

TIMEOUT_S = 10
POLL_S = 0.1
MOST_AT_ONCE = 8
"""Requests that are answered at the same time; further connections are closed."""


def registry_of(collector: LoopCollector) -> CollectorRegistry:
    """Return a registry with nothing but the metrics of the loop."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return registry


class _Handler(MetricsHandler):
    timeout = TIMEOUT_S  # of a client that sends nothing

    def do_GET(self) -> None:  # noqa: N802  # http.server calls it by this name
        path = self.path.partition("?")[0]
        if path != "/metrics":
            self.send_error(404, "the metrics are at /metrics")
            return
        with suppress(ConnectionError, TimeoutError):  # the client went away
            super().do_GET()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], handler: type, family: socket.AddressFamily):
        self.address_family = family
        self._free = threading.BoundedSemaphore(MOST_AT_ONCE)
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind without looking the host's name up, which may wait for a name server."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "edgefold", self.server_address[1]

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return self._free.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: a client that breaks off is no fault of the loop."""


class MetricsServer:
    """Answers GET /metrics in threads; use it as a context manager around the loop.

    Args:
        host: The address to listen at.
        port: The port; 0 takes a free one.
        registry: The metrics.

    Attributes:
        url: The address of the metrics.

    Raises:
        OutputError: The address cannot be used.
    """

    def __init__(self, host: str, port: int, registry: CollectorRegistry):
        try:
            family, _, _, _, place = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            self._server = _Server(
                (str(place[0]), port), type("Handler", (_Handler,), {"registry": registry}), family
            )
        except OSError as error:
            raise OutputError(
                f"--metrics cannot listen at {host}:{port} ({error.strerror or error}); choose "
                "another port, or leave out the option."
            ) from None
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_port}/metrics"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=[POLL_S], name="metrics", daemon=True
        )

    def __enter__(self) -> MetricsServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class MetricsFile(LoopWatcher):
    """Writes the metrics into a file from the loop's thread; use it as a context manager.

    A loop that hangs writes no more, so that the file's metric edgefold_metrics_timestamp_seconds
    shows it. A file that cannot be written is reported once and does not stop the loop.

    Args:
        path: The file; node-exporter reads names that end in .prom.
        collector: The metrics.
        every_s: Seconds between two writes.
        tell: Function that gets a sentence for the user.
        clock: Function that returns a time in seconds that never goes back.

    Raises:
        OutputError: The first write fails.
    """

    wants_rows = False

    def __init__(
        self,
        path: Path,
        collector: LoopCollector,
        every_s: float,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ):
        self._path, self._collector, self._every_s = path, collector, every_s
        self._beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        self._registry = registry_of(collector)
        self._tell, self._clock = tell, clock
        self._next_s, self._has_failed = 0.0, False

    def __enter__(self) -> MetricsFile:
        try:
            self._write()
        except OSError as error:
            raise OutputError(
                f"--metrics-file {self._path} cannot be written ({error.strerror}); name a file in "
                "a folder that exists and that you may write to."
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._collector.is_running = False
        self._try()

    def line(self) -> None:
        if self._clock() >= self._next_s:
            self._try()

    def idle(self) -> None:
        if self._clock() >= self._next_s:
            self._try()

    def _try(self) -> None:
        try:
            self._write()
        except OSError as error:
            if not self._has_failed:
                self._tell(f"--metrics-file {self._path} cannot be written ({error.strerror})")
            self._has_failed = True
        else:
            self._has_failed = False

    def _write(self) -> None:
        self._next_s = self._clock() + self._every_s
        try:
            self._beside.write_bytes(generate_latest(self._registry))
            os.replace(self._beside, self._path)
        except OSError:
            with suppress(OSError):
                self._beside.unlink(missing_ok=True)
            raise
