"""Serve the page to a few browsers, each in a thread of its own.

GET /          the page; with ?token= a cookie and a redirect
GET /events    server-sent events, until the browser goes or does not read for some seconds
POST /view     which sensors a browser looks at

A browser has no queue. Its thread sends what has changed since it sent last, so a slow browser
gets fewer and larger messages, and none once it does not read at all.
"""

from __future__ import annotations

import json
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, urlsplit

from edgefold.cli.page.access import PageAccess, PageAddress
from edgefold.cli.page.page_board import BrowserView, PageBoard

MOST_BROWSERS = 8
MOST_CONNECTIONS = 32
REQUEST_S = 10.0
SEND_S = 5.0
"""A browser that does not read for so many seconds is dropped."""
STATUS_S = 1.0
RETRY_MS = 1000
SEND_BYTES = 128 * 1024
"""Size of a connection's buffer in the kernel, in which data for a slow browser waits."""
MOST_BODY = 4096
HEADERS = {
    "Cache-Control": "no-store",
    "Connection": "close",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
FORBIDDEN = (
    "This page needs its token. Open the address with ?token= that `edgefold run` printed when it "
    "started, or that its owner gave you.\n"
)


def page_html(nonce: str) -> bytes:
    """Return the page as one file, whose style and script are allowed by this nonce."""
    folder = resources.files("edgefold.cli.page")
    text = (folder / "page.html").read_text("utf-8")
    for name in ("page.css", "chart.js", "page.js"):
        text = text.replace(f"@{name}@", (folder / name).read_text("utf-8"))
    return text.replace("@nonce@", nonce).encode()


class PageServer(ThreadingHTTPServer):
    """Serves the page of one loop.

    Args:
        address: Where to listen; port 0 takes a free one.
        access: Decides which requests are served.
        board: The board that collects what happens in the loop.
        run: The name of this run, by which a browser knows that the loop was restarted.
        hello: Function that returns what a browser gets first, as a JSON object.
        status: Function that returns the figures that change with time, for a chosen sensor.

    Attributes:
        views: What each browser looks at, by the name that the browser chose for itself.
        is_ending: Whether the loop ends.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        address: PageAddress,
        access: PageAccess,
        board: PageBoard,
        run: str,
        hello: Callable[[], dict[str, Any]],
        status: Callable[[str | None], dict[str, Any]],
    ):
        self.access, self.board, self.run = access, board, run
        self.hello, self.status, self.clock = hello, status, time.monotonic
        self.views: dict[str, BrowserView] = {}
        self.is_ending = False
        self._slots = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._n_browsers, self._counting = 0, threading.Lock()
        if ":" in address.host:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    @property
    def n_browsers(self) -> int:
        """Return how many browsers get events."""
        return self._n_browsers

    @property
    def port(self) -> int:
        """Return the port, also where a free one was taken."""
        return int(self.server_address[1])

    def server_bind(self) -> None:
        # HTTPServer would ask the network for the machine's full name, which may take long.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.port

    def admit(self) -> bool:
        """Count a browser that wants events; return False if there are too many."""
        with self._counting:
            if self._n_browsers >= MOST_BROWSERS:
                return False
            self._n_browsers += 1
            return True

    def dismiss(self) -> None:
        """Count a browser that is gone."""
        with self._counting:
            self._n_browsers -= 1

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except Exception:  # no thread could be started
            self._slots.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent: a browser that goes away, or sends what is no request, is no news."""


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "edgefold", ""
    timeout = REQUEST_S
    server: PageServer

    @property
    def _fields(self) -> dict[str, str]:
        """Return the fields of the request's header; of a field that came twice, the first."""
        return {name.title(): self.headers[name] for name in self.headers}

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: stderr is the log of the loop."""

    def do_GET(self) -> None:
        path, port = urlsplit(self.path), self.server.port
        if path.path == "/" and (cookie := self.server.access.cookie_for(self.path, port)):
            self._answer(303, b"", {"Location": "/", "Set-Cookie": cookie})
        elif not self.server.access.allows(self._fields, port):
            self._answer(403, FORBIDDEN.encode())
        elif path.path == "/":
            nonce = secrets.token_urlsafe(18)
            policy = {"Content-Security-Policy": POLICY.format(nonce=nonce)}
            self._answer(200, page_html(nonce), policy, "text/html; charset=utf-8")
        elif path.path == "/events":
            self._events(parse_qs(path.query))
        else:
            self._answer(404, b"There is no such page.\n")

    def do_POST(self) -> None:
        if not self.server.access.allows(self._fields, self.server.port):
            self._answer(403, FORBIDDEN.encode())
        elif urlsplit(self.path).path != "/view" or not self._look():
            self._answer(404, b"")
        else:
            self._answer(204, b"")

    def _look(self) -> bool:
        """Change what a browser looks at; return False if the request is not valid."""
        try:
            length = int(self.headers.get("Content-Length", "0"))
            body = json.loads(self.rfile.read(min(length, MOST_BODY)))
            view = self.server.views[str(body["browser"])]
            chosen, visible = body["chosen"], [int(number) for number in body["visible"]]
            wish = (None if chosen is None else int(chosen), int(body["seen"]), visible)
        except (ValueError, KeyError, TypeError):
            return False
        if body.get("run") != self.server.run:
            return False
        self.server.board.choose(view, *wish)
        return True

    def _answer(
        self,
        code: int,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        kind: str = "text/plain; charset=utf-8",
    ) -> None:
        self.send_response(code)
        every = {**HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}
        for name, value in {**every, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    # Events ---------------------------------------------------------------------------------------

    def _events(self, query: Mapping[str, list[str]]) -> None:
        server = self.server
        if not server.admit():
            text = f"{MOST_BROWSERS} browsers look at this loop already; close one of them.\n"
            self._answer(503, text.encode(), {"Retry-After": "5"})
            return
        browser = query.get("browser", [""])[0][:64]
        last = self.headers.get("Last-Event-ID") or query.get("last", [""])[0]
        view = server.views[browser] = BrowserView(seen=_seen(last, server.run))
        try:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
            self.connection.settimeout(SEND_S)
            self._stream(view)
        except OSError:  # it is gone, or too slow
            pass
        finally:
            if server.views.get(browser) is view:
                del server.views[browser]
            server.dismiss()
            self.close_connection = True

    def _stream(self, view: BrowserView) -> None:
        server, board = self.server, self.server.board
        self.send_response(200)
        for name, value in {**HEADERS, "Content-Type": "text/event-stream"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(f"retry: {RETRY_MS}\n\n".encode())
        self._send(view, "hello", {**server.hello(), "resumes": view.seen > 0})
        turn, next_status_s = -1, 0.0
        while not server.is_ending:
            with board.lock:
                board.lock.wait_for(lambda turn=turn: board.turn != turn, STATUS_S)  # type: ignore[misc]
                turn = board.turn
            changes = board.changes(view)
            if changes:
                self._send(view, "changes", changes)
            if (now_s := server.clock()) >= next_status_s:
                next_status_s = now_s + STATUS_S
                self._send(view, "status", server.status(board.name_of(view.chosen)))
        self._send(view, "end", {})

    def _send(self, view: BrowserView, event: str, data: Mapping[str, Any]) -> None:
        text = json.dumps(data, separators=(",", ":"), allow_nan=False)
        number = f"{self.server.run}-{view.seen}"
        self.wfile.write(f"id: {number}\nevent: {event}\ndata: {text}\n\n".encode())


def _seen(last: str, run: str) -> int:
    """Return the number of the last event that a browser has seen in this run; 0 for none."""
    name, _, number = last.partition("-")
    return int(number) if name == run and number.isdecimal() and len(number) < 16 else 0


def listen(server: PageServer) -> threading.Thread:
    """Serve requests in a new thread until `server.shutdown` is called."""
    thread = threading.Thread(target=server.serve_forever, name="page-server", daemon=True)
    thread.start()
    return thread


def close(server: PageServer) -> None:
    """Let no more browsers in; those that are there get a last event in threads of their own."""
    server.is_ending = True
    server.board.wake()
    with suppress(OSError):
        server.shutdown()
        server.server_close()
