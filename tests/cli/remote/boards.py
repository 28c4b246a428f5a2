"""Boards for tests: real sshd programs on loopback, each with a home of its own.

Pc      what `edgefold` uses here: a key, ssh's configuration with an alias for each board
Sshd    one board: a port that was free, a home, and a folder of programs that its PATH begins
        with, where a test puts stand-ins such as a `df` that reports a full disk
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SSHD_PLACES = ("/usr/sbin/sshd", "/usr/local/sbin/sshd", "/sbin/sshd", "/usr/bin/sshd")
SEPARATION = Path("/run/sshd")  # sshd of root wants it, empty; Debian's service makes it
USER = pwd.getpwuid(os.getuid()).pw_name


def find_sshd() -> str:
    """The path of sshd, which must be absolute; skips and says what is missing."""
    sshd = next((place for place in SSHD_PLACES if os.access(place, os.X_OK)), None)
    if sshd is None:
        pytest.skip("no sshd here: install openssh-server")
    for tool in ("ssh", "ssh-keygen"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool} here: install openssh-client")
    if os.getuid() == 0 and not SEPARATION.is_dir():
        try:
            SEPARATION.mkdir(mode=0o755, exist_ok=True)
        except OSError as error:
            pytest.skip(f"sshd of root needs the folder {SEPARATION}: {error}")
    return sshd


def key_pair(path: Path) -> Path:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return path


@dataclass
class Sshd:
    """One board: its process, and where its things are."""

    name: str
    port: int
    home: Path
    programs: Path
    process: subprocess.Popen[bytes] = field(repr=False)

    def program(self, name: str, text: str) -> Path:
        """Put a program into the folder with which the board's PATH begins."""
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait()


@dataclass
class Pc:
    """Holds ssh's configuration for the commands here, in a folder of its own."""

    folder: Path
    sshd: str
    key: Path
    boards: list[Sshd] = field(default_factory=list)

    @property
    def config(self) -> Path:
        return self.folder / "ssh_config"

    @property
    def python(self) -> Path:
        """A folder whose `python3` is the Python of the tests; no edgefold is in it."""
        folder = self.folder / "python"
        if not folder.exists():
            folder.mkdir()
            (folder / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
            (folder / "python3").chmod(0o755)
        return folder

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    def board(self, name: str, path: str | None = None) -> Sshd:
        """Start a board whose alias is `name`; its PATH is its programs, then `path`."""
        place = self.folder / name
        home, programs = place / "home", place / "programs"
        for folder in (home, programs):
            folder.mkdir(parents=True)
        host_key = key_pair(place / "host_key")
        keys = place / "authorized_keys"
        keys.write_text(self.key.with_suffix(".pub").read_text())
        path = path or f"{self.python}:/usr/bin:/bin"
        for _ in range(5):  # another program may take the port in between
            port = free_port()
            config = place / "sshd_config"
            config.write_text(
                f"Port {port}\nListenAddress 127.0.0.1\nHostKey {host_key}\nPidFile none\n"
                f"AuthorizedKeysFile {keys}\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
                "PasswordAuthentication no\nKbdInteractiveAuthentication no\nLogLevel VERBOSE\n"
                f'SetEnv "HOME={home}" "PATH={programs}:{path}"\nMaxStartups 100\n'
            )
            log = (place / "sshd.log").open("wb")
            process = subprocess.Popen(
                [self.sshd, "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL, stderr=log
            )
            log.close()
            board = Sshd(name, port, home, programs, process)
            self.boards.append(board)
            if listens(process, place / "sshd.log"):
                break
        else:
            pytest.fail((place / "sshd.log").read_text())
        public = host_key.with_suffix(".pub").read_text()
        with self.known_hosts.open("a") as file:
            file.write(f"[127.0.0.1]:{port} {public}")
        with self.config.open("a") as file:
            file.write(
                f"Host {name}\n HostName 127.0.0.1\n Port {port}\n User {USER}\n"
                f" IdentityFile {self.key}\n IdentitiesOnly yes\n"
                f" UserKnownHostsFile {self.known_hosts}\n GlobalKnownHostsFile /dev/null\n"
            )
        return board

    def require_login(self, board: Sshd) -> None:
        """Skip where this user may not log in at all, such as root with a locked password."""
        command = ["ssh", "-F", str(self.config), "-o", "BatchMode=yes", board.name, ":"]
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )
        log = (self.folder / board.name / "sshd.log").read_text()
        if done.returncode and "account is locked" in log:
            pytest.skip(f"sshd takes no login of {USER}, whose password is locked")
        assert done.returncode == 0, f"{done.stderr}\n{log}"

    def close(self) -> None:
        for board in self.boards:
            board.stop()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def listens(process: subprocess.Popen[bytes], log: Path) -> bool:
    """Wait until sshd says in its log that it listens, or has ended."""
    with log.open() as file:
        text = ""
        while "Server listening on" not in text:
            text += file.read()
            try:
                process.wait(0.02)  # sshd has no signal of its own for it
            except subprocess.TimeoutExpired:
                continue
            return False
    return True


def copy_of_bundle(folder: Path) -> Path:
    """Copy the shipped bundle gp-tiny into a folder of another name."""
    from edgefold.runtime.sensors.shipped_bundle import shipped_bundle

    names = shutil.ignore_patterns("__pycache__", "*.py")
    return Path(shutil.copytree(shipped_bundle("gp-tiny"), folder, ignore=names))
