"""Write the report of `edgefold check --lockstep` as text."""

from __future__ import annotations

from edgefold.runtime.backends.base import Contender
from edgefold.runtime.checking.lockstep import LockstepReport
from edgefold.runtime.checking.tensor_differences import Parting, Pass, TensorDifference


def lockstep_lines(report: LockstepReport, a: Contender, b: Contender) -> list[str]:
    """Return lines on how each tensor differs between the backends A and B, and a verdict.

    The stream ran twice: first B read A's state in each run of a graph, then B read its own.
    """
    lines = [
        *(
            f"{name:<9} {side['name']} {side['version']} on {side['device']}, "
            f"{contender.threads} thread(s)"
            for name, side, contender in (("A", report.a, a), ("B", report.b, b))
        ),
        f"stream    {report.n_points:,} points, twice: alone (B reads A's state before each run of "
        "a graph) and along (B reads its own)",
        "",
        "largest difference of B from A, relative to the tensor's scale, and after how many points",
        f"  {'graph':<13}{'tensor':<17}{'runs':>7}{'alone':>10}{'at':>9}{'along':>10}{'at':>9}",
    ]
    along = {(tensor.graph, tensor.tensor): tensor for tensor in report.along.tensors}
    for tensor in report.alone.tensors:
        other = along.get((tensor.graph, tensor.tensor))
        beyond = tensor.first or (other and other.first)
        lines.append(
            f"  {tensor.graph:<13}{tensor.tensor:<17}{tensor.n_runs:>7,}"
            f"{_largest(tensor)}{_largest(other)}{'  PARTED' if beyond else ''}".rstrip()
        )
    lines += [
        f"  {name:<13}did not run: the stream has too few points; give more with --points"
        for name in report.never_ran
    ]
    rests = [
        f"  {tensor.tensor} of {tensor.graph}: on B {tensor.rest_ratio:.3f} times as large as on A "
        f"({name}){'  LOST' if tensor.rest_is_lost else ''}"
        for name, done in (("alone", report.alone), ("along", report.along))
        for tensor in done.tensors
        if tensor.rest_ratio is not None
    ]
    if rests:
        lines += ["", "what rounding took from the sums and the state keeps", *rests]
    return [*lines, "", *_verdict(report)]


def _largest(tensor: TensorDifference | None) -> str:
    if tensor is None or tensor.largest is None:
        return f"{'-':>10}{'-':>9}"
    if tensor.largest.difference == 0:
        return f"{'same':>10}{'':>9}"
    return f"{tensor.largest.difference:>10.1e}{tensor.largest.n_points:>9,}"


def _verdict(report: LockstepReport) -> list[str]:
    bound = f"the bound {report.bound:.1e}"
    if report.passed:
        worst = max(t.largest.difference for t in report.along.tensors if t.largest is not None)
        return [f"passed: no tensor parts beyond {bound}; the largest along is {worst:.1e}"]
    parted = report.alone.first or report.along.first
    lines = [f"FAILED: B parts from A beyond {bound}" if parted else "FAILED: B differs from A"]
    for name, done in (("alone", report.alone), ("along", report.along)):
        lines += [f"  {name:<9} {line}" for line in _partings(done)]
    if report.alone.passed:
        lines.append(
            "No single graph parts on A's state: small differences add up along the stream. "
            "Compare the predictions with `edgefold check`, or give a larger --bound."
        )
    elif report.alone.first is not None:
        lines.append(
            f"The graph {report.alone.first.graph} computes something else on B from the same "
            "state; what comes after it inherits that."
        )
    return lines


def _partings(done: Pass) -> list[str]:
    lines = []
    if done.first is not None:
        lines.append(f"first {_place(done.first)}")
    if done.refused is not None:
        lines.append(f"B refused a step that A did: {done.refused}")
    lines += [
        f"{tensor.tensor} of {tensor.graph} is {tensor.rest_ratio:.3f} times as large on B: what "
        "rounding takes from the sums is lost there, and long streams drift"
        for tensor in done.tensors
        if tensor.rest_is_lost
    ]
    return lines or ["no graph parts"]


def _place(parting: Parting) -> str:
    index = ", ".join(map(str, parting.index))
    return (
        f"after {parting.n_points:,} point(s), graph {parting.graph}, tensor "
        f"{parting.tensor}[{index}]: A {parting.a:.9g}, B {parting.b:.9g}, "
        f"difference {parting.difference:.1e}"
    )
