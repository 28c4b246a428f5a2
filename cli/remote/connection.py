"""Hold one connection to a board by the system's ssh, over which all of a command's work goes.

    open()  ssh -M board ── one handshake; it lives as long as this process holds its input open
    run()   ssh -S socket ─ a script on that connection, its bytes in, its output back

Scripts are for any POSIX sh. What is asked of a script comes as its words `$1`, `$2`, .., which
are quoted here, so a path may hold blanks and quotes. Each script first prints a line, because the
start-up files of a login shell may print too; what stands before that line is not the script's.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from edgefold.cli.remote.address import Address
from edgefold.cli.remote.ssh_errors import board_failure, connection_error, lost_line
from edgefold.runtime.errors import BoardFailedError

BEGIN = "edgefold-begins"
OF_SSH = 255  # exit code of ssh itself, when it fails; no script here ends with it
CONNECT_S = 30
SILENT_S = 15  # three such spans without an answer end the connection
LONGEST_SOCKET = 80  # characters; the system takes 107, and ssh adds some of its own
OURS = (
    *("ClearAllForwardings=yes", "ForwardAgent=no", "ForwardX11=no", "PermitLocalCommand=no"),
    *("RemoteCommand=none", "RequestTTY=no", "LogLevel=ERROR", f"ConnectTimeout={CONNECT_S}"),
    *(f"ServerAliveInterval={SILENT_S}", "ServerAliveCountMax=3", "ControlPersist=no"),
)
IN_FOLDER = """
export LC_ALL=C
cd "${HOME:-/}" || exit 1
case $1 in
/*) dir=$1 ;;
"~" | "~/"*) dir=$HOME${1#"~"} ;;
*) dir=$HOME/$1 ;;
esac
shift
"""
"""Begins a script whose first word is the board's folder: an absolute path, or below the home.

Its programs print in English, so that what they print can be recognised.
"""
# A background command of sh reads from the null device, so the input is kept as descriptor 3. It
# ends when the connection does: then the command is stopped, and none goes on unseen.
WATCHED = """
exec 3<&0
"$@" </dev/null 3<&- &
child=$!
{ cat <&3; kill "$child"; } >/dev/null 2>&1 &
watcher=$!
exec 3<&-
wait "$child"
code=$?
kill "$watcher" 2>/dev/null
exit "$code"
"""
"""Ends a script: the command in its words runs, and is stopped where this process is gone."""


@dataclass(frozen=True, slots=True)
class SshOptions:
    """Holds what the user gives to ssh.

    Attributes:
        options: Settings as `-o` takes them, such as "StrictHostKeyChecking=accept-new".
        identity, config: Files of a private key and of ssh's configuration; None leaves it to ssh.
        port: Port of boards whose address names none; None leaves it to ssh.
        may_ask: Whether ssh may ask for a password or about a key, because a person is there.
    """

    options: tuple[str, ...] = ()
    identity: Path | None = None
    config: Path | None = None
    port: int | None = None
    may_ask: bool = False

    def words(self, address: Address) -> list[str]:
        """Return the options of ssh's command line; of two that differ ssh takes the first."""
        asking = "no" if self.may_ask else "yes"
        words = [word for text in self.options for word in ("-o", text)]
        words += ["-F", str(self.config)] if self.config else []
        words += ["-i", str(self.identity)] if self.identity else []
        words += ["-p", str(self.port)] if self.port and not address.port else []
        return [*words, *(w for o in (*OURS, f"BatchMode={asking}") for w in ("-o", o))]


@dataclass(frozen=True, slots=True)
class Answer:
    """Holds what a script on a board gave back: its exit code, output and messages."""

    code: int
    output: bytes
    messages: str


class Connection:
    """Runs scripts on one board; `open` before, `close` after, `abort` from any thread.

    Args:
        address: Board.
        name: Short name of the board for messages.
        options: Options of ssh.
        socket: Path of the connection's socket, in a private folder.
        program: Name or path of ssh.
    """

    def __init__(
        self, address: Address, name: str, options: SshOptions, socket: Path, program: str = "ssh"
    ):
        self.address, self.name = address, name
        self._words = [program, *options.words(address), "-S", str(socket).replace("%", "%%")]
        self._running: set[subprocess.Popen[bytes]] = set()
        self._master: subprocess.Popen[bytes] | None = None
        self._aborted = False

    def open(self) -> None:
        """Connect; the connection ends with this process, however that ends.

        Raises:
            BoardError: The board is not reached or not trusted.
            BoardFailedError: ssh is not installed here, or no shell answers.
        """
        with tempfile.TemporaryFile() as printed:
            master = self._start(["-M"], "exec cat >/dev/null", (), printed)
            self._master = master
            assert master.stdout is not None
            is_open = _skip_to_begin(master.stdout)
            if is_open:
                return
            code = self._end(master)
            printed.seek(0)
            text = printed.read().decode(errors="replace")
        self._master = None
        if code == OF_SSH or code < 0:
            raise connection_error(self.address.text, text)
        raise board_failure(self.address.text, "starting a POSIX shell", code, text)

    def run(
        self,
        script: str,
        *words: str,
        doing: str,
        feed: Callable[[IO[bytes]], None] | None = None,
        on_message: Callable[[str], None] | None = None,
    ) -> Answer:
        """Run a script and return its answer, whatever its exit code is.

        Args:
            script: Text for sh, with `$1`, `$2`, .. for `words`.
            words: Words of the script.
            doing: What the script does, in words, for errors.
            feed: Writes the script's input; without it the input is empty, and stays open until
                the script has ended, so that a script sees by its end that this process is gone.
            on_message: Gets each line of the script's messages at once.

        Raises:
            BoardFailedError: The line was lost, or no shell answers.
        """
        process = self._start(["-o", "ControlMaster=no"], script, words, subprocess.PIPE)
        assert process.stdin and process.stdout and process.stderr
        lines, failed = list[str](), list[Exception]()
        reader = threading.Thread(target=_listen, args=(process.stderr, lines, on_message))
        feeding = (process.stdin, feed, failed)
        feeder = threading.Thread(target=_feed, args=feeding) if feed else None
        reader.start()
        if feeder:
            feeder.start()
        is_begun = _skip_to_begin(process.stdout)
        output = process.stdout.read()
        reader.join()
        code = self._end(process)
        if feeder:
            feeder.join()
        if failed:  # what was read here: the file went away
            raise failed[0]
        messages = "\n".join(lines)
        if code == OF_SSH or code < 0:
            raise lost_line(self.address.text, doing, messages)
        if not is_begun:
            raise board_failure(self.address.text, doing, code, messages)
        return Answer(code, output, messages)

    def ask(
        self, script: str, *words: str, doing: str, feed: Callable[[IO[bytes]], None] | None = None
    ) -> str:
        """Run a script and return its output as text.

        Raises:
            BoardFailedError: As `run`, or the script failed.
        """
        answer = self.run(script, *words, doing=doing, feed=feed)
        if answer.code:
            raise board_failure(self.address.text, doing, answer.code, answer.messages)
        return answer.output.decode(errors="replace")

    def close(self) -> None:
        """End the connection; what runs on the board ends too."""
        for process in (*self._running, *filter(None, [self._master])):
            self._end(process)
        self._master = None

    def abort(self) -> None:
        """End everything at once, so that a thread that waits for the board goes on."""
        self._aborted = True
        for process in (*self._running, *filter(None, [self._master])):
            with suppress(OSError):
                process.terminate()

    def _start(
        self, options: Sequence[str], script: str, words: Sequence[str], stderr: int | IO[bytes]
    ) -> subprocess.Popen[bytes]:
        line = shlex.join(["exec", "sh", "-c", f"echo {BEGIN}\n{script}", "sh", *words])
        command = [*self._words, *options, "--", self.address.text, line]
        if self._aborted:
            raise KeyboardInterrupt
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
            )
        except FileNotFoundError:
            raise BoardFailedError(
                f"{self.address.text} was asked for, and this machine has no program ssh; install "
                "OpenSSH's client (`sudo apt install openssh-client`)."
            ) from None
        self._running.add(process)
        return process

    def _end(self, process: subprocess.Popen[bytes]) -> int:
        """Close a process's input, wait for it, and return its exit code."""
        if process.stdin:
            with suppress(OSError):
                process.stdin.close()
        code = process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()
        self._running.discard(process)
        return code


def socket_folder() -> tempfile.TemporaryDirectory[str]:
    """Make a private folder for sockets, whose path is short enough for one."""
    folder = tempfile.gettempdir()
    is_long = len(folder) + len("/edgefold-12345678/123") > LONGEST_SOCKET
    return tempfile.TemporaryDirectory(prefix="edgefold-", dir="/tmp" if is_long else folder)


def person_is_there() -> bool:
    """Return whether standard input is a terminal, so that ssh may ask somebody."""
    return sys.stdin.isatty()


def _skip_to_begin(output: IO[bytes]) -> bool:
    """Read up to the line with which a script begins; return whether it came."""
    return any(line.rstrip() == BEGIN.encode() for line in output)


def _listen(pipe: IO[bytes], lines: list[str], on_message: Callable[[str], None] | None) -> None:
    for raw in pipe:
        line = raw.decode(errors="replace").rstrip("\n")
        if on_message:
            on_message(line)
        lines.append(line)


def _feed(
    pipe: IO[bytes], feed: Callable[[IO[bytes]], None] | None, failed: list[Exception]
) -> None:
    assert feed is not None
    try:
        feed(pipe)
    except BrokenPipeError:
        pass  # the script ended first; its exit code says why
    except Exception as error:
        failed.append(error)
    with suppress(OSError):
        pipe.close()
