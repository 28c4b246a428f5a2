"""The page over HTTP: its file, its events with a reconnect, its limits."""

from __future__ import annotations

import re
import socket
from contextlib import closing
from pathlib import Path

import pytest

from edgefold.cli.page import page_server
from edgefold.cli.page.page_server import MOST_BROWSERS, MOST_CONNECTIONS, page_html
from edgefold.cli.page.process_figures import read_figures
from edgefold.runtime.errors import DataError
from tests.brokers import free_port, listens, until
from tests.page_loops import HOSTILE, Events, RunningLoop, line_of, request, served, watched

TOKEN = "a-token-of-24-characters"


def test_the_page_is_one_file_that_asks_nobody_else() -> None:
    text = page_html("NONCE").decode()
    assert text.count('nonce="NONCE"') == 2 and not re.findall(
        r"@[\w.]+\.(?:js|css)@|@nonce@", text
    )
    assert set(re.findall(r"https?://[^\s'\"]+", text)) == {"http://www.w3.org/2000/svg"}
    html, _, script = text.partition("<script")
    assert not re.search(r"\s(?:on\w+|style|src)=", html)
    assert not re.search(r"\shref=\"(?!#|data:)", html)
    for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert sink not in script
    assert script.count("</script>") == 1 and len(text) < 100_000


def test_the_page_comes_with_a_strict_policy_and_a_new_nonce() -> None:
    with served() as page:
        answers = [request(page.address.port, "GET", "/") for _ in range(2)]
    nonces = set()
    for code, fields, text in answers:
        assert code == 200 and fields["Cache-Control"] == "no-store"
        assert fields["Referrer-Policy"] == "no-referrer"
        policy = fields["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        (nonce,) = set(re.findall(r"'nonce-([^']+)'", policy))
        assert text.count(f'nonce="{nonce}"') == 2
        nonces.add(nonce)
    assert len(nonces) == 2


def test_other_paths_and_methods_are_refused() -> None:
    with served() as page:
        port = page.address.port
        for path in ("/x", "/events/", "/../page.html", "/page.js"):
            assert request(port, "GET", path)[0] == 404
        assert request(port, "POST", "/", "{}")[0] == 404
        assert request(port, "DELETE", "/")[0] == 501
        for body in ("", "[]", "{", '{"browser": "nobody"}', "9" * 9999):
            assert request(port, "POST", "/view", body)[0] == 404


def test_a_foreign_name_of_this_machine_is_refused() -> None:
    with served() as page:
        for path in ("/", "/events"):
            assert request(page.address.port, "GET", path, Host="evil.example")[0] == 403
        assert request(page.address.port, "POST", "/view", "{}", Host="evil.example")[0] == 403


def test_with_a_token_nothing_is_served_without_it() -> None:
    with served(TOKEN) as page:
        port = page.address.port
        for path in ("/", "/events", "/?token=", "/?token=wrong", f"/events?token={TOKEN}"):
            code, fields, text = request(port, "GET", path)
            assert code == 403 and "Set-Cookie" not in fields and TOKEN not in text
        assert page.url.endswith(f"?token={TOKEN}")
        code, fields, _ = request(port, "GET", f"/?token={TOKEN}")
        assert code == 303 and fields["Location"] == "/"
        text = fields["Set-Cookie"]
        assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(text.split("; "))
        cookie = text.partition(";")[0]
        assert request(port, "GET", "/", Cookie=cookie)[0] == 200
    restarted, own = served(TOKEN, port), {"Cookie": cookie}
    with restarted, closing(Events(port, headers=own)) as events:
        assert events.answer.status == 200 and events.next()[0] == "hello"


def test_events_bring_rows_and_go_on_after_a_lost_connection() -> None:
    with served() as page:
        port = page.address.port
        page.watcher.row(watched(HOSTILE, 0))
        with closing(Events(port)) as events:
            assert events.answer.getheader("Content-Type") == "text/event-stream"
            name, hello = events.next()
            assert name == "hello" and not hello["resumes"] and hello["input"] == "a.csv"
            assert events.until("changes", "names")["names"] == [[0, HOSTILE]]
            assert events.look(0, [0]) == 204
            rows = events.until("changes", "detail")["detail"]["rows"]
            assert [row[0] for row in rows] == [1]
            assert events.until("status")["resident_bytes"] is not None
            last, run = events.last, events.run
        page.watcher.row(watched(HOSTILE, 1, "drift"))
        with closing(Events(port, last)) as events:
            assert events.next()[1]["resumes"] and events.run == run
            assert events.until("changes", "alarms")["alarms"][0]["event"] == "drift"
            assert events.look(0, [], seen=1) == 204
            detail = events.until("changes", "detail")["detail"]
            assert [row[0] for row in detail["rows"]] == [2] and detail["after"] == 1


def test_a_loop_that_was_restarted_is_another_run_on_the_same_port() -> None:
    with served() as page:
        port = page.address.port
        page.watcher.row(watched("a", 0))
        events = Events(port)
        events.until("changes", "names")
        last, run = events.last, events.run
    with closing(events):
        assert events.until("end") == {}
    with served(port=port) as page, closing(Events(port, last)) as events:
        name, hello = events.next()
        assert name == "hello" and not hello["resumes"] and hello["run"] != run
        assert events.look(0, []) == 204
        page.watcher.row(watched("a", 0))
        assert events.until("changes", "names")["names"] == [[0, "a"]]


