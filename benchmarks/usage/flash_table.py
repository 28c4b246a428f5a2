"""The tables of `benchmarks.usage.flash`."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import Table


def _mb(n_bytes: float) -> str:
    return f"{n_bytes / 1e6:,.2f} MB" if n_bytes else ""


def flash(data: Record) -> list[Table]:
    """Predicted and measured bytes of each setting, by part where a part is known."""
    rows = []
    for run in data["runs"]:
        own, found = run["predicted"], run["measured"]
        parts = [own[name] for name in ("snapshots", "output", "journal", "once")]
        total = sum(parts)
        rows.append([
            run["name"],
            f"{run['every']:,}",
            *map(_mb, parts),
            _mb(total),
            _mb(found["written_bytes"]),
            f"{total / found['written_bytes'] - 1:+.1%}",
        ])  # fmt: skip
    header = [f"{data['n_rows']:,} rows from", "--every", "snapshots", "output", "journal"]
    header += ["its files, once", "predicted", "measured", "off by"]
    note = (
        "The general model of sensors. Measured is `write_bytes` of /proc/self/io: pages that the "
        "process changed, without what the file system adds. Messages hold one row each, of four "
        "sensors, and are forced to the disk by ten."
    )
    return [Table(header, rows, note)]
