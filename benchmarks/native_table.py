"""The table of `benchmarks.native_rows`."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import Table


def native_rows(data: Record) -> list[Table]:
    """Each bundle's program beside `edgefold run`."""
    rows = [
        [
            name,
            f"{own['n_rows']:,}",
            f"{own['malformed'] + own['missing']:,}",
            "yes" if own["same"] and own["same_after_kills"] else "NO",
            f"{own['rows_per_s']:,.0f}",
            f"{own['python_rows_per_s']:,.0f}",
            f"{own['peak_bytes'] / 1e6:.1f} MB",
            f"{own['end_bytes'] / 1e6:.2f} MB",
        ]
        for name, own in data.items()
    ]
    header = [
        "bundle",
        "rows",
        "not used",
        "same as edgefold run",
        "rows/s",
        "edgefold run, rows/s",
    ]
    note = (
        "Same: output, record and state have the same bytes as those of `edgefold run --backend "
        "native`, also after the kills."
    )
    return [Table([*header, "peak", "anonymous"], rows, note)]
