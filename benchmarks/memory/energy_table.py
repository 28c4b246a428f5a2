"""The table of simulated energy figures."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import Table


def energy_simulation(data: Record) -> list[Table]:
    """A row for each sensor and load."""
    fresh = {(r["age_s"], r["load"]): r for r in data["cases"] if r["is_fresh"]}
    rows = []
    for row in data["cases"]:
        if row["is_fresh"]:
            continue
        how = {0: "", 2: ", reads wait, 1 rail", 4: ", reads wait, 3 rails"}[row["n_waits"]]
        naive = None if row["n_waits"] else fresh[row["age_s"], row["load"]]
        rows.append(
            [
                f"{row['age_s'] * 1e3:.0f} ms{how}",
                row["load"],
                _bias(row),
                f"{100 * row['covered'] / row['n']:.1f}",
                f"± {100 * row['half_width']:.0f} %",
                f"{row['took_s']:.0f} s",
                _bias(naive) if naive else "",
            ]
        )
    header = ["sensor's averages", "load", "bias", "covered of 100", "interval", "measured for"]
    header.append("bias if taken for fresh")
    n = data["cases"][0]["n"]
    note = (
        f"{n} runs with seeds a row, of {data['net_w']:g} W above {data['idle_w']:g} W of idleness "
        f"on a simulated clock, at most {data['limit_s']:g} s each. Bias: mean error relative to "
        "the truth, plus or minus its standard error. Covered: runs whose 95 % interval contains "
        "the truth. Interval: the median of its half-widths; each run goes on until the standard "
        "error is 5 % or the time is used up. Taken for fresh: windows of 3, 5 and 3 s that open "
        "0.3 s after the load changes; there the meter sees that readings are older, says so and "
        "widens its interval."
    )
    return [Table(header, rows, note)]


def _bias(row: Record) -> str:
    error = row["deviation"] / row["n"] ** 0.5
    return f"{100 * row['bias']:+.2f} ± {100 * error:.2f} %"
