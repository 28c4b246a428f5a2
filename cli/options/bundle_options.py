"""Declare and read the options of every command that opens a bundle."""

from __future__ import annotations

import argparse
import csv
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefold.cli.terminal import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgefold.runtime import EngineOptions
    from edgefold.runtime.backends.base import Contender
    from edgefold.runtime.stream.stream import Stream


LARGEST_COUNT = 10**12


MOST_SEEDS = 2**62


def seed(text: str) -> int:
    """Read a seed of random numbers, a whole number from 0 to `MOST_SEEDS` - 1, for argparse."""
    number = int(text)
    if not 0 <= number < MOST_SEEDS:
        raise argparse.ArgumentTypeError(f"{number} is not between 0 and {MOST_SEEDS - 1}")
    return number


def positive(text: str) -> int:
    """Read a whole number from 1 to `LARGEST_COUNT`, for argparse."""
    number = int(text)
    if not 1 <= number <= LARGEST_COUNT:
        raise argparse.ArgumentTypeError(f"{text[:20]} is not between 1 and {LARGEST_COUNT:,}")
    return number


def positive_number(text: str) -> float:
    """Read a positive number, for argparse."""
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"invalid float value: {text!r}") from None
    if not (number > 0 and math.isfinite(number)):
        raise argparse.ArgumentTypeError(f"{number} is not a positive number")
    return number


def alarm_rate(text: str) -> float:
    """Read a share of false alarms, above 0 and at most 0.1, for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= 0.1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 0.1, as 1e-4 is")
    return number


def column_names(text: str) -> list[str]:
    """Read names of columns separated by commas, for argparse; double quotes may enclose a name."""
    try:
        names = [name.strip() for name in next(csv.reader([text], strict=True), [])]
    except csv.Error:
        names = []
    if not all(names) or not names or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"{text!r} does not name columns, each once, as a,b,c")
    return names


UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_FACTORS = {"": 1, **{name.lower(): factor for name, factor in UNITS.items()}}


def byte_size(text: str) -> int:
    """Read a size such as 256MiB in bytes, for argparse; upper and lower case are the same.

    Raises:
        argparse.ArgumentTypeError: The text is not a positive number with a unit of `UNITS`, or has
            no unit and is too small to mean bytes.
    """
    parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    factor = _FACTORS.get(parts[2].lower(), 0) if parts else 0
    size = float(parts[1]) * factor if parts else 0.0
    n_bytes = round(size) if math.isfinite(size) else 0
    if n_bytes < 1:
        units = ", ".join(UNITS)
        raise argparse.ArgumentTypeError(f"{text!r} is not a size, e.g. 256MiB; units: {units}")
    if parts and not parts[2] and n_bytes < UNITS["MiB"]:
        raise argparse.ArgumentTypeError(f"{text!r} means {n_bytes:,} bytes; write {n_bytes}MB")
    return n_bytes


def percentage(text: str) -> float:
    """Read a percentage such as 10% as a share, for argparse.

    Raises:
        argparse.ArgumentTypeError: The text is not a percentage from 0 on.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text)
    if not match or not math.isfinite(float(match[1])):
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage such as 10%")
    return float(match[1]) / 100


def add_json_argument(parser: argparse.ArgumentParser, what: str = "write the record here") -> None:
    """Declare --json, the file of a record (`-` is stdout); `what` is its text in the help."""
    parser.add_argument("--json", type=Path, metavar="FILE", help=f"{what}; - is stdout")


def add_record_arguments(parser: argparse.ArgumentParser, *others: str) -> None:
    """Declare --json for a record, --csv and --prometheus for its figures; the file `-` is stdout.

    Args:
        parser: Receives the options; its default `record_options` lists their names.
        others: Names of further options with files, which the command declares itself.
    """
    helps = {
        "json": "write the record here; - is stdout, and everything else then goes to stderr",
        "csv": "write the figures here as CSV, in SI units",
        "prometheus": "write the figures here in Prometheus' text format, for the textfile "
        "collector; the name ends in .prom",
    }
    for name, text in helps.items():
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help=text)
    parser.set_defaults(record_options=(*helps, *others))


