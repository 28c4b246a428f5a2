"""The table of `benchmarks.sensors.sensor_m4`: peers on M4-Hourly, one row ahead."""

from __future__ import annotations

from statistics import fmean, median

from benchmarks.record import Record
from benchmarks.table import Table


def sensor_m4(data: Record) -> list[Table]:
    """The table of a record, the hardest peer first."""
    rows = [
        [
            *(method, f"{one['n']}", f"{one['crps_median']:.3f}", f"{one['crps_mean']:.3f}"),
            *(f"{100 * one['crps_better']:.0f} %", f"{one['nats_median']:+.2f}"),
            f"{100 * one['nats_better']:.0f} %",
        ]
        for method, one in sorted(data["peers"].items(), key=lambda item: -item[1]["crps_median"])
    ]
    header = ["peer", "series", "CRPS beside it, median", "geometric mean", "better on"]
    header += ["nats over it, median", "better on"]
    holds = [one["holds_90"] for one in data["series"].values()]
    note = (
        f"One row ahead, the last 300 rows of {len(holds)} series. Ours: the 90 % band holds "
        f"{100 * median(holds):.1f} % in the median, {100 * fmean(holds):.1f} % in the "
        "mean. Peers as skaters publishes them (P. Cotton); they were given changes and no levels, "
        "and some were fitted again every 25 rows. A part of our nats are exact repeats."
    )
    return [Table(header, rows, note)]
