"""Parse the `edgefold` command line, run one subcommand, and print its error as one line.

Only the chosen subcommand is imported, so that `edgefold --help` answers at once on a small board.
A new command is a line of COMMANDS and a file in commands/ with EXAMPLES, add_arguments(parser) and
run(args) -> int.

Exit codes are those of `edgefold.cli.exit_codes`, for every command. A command that writes a record
takes `-` for its file: then only the record is on stdout, and everything else on stderr.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from edgefold.cli.exit_codes import ExitCode, code_of, help_text
from edgefold.cli.terminal import ensure_streams, plain_warnings, say

COMMANDS = {  # in the order in which a user needs them
    "forecast": "forecast any sensor's table and tell its alarms; no training",
    "train": "train a streaming model (needs the train extra)",
    "evaluate": "score a run (needs the train extra) or a bundle, together with its baselines",
    "export": "turn a run into a bundle of step graphs (needs the train extra)",
    "check": "replay a bundle's recorded stream on this machine and compare",
    "run": "predict each row of a series or CSV, then learn from it; resumes after any stop",
    "condition": "condition a model on tables larger than memory (needs the parquet extra)",
    "merge": "join what several streams of a bundle have learned in one snapshot",
    "snapshot": "show what a snapshot holds, and which rows it has learned",
    "budget": "predict memory and time on a board, and whether they fit",
    "profile": "measure latency, memory and energy of each step on this machine, and gate on them",
    "compare": "show the ratios of profiles or budgets, each with its interval",
    "deploy": "bring edgefold, a bundle or a program to boards by ssh, and check it there",
    "sign": "make a key, sign a bundle with it, or verify a signature (needs the sign extra)",
    "doctor": "show what is installed, what is missing, and how to install it",
    "build": "compile a bundle to C: for the backend native, a microcontroller, or a program",
    "engine": "build TensorRT's engines of a bundle ahead of time, for this GPU or for others",
    "verify": "test a model of your own against the contract, also as a bundle (needs the train "
    "extra)",
    "import": "turn a stateful ONNX file made elsewhere into a bundle (needs the train extra)",
}

START = """\
a first model, from its data to a board:
  edgefold train series --csv sensor.csv --out runs/sensor
  edgefold evaluate runs/sensor
  edgefold export runs/sensor --out bundles/sensor
  edgefold run bundles/sensor --input sensor.csv --output predictions.csv

On a board no extra is needed for forecast, evaluate, check, run, budget, profile, compare and
doctor with a compiled bundle (`edgefold build`); the extra cpu adds onnxruntime, which opens every
bundle.
A board that opens only signed bundles needs the sign extra.
{pages}docs/your-data.md leads from a file to a running loop in ten minutes.
`edgefold COMMAND --help` explains a command's options.

{codes}"""

_MODULES = {  # import is a keyword of Python
    "import": "import_",
    "deploy": "boards.deploy",
    "condition": "snapshots.condition",
    "merge": "snapshots.merge",
    "snapshot": "snapshots.show",
}

DESCRIPTION = """\
Edgefold puts streaming models on small machines. A PyTorch model is exported as a bundle: one
graph for each thing that it does (such as update and query). The graphs run in buffers of fixed
size, so a step takes the same time and memory after a million points as after ten."""


def module_of(name: str) -> str:
    """Return the name of a command's module in `edgefold.cli.commands`."""
    return _MODULES.get(name, name)


def where_pages_lie() -> str:
    """Return a line that names the folder of docs/, or "" where it was not installed."""
    places = (Path(__file__).parents[1], Path(sys.prefix, "share", "edgefold"))
    found = (place / "docs" for place in places if (place / "docs" / "your-data.md").is_file())
    folder = next(found, None)
    return "" if folder is None else f"The pages of docs/ lie in {folder}.\n"