def bundle_hash(text: str) -> str:
    """Read a bundle's hash, 64 hexadecimal digits, for argparse."""
    digits = text.strip().lower()
    if not re.fullmatch("[0-9a-f]{64}", digits):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a bundle's hash, the 64 hexadecimal digits that `edgefold export` "
            "prints"
        )
    return digits


def add_trust_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --expect-hash and --trusted-key, which limit the bundles that may be opened."""
    group = parser.add_argument_group("trust (docs/trust.md)")
    group.add_argument(
        "--expect-hash",
        type=bundle_hash,
        metavar="SHA256",
        help="open the bundle only if it has this hash, which `edgefold export` prints",
    )
    group.add_argument(
        "--trusted-key",
        type=Path,
        action="append",
        metavar="FILE",
        help="open the bundle only if this public key has signed it, or one of several that are "
        "given (needs the sign extra)",
    )


def require_trusted(args: argparse.Namespace, bundle: str | Path) -> str | None:
    """Return the hash that the bundle must have; None where no option of trust was given.

    Raises:
        BundleError, KeyFileError: The bundle has another hash, or is not signed by a trusted key.
    """
    if args.expect_hash is None and args.trusted_key is None:
        return None
    from edgefold.runtime.bundle.signature import expected_hash

    return expected_hash(bundle, args.expect_hash, args.trusted_key)


BUNDLE_HELP = "folder written by `edgefold export`, or a shipped model: sensors or gp-tiny"


def bundle_of(name: str) -> str:
    """Return the folder of a bundle; the words of `SHIPPED` name the bundles that are shipped."""
    from edgefold.runtime.sensors.shipped_bundle import named_bundle

    return named_bundle(name)


def bundle_folder(name: str) -> Path:
    """Return the folder of a bundle, as `bundle_of` does, as a path."""
    return Path(bundle_of(name))


def add_bundle_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the argument BUNDLE, the folder of a bundle."""
    parser.add_argument("bundle", metavar="BUNDLE", type=bundle_of, help=BUNDLE_HELP)


