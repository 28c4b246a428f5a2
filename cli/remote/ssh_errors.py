"""Turn what ssh and a board's programs print when they fail into one line that helps.

ssh could not connect ─────────────> BoardError: the board is missing or not trusted
the line broke, or the board has no ─> BoardFailedError: a disk, a tool, a right
room, no tool, no right
"""

from __future__ import annotations

import re
from collections.abc import Callable

from edgefold.runtime.errors import BoardError, BoardFailedError, EdgefoldError

Maker = Callable[[str], EdgefoldError]

BY_ITSELF = "try `ssh {board}` by itself"
CONNECTING: tuple[tuple[str, str, str], ...] = (
    (
        r"Could not resolve hostname",
        "its name is not known here",
        "check the spelling, or give the IP address or an alias of ~/.ssh/config",
    ),
    (
        r"Connection refused",
        "nothing listens at its ssh port",
        "start sshd on the board, or name the port as ssh://USER@HOST:PORT",
    ),
    (
        r"timed out|No route to host|Network is unreachable|Host is down",
        "it does not answer",
        "check that it is switched on and in this network",
    ),
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED|host key .* has changed",
        "its host key is another one than at the last connection",
        "if the board was set up again, remove the old key with `ssh-keygen -R HOST` and connect "
        "once with `ssh {board}`; if it was not, another machine answers in its place",
    ),
    (
        r"Host key verification failed|No \S+ host key is known",
        "its host key is not known here",
        "connect once with `ssh {board}` and compare the key, or give "
        "--ssh-option StrictHostKeyChecking=accept-new",
    ),
    (
        r"Too many authentication failures",
        "it ended the login after too many keys",
        "name one key with --identity FILE and give --ssh-option IdentitiesOnly=yes",
    ),
    (
        r"Permission denied \(|no mutual signature|UNPROTECTED PRIVATE KEY",
        "it does not accept this user's key",
        "check the user's name, copy your key there with `ssh-copy-id {board}`, or name the key "
        "with --identity FILE",
    ),
    (
        r"Bad configuration option|[Uu]nsupported option|keyword .* (bad|missing)|Bad owner|"
        r"Can't open user config file|extra arguments at end",
        "ssh refuses an option or its configuration",
        "check --ssh-option, --ssh-config and ~/.ssh/config",
    ),
)
"""Rows of what ssh prints while it connects: pattern, finding, advice."""
OF_THE_BOARD: tuple[tuple[str, str, str], ...] = (
    (
        r"No space left on device|[Dd]isk quota exceeded|[Dd]isk full",
        "its disk is full",
        "free some space there, or choose another place with --board-dir",
    ),
    (
        r"Read-only file system",
        "the file system is read-only",
        "choose a folder that can be written with --board-dir",
    ),
    (
        r"Permission denied|Operation not permitted",
        "this user may not write there",
        "choose a folder of the user's with --board-dir; root is never needed",
    ),
    (
        r"(?P<tool>[\w.-]+): (command )?not found",
        "it has no program {tool}",
        "install {tool} there",
    ),
)
"""Rows of what a board's programs print: pattern, finding, advice."""


def connection_error(board: str, messages: str) -> BoardError:
    """Return the error for a connection that ssh did not open, from what ssh printed."""
    for pattern, finding, advice in CONNECTING:
        if re.search(pattern, messages):
            return BoardError(
                f"{board} was not reached: {finding} ({last_line(messages)}); "
                f"{advice.format(board=board)}."
            )
    return BoardError(
        f"{board} was not reached: {last_line(messages) or 'ssh gave no reason'}; "
        f"{BY_ITSELF.format(board=board)}."
    )


def lost_line(board: str, doing: str, messages: str = "") -> BoardFailedError:
    """Return the error for a connection that broke while something was done on the board."""
    reason = last_line(messages)
    return BoardFailedError(
        f"{board}: the line was lost while {doing}{f' ({reason})' if reason else ''}; what was "
        "there before is whole. Run the same command again."
    )


def board_failure(board: str, doing: str, code: int, messages: str) -> BoardFailedError:
    """Return the error for a script that failed on the board, from what its programs printed."""
    for pattern, finding, advice in OF_THE_BOARD:
        if match := re.search(pattern, messages):
            names = match.groupdict()
            return BoardFailedError(
                f"{board}: {doing} failed, {finding.format(**names)} ({last_line(messages)}); "
                f"{advice.format(**names)}."
            )
    reason = last_line(messages) or "no reason given"
    return BoardFailedError(f"{board}: {doing} failed with exit code {code}: {reason}.")


def last_line(messages: str) -> str:
    """Return the last line with words, without the frames that ssh draws with signs."""
    lines = [line.strip().rstrip(".") for line in messages.splitlines()]
    return next((line for line in reversed(lines) if re.search(r"\w", line)), "")
