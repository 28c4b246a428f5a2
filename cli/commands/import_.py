"""`edgefold import`: turn a stateful ONNX file made elsewhere into a bundle that filters."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgefold.cli.options.bundle_options import positive
from edgefold.cli.terminal import say
from edgefold.cli.text.export import describe

EXAMPLES = (
    "edgefold import model.onnx --state state=stateN --input input:1x576 --out bundles/vad",
    "edgefold import model.onnx --out bundles/model     (where names leave no doubt)",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `edgefold import`."""
    parser.add_argument("file", type=Path, metavar="ONNX", help="a file with its state as inputs")
    parser.add_argument("--out", type=Path, required=True, help="folder of the bundle")
    parser.add_argument("--force", action="store_true", help="replace the bundle that is there")
    parser.add_argument(
        "--state",
        action="append",
        type=_pair,
        default=[],
        metavar="INPUT=OUTPUT",
        help="an input that is state, and the output that is its next value; may be repeated "
        "(default: pairs of one shape and similar names, if there is no doubt)",
    )
    parser.add_argument(
        "--input",
        action="append",
        type=_shape,
        default=[],
        metavar="NAME:1x576",
        help="an input that brings something at each step, and its shape; may be repeated",
    )
    parser.add_argument(
        "--set",
        action="append",
        type=_pair,
        default=[],
        dest="constants",
        metavar="NAME=NUMBER",
        help="the value of an input that never changes, such as sr=16000",
    )
    parser.add_argument(
        "--overlap",
        action="append",
        type=_pair,
        default=[],
        metavar="NAME=N",
        help="the first N elements of this input are the last ones of the step before: the bundle "
        "keeps them as state",
    )
    parser.add_argument(
        "--output",
        action="append",
        default=[],
        metavar="NAME",
        help="an output to keep (default: all)",
    )
    parser.add_argument(
        "--initial", type=Path, metavar="NPZ", help="the first state, instead of zeros"
    )
    parser.add_argument(
        "--reorder-sums",
        action="store_true",
        help="let products of convolutions add up in another order: faster, equal up to rounding",
    )
    parser.add_argument("--streams", type=positive, default=1, help="streams side by side (1)")
    parser.add_argument(
        "--parity-steps", type=positive, default=1000, metavar="N", help="steps to compare"
    )


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, shape = text.rpartition(":")
    try:
        lengths = tuple(int(length) for length in shape.split("x"))
    except ValueError:
        lengths = ()
    if not name or not lengths or min(lengths) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME:SHAPE, such as input:1x576")
    return name, lengths


def run(args: argparse.Namespace) -> int:
    """Import the file, compare the bundle with it, print sizes and errors, and return 0."""
    import numpy as np

    from edgefold.export.importing.imported_bundle import import_bundle
    from edgefold.export.importing.onnx_interface import ImportConfig

    try:
        constants = {name: float(value) for name, value in args.constants}
        overlap = {name: int(value) for name, value in args.overlap}
    except ValueError as error:
        args.usage_error(f"--set and --overlap take numbers: {error}")
    initial = {}
    if args.initial:
        with np.load(args.initial, allow_pickle=False) as archive:
            initial = {name: archive[name] for name in archive.files}
    config = ImportConfig(
        dict(args.state),
        dict(args.input),
        constants,
        tuple(args.output),
        overlap,
        initial,
        args.streams,
        args.reorder_sums,
    )
    report = import_bundle(
        args.file, args.out, config, args.parity_steps, args.force, lambda line: say(f"{line} ...")
    )
    print(describe(report))
    return 0
