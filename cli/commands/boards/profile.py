"""Carry out `edgefold profile --on`: measure on boards, bring the records back, judge them here.

    gates, baseline and files are checked ──> boards measure ──> records ──> gates ──> files, table

A record is written with the bytes that the board wrote. With gates or a baseline their outcomes
join it, as in a profile of this machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.files import require_kept, require_writable, write_output, written_lines
from edgefold.cli.options import gate_options
from edgefold.cli.options.board_options import folder_of_boards, n_at_once, ssh_options
from edgefold.cli.options.bundle_options import require_trusted
from edgefold.cli.records.figures import figures_of
from edgefold.cli.remote.address import file_of_board, short_names
from edgefold.cli.remote.boards import BoardProgress, code_of_all, on_boards, say_failures
from edgefold.cli.remote.bundle import BundleToUse, bundle_there, folder_there
from edgefold.cli.remote.command import Ended, run_edgefold
from edgefold.cli.remote.connection import Connection
from edgefold.cli.remote.table import side_by_side, terminal_width
from edgefold.cli.terminal import printable, say
from edgefold.cli.text.figures import gate_lines, show
from edgefold.cli.text.profile import table

Writer = Callable[[argparse.Namespace, dict[str, Any], list[Any]], None]
PASSED_ON = (
    *("updates", "queries", "rate", "energy_error", "energy_seconds", "backend", "threads"),
    *("memory_limit", "gpu_wait", "paced", "paced_backend", "paced_seconds", "engine_cache"),
)
"""Options that the board's edgefold gets; those of gates and files are for this machine."""
OF_A_STEP = ("p50", "p99", "late", "energy")
DETAILS = ("_bare", "_wide")
"""Ends of the names of steps that only the record and the table of one board have."""


def profile_on_boards(args: argparse.Namespace, write: Writer) -> int:
    """Profile the bundle on every board, write and print what came back, return the exit code.

    Args:
        args: Options of the command.
        write: Writes the record of one board and its figures to the files that options name.
    """
    if args.power_replay:
        args.usage_error("--power-replay is for this machine; a board has its own sensor, or none")
    names = short_names(args.on)
    outputs = [_outputs(args, name) for name in names]
    for files in outputs:
        require_writable(files, *args.record_options)
        require_kept(files, args.baseline, *args.record_options)
    baseline = gate_options.prepare(args)
    words = options_for_board(args, require_trusted(args, args.bundle))
    bundle = BundleToUse(args.bundle)

    def measure(connection: Connection, progress: BoardProgress) -> Ended:
        def tell(text: str) -> None:
            progress.show(connection.name, text)

        folder = folder_there(connection, folder_of_boards(args))
        with bundle_there(connection, folder, bundle, tell) as place:
            tell("measures")
            command = ["profile", place, *words, "--json", "-"]
            return run_edgefold(connection, folder, command, tell, progress.say)

    results = on_boards(args.on, ssh_options(args), measure, n_at_once(args))
    codes, records = [], {}
    for result, files in zip(results, outputs, strict=True):
        code = result.code
        if result.value is not None:
            code, record = _read(result.address.text, result.value)
            if record:
                judged = _judge_and_write(files, result.value.output, record, baseline, write)
                code = code or judged[0]
                records[result.name] = (record, judged[1])
        codes.append(code)
    _print(args, records, outputs)
    say_failures(results)
    return code_of_all(codes)


def options_for_board(args: argparse.Namespace, expect_hash: str | None) -> list[str]:
    """Return the words of the options that the board's edgefold gets, as it reads them."""
    words = []
    for name in PASSED_ON:
        value = getattr(args, name)
        if name == "paced" and value:
            value = [",".join(f"{rate_hz:g}" for rate_hz in rates) for rates in value]
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                words.append(f"--{name.replace('_', '-')}={one}")
    words += ["--no-cuda-graphs"] if args.no_cuda_graphs else []
    return [*words, *([f"--expect-hash={expect_hash}"] if expect_hash else [])]


