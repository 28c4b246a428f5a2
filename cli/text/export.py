"""Write a report on an exported bundle as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.bundle.signature import bundle_hash_of

if TYPE_CHECKING:
    from edgefold.export.bundle import ExportReport

PARTS = {
    "weights": "weights, each stored once",
    "state": "state, two buffers each",
    "cache": "cache that queries read",
    "io": "points, targets, predictions",
    "activations": "activations of the largest graph",
    "total": "total",
}


def describe(report: ExportReport) -> str:
    """Return the report: sizes, memory plan, parity with PyTorch, and the cost of the precision."""
    plan = report.memory_plan
    lines = [
        f"{report.path}: {report.n_bytes / 1e6:.1f} MB on disk",
        f"hash {bundle_hash_of(report.path)}",
        *([keeps] if (keeps := load_manifest(report.path, verify=False).keeps) else []),
        "",
        "memory plan, process and runtime not counted            kB",
    ]
    lines += [f"  {text:<48}{plan[f'{part}_bytes'] / 1e3:>8.1f}" for part, text in PARTS.items()]
    lines.append("\n  graph             weights kB   activations kB")
    for name, graph in plan["graphs"].items():
        weights, activations = graph["weights_bytes"] / 1e3, graph["activations_bytes"] / 1e3
        lines.append(f"  {name:<14}{weights:>14.1f}{activations:>17.1f}")
    lines += [
        "\nparity along the stream: largest error of the prediction, in scaled units",
        "  points   graphs to reference in float32   graphs to float64   float32 to float64",
    ]
    for row in report.parity:
        lines.append(
            f"{row.n_points:>8}{row.graphs_to_float32:>33.1e}"
            f"{row.graphs_to_float64:>20.1e}{row.torch_to_float64:>21.1e}"
        )
    return "\n".join([*lines, "passed", *_precision(report.precision)])


def as_c(no_c: Sequence[str]) -> str:
    """Return lines that say whether a model builds as C; `no_c` has the reasons why not, if any."""
    first, *more = no_c or ["`edgefold build` covers every operator"]
    head = f"as C      {'`edgefold build` refuses it: ' * bool(no_c)}"
    return "\n".join([head + first, *(f"          {line}" for line in more)])


def _precision(precision: dict[str, Any]) -> Iterator[str]:
    if precision["name"] == "float32":
        return
    parity = precision["parity"]
    yield f"\n{precision['name']}: `edgefold check` allows {parity['tolerance']:.1e}"
    if "calibrated_on" in precision:
        yield f"ranges from {precision['calibrated_on']}"
    if "log_likelihood_change" not in precision:
        yield "no task is known that the precision can be judged by: only parity was compared"
        return
    yield f"change in log-likelihood from float32, nats a target, on {precision['measured_on']}"
    for name, change in precision["log_likelihood_change"].items():
        error, n = precision["standard_error"][name], precision["n"][name]
        yield f"  {name:<12}{change:>+9.4f} ± {error:.4f}   (n = {n:,})"
