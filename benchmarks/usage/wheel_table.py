"""The tables of `benchmarks.usage.wheel`."""

from __future__ import annotations

import statistics

from benchmarks.record import Record
from benchmarks.table import Table
from edgefold.cli.text.numbers import format_time

PUBLISHED = {
    "Uniform": {"0.7": 100.0, "0.9": 100.0, "0.95": 100.0, "0.99": 100.0, "0.995": 100.0},
    "CNP": {"0.7": 4.08, "0.9": 8.14, "0.95": 8.01, "0.99": 26.78, "0.995": 38.25},
    "NP": {"0.7": 1.56, "0.9": 2.96, "0.95": 4.24, "0.99": 18.00, "0.995": 25.53},
    "TNP-D": {"0.7": 1.18, "0.9": 1.70, "0.95": 2.55, "0.99": 3.57, "0.995": 4.68},
    "EQTNP": {"0.7": 0.75, "0.9": 1.37, "0.95": 2.04, "0.99": 7.87, "0.995": 11.15},
    "LBANP, 8 latents": {"0.7": 1.28, "0.9": 1.83, "0.95": 2.09, "0.99": 7.43, "0.995": 10.41},
    "LBANP": {"0.7": 1.11, "0.9": 1.75, "0.95": 1.65, "0.99": 6.13, "0.995": 8.76},
    "CMANP": {"0.7": 0.93, "0.9": 1.56, "0.95": 1.87, "0.99": 9.04, "0.995": 13.02},
}
"""Percent of the uniform policy's regret: table 4 of LBANP, and table 7 of CMANP for its row."""


def wheel(data: Record) -> list[Table]:
    """Regret of each run by delta, beside the published figures."""
    deltas = list(next(iter(data["models"].values()))["regret"])
    rows = []
    for name, own in data["models"].items():
        found = [own["regret"][delta]["percent"] for delta in deltas]
        cells = [f"{statistics.mean(f):.2f} ± {statistics.pstdev(f):.2f}" for f in found]
        step_s = statistics.mean(own["regret"][delta]["step_s"] for delta in deltas)
        steps = f"{own['training']['steps_done']:,}"
        rows.append([name, f"{own['n_parameters']:,}", steps, *cells, format_time(step_s)])
    for name, published in PUBLISHED.items():
        cells = [f"{published[delta]:.2f}" if delta in published else "" for delta in deltas]
        rows.append([f"{name}, as published", "", "", *cells, ""])
    header = ["regret, % of the uniform policy's", "parameters", "training steps"]
    note = (
        f"Mean and standard deviation over {data['n_seeds']} problems of {data['n_steps']:,} "
        "steps, the same for all runs. A step is a query, a choice and an update through `Stream`. "
        "The published models were trained with 512 context points and 100,000 steps."
    )
    return [Table([*header, *(f"delta {delta}" for delta in deltas), "a step"], rows, note)]
