"""Start real message brokers on loopback for tests; a test skips where a program is missing."""

from __future__ import annotations

import getpass
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from attack.brokers.servers import (
    LIMIT_S,
    Server,
    ServerError,
    find_program,
    free_port,
    listens,
    wait_for,
)

__all__ = [
    "LIMIT_S",
    "Broker",
    "free_port",
    "listens",
    "mosquitto",
    "nats_server",
    "program",
    "until",
]


def program(name: str) -> str:
    """The path of a program; skips the test where it is not installed."""
    found = find_program(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition is true."""
    try:
        wait_for(condition, what)
    except ServerError as error:
        raise AssertionError(str(error)) from None


class Broker(Server):
    """A broker that can be killed and started again on the same port and the same files."""

    def __init__(self, command: Sequence[str], port: int, log: Path):
        super().__init__(log.parent, log.name)
        self._words, self._own_port = command, port
        self.start()

    def _command(self) -> Sequence[str]:
        return self._words

    def _find_port(self) -> int:
        return self._own_port

    def end(self, number: signal.Signals) -> None:
        super().end(number)
        self.port = self._own_port  # it comes back there

    def stop(self) -> None:
        """End it in the ordinary way, so that it keeps what it has."""
        self.end(signal.SIGTERM)

    def kill(self) -> None:
        self.end(signal.SIGKILL)


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
