"""The tables of `precision`: each precision beside float32 of the same model."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import Table, megabytes
from edgefold.cli.text.numbers import format_time

KINDS = {"rbf": "RBF", "matern52": "Matern 5/2", "held_out": "held-out rows"}


def precision(data: Record) -> list[Table]:
    """Return tables of savings and losses, and of times on this machine."""
    return [_cost(data), _times(data)]


def _cost(data: Record) -> Table:
    rows = []
    for subject in data["subjects"]:
        found = subject["found"]
        changes = "; ".join(
            f"{KINDS.get(kind, kind)} {change:+.4f} ± {found['standard_error'][kind]:.4f}"
            for kind, change in found.get("log_likelihood_change", {}).items()
        )
        rows.append(
            [
                subject["name"],
                subject["precision"],
                megabytes(subject["weights_bytes"]),
                megabytes(subject["planned_bytes"]),
                megabytes(subject["needed_bytes"]),
                changes,
                f"{found['parity']['worst']:.0e}",
            ]
        )
    header = [
        "model",
        "precision",
        "weights",
        "planned memory",
        "needed memory",
        "change in log-likelihood",
        "parity",
    ]
    note = (
        "Nats a target, against float32 on the same draws, plus or minus a standard error of the "
        "paired difference. Parity: largest error along the recorded stream, in scaled units of y. "
        "Owned: median, every step run on onnxruntime's CPU, which widens float16 weights "
        "to float32 when it opens a bundle and repacks int8 ones: the plan is what a backend with "
        "kernels of its own for these types needs."
    )
    return Table(header, rows, note)


def _times(data: Record) -> Table:
    exact = {s["name"]: s["times"] for s in data["subjects"] if s["precision"] == "float32"}
    names = list(data["subjects"][0]["times"])
    rows = []
    for subject in data["subjects"]:
        cells = [subject["name"], subject["precision"]]
        for name in names:
            taken = subject["times"][name]["median_s"]
            ratio = taken / exact[subject["name"]][name]["median_s"]
            cells.append(f"{format_time(taken)} ({ratio:.2f})")
        rows.append(cells)
    noise = data["noise"]
    note = (
        "Medians of each graph alone, in brackets beside float32; all bundles took turns. The "
        f"machine's noise: a fixed piece of numpy work took {format_time(noise['p10_s'])} to "
        f"{format_time(noise['p90_s'])} (p10 to p90)."
    )
    return Table(["model", "precision", *names], rows, note)