def _outputs(args: argparse.Namespace, name: str) -> argparse.Namespace:
    """Return the options with the files of one board."""
    options = {**vars(args)}
    for option in args.record_options:
        try:
            options[option] = (path := options[option]) and file_of_board(path, name, len(args.on))
        except ValueError as error:
            args.usage_error(f"argument --{option}: {error}")
    return argparse.Namespace(**options)


def _read(board: str, ended: Ended) -> tuple[ExitCode, dict[str, Any] | None]:
    """Return the exit code of a board's command and its record; None where it wrote none."""
    try:
        record = json.loads(ended.output)
        list(figures_of(record))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        reason = ended.error or "it wrote no record that this version reads; install one version"
        say(f"edgefold: error: {board}: {reason}")
        return ended.code or ExitCode.MACHINE, None
    if ended.code:
        say(f"edgefold: error: {board}: {ended.error}")
    return ended.code, record


def _judge_and_write(
    files: argparse.Namespace,
    output: bytes,
    record: dict[str, Any],
    baseline: dict[str, Any] | None,
    write: Writer,
) -> tuple[ExitCode, list[str]]:
    """Judge one board's record, write its files, and return the exit code and lines of gates."""
    from edgefold.cli.records.gates import exit_code
    from edgefold.runtime.record_fields import as_json

    refused, outcomes = gate_options.judge(files, record, baseline)
    if outcomes:
        record["gates"] = as_json([outcome.record() for outcome in outcomes])
        write(files, record, outcomes)
    else:
        if files.json:
            write_output(files.json, output)
        write(argparse.Namespace(**{**vars(files), "json": None}), record, outcomes)
    lines = gate_lines(outcomes)
    if refused:
        say(f"edgefold: error: {refused}")
        return ExitCode.REFUSED, lines
    return exit_code(outcomes) if outcomes else ExitCode.DONE, lines


def _print(
    args: argparse.Namespace,
    records: dict[str, tuple[dict[str, Any], list[str]]],
    outputs: Sequence[argparse.Namespace],
) -> None:
    shown = [record for record, _ in records.values()]
    if len(args.on) == 1 and shown:
        print(f"board    {args.on[0].text}\n{printable(table(shown[0]))}")
    elif shown:
        print(printable(side_by_side([*records], rows_of(shown), terminal_width())))
    for name, (_, lines) in records.items():
        if lines:
            print("\n".join([f"\ngates of {name}" if len(args.on) > 1 else "gates", *lines]))
    names = short_names(args.on)
    paths = [
        getattr(files, option)
        for name, files in zip(names, outputs, strict=True)
        if name in records
        for option in args.record_options
    ]
    if lines := written_lines(*paths):
        print("\n".join(["", *lines]))


def rows_of(records: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the rows of a table of several boards' profiles: conditions, then figures."""
    rows = {
        "board": [_board(record["conditions"]) for record in records],
        "cores": [str(record["conditions"]["n_cores"]) for record in records],
        "load": [f"{record['conditions']['load_average'][0]:.2f}" for record in records],
        "edgefold": [str(record["conditions"]["edgefold"]) for record in records],
        "Python": [str(record["conditions"]["python"]) for record in records],
        "backend": [_backend(record["conditions"]["backend"]) for record in records],
        "validity": [record["validity"]["verdict"] for record in records],
    }
    figures = [figures_of(record) for record in records]
    for name in dict.fromkeys(name for each in figures for name in each):
        step, _, what = name.rpartition(".")
        if step and (what not in OF_A_STEP or step.endswith(DETAILS)):
            continue
        shown = [each.get(name) for each in figures]
        if any(figure and figure.value for figure in shown):
            rows[name] = ["-" if figure is None else show(figure) for figure in shown]
    return rows


def _backend(report: dict[str, Any]) -> str:
    return f"{report['name']} {report['version']} on {report['device']}"


def _board(conditions: dict[str, Any]) -> str:
    return str(conditions.get("board") or conditions["cpu_model"] or conditions["architecture"])
