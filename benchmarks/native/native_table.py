"""The table of `benchmarks.native.native_rows`."""

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
            f"{own['n_kills']}",
            "yes" if own["same"] and own["same_after_kills"] else "NO",
            f"{own['peak_bytes'] / 1e6:.1f} MB",
            f"{own['end_bytes'] / 1e6:.2f} MB",
        ]
        for name, own in data.items()
    ]
    header = ["bundle", "rows", "not used", "kills", "same as edgefold run"]
    note = (
        "Same: output, record and state have the same bytes as those of `edgefold run` on the "
        "backend native, also after the kills."
    )
    return [Table([*header, "peak", "anonymous"], rows, note)]
