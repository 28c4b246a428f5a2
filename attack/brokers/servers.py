"""Start real brokers on loopback, kill them, and start them again with the files that they left.

Ports are the kernel's choice. Those of the schedules' servers may change with each start, since
their clients know only a proxy; `tests/brokers.py` starts its brokers here too, each on one port.
"""

from __future__ import annotations

import ctypes
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

LIMIT_S = 120.0
"""A server that does not start or end within this time fails the case, on a loaded machine too."""
PAUSE_S = 0.002
PLACES = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
PROGRAMS = {"mosquitto": "mosquitto", "jetstream": "nats-server"}
PACKAGES = {"mosquitto": "paho", "jetstream": "nats"}
DIE_WITH_PARENT = 1
"""The number of prctl's PR_SET_PDEATHSIG."""


class ServerError(RuntimeError):
    """Raised where a server does not do what it must, which is no fault of Edgefold."""


def missing() -> str:
    """Return what the schedules need and this machine lacks; empty if it lacks nothing."""
    programs = [name for name in PROGRAMS.values() if find_program(name) is None]
    packages = [name for name in PACKAGES.values() if find_spec(name) is None]
    return ", ".join([*programs, *(f"the Python package {name}" for name in packages)])


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends."""
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, int(signal.SIGKILL))


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition is true; raise ServerError if it stays false."""
    end_s = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end_s:
            raise ServerError(f"{what} did not come in {LIMIT_S:g} s")
        time.sleep(PAUSE_S)


def find_program(name: str) -> str | None:
    """Return the path of a program, also where only root has its folder in PATH; None without."""
    return shutil.which(name, path=PLACES)


def free_port() -> int:
    """Return a port of loopback on which nobody listens now."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    """Return whether somebody listens on a port of loopback."""
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Server:
    """Runs one server at a time with the files of one folder.

    Args:
        folder: The folder of its configuration, its log and its data.
        log: The name of its log.

    Attributes:
        port: The port on which it listens; 0 while it does not run.
    """

    def __init__(self, folder: Path, log: str = "server.log"):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.log, self.port = folder, folder / log, 0
        self._process: subprocess.Popen[bytes] | None = None

    def _command(self) -> Sequence[str]:
        """Write the configuration of a start, and return its command."""
        raise NotImplementedError

    def _find_port(self) -> int:
        """Return the port of the server that was started; 0 while it is not known."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the server, and wait until it takes connections."""
        for _ in range(5):  # another process may have taken the port meanwhile
            with self.log.open("ab") as log:
                process = subprocess.Popen(
                    self._command(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    preexec_fn=die_with_parent,
                )
            self._process = process
            wait_for(lambda: self._has_ended or self._listens(), "a server's port")
            if not self._has_ended:
                return
        text = self.log.read_text(errors="replace")
        raise ServerError(f"a server does not start: {text[-300:]}")

    @property
    def _has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _listens(self) -> bool:
        self.port = self._find_port()
        return bool(self.port) and listens(self.port)

    def end(self, number: signal.Signals) -> None:
        """End the server by a signal, SIGKILL or SIGTERM; do nothing if it does not run."""
        process, self._process, self.port = self._process, None, 0
        if process is not None:
            process.send_signal(number)
            try:
                process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise ServerError(f"a server does not end by {number.name}") from None

    def save(self) -> None:
        """Let the server write everything to its files, where it does not do so by itself."""
        return

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server if it runs."""
        if self._process is not None:
            self._process.send_signal(number)


class Mosquitto(Server):
    """Runs mosquitto, which keeps in its memory what it acknowledged until it saves it."""

    @property
    def _database(self) -> Path:
        return self.folder / "mosquitto.db"

    def _command(self) -> Sequence[str]:
        self._port = free_port()
        lines = (
            f"listener {self._port} 127.0.0.1",
            "allow_anonymous true",
            "set_tcp_nodelay true",
            "persistence true",
            f"persistence_location {self.folder}/",
            "autosave_interval 100000",  # it saves when it is asked to
            "max_queued_messages 0",  # without a limit, so that it drops none
            f"user {getpass.getuser()}",  # started by root it would become another user
        )
        config = self.folder / "mosquitto.conf"
        config.write_text("\n".join(lines) + "\n")
        return [str(find_program("mosquitto")), "-c", str(config)]

    def _find_port(self) -> int:
        return self._port

    def save(self) -> None:
        """Let mosquitto write its database, and wait until it is there."""
        before = self._version()
        self.signal(signal.SIGUSR1)
        wait_for(lambda: self._version() != before, "mosquitto's database")

    def _version(self) -> tuple[int, int]:
        try:
            found = self._database.stat()
        except FileNotFoundError:
            return 0, 0
        return found.st_ino, found.st_mtime_ns


class JetStream(Server):
    """Runs nats-server with a log in files, which holds what it acknowledged."""

    def _command(self) -> Sequence[str]:
        for path in self.folder.glob("*.ports"):
            path.unlink()
        config = self.folder / "nats.conf"
        config.write_text(
            'listen: "127.0.0.1:-1"\n'
            f'ports_file_dir: "{self.folder}"\n'
            f'jetstream {{ store_dir: "{self.folder}", max_memory_store: 64MB, '
            "max_file_store: 1GB }\n"
        )
        return [str(find_program("nats-server")), "-c", str(config)]

    def _find_port(self) -> int:
        for path in self.folder.glob("*.ports"):
            _, found, rest = path.read_text().partition("127.0.0.1:")
            if found:
                return int(rest.partition('"')[0])
        return 0
