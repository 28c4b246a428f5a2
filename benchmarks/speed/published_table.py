"""The table of `benchmarks.speed.published_forms`."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import Table, ranged
from edgefold.cli.text.numbers import format_time


def published_forms(data: Record) -> list[Table]:
    """A row for each model and number of points."""
    rows = []
    for row in data["rows"]:
        theirs = row["published"]["median_s"]
        ratios = [f"{theirs / row[kind]['median_s']:,.1f}" for kind in ("alone", "with_refresh")]
        told = row["authors_s"]
        name = f"{row['model']}, {row['what']}, {row['n_points']:,} points"
        times = [ranged(row[kind]) for kind in ("published", "alone", "with_refresh")]
        rows.append([name, *times, *ratios, "" if told is None else format_time(told)])
    header = ["after N points", "published form, PyTorch eager", "Edgefold", "and refresh"]
    header += ["ratio", "with refresh", "the authors' code"]
    note = (
        "Processor time of one thread, medians, p10 to p90 in brackets; published sizes, buffers "
        "full. Edgefold refreshes when a query finds its memory stale: `Edgefold` is the update "
        "alone, or of TNP-D a query that finds it fresh; `and refresh` is what a point costs that "
        "is asked about at once. The authors' code ran on another machine, an AMD EPYC."
    )
    return [Table(header, rows, note)]
