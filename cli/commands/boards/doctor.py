"""Carry out `edgefold doctor --on`: examine boards, bring the reports back, print them here."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.files import require_writable, write_output, written_lines
from edgefold.cli.options.board_options import folder_of_boards, n_at_once, ssh_options
from edgefold.cli.options.bundle_options import require_trusted
from edgefold.cli.remote.address import file_of_board, short_names
from edgefold.cli.remote.boards import BoardProgress, code_of_all, on_boards, say_failures
from edgefold.cli.remote.bundle import BundleToUse, bundle_there, folder_there
from edgefold.cli.remote.command import Ended, run_edgefold
from edgefold.cli.remote.connection import Connection
from edgefold.cli.remote.table import side_by_side, terminal_width
from edgefold.cli.terminal import printable, say
from edgefold.cli.text.doctor import TITLES, render
from edgefold.cli.text.numbers import format_bytes
from edgefold.runtime.errors import Remedy


def doctor_on_boards(args: argparse.Namespace) -> int:
    """Examine every board, print and write the reports, and return the exit code."""
    files: dict[str, Path | None] = {}
    for name in short_names(args.on):
        try:
            path = args.json and file_of_board(args.json, name, len(args.on))
        except ValueError as error:
            args.usage_error(f"argument --json: {error}")
        files[name] = path
        require_writable(argparse.Namespace(json=path, usage_error=args.usage_error), "json")
    expected = require_trusted(args, args.bundle) if args.bundle else None
    bundle = BundleToUse(args.bundle) if args.bundle else None
    words = [f"--expect-hash={expected}"] if expected else []
    words += [f"--input={args.input}"] if args.input else []
    words += [f"--broker-config={args.broker_config}"] if args.broker_config else []

    def examine(connection: Connection, progress: BoardProgress) -> Ended:
        def tell(text: str) -> None:
            progress.show(connection.name, text)

        def ask(*place: str) -> Ended:
            tell("is examined")
            command = ["doctor", *place, *words, "--json", "-"]
            return run_edgefold(connection, folder, command, tell, progress.say)

        folder = folder_there(connection, folder_of_boards(args))
        if bundle is None:
            return ask()
        with bundle_there(connection, folder, bundle, tell) as place:
            return ask(place)

    results = on_boards(args.on, ssh_options(args), examine, n_at_once(args))
    codes, records, written = [], dict[str, Any](), list[Path | None]()
    for result in results:
        code = result.code
        if result.value is not None:
            code, record = _read(result.address.text, result.value)
            if record:
                records[result.name] = record
                if path := files[result.name]:
                    write_output(path, result.value.output)
                    written.append(path)
        codes.append(code)
    _print(records, len(args.on))
    for line in written_lines(*written):
        print(line)
    say_failures(results)
    return code_of_all(codes)


def _read(board: str, ended: Ended) -> tuple[ExitCode, dict[str, Any] | None]:
    """Return the exit code of a board's doctor and its record; None where it wrote none."""
    try:
        record: dict[str, Any] = json.loads(ended.output)
        rows_of([record])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        reason = ended.error or "it wrote no record that this version reads; install one version"
        say(f"edgefold: error: {board}: {reason}")
        return ended.code or ExitCode.MACHINE, None
    return ended.code, record


def _print(records: dict[str, dict[str, Any]], n_boards: int) -> None:
    """Print the whole report of one board, or a table of several with what each needs."""
    width = terminal_width()
    if n_boards == 1:
        for record in records.values():
            advice = {kind: _remedies(record, kind) for kind in TITLES}
            print(printable(render(record, advice, min(width, 120))), end="")
        return
    if records:
        print(printable(side_by_side([*records], rows_of([*records.values()]), width)))
        print("\nThe whole report of a board: edgefold doctor --on BOARD")
    for name, record in records.items():
        for remedy in _remedies(record, "needed"):
            print(printable(f"{name}: {remedy.what} {remedy.command or ''}".rstrip()))


def _remedies(record: dict[str, Any], kind: str) -> list[Remedy]:
    return [Remedy(a["what"], a["command"]) for a in record["advice"] if a["kind"] == kind]


def rows_of(records: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the rows of a table of several boards' reports."""
    rows: dict[str, list[str]] = {}
    for record in records:
        machine, software = record["machine"], record["software"]
        opened = [entry["name"] for entry in record["backends"] if entry["opens"]]
        power = [meter["name"] for meter in record["power"] if meter["reads"]]
        memory = machine["memory_bytes"]
        cells = {
            "board": machine["board"] or "not shown",
            "system": f"Linux {machine['kernel']}, {machine['architecture']}",
            "processor": f"{machine['cpu_model'] or 'not shown'}, {machine['n_cores']} cores",
            "memory": "not shown" if memory is None else format_bytes(memory),
            "Python": software["python"],
            "edgefold": software["packages"]["edgefold"] or "not shown",
            "runs on": ", ".join(opened) or "no backend opens",
            "energy by": ", ".join(power) or "no meter reads",
        }
        for label, cell in cells.items():
            rows.setdefault(label, []).append(cell)
    return rows
