"""Claims of the papers about growth with the number of context points N.

    TIME    exponents of N: table 5 of LBANP (Feng et al. 2023), section 3.3 of CMANP (Feng et al.
            2024). Its update is anew conditioning wherever the model has no other.
    MEMORY  CMANP's tables 1, 2 and 8: 0 constant, 1 linear, 2 quadratic or more. Tables 1 and 2 and
            table 8 disagree on LBANP's conditioning (linear and constant); table 1 is taken.

None stands for "not applicable", and a model or phase that no table names is left out.
"""

from __future__ import annotations

import math

from benchmarks.record import Record

PHASES = ("condition", "query", "update")

TIME: dict[str, dict[str, int | None]] = {
    "cnp": {"condition": 1, "query": 0, "update": 0},
    "np": {"condition": 1, "query": 0, "update": 0},
    "bnp": {"condition": 1, "query": 0, "update": 0},
    "canp": {"condition": 2, "query": 1, "update": 2},
    "anp": {"condition": 2, "query": 1, "update": 2},
    "banp": {"condition": 2, "query": 1, "update": 2},
    "tnp-d": {"condition": None, "query": 2, "update": None},
    "tnp-nd": {"condition": 2, "query": 2, "update": None},
    "eqtnp": {"condition": 2, "query": 1, "update": 2},
    "lbanp": {"condition": 1, "query": 0, "update": 1},
    "lbanp-nd": {"condition": 1, "query": 0, "update": 1},
    "lbanp-end": {"condition": 1, "query": 0, "update": 1},
    "cmanp": {"condition": 1, "query": 0, "update": 0},
    "cmanp-and": {"condition": 1, "query": 0, "update": 0},
}

MEMORY: dict[str, dict[str, int | None]] = {
    "cnp": {"condition": 0, "update": 0},
    "np": {"condition": 0},
    "bnp": {"condition": 0, "query": 0, "update": 0},
    "canp": {"condition": 2, "query": 2, "update": 2},
    "anp": {"condition": 2, "query": 2, "update": 2},
    "banp": {"condition": 2, "query": 2, "update": 2},
    "tnp-d": {"condition": None, "query": 2, "update": None},
    "tnp-nd": {"condition": None, "query": 2, "update": None},
    "lbanp": {"condition": 1, "query": 0, "update": 1},
    "lbanp-nd": {"condition": 0, "query": 0, "update": 1},
    "cmanp": {"condition": 0, "query": 0, "update": 0},
    "cmanp-and": {"condition": 0, "query": 0, "update": 0},
}

MEASURED_BY = {
    "condition": ("condition", "refresh"),
    "query": ("query_50",),
    "update": ("update", "refresh"),
}
"""The calls that together do what a paper calls a phase; `refresh` holds what a query needs."""

WORDS = {0: "constant", 1: "linear", 2: "quadratic"}


def power(values: dict[int, float], least: float) -> float | None:
    """The power p of N in a + b N^p through the sizes that ran, which are a decade apart.

    Args:
        values: Figures by N.
        least: A share of the largest figure; growth of less is none, and p is 0.

    Returns:
        p; None where fewer than two sizes ran. From two sizes a is taken as 0.
    """
    known = [values[n] for n in sorted(values)]
    if len(known) < 2:
        return None
    if known[-1] - known[0] <= least * known[-1]:
        return 0.0
    if len(known) < 3 or known[1] - known[0] <= least * known[1]:
        # The first step hides in what every size costs: the last one alone tells.
        return math.log10(known[-1] / known[-2])
    return math.log10((known[-1] - known[-2]) / (known[1] - known[0]))


def phase_times(model: Record, phase: str) -> dict[int, float]:
    """Seconds of one phase by N."""
    return {
        int(n): sum(
            row["condition_s"] if kind == "condition" else row[kind]["median_s"]
            for kind in MEASURED_BY[phase]
        )
        for n, row in model["times"].items()
    }


def memory(model: Record) -> dict[int, float]:
    """Needed bytes by N."""
    return {
        int(n): cell["needed_bytes"]
        for n, cell in model["sizes"].items()
        if "needed_bytes" in cell and "not_run" not in cell
    }


def verdict(claimed: int | None, found: float | None) -> str:
    """Return the measurement's verdict on a claim."""
    if claimed is None or found is None:
        return ""
    if found < claimed - 0.25:
        return "less than stated"
    return "confirmed" if found <= claimed + 0.25 else "MORE than stated"
