"""The tables of `benchmarks.loop.simulated_days`."""

from __future__ import annotations

from typing import Any

from benchmarks.record import Record
from benchmarks.table import Table

SHOWN = 5
"""Every so many days are shown, besides the first and the last one."""


def simulated_days(data: Record) -> list[Table]:
    """Figures of days, faults, and bytes for the storage."""
    days = data["days"]
    n = len(days)
    numbers = sorted({0, n - 1, *range(SHOWN - 1, n, SHOWN)})
    by_day = Table(
        [
            *("day", "rows", "refused", "memory of its own", "with shares (PSS)", "descriptors"),
            *("threads", "written", "snapshot", "files kept", "output files finished"),
        ],
        [_day(number, days[number]) for number in numbers],
        f"{sum(day['n_rows'] for day in days):,} rows of {n} days at {data['hz']:g} Hz"
        + (
            f" (of {data['n_planned']} planned ones; it was stopped)"
            if n < data["n_planned"]
            else ""
        )
        + f", in {data['n_lives']} processes; --every {data['every']}, --rotate "
        f"{data['part_bytes'] / 1e6:g}MB. "
        f"{_calm(days)}Memory is that at the end of the day; files kept is the most at any time, "
        "without finished ones. Refused are rows of a wrong time or value, and lines that cannot "
        "be read. " + ("" if data["has_disk"] else "Without a small disk: see the command."),
    )
    injected = data["injected"]
    faults = Table(
        ["fault", "times"],
        [[kind, f"{injected[kind]:,}"] for kind in injected],
        f"Each of {data['n_output_lines']:,} lines of the output was compared with the row that it "
        f"belongs to, and the counts of {data['n_clean']} processes that ended by themselves or "
        f"by SIGTERM with the rows that were sent. {data['n_again']:,} rows in "
        f"{data['n_stretches']} stretches were learned again without interruption; "
        f"{data['n_stretches'] - data['n_differing']} of {data['n_stretches']} gave the same "
        "state, output and alarms, bit for bit.",
    )
    return [by_day, faults, _flash(data)]


def _day(number: int, day: dict[str, Any]) -> list[str]:
    return [
        f"{number + 1}{'' if day['is_calm'] else ' *'}",
        f"{day['n_rows']:,}",
        f"{day['n_refused'] + day['n_unreadable']:,}",
        *(f"{day[name] / 1e6:.2f} MB" for name in ("anonymous_bytes", "pss_bytes")),
        *(f"{day[name]}" for name in ("n_descriptors", "n_threads")),
        f"{day['written_bytes'] / 1e6:.1f} MB",
        f"{day['snapshot_bytes'] / 1e3:.1f} kB",
        f"{day['kept_bytes'] / 1e6:.2f} MB",
        f"{day['n_files']}",
    ]


def _calm(days: list[dict[str, Any]]) -> str:
    calm = [number + 1 for number, day in enumerate(days) if day["is_calm"]]
    if not calm:
        return "* a day with faults of process and disk. "
    return (
        "* a day with faults of process and disk; from the end of the last one before day "
        f"{calm[0]} to day {calm[-1]} one process lives. "
    )


def _flash(data: Record) -> Table:
    """Return written bytes beside the prediction, and what a device at this rate would write."""
    own, days = data["predicted"], data["days"]
    rows = []
    for name, part in (
        ("all days", days), ("days without restarts", [d for d in days if d["is_calm"]]),
    ):  # fmt: skip
        n_rows, written = (sum(day[key] for day in part) for key in ("n_rows", "written_bytes"))
        predicted = own["bytes_per_row"] * n_rows
        if part:
            rows.append([
                *(name, f"{n_rows:,}", f"{written / 1e6:,.1f} MB", f"{predicted / 1e6:,.1f} MB"),
                f"{predicted / written - 1:+.1%}",
            ])  # fmt: skip
    return Table(
        ["flash", "rows", "written", "predicted", "off by"],
        rows,
        "Written is `write_bytes` of /proc/self/io of all processes, predicted for the rate that "
        "was reached. At "
        f"{data['hz']:g} Hz in real time, where the kernel writes the output's last page each "
        f"30 s, {own['process_bytes_per_day'] / 1e6:,.1f} MB a day are predicted, and "
        f"{own['device_bytes_per_day'] / 1e6:,.1f} MB with the file system's blocks: "
        f"{own['flash_years']:.0f} years of a card of 32 GB.",
    )
