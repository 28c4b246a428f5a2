"""Check a model against the whole contract: in PyTorch first, then as a bundle."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np

from edgefold.export.bundle import ExportConfig, export_bundle
from edgefold.export.checks.laws import CHECKS, FAILED, PASSED, SKIPPED, Verdict, explained
from edgefold.export.checks.model_laws import MODEL_CHECKS, TorchSubject
from edgefold.export.checks.subjects import StreamSubject
from edgefold.export.graphs.step_graphs import Sizes
from edgefold.export.native.generator import refusal
from edgefold.runtime.errors import EdgefoldError
from edgefold.runtime.stream.stream import Stream
from edgefold.train.contract import StreamingModel

EXPORTS = "bundle: the graphs give PyTorch's predictions along a stream"


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Holds the verdict of each check, in the order in which the checks ran.

    Attributes:
        rows: The verdicts.
        no_c: Why `edgefold build` refuses the model, in lines; empty if it becomes C, None if it
            was not exported.
    """

    rows: tuple[Verdict, ...]
    no_c: tuple[str, ...] | None = None

    @property
    def passed(self) -> bool:
        """Return whether no check failed."""
        return all(row.verdict != FAILED for row in self.rows)


def verify(
    model: StreamingModel,
    sizes: Sizes,
    n_steps: int = 1000,
    progress: Callable[[str], None] = lambda line: None,
) -> VerifyReport:
    """Run every check that applies to a model; errors of the model become verdicts, too.

    Args:
        model: Model in evaluation mode, with float32 parameters on the CPU.
        sizes: Sizes of the bundle; PyTorch is checked with `telling_streams` of them.
        n_steps: Number of points of the long streams.
        progress: Function that is called with one line of text before each check.
    """
    rows: list[Verdict] = []
    subject = TorchSubject(model, telling_streams(model, sizes.streams))
    for check in (*MODEL_CHECKS, *CHECKS):
        progress(f"PyTorch: {check.name}")
        rows.append(check.verdict(subject, n_steps))
    if rows[0].verdict == FAILED:
        rows.append(Verdict(EXPORTS, SKIPPED, "correct the steps first"))
        return VerifyReport(tuple(rows))
    with tempfile.TemporaryDirectory(prefix="edgefold-") as folder:
        bundle = Path(folder) / "bundle"
        rows.append(_exported(model, bundle, sizes, n_steps, progress))
        no_c = refusal(bundle) if rows[-1].verdict == PASSED else None
        if rows[-1].verdict == PASSED:
            with Stream.open(bundle, backend="onnxruntime") as stream:
                of_bundle = StreamSubject(
                    stream, model.ordered, model.input_range, model.plausible_inputs
                )
                for check in CHECKS:
                    progress(f"bundle: {check.name}")
                    rows.append(check.verdict(of_bundle, n_steps))
    return VerifyReport(tuple(rows), no_c)


def telling_streams(model: StreamingModel, least: int) -> int:
    """Return a number of streams that shows a state whose first axis is not that of streams.

    It is at least `least` and 2, and no axis of the state of one stream is as long: a state of
    shape (layers, streams, width) with 2 layers would pass every check of 2 streams.
    """
    try:
        lengths = {n for tensor in model.initial_state(1).values() for n in tensor.shape}
    except Exception:  # the first check calls it again, and reports the error
        lengths = set()
    return next(n for n in count(max(2, least)) if n not in lengths)


def _exported(
    model: StreamingModel,
    bundle: Path,
    sizes: Sizes,
    n_steps: int,
    progress: Callable[[str], None],
) -> Verdict:
    """Export a model, which compares the bundle with it, and return the result as a verdict."""
    config = ExportConfig(
        sizes.chunk, sizes.targets, sizes.streams, parity_steps=max(n_steps, 4 * sizes.chunk)
    )
    try:
        report = export_bundle(model, {"name": "verify"}, bundle, config, progress)
    except EdgefoldError as error:
        return Verdict(EXPORTS, FAILED, str(error))
    except (Exception, SystemExit) as error:
        return Verdict(EXPORTS, FAILED, explained(error))
    worst = float(np.max([row.graphs_to_float32 for row in report.parity]))
    return Verdict(EXPORTS, PASSED, f"to {worst:.1e} over {report.parity[-1].n_points} points")