def add_backend_argument(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Declare --backend, the name of the backend or `auto`."""
    from edgefold.runtime.backends.registry import AUTO, BACKENDS

    parser.add_argument(
        "--backend",
        choices=("auto", *BACKENDS),
        default="auto",
        metavar="BACKEND",
        help=f"auto (default) or one of {', '.join(BACKENDS)}; auto takes the one whose row "
        "`edgefold check`, `build`, `engine` or `profile` measured as fastest here, else the first "
        f"of {', '.join(AUTO)} that opens; it builds no engine, and runs sensors on the CPU",
    )


def add_stream_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the bundle and all options on how it is opened and run."""
    add_bundle_argument(parser)
    add_backend_argument(parser)
    parser.add_argument(
        "--threads", type=positive, default=1, metavar="N", help="CPU threads of a step (default 1)"
    )
    parser.add_argument(
        "--memory-limit",
        type=byte_size,
        metavar="SIZE",
        help="refuse a bundle that would make this process need more than SIZE, as 96MiB, before "
        "anything is opened; warn if it is too little to run well",
    )
    add_trust_arguments(parser)
    add_engine_arguments(parser)


def add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that `engine_options` reads."""
    from edgefold.runtime.backends.base import WAITS

    engine = parser.add_argument_group("tensorrt and native")
    engine.add_argument(
        "--engine-cache",
        type=Path,
        metavar="DIR",
        help="where engines are kept, and libraries of `edgefold build` (default $EDGEFOLD_CACHE, "
        "else ~/.cache/edgefold)",
    )
    engine.add_argument(
        "--no-cuda-graphs",
        action="store_true",
        help="launch a step kernel by kernel, to see what CUDA graphs save",
    )
    engine.add_argument(
        "--gpu-wait",
        choices=WAITS,
        default="auto",
        help="how to wait for a step on the GPU: spin answers soonest and keeps a CPU core busy "
        "meanwhile, block sleeps until the GPU interrupts, which takes longer and leaves it free; "
        "auto (default) leaves the choice to CUDA, which does not tell it",
    )


def contenders(args: argparse.Namespace, option: str, texts: Sequence[str]) -> list[Contender]:
    """Read backends from texts NAME or NAME:THREADS; without THREADS, --threads applies.

    Args:
        args: Options of the command.
        option: Name of the option that holds the texts, without dashes, for errors.
        texts: The texts, such as "tensorrt" or "onnxruntime:2".
    """
    from edgefold.runtime.backends.base import Contender
    from edgefold.runtime.backends.registry import BACKENDS

    backends, names = [], ("auto", *BACKENDS)
    for text in texts:
        name, colon, threads = text.partition(":")
        if name not in names:
            listed = ", ".join(names)
            args.usage_error(f"argument --{option}: no backend is {name!r}; choose one of {listed}")
        try:
            backends.append(Contender(name, positive(threads) if colon else args.threads))
        except (ValueError, argparse.ArgumentTypeError):
            args.usage_error(f"argument --{option}: {text!r} is not NAME or NAME:THREADS")
    return backends


def engine_options(args: argparse.Namespace) -> EngineOptions:
    """Return the `EngineOptions` that the command line asks for."""
    from edgefold.runtime import EngineOptions

    def conditions() -> dict[str, Any]:
        """Return power mode and clocks by name; only backends on a GPU call this."""
        from edgefold.devices.machine.build_conditions import read_build_conditions

        return read_build_conditions()

    def progress(line: str) -> None:
        say(f"{line} ...")

    return EngineOptions(
        args.engine_cache,
        conditions=conditions,
        cuda_graphs=not args.no_cuda_graphs,
        progress=progress,
        wait=args.gpu_wait,
        watch=getattr(args, "watch", None),
    )


def backend_lines(report: dict[str, Any], root: Path = Path("/")) -> list[str]:
    """Return lines on the backend that runs and, with a GPU or kept times, why this one does."""
    from edgefold.devices.nvidia import has_gpu

    waits = f", waits: {report['waits']}" if "waits" in report else ""
    name = f"{report['name']}, {report['origin']}:" if "origin" in report else report["name"]
    lines = [f"backend   {name} {report['version']} on {report['device']}{waits}"]
    if report.get("mode"):
        lines.append(f"engines   {report['mode']}")
    if report.get("row_s") or ("chosen" in report and has_gpu(root)):
        lines.append(f"chosen    {report['chosen']}")
    for name, reason in report.get("refused", {}).items() if has_gpu(root) else ():
        clause = re.split(r"[.;:] ", reason, maxsplit=1)[0].rstrip(".")
        lines.append(f"refused   {name}: {clause} (see `edgefold doctor`)")
    return lines


def open_stream(args: argparse.Namespace, bundle: Path, slots: int) -> Stream:
    """Open a bundle for a loop, as the options of `add_stream_arguments` ask for it.

    Args:
        args: The options of the command.
        bundle: The bundle.
        slots: The number of named sensors that share the stream; 0 for one without a name.

    Raises:
        EdgefoldError: See `Stream.open` and `require_trusted`.
    """
    from edgefold.runtime.stream.stream import Stream  # only a loop opens one

    return Stream.open(
        bundle,
        args.backend,
        threads=args.threads,
        buffered=args.buffered,
        memory_limit=args.memory_limit,
        engine=engine_options(args),
        slots=slots,
        expect_hash=require_trusted(args, bundle),
        seed=args.seed,
    )


def add_siblings_argument(parser: argparse._ArgumentGroup) -> None:
    """Declare --siblings, the states by which new sensors start warm."""
    parser.add_argument(
        "--siblings",
        metavar="PATH",
        help="of the general model of sensors: a folder of snapshots of sensors like those that "
        "will come, or one snapshot. The first 300 rows of a new sensor are then also forecast by "
        "the states of the up to 8 sensors that have learned most rows (300 or more), each as far "
        "as it proves right, and get fewer false alarms. Until then a new sensor takes some 0.9 MB "
        "more, and the time of a step for each sibling; then it goes on by itself. A snapshot "
        "written before needs its siblings again",
    )
