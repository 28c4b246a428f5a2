"""Tables of the record of many sensors in one process."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import Table


def many_sensors(data: Record) -> list[Table]:
    """Times of a row by the number of streams of a step; then the fleet."""
    rows = []
    for row in data["streams"]:
        cells = [f"{row['n_streams']}"]
        for kind in ("c", "stream"):
            own = row[kind]
            cells += [f"{1e6 * own[q]:.1f} µs" for q in ("median_s", "p90_s")]
            cells.append(f"{own['ratio']:.2f}")
        rows.append(cells)
    header = ["streams of a step", "a row and sensor in C", "90 %", "of one stream's"]
    header += ["through `Stream`", "90 %", "of one stream's"]
    fleet = data["fleet"]
    sizes = [
        ["sensors", f"{fleet['n_sensors']:,}"],
        ["memory of a sensor", f"{fleet['sensor_bytes'] / 1e3:.1f} kB"],
        ["memory that all share", f"{fleet['shared_bytes'] / 1e3:.1f} kB"],
        ["memory of the process", f"{fleet['resident_bytes'] / 1e6:.0f} MB"],
        ["a row, in the median round", f"{fleet['row_us']:.1f} µs"],
        [f"a row, mean of {fleet['n_rounds']} rounds", f"{fleet['mean_row_us']:.1f} µs"],
        ["processor time of a row, mean", f"{fleet['processor_row_us']:.1f} µs"],
        ["the slowest round of all sensors", f"{fleet['slowest_round_s']:.2f} s"],
    ]
    note = (
        "One program in C, every sensor with clock, season search and alarms, for seasons of up to "
        f"{fleet['longest_season']} slots. All sensors began at once and search for a season in "
        f"the same rounds; the slowest was round {fleet['slowest_round']}."
    )
    return [Table(header, rows), Table(["", ""], sizes, note)]
