"""Start a real PostgreSQL in a folder of its own, with an extension that `make install` put there.

    bin/postgres, share/, lib/ ──copied or linked──> FOLDER/usr/...   PostgreSQL looks beside itself
    make install DESTDIR=FOLDER ───────────────────> FOLDER/usr/...   so it finds the extension
    initdb, postgres ──────────────────────────────> FOLDER/data, a socket in FOLDER

Nothing outside of the folder is written, and nothing listens on a network. Started by root it runs
as another user, because PostgreSQL refuses root.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from attack.brokers.servers import LIMIT_S, die_with_parent, wait_for

PLACES = "/usr/lib/postgresql"
"""The folder of Debian's installations, one for each version."""
USERS = ("postgres", "nobody")
ROLE = "postgres"
CLUSTER = ("--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8")
SETTINGS = (
    *("listen_addresses=", "dynamic_shared_memory_type=mmap", "max_worker_processes=16"),
    *("fsync=off", "synchronous_commit=off", "autovacuum=off", "jit=on"),
)


class SqlError(Exception):
    """Raised with what psql printed on an error, the code of SQLSTATE among it."""


@cache
def pg_config() -> str | None:
    """Return the program that describes the newest installation with a server; None without."""
    installed = [f"{path}/bin/pg_config" for path in sorted(Path(PLACES).glob("*"), reverse=True)]
    for program in [*installed, shutil.which("pg_config")]:
        if program and os.access(program, os.X_OK) and (Path(program).parent / "initdb").exists():
            return program
    return None


def asked(option: str) -> Path:
    """Return a folder or a file of the installation, such as "--bindir"."""
    program = pg_config()
    assert program
    found = subprocess.run([program, option], capture_output=True, text=True, check=True)
    return Path(found.stdout.strip())


@cache
def missing() -> str:
    """Return what this machine lacks to build and run an extension; empty if it lacks nothing."""
    if pg_config() is None:
        return "PostgreSQL's server, with initdb and pg_config (apt: postgresql-15)"
    if not (asked("--includedir-server") / "postgres.h").exists() or not asked("--pgxs").exists():
        return "PostgreSQL's headers (apt: postgresql-server-dev-15)"
    lacks = [name for name in ("psql", "make", "cc") if shutil.which(name) is None]
    if os.getuid() == 0 and not _user():
        lacks.append(f"a user for the server: {' or '.join(USERS)}")
    return ", ".join(lacks)


def _user() -> str | None:
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in USERS if name in known), None)


def _as_user() -> dict[str, Any]:
    """Return the settings of subprocess by which root starts PostgreSQL's programs."""
    if os.getuid() != 0:
        return {}
    user = pwd.getpwnam(str(_user()))
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def make_extension(source: Path, destination: Path, *variables: str) -> None:
    """Compile an extension that `edgefold build` wrote, and install it below `destination`."""
    command = ["make", "-C", str(source), f"PG_CONFIG={pg_config()}", *variables]
    for goals in ([], ["install", f"DESTDIR={destination}"]):
        done = subprocess.run([*command, *goals], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)


class PostgresServer:
    """Runs PostgreSQL with the files of one folder.

    Args:
        folder: An empty folder that the server's user owns; its path is short, as a socket's is.
        settings: Further settings of the server, NAME=VALUE.
    """

    def __init__(self, folder: Path, settings: Sequence[str] = ()):
        self.folder, self._settings = folder, settings
        self._bin = self._moved(asked("--bindir"))
        self._process: subprocess.Popen[bytes] | None = None

    def _moved(self, path: Path) -> Path:
        return self.folder / path.relative_to("/")

    def install(self) -> None:
        """Put PostgreSQL into the folder: it looks for extensions where it lies itself."""
        self._bin.mkdir(parents=True, exist_ok=True)
        for name in ("postgres", "initdb"):
            shutil.copy2(asked("--bindir") / name, self._bin / name)
        share, libraries = asked("--sharedir"), asked("--pkglibdir")
        shutil.copytree(share, self._moved(share), dirs_exist_ok=True)
        self._moved(libraries).mkdir(parents=True, exist_ok=True)
        for path in libraries.iterdir():  # also the bitcode of PostgreSQL, from which JIT compiles
            place = self._moved(libraries) / path.name
            if not place.exists():
                place.symlink_to(path)

    @property
    def process_id(self) -> int:
        """Return the id of the server's first process."""
        assert self._process
        return self._process.pid

    def start(self) -> None:
        """Make a cluster, start the server, and wait until it takes connections."""
        data = self.folder / "data"
        made = subprocess.run(
            [str(self._bin / "initdb"), "-D", str(data), "-U", ROLE, *CLUSTER],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            **_as_user(),
        )
        if made.returncode:
            raise RuntimeError(made.stdout + made.stderr)
        settings = [f"unix_socket_directories={self.folder}", *SETTINGS, *self._settings]
        options = [word for setting in settings for word in ("-c", setting)]
        log = self.folder / "server.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [str(self._bin / "postgres"), "-D", str(data), *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.folder,
                preexec_fn=die_with_parent,
                **_as_user(),
            )
        wait_for(self._answers, "PostgreSQL's first answer")
        if self._process.poll() is not None:
            raise RuntimeError(log.read_text()[-2000:])

    def _answers(self) -> bool:
        assert self._process
        if self._process.poll() is not None:
            return True
        try:
            return self.sql("SELECT 1") == "1"
        except SqlError:
            return False

    def stop(self) -> None:
        """End the server; nothing of its files is needed again."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGQUIT)
            process.wait(LIMIT_S)

    def sql(self, text: str) -> str:
        """Run SQL in a session of its own; return the rows, columns parted by `|`.

        Raises:
            SqlError: A statement failed.
        """
        command = ["psql", "-X", "-q", "-A", "-t", "-h", str(self.folder), "-U", ROLE, "postgres"]
        command += ["-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", "-f", "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SqlError(done.stderr)
        return done.stdout.strip()

    def state(self, text: str) -> bytes:
        """Run SQL that gives one bytea; return its bytes."""
        found = self.sql(text)
        assert found.startswith("\\x") and "\n" not in found, found
        return bytes.fromhex(found[2:])


@contextmanager
def server_folder() -> Iterator[Path]:
    """A folder with a short path that the server's user owns; it goes when the block ends."""
    with tempfile.TemporaryDirectory(prefix="edgefold-pg-") as name:
        if user := _as_user():
            os.chown(name, user["user"], user["group"])
        yield Path(name)


@contextmanager
def running(folder: Path, settings: Sequence[str] = ()) -> Iterator[PostgresServer]:
    """A server with the extensions that were installed below `folder`; it ends with the block."""
    server = PostgresServer(folder, settings)
    server.install()
    try:
        server.start()
        yield server
    finally:
        server.stop()
