"""Tables of `family`: what each model costs, and its growth beside the papers' words."""

from __future__ import annotations

from benchmarks.models.paper_claims import (
    MEMORY,
    PHASES,
    TIME,
    WORDS,
    memory,
    phase_times,
    power,
    verdict,
)
from benchmarks.record import Record
from benchmarks.table import Table
from edgefold.cli.text.numbers import format_bytes, format_time

NOISE = 0.05
"""Times that rise by less than this share over the sizes are taken as equal."""
MEMORY_NOISE = 0.02
KINDS = {
    "update": "update",
    "refresh": "refresh",
    "query_1": "query of 1",
    "query_50": "query of 50",
    "arrival": "arrival",
}


def family(data: Record) -> list[Table]:
    """One table of sizes, one of times for each N, and two of growth."""
    models = data["models"]
    sizes = sorted({int(n) for model in models.values() for n in model["sizes"]})
    return [
        _sizes(models, sizes),
        *(_times(models, n) for n in sizes),
        _time_growth(models),
        _memory_growth(models),
    ]


def _sizes(models: Record, sizes: list[int]) -> Table:
    rows = []
    for name, model in models.items():
        cells = model["sizes"]
        first = next(iter(cells.values()))
        row = [name, f"{first['n_parameters']:,}"] if "n_parameters" in first else [name, ""]
        row.append(_bytes(first, "bundle_bytes"))
        row += [_bytes(cells.get(str(n), {}), "state_bytes") for n in sizes]
        row += [_bytes(cells.get(str(n), {}), "needed_bytes") for n in sizes]
        row.append(format_time(first["export_s"]) if "export_s" in first else "")
        rows.append(row)
    header = ["model", "parameters", "bundle", *(f"state, N = {n:,}" for n in sizes)]
    header += [*(f"needed memory, N = {n:,}" for n in sizes), "export"]
    presets = ", ".join(sorted({model["preset"] for model in models.values()}))
    note = (
        f"Preset {presets}, float32. A model that keeps points has a buffer of N of them. Needed "
        "is the most that the process needs while it learns N points, predicts and goes on."
    )
    return Table(header, rows, note)


def _bytes(cell: Record, key: str) -> str:
    return cell.get("not_run", "") if key not in cell else format_bytes(cell[key])


def _times(models: Record, n: int) -> Table:
    rows = []
    for name, model in models.items():
        times, cell = model["times"].get(str(n)), model["sizes"].get(str(n), {})
        if times is None:
            why = cell.get("not_run", "not run")
            rows.append([name, why, *[""] * len(KINDS)])
            continue
        spent = [format_time(times[kind]["median_s"]) for kind in KINDS]
        rows.append([name, format_time(times["condition_s"]), *spent])
    header = [f"after {n:,} points", f"condition on {n:,}", *KINDS.values()]
    note = "An arrival is a query of one target, with the refresh that it needs, and an update."
    return Table(header, rows, note)


def _time_growth(models: Record) -> Table:
    rows = []
    for name, model in models.items():
        row = [name]
        for phase in PHASES:
            found = power(phase_times(model, phase), NOISE)
            claimed = TIME.get(name, {}).get(phase)
            row += _cells(claimed, found)
        rows.append(row)
    header = ["time in N"]
    for phase in PHASES:
        header += [f"{phase}: stated", "measured", ""]
    note = (
        "Powers of N: stated by table 5 of Feng et al. 2023 and section 3.3 of Feng et al. 2024; "
        "measured between 100 and 10,000 points, a constant part taken off. Condition and update "
        "include the refresh that a prediction would need."
    )
    return Table(header, rows, note)


def _memory_growth(models: Record) -> Table:
    rows = []
    for name, model in models.items():
        found, claims = power(memory(model), MEMORY_NOISE), MEMORY.get(name, {})
        stated = [
            f"{phase} {WORDS[claimed]}"
            for phase in PHASES
            if (claimed := claims.get(phase)) is not None
        ]
        worst = max((c for c in claims.values() if c is not None), default=None)
        rows.append([name, ", ".join(stated), *_cells(worst, found)[1:]])
    header = ["memory in N", "stated", "measured", ""]
    note = (
        "Stated by tables 1, 2 and 8 of Feng et al. 2024; measured is the power of N in the "
        "process's needed memory, judged against the largest that is stated."
    )
    return Table(header, rows, note)


def _cells(claimed: int | None, found: float | None) -> list[str]:
    stated = "" if claimed is None else f"{claimed}"
    return [stated, "" if found is None else f"{found:.2f}", verdict(claimed, found)]
