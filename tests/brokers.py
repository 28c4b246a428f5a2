"""Start real message brokers on loopback for tests; a test skips where a program is missing."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

LIMIT_S = 120.0
"""A condition that does not come true within this time is a failure, on a loaded machine too."""


def program(name: str) -> str:
    """The path of a program; skips the test where it is not installed."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition is true."""
    end_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end_s, f"{what} did not come true in {LIMIT_S:g} s"
        time.sleep(0.01)


def listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Broker:
    """A broker that can be killed and started again on the same port and the same files."""

    def __init__(self, command: Sequence[str], port: int, log: Path):
        self._command, self.port, self._log = command, port, log
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

        def is_up() -> bool:
            assert self._process.poll() is None, self._log.read_text()[-2000:]
            return listens(self.port)

        until(is_up, f"{self._command[0]} listening")

    def stop(self) -> None:
        """End it in the ordinary way, so that it keeps what it has."""
        self._process.terminate()
        self._process.wait(LIMIT_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(LIMIT_S)


@contextmanager
def mosquitto(folder: Path, *lines: str) -> Iterator[Broker]:
    """A mosquitto that keeps sessions in `folder`; `lines` are added to its configuration."""
    command, port = program("mosquitto"), free_port()
    own = [
        f"listener {port} 127.0.0.1",
        "persistence true",
        f"persistence_location {folder}/",
        f"user {getpass.getuser()}",  # started by root it would become another user
    ]
    if not any(line.startswith("allow_anonymous") for line in lines):
        own.append("allow_anonymous true")
    config = folder / "mosquitto.conf"
    config.write_text("\n".join([*own, *lines]) + "\n")
    broker = Broker([command, "-c", str(config)], port, folder / "mosquitto.log")
    try:
        yield broker
    finally:
        broker.kill()


@contextmanager
def nats_server(folder: Path) -> Iterator[Broker]:
    """A NATS server with JetStream, whose logs lie in `folder`."""
    command, port = program("nats-server"), free_port()
    words = [command, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder / "js")]
    broker = Broker(words, port, folder / "nats.log")
    try:
        yield broker
    finally:
        broker.kill()
