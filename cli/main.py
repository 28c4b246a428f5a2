"""The `edgefold` command: picks a subcommand, imports that one alone, and turns errors into a line.

Nothing heavy is imported here, so that `edgefold --help` answers at once on a small board.

Exit codes: 0 done; 1 refused or failed, with one line that says what to do; 2 wrong usage; 3 and 4
are `edgefold budget`'s; 130 interrupted; 141 the reader of a pipe went away.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from edgefold.cli.terminal import ensure_streams, say


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: module edgefold.cli.<name> with add_arguments(parser) and run(args) -> int."""

    name: str
    summary: str
    examples: tuple[str, ...]

    @property
    def module(self) -> str:
        """The file's name: `import` is a keyword of Python's."""
        return "import_" if self.name == "import" else self.name


COMMANDS = (
    Command(
        "train",
        "train a streaming model (needs the train extra)",
        (
            "edgefold train series --csv sensor.csv --preset small --out runs/sensor",
            "edgefold train gp --preset small --steps 20000 --out runs/gp",
        ),
    ),
    Command(
        "evaluate",
        "score a run (needs the train extra) or a bundle, with its baselines beside it",
        (
            "edgefold evaluate runs/sensor",
            "edgefold evaluate bundles/sensor --csv sensor.csv --plot forecasts.png",
        ),
    ),
    Command(
        "export",
        "turn a run into a bundle of step graphs (needs the train extra)",
        (
            "edgefold export runs/sensor --out bundles/sensor",
            "edgefold export my_model.py:MyModel --weights w.safetensors --out bundles/mine",
        ),
    ),
    Command(
        "verify",
        "run the contract suite on a model, in PyTorch and as a bundle (needs the train extra)",
        ("edgefold verify my_model.py:MyModel",),
    ),
    Command(
        "import",
        "turn a stateful ONNX file made elsewhere into a bundle (needs the train extra)",
        ("edgefold import model.onnx --state state=stateN --input input:1x576 --out bundles/vad",),
    ),
    Command(
        "engine",
        "build TensorRT's engines of a bundle ahead of time, for this GPU or for others",
        (
            "edgefold engine bundles/sensor",
            "edgefold engine bundles/sensor --compute-capability 8.6 8.9 --cache engines",
        ),
    ),
    Command(
        "check",
        "replay a bundle's recorded stream on this machine and compare",
        ("edgefold check bundles/sensor",),
    ),
    Command(
        "run",
        "predict each row of a CSV, then learn from it; resumes after any stop",
        (
            "edgefold run bundles/sensor --input data.csv --output predictions.csv \\\n"
            "      --snapshot state.npz --every 100",
            "sensor-reader | edgefold run bundles/sensor --input - --output -",
        ),
    ),
    Command(
        "budget",
        "predict memory and time on a board: exit 0 fits, 3 does not, 4 unsure",
        (
            "edgefold budget bundles/sensor --device raspberry-pi-5 --memory 96MiB --rate 100",
            "edgefold budget --sweep bundles/* --rate 10 --plot sweep.png",
        ),
    ),
    Command(
        "profile",
        "measure latency, memory and energy of each step on this machine",
        ("edgefold profile bundles/sensor --rate 50 --json profile.json --html profile.html",),
    ),
    Command(
        "doctor",
        "tell what this machine has, what is missing, and the command that brings it",
        ("edgefold doctor bundles/sensor --json doctor.json", "edgefold doctor"),
    ),
)

DESCRIPTION = """\
Edgefold puts streaming models on small machines. A model trained in PyTorch is exported as one
graph per step of its life (condition, update, refresh, query); the graphs run inside fixed
buffers, so that time and memory of a step stay the same after a million points."""


def build_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """A parser of all commands, with the options of the one that argv asks for."""
    parser = argparse.ArgumentParser(
        prog="edgefold",
        description=DESCRIPTION,
        epilog=_overview(),
        formatter_class=_Formatter,
    )
    parser.add_argument("--version", action=_Version, help="show the version and exit")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    chosen = next((word for word in argv if not word.startswith("-")), None)
    for command in COMMANDS:
        examples = "\n".join(f"  {example}" for example in command.examples)
        sub = commands.add_parser(
            command.name,
            help=command.summary,
            description=f"{command.summary[0].upper()}{command.summary[1:]}.",
            epilog=f"examples:\n{examples}",
            formatter_class=_Formatter,
        )
        if command.name == chosen:
            module = importlib.import_module(f"edgefold.cli.commands.{command.module}")
            module.add_arguments(sub)
            if hasattr(module, "add_arguments_for"):  # options that depend on an argument
                module.add_arguments_for(sub, argv)
            sub.add_argument(
                "--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks"
            )
            sub.set_defaults(run=module.run, usage_error=sub.error)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. A usage error leaves by SystemExit(2)."""
    ensure_streams()
    argv = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in argv
    try:
        parser = build_parser(argv)
        args = parser.parse_args(argv)
        if args.command is None:
            parser.print_help()
            return 2
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The interpreter flushes stdout once more while it ends; give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        line = explain(error)
        if debug or line is None:
            import traceback

            say(traceback.format_exc(), end="")
        text = "".join(c if c.isprintable() else "?" for c in line or str(error))
        say(f"edgefold: error: {text}")
        return 1


def explain(error: Exception) -> str | None:
    """An expected error as one line: Edgefold's own, a missing package, or the system's refusal.

    Returns:
        None for anything else, which is a bug of ours and deserves its traceback.
    """
    from edgefold.runtime.errors import EdgefoldError

    if isinstance(error, EdgefoldError):
        return " ".join(str(error).split())
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        if package == "edgefold":
            return f"this installation has no {error.name}; install edgefold again."
        extra = "report" if package == "matplotlib" else "train"
        return f"{package} is not installed; pip install 'edgefold[{extra}]' brings it."
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        advice = _ADVICE.get(error.errno or 0, "")
        return f"{place}{error.strerror}{advice}"
    if isinstance(error, MemoryError):
        return "memory is exhausted; close other programs or use a smaller model."
    return None


_ADVICE = {
    errno.ENOSPC: "; free some space or choose another place, then run the command again.",
    errno.EDQUOT: "; free some of your quota or choose another place, then run it again.",
    errno.EFBIG: "; the limit on a file's size is reached (see `ulimit -f`).",
    errno.EACCES: "; give yourself permission or choose another path.",
    errno.EROFS: "; choose a path on a writable file system.",
    errno.ENOENT: "; check the path.",
    errno.EISDIR: "; give a file, not a folder.",
}


def _overview() -> str:
    lines = ["in the order you need them:"]
    for command in COMMANDS:
        lines.append(f"  {command.examples[0]}")
    lines.append("")
    lines.append("A board needs doctor, check, evaluate, run, profile; the base install is enough.")
    lines.append("`edgefold COMMAND --help` explains a command's options.")
    return "\n".join(lines)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Told its width, because to find it out argparse loads a megabyte of modules on a board."""

    def __init__(self, prog: str):
        try:
            columns = os.get_terminal_size().columns
        except OSError:  # a pipe or a file
            columns = 100
        super().__init__(prog, width=max(40, min(columns, 100) - 2))


class _Version(argparse.Action):
    """Print the installed version; importlib.metadata is slow to load, so only when asked."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None):
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"edgefold {version('edgefold')}")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
