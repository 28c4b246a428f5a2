"""`edgefold verify`: test a model against the whole contract, in PyTorch and as a bundle."""

from __future__ import annotations

import argparse

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.options.bundle_options import positive
from edgefold.cli.options.model_options import MODEL_HELP, add_model_options, build_model
from edgefold.cli.terminal import say
from edgefold.cli.text.export import as_c

EXAMPLES = (
    "edgefold verify my_model.py:MyModel",
    "edgefold verify my_model.py:MyModel --weights weights.safetensors --set width=128",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `edgefold verify`."""
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    add_model_options(parser)
    parser.add_argument(
        "--steps", type=positive, default=1000, metavar="N", help="length of streams; default 1000"
    )
    parser.add_argument(
        "--streams", type=positive, default=2, help="streams side by side; default 2"
    )


def run(args: argparse.Namespace) -> int:
    """Test the model, print a verdict for each check, and return WRONG_RESULT if one failed."""
    from edgefold.export.checks.verification import verify
    from edgefold.export.graphs.step_graphs import Sizes

    model = build_model(args, args.model)
    sizes = Sizes(chunk=8, targets=4, streams=args.streams)
    report = verify(model, sizes, args.steps, lambda line: say(f"{line} ..."))
    print(f"{args.model}: {model.summary}\n")
    for row in report.rows:
        print(f"  {row.verdict:<8} {row.name}{f': {row.detail}' if row.detail else ''}")
    if report.no_c is not None:
        print(f"\n{as_c(report.no_c)}")
    n_failed = sum(row.verdict == "FAILED" for row in report.rows)
    print(f"\n{'FAILED' if n_failed else 'passed'}: {n_failed} of {len(report.rows)} checks failed")
    return ExitCode.WRONG_RESULT if n_failed else ExitCode.DONE
