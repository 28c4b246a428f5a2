"""Run the edgefold that is installed on a board, and bring back the record that it writes.

The record comes on standard output (`--json -`), so nothing is left on the board. Messages come on
standard error: lines of progress, which are shown here, and warnings and errors, which are quoted.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.remote.connection import IN_FOLDER, WATCHED, Connection
from edgefold.cli.terminal import STATUS
from edgefold.runtime.errors import BoardFailedError

FIND = """
if [ -x "$dir/bin/edgefold" ]; then found=$dir/bin/edgefold
elif found=$(command -v edgefold); then :
elif [ -x "$HOME/.local/bin/edgefold" ]; then found=$HOME/.local/bin/edgefold
else found=
fi
"""
"""Sets `found` to the board's edgefold: what `deploy` installed, else that of the user; or ""."""
RUN = f"""{IN_FOLDER}
if [ -n "$1" ]; then found=$1; else {FIND} fi
shift
[ -n "$found" ] || exit 127
export {STATUS}=lines
set -- "$found" "$@"
{WATCHED}"""
NOT_FOUND = 127
CODES = {code.value: code for code in ExitCode}
ERROR = "edgefold: error: "
WARNING = "edgefold: warning: "


@dataclass(frozen=True, slots=True)
class Ended:
    """Holds how a command on a board ended: its code, its standard output, its error's text."""

    code: ExitCode
    output: bytes
    error: str


def run_edgefold(
    connection: Connection,
    folder: str,
    words: Sequence[str],
    show: Callable[[str], None],
    say: Callable[[str], None],
    program: str = "",
) -> Ended:
    """Run `edgefold WORDS` on a board and return how it ended.

    Args:
        connection: Open connection.
        folder: The board's folder of `edgefold deploy`.
        words: Words of the command, as the board's edgefold takes them.
        show: Gets each line of progress.
        say: Gets each warning.
        program: Path of the edgefold there; without it, what `FIND` finds.

    Raises:
        BoardFailedError: The line was lost, or no edgefold is installed there, or it was killed.
    """
    board, doing = connection.address.text, f"edgefold {words[0]}"

    def message(line: str) -> None:
        if line.startswith("\r"):
            show(line[1:])
        elif line.startswith(WARNING):
            say(f"{WARNING}{connection.name}: {line.removeprefix(WARNING)}")

    answer = connection.run(RUN, folder, program, *words, doing=doing, on_message=message)
    if answer.code == NOT_FOUND:
        raise BoardFailedError(
            f"{board}: `{doing}` was asked for, and no edgefold is installed in {folder} or on the "
            f"user's path; install it: edgefold deploy {board} --wheel WHEEL"
        )
    if answer.code > 128 and answer.code not in CODES:
        name = _signal(answer.code - 128)
        raise BoardFailedError(
            f"{board}: `{doing}` was ended there by {name}; the kernel does that where memory is "
            "exhausted, see `dmesg` there."
        )
    lines = [line for line in answer.messages.splitlines() if line and not line.startswith("\r")]
    errors = [line.removeprefix(ERROR) for line in lines if line.startswith(ERROR)]
    text = errors[-1] if errors else (lines[-1] if lines else "")
    return Ended(CODES.get(answer.code, ExitCode.MACHINE), answer.output, text)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