def build_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of all commands, which has only the options of the command in `argv`."""
    parser = _Parser(
        prog="edgefold",
        description=DESCRIPTION,
        epilog=START.format(pages=where_pages_lie(), codes=help_text()),
        formatter_class=_Formatter,
    )
    parser.add_argument("--version", action=_Version, help="show the version and exit")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", title="commands, in the order you need them"
    )
    chosen = next((word for word in argv if not word.startswith("-")), None)
    for name, summary in COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            formatter_class=_Formatter,
        )
        if name == chosen:
            module = importlib.import_module(f"edgefold.cli.commands.{module_of(name)}")
            sub.epilog = "\n  ".join(["examples:", *module.EXAMPLES])
            module.add_arguments(sub)
            if hasattr(module, "add_arguments_for"):  # options that depend on an argument
                module.add_arguments_for(sub, argv)
            sub.add_argument(
                "--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks"
            )
            sub.set_defaults(run=module.run, usage_error=sub.error)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; a usage error raises SystemExit(2)."""
    ensure_streams()
    argv = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in argv
    try:
        parser = build_parser(argv)
        args = parser.parse_args(argv)
        if args.command is None:
            parser.print_help()
            return ExitCode.USAGE
        from edgefold.cli.files import stdout_for_records

        with stdout_for_records(args), plain_warnings():
            code: int = args.run(args)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes stdout once more while it ends; give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.PIPE
    except Exception as error:
        line = explain(error)
        if debug or line is None:
            import traceback

            say(traceback.format_exc(), end="")
        say(f"edgefold: error: {' '.join((line or str(error)).split())}")
        return code_of(error)


def explain(error: Exception) -> str | None:
    """Return one line on an expected error: ours, a missing package, or a refusal of the system.

    Returns:
        The line; None for any other error, which is a bug of ours and needs its traceback.
    """
    from edgefold.runtime.errors import EdgefoldError, install_extra

    if isinstance(error, EdgefoldError):
        return " ".join(str(error).split())
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        if package == "edgefold":
            return (
                f"this installation has no {error.name}. The Debian package holds what a device "
                "needs, without training, export and build; a wheel in a virtual environment has "
                "them all."
            )
        extra = _EXTRAS.get(package, "train")
        return f"{package} is not installed; {install_extra(extra)} installs it."
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        advice = _ADVICE.get(error.errno or 0, "")
        return f"{place}{error.strerror}{advice}"
    if isinstance(error, MemoryError):
        return "memory is exhausted; close other programs or use a smaller model."
    return None


_EXTRAS = {  # by the module's name; the others come with train
    "matplotlib": "report",
    "cryptography": "sign",
    "accelerate": "multi-gpu",
    "pynvml": "nvidia",
    "prometheus_client": "metrics",
}
_ADVICE = {
    errno.ENOSPC: "; free some space or choose another place, then run the command again.",
    errno.EDQUOT: "; free some of your quota or choose another place, then run it again.",
    errno.EFBIG: "; the limit on a file's size is reached (see `ulimit -f`).",
    errno.EACCES: "; give yourself permission or choose another path.",
    errno.EROFS: "; choose a path on a writable file system.",
    errno.ENOENT: "; check the path.",
    errno.EISDIR: "; give a file, not a folder.",
}


class _Parser(argparse.ArgumentParser):
    """Reports a wrong option in one line, since the usage of some commands fills a screen."""

    def error(self, message: str) -> NoReturn:
        self.exit(int(ExitCode.USAGE), f"{self.prog}: error: {message} (see {self.prog} --help)\n")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Sets the width of help texts, since argparse would load a megabyte of modules to find it."""

    def __init__(self, prog: str):
        try:
            columns = os.get_terminal_size().columns
        except OSError:  # a pipe or a file
            columns = 100
        super().__init__(prog, width=max(40, min(columns, 100) - 2))


class _Version(argparse.Action):
    """Prints the installed version; loads importlib.metadata, which is slow, only when used."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None):
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"edgefold {version('edgefold')}")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
