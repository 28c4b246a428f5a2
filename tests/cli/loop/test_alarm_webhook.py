"""`--on-alarm https://...`: alarms are posted, and again if the server is busy."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from edgefold.cli.loop import alarm_webhook
from edgefold.cli.loop.alarm_delivery import AlarmDelivery
from edgefold.cli.loop.alarm_webhook import AlarmWebhook
from edgefold.runtime.loop.alarm import Alarm
from tests.brokers import free_port

LONG_S = 60.0


class Server(ThreadingHTTPServer):
    """Answers each request with the next of some codes, then with 204."""

    def __init__(self, codes: list[int]):
        super().__init__(("127.0.0.1", 0), Handler)
        self.codes, self.bodies, self.keys = codes, list[str](), list[str]()
        self.url = f"http://127.0.0.1:{self.server_port}/hook?token=secret"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.server.keys.append(self.headers["Idempotency-Key"])
        self.send_response(self.server.codes.pop(0) if self.server.codes else 204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def codes() -> list[int]:
    return []


@pytest.fixture
def server(codes: list[int]) -> Iterator[Server]:
    with Server(codes) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def alarm(value: float = 20.5) -> Alarm:
    return Alarm("röof\n", "drift", "2024-01-01", "20.5", value, 42, -3.25)


def test_an_alarm_is_posted_as_json(server: Server) -> None:
    with AlarmDelivery(AlarmWebhook(server.url), LONG_S) as delivery:
        delivery.give(alarm())
        delivery.give(alarm(math.nan))
    assert [json.loads(body) for body in server.bodies] == [
        alarm().to_json(),
        alarm(math.nan).to_json(),
    ]
    assert (delivery.n_begun, delivery.n_failed) == (2, 0)
    assert delivery.summary == "2 posts started"


@pytest.mark.parametrize("code", [500, 503, 429, 408])
def test_a_busy_server_is_asked_again_with_the_same_key(
    server: Server, codes: list[int], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alarm_webhook, "WAITS_S", (0.0, 0.0, 0.0))
    codes += [code] * 3
    assert AlarmWebhook(server.url).deliver(alarm(), threading.Event()) == ""
    assert len(server.bodies) == 4 and len({*server.keys}) == 1


@pytest.mark.parametrize("code", [400, 401, 404])
def test_a_server_that_refuses_is_asked_once(
    server: Server, codes: list[int], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    codes.append(code)
    with AlarmDelivery(AlarmWebhook(server.url), LONG_S) as delivery:
        delivery.give(alarm())
    assert len(server.bodies) == 1 and delivery.n_failed == 1
    error = capsys.readouterr().err
    assert f"answered {code}" in error and "secret" not in error


def test_a_server_that_is_away_is_reported_after_four_attempts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(alarm_webhook, "WAITS_S", (0.0, 0.0, 0.0))
    url = f"http://127.0.0.1:{free_port()}/"
    assert "is not reached" in AlarmWebhook(url).deliver(alarm(), threading.Event())


def test_the_end_of_the_loop_ends_the_waits() -> None:
    stops = threading.Event()
    stops.set()
    url = f"http://127.0.0.1:{free_port()}/"
    assert "is not reached" in AlarmWebhook(url).deliver(alarm(), stops)