def test_a_port_in_use_is_reported() -> None:
    with served() as page, pytest.raises(DataError), served(port=page.address.port):
        pass


def test_only_a_few_browsers_get_events() -> None:
    with served() as page:
        port = page.address.port
        many = [Events(port, browser=f"b{n}") for n in range(MOST_BROWSERS)]
        for events in many:
            assert events.next()[0] == "hello"
        code, fields, _ = request(port, "GET", "/events?browser=more")
        assert code == 503 and fields["Retry-After"]
        assert request(port, "GET", "/")[0] == 200
        for events in many:
            events.close()
        server = page._server
        assert server is not None
        until(lambda: server.n_browsers == 0, "the end of all connections")
        with closing(Events(port)) as events:
            assert events.next()[0] == "hello"


@pytest.mark.long
def test_connections_that_say_nothing_take_a_bounded_number_of_threads() -> None:
    with served() as page:
        port, held = page.address.port, list[socket.socket]()
        for _ in range(MOST_CONNECTIONS):
            held.append(socket.create_connection(("127.0.0.1", port)))
        server = page._server
        assert server is not None
        until(lambda: server._slots._value == 0, "threads for all connections")
        with socket.create_connection(("127.0.0.1", port)) as more:
            assert more.recv(1) == b""  # closed at once
        for one in held:
            one.close()
        until(lambda: server._slots._value == MOST_CONNECTIONS, "the end of all connections")
        assert request(port, "GET", "/")[0] == 200


def test_a_browser_that_does_not_read_is_dropped_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_server, "SEND_S", 0.2)
    monkeypatch.setattr(page_server, "SEND_BYTES", 4096)
    with served() as page:
        port, server = page.address.port, page._server
        assert server is not None
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", port))
        slow.sendall(b"GET /events?browser=slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: server.n_browsers == 1, "the slow browser")
        n = 0

        def is_dropped() -> bool:
            nonlocal n
            for _ in range(100):
                n += 1
                page.watcher.row(watched(f"{n % 1000:0100}", n))
            return server.n_browsers == 0

        until(is_dropped, "the end of the slow browser")
        slow.close()
        monkeypatch.undo()  # a browser that reads may need longer on a loaded machine
        with closing(Events(port)) as events:
            events.until("changes", "names")


def test_the_figures_of_a_process_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "proc" / "self"
    folder.mkdir(parents=True)
    (folder / "statm").write_text("900 250 3 1 0 5 0\n")
    assert read_figures(tmp_path).written_bytes is None
    (folder / "io").write_text("wchar: 9\nwrite_bytes: 4000\n")
    figures = read_figures(tmp_path)
    assert figures.written_bytes == 4000
    assert figures.resident_bytes is not None and figures.resident_bytes % 250 == 0
    assert read_figures(tmp_path / "nothing") == (None, None)


def test_a_run_serves_its_page_from_the_first_moment_to_the_last(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    port = free_port()
    loop = RunningLoop(tmp_path, port)
    try:
        until(lambda: listens(port), "the page")
        with closing(Events(port)) as events:
            hello = events.next()[1]
            assert hello["input"] == "standard input" and hello["has_snapshot"]
            loop.write("".join(line_of("a", n, 20 + n % 5) for n in range(30)) + "nonsense\n")
            assert events.until("changes", "names")["names"] == [[0, "a"]]
            assert events.look(0, [0]) == 204
            rows = list[list[float]]()
            while len(rows) < 30:
                rows += events.until("changes", "detail")["detail"]["rows"]
            assert rows[-1][2] == 24 and rows[-1][4] < rows[-1][5] < rows[-1][6] < rows[-1][7]
            status = events.until("status")
            while (
                not status["sensor"] or status["loop"]["rows"] < 30
            ):  # rows are shown as they come
                status = events.until("status")
            assert status["loop"]["rows"] == 30 and status["sensor"]["pace"] == 60
            assert status["latency"]["p50_s"] > 0 and status["waits_s"] is not None
            loop.process.terminate()
            events.until("end")
        assert loop.process.wait(120) == 0
        assert (
            (tmp_path / "log.txt").read_text().startswith(f"page          http://127.0.0.1:{port}/")
        )
    finally:
        loop.close()


def test_a_page_for_the_network_prints_a_new_token_once(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    loop = RunningLoop(tmp_path, 0, "--page", "0.0.0.0:0")
    try:
        log = tmp_path / "log.txt"
        until(lambda: "\n" in log.read_text(), "the address")
        found = re.match(r"page +http://0\.0\.0\.0:(\d+)/\?token=([\w-]{32})\n", log.read_text())
        assert found is not None
        port = int(found[1])
        assert request(port, "GET", "/")[0] == 403
        assert request(port, "GET", f"/?token={found[2]}")[0] == 303
        loop.write(line_of("a", 0, 1.0))
        loop.stop()
        assert log.read_text().count(found[2]) == 1
    finally:
        loop.close()
