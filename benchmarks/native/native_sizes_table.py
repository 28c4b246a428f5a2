"""Tables of the record of sizes and instructions on microcontrollers."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import Table

SHOWN = ("update", "refresh", "query_one", "query")


def native_sizes(data: Record) -> list[Table]:
    """Flash and RAM of each part, then instructions of each emulated machine."""
    return [_sizes(data), _replays(data)]


def _sizes(data: Record) -> Table:
    rows = [
        [
            name,
            row["part"],
            f"{row['flash_bytes'] / 1e3:,.0f} kB",
            f"{row['constants_bytes'] / 1e3:,.0f} kB",
            f"{row['flash_bytes'] / row['part_flash_bytes']:.0%}",
            f"{row['ram_bytes'] / 1e3:,.1f} kB",
            f"{row['arena_bytes'] / 1e3:,.1f} kB",
            f"{row['ram_bytes'] / row['part_ram_bytes']:.0%}",
        ]
        for name, bundle in data.items()
        for row in bundle["parts"]
    ]
    note = (
        "A firmware that predicts, learns, saves and loads; linked, not run. RAM with "
        f"{next(iter(data.values()))['parts'][0]['stack_bytes'] / 1024:.0f} KiB of stack. Shares "
        "are of the part's flash (a Pico's 2 MiB, a Pico 2's 4 MiB) and RAM (of the STM32H743 its "
        "largest block, 512 KiB)."
    )
    header = ["bundle", "part", "flash", "of it constants", "of the part's"]
    return Table([*header, "RAM", "of it arena", "of the part's"], rows, note)


def _replays(data: Record) -> Table:
    rows = [
        [
            name,
            f"{row['machine']} ({row['processor']})",
            *(f"{row['instructions'].get(call, 0):,}" for call in SHOWN),
            f"{row['error']:.1e} of {row['tolerance']:.0e}",
            f"{row['stack_bytes'] / 1e3:.1f} kB",
        ]
        for name, bundle in data.items()
        for row in bundle["replays"]
        if row["instructions"]
    ]
    rows += [
        [name, row["machine"], *("not counted",) * len(SHOWN), f"{row['error']:.1e}", ""]
        for name, bundle in data.items()
        for row in bundle["replays"]
        if not row["instructions"]
    ]
    note = (
        "Instructions of a call, on average over the golden stream, through the C interface; 0: "
        "the bundle has no such graph. They are not cycles: no board was measured. cortex-m0plus "
        "and riscv32 compute floats by software. The error is in scaled units, with the tolerance."
    )
    header = ["bundle", "machine of qemu", *SHOWN, "largest error", "stack used"]
    return Table(header, rows, note)
