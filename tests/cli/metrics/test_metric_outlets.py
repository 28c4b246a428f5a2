"""Metrics are answered over HTTP while a loop runs, and written as a file that is always whole."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgefold.cli.main import build_parser, main
from edgefold.cli.options.metrics_options import host_and_port, textfile
from edgefold.runtime.errors import OutputError
from tests.brokers import LIMIT_S, until

pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")

from edgefold.cli.metrics.outlets import MetricsFile, MetricsServer, registry_of

NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def read(url: str) -> str:
    with NO_PROXY.open(url, timeout=LIMIT_S) as answer:
        text: str = answer.read().decode()
        return text


class Collector:
    """Gives one metric whose value is the number of its collections."""

    is_running = True
    n = 0

    def describe(self) -> list[Any]:
        return []

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        self.n += 1
        yield GaugeMetricFamily("n", "Number.", self.n)
        yield GaugeMetricFamily("running", "Whether it runs.", int(self.is_running))


@contextmanager
def waiting_run(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], int, Path]]:
    """A run that reads a pipe; yields the process, the pipe's end to write to, and its stderr."""
    command = [sys.executable, "-m", "edgefold.cli.main", "run", "sensors", "--input", "-"]
    errors = folder / "errors"
    with errors.open("wb") as file:
        process = subprocess.Popen(
            [*command, *words], stdin=subprocess.PIPE, stderr=file,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    assert process.stdin is not None
    try:
        yield process, process.stdin.fileno(), errors
    finally:
        process.kill()
        process.wait(LIMIT_S)
        process.stdin.close()


def said_url(process: subprocess.Popen[bytes], errors: Path) -> str:
    """The address that a run names on stderr."""

    def is_said() -> bool:
        assert process.poll() is None, errors.read_text()
        return "metrics at http" in errors.read_text()

    until(is_said, "the address of the metrics")
    return errors.read_text().partition("metrics at ")[2].split()[0]


def test_a_run_answers_while_it_waits_for_rows(tmp_path: Path) -> None:
    text = tmp_path / "m.prom"
    words = ("--metrics", "0", "--metrics-file", str(text), "--metrics-every", "0.01")
    with waiting_run(tmp_path, *words) as (process, pipe, errors):
        os.write(pipe, b"time,value\n" + b"".join(b"%d,%d\n" % (i, i % 5) for i in range(40)))
        url = said_url(process, errors)
        assert url.startswith("http://127.0.0.1:"), "the loopback address alone"
        until(lambda: 'rows_learned_total{loop="m",series=""} 40.0' in read(url), "forty rows")
        assert 'edgefold_running{loop="m"} 1.0' in read(url)
        until(lambda: 'rows_learned_total{loop="m",series=""} 40.0' in text.read_text(), "the file")
        os.write(pipe, b"40,1\n")
        until(lambda: 'rows_learned_total{loop="m",series=""} 41.0' in read(url), "one more row")
        with pytest.raises(urllib.error.HTTPError) as found:
            read(url.replace("/metrics", "/"))
        with found.value as answer:
            assert answer.code == 404
        process.terminate()
        assert process.wait(LIMIT_S) == 0
    assert 'edgefold_running{loop="m"} 0.0' in text.read_text()
    assert 'rows_learned_total{loop="m",series=""} 41.0' in text.read_text()
    assert [path.name for path in tmp_path.glob("m.prom*")] == ["m.prom"]


def test_a_port_in_use_is_refused_before_a_row_is_learned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.csv").write_text("time,value\n" + "".join(f"{i},1\n" for i in range(40)))
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        words = ["--input", str(tmp_path / "in.csv"), "--output", str(tmp_path / "out.csv")]
        assert main(["run", "sensors", *words, "--metrics", str(port)]) != 0
    assert f"127.0.0.1:{port}" in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists()


def test_a_missing_package_is_named_with_its_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    (tmp_path / "in.csv").write_text("time,value\n1,2\n2,3\n3,4\n")
    assert main(["run", "sensors", "--input", str(tmp_path / "in.csv"), "--metrics", "0"]) == 1
    assert "pip install 'edgefold[metrics]'" in capsys.readouterr().err


def test_clients_that_send_nothing_or_go_away_hold_up_nobody() -> None:
    with MetricsServer("127.0.0.1", 0, registry_of(Collector())) as server:  # type: ignore[arg-type]
        port = int(server.url.rpartition(":")[2].partition("/")[0])
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port)) as rude:
                rude.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert "n_total" not in read(server.url) and "\nn " in read(server.url)
        for connection in silent:
            connection.close()


def test_the_server_listens_at_ipv6_too() -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    with MetricsServer("::1", 0, registry_of(Collector())) as server:  # type: ignore[arg-type]
        assert server.url.startswith("http://[::1]:") and "\nn " in read(server.url)


def written(folder: Path, now: list[float], told: list[str]) -> tuple[MetricsFile, Collector]:
    collector: Any = Collector()
    path = folder / "m.prom"
    return MetricsFile(path, collector, 15.0, told.append, lambda: now[0]), collector


def test_the_file_is_written_at_the_start_each_interval_and_at_the_end(tmp_path: Path) -> None:
    now, told = [100.0], list[str]()
    file, collector = written(tmp_path, now, told)
    with file:
        assert collector.n == 1
        for now[0] in (100.1, 114.9):
            file.line()
            file.idle()
        assert collector.n == 1
        now[0] = 115.0
        file.idle()
        file.line()
        assert collector.n == 2 and "running 1.0" in (tmp_path / "m.prom").read_text()
    assert "running 0.0" in (tmp_path / "m.prom").read_text() and not told


def test_a_file_that_cannot_be_written_later_is_reported_once(tmp_path: Path) -> None:
    now, told = [0.0], list[str]()
    folder = tmp_path / "f"
    folder.mkdir()
    file, _ = written(folder, now, told)
    with file:
        (folder / "m.prom").unlink()
        folder.rmdir()
        for now[0] in (20.0, 40.0, 60.0):
            file.line()
        assert len(told) == 1
        folder.mkdir()
        now[0] = 80.0
        file.idle()
        assert (folder / "m.prom").exists()
    with pytest.raises(OutputError):
        written(tmp_path / "nowhere", now, told)[0].__enter__()


def test_a_file_of_the_run_is_not_overwritten(tmp_path: Path) -> None:
    source = tmp_path / "in.prom"
    source.write_text("time,value\n1,2\n2,3\n3,4\n")
    assert main(["run", "sensors", "--input", str(source), "--metrics-file", str(source)]) == 1
    assert source.read_text().startswith("time,value")


def test_addresses_and_names_are_read() -> None:
    assert host_and_port("9101") == ("127.0.0.1", 9101)
    assert host_and_port("0.0.0.0:9101") == ("0.0.0.0", 9101)
    assert host_and_port("[::1]:0") == ("::1", 0)
    for words in (["--metrics", "http"], ["--metrics", "1:99999"], ["--metrics-file", "m.txt"]):
        argv = ["run", "sensors", "--input", "-", *words]
        with pytest.raises(SystemExit):
            build_parser(argv).parse_args(argv)
    assert textfile("a.prom") == Path("a.prom")
