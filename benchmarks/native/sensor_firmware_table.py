"""Tables of the record of sensors on emulated microcontrollers."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import Table

ROW_BYTES = 72
"""The size of a recorded row in the replay's flash, which a real firmware does not have."""


def sensor_firmware(data: Record) -> list[Table]:
    """Memory and instructions of each machine, then how near its forecasts are."""
    return [_costs(data), _differences(data)]


def _costs(data: Record) -> Table:
    rows = []
    for one in data.values():
        for row in one["replays"]:
            n_bytes, counts = row["bytes"], row["instructions"]
            ram = n_bytes["sensor"] + n_bytes["shared"] + n_bytes["stack"]
            flash = row["code_bytes"] - ROW_BYTES * row["n_rows"]
            search = counts["rows with a search"]
            rows.append(
                [
                    f"{one['longest']:,}",
                    one["arithmetic"],
                    row["processor"],
                    f"{n_bytes['sensor'] / 1e3:.1f} kB",
                    f"{n_bytes['shared'] / 1e3:.1f} kB",
                    f"{n_bytes['stack'] / 1e3:.1f} kB",
                    f"{ram / 1e3:.1f} kB",
                    f"{flash / 1e3:.0f} kB",
                    f"{counts['rows']['mean'] / 1e6:.2f} M",
                    f"{counts['rows']['most'] / 1e6:.2f} M",
                    f"{search['most'] / 1e6:.1f} M",
                    f"{counts['save']['mean'] / 1e6:.0f} M",
                ]
            )
    note = (
        "RAM: a sensor, the block that all sensors share, and the stack that rows, a save and a "
        "load took; each further sensor takes the first of them. Flash: code with the C library's "
        "part, and weights. Instructions: of a row on average, of the dearest row, of the dearest "
        "one that searched for a season, and of a save. They are no cycles: no board was measured. "
        "cortex-m0plus and riscv32 compute floats by software and took the first 78 rows of each "
        "series only, so that their one search was in few values."
    )
    header = ["longest season", "arithmetic", "processor", "sensor", "shared", "stack", "RAM"]
    return Table([*header, "flash", "a row", "most", "with a search", "a save"], rows, note)


def _differences(data: Record) -> Table:
    rows = [
        [
            f"{one['longest']:,}",
            one["arithmetic"],
            f"{row['machine']} ({row['processor']})",
            f"{row['n_rows']:,}",
            f"{row['n_others']}",
            *(f"{row['n_beyond'][at] / row['n_compared']:.2%}" for at in (2, 3, 4, 5)),
            f"{row['largest']:.1e}",
        ]
        for one in data.values()
        for row in one["replays"]
    ]
    note = (
        "Rows of four series, compared with the engine in C on the machine of the record. Shares "
        "of the rows of which the mean or a quantile is farther from it than 1e-5 of the band from "
        "the 5 % to the 95 % quantile, and so on. By default sums have another order on each "
        "processor, and products may be joined with sums: the model computes in float32, and where "
        "it adapts fast, rounding grows. `same bits`: with -DEDGEFOLD_SAME_BITS. Decisions: alarm, "
        "event, its beginning, season."
    )
    header = ["longest season", "arithmetic", "machine of qemu", "rows", "other decisions"]
    header += ["beyond 1e-5", "1e-4", "1e-3", "1e-2"]
    return Table([*header, "largest"], rows, note)
