"""Tables of the records of time and memory: steps, constancy, process, growth, reopening."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import Table, megabytes, ranged
from edgefold.cli.text.numbers import format_time

GRAPH_OF = {
    "update": "update",
    "condition, 32 points": "condition",
    "consolidate graph alone": "consolidate",
    "refresh": "refresh",
    "query, 1 target": "query_one",
    "query, 16 targets": "query",
}


def step_latency(data: Record) -> list[Table]:
    """Each step on all sides, its work and its floor."""
    ours, theirs = data["times"]["edgefold"], data["times"]["pytorch"]
    native = data["times"].get("native", {})
    ceilings, noise = data["ceilings"], data["noise"]
    rows = []
    for name, times in ours.items():
        n = times["n_points"] if name.startswith("128") else 1
        each, as_c = (
            {key: v / n for key, v in taken.items() if key.endswith("_s")}
            for taken in (times, native.get(name, {}))
        )
        beside = theirs.get(name)
        ratios = [
            f"{beside['median_s'] / taken['median_s']:.1f}" if beside and taken else ""
            for taken in (as_c, each)
        ]
        work = data["work"].get(GRAPH_OF.get(name, ""))
        limits = ["", "", ""]
        if work:
            floor_s = max(
                work["flops"] / ceilings["flops_per_s"],
                work["n_bytes"] / ceilings["cache_bytes_per_s"],
            )
            limits = [
                f"{work['flops'] / 1e6:.2f}",
                f"{work['n_bytes'] / 1e3:.0f}",
                format_time(floor_s),
            ]
        what = f"{name}, each" if n > 1 else name
        shown = [ranged(taken) if taken else "" for taken in (as_c, each, beside)]
        rows.append([what, *shown, *ratios, *limits])
    header = [
        *("step", "as C", "on ONNX Runtime", "PyTorch eager", "PyTorch / C"),
        *("PyTorch / ONNX Runtime", "MFLOP", "kB", "floor"),
    ]
    note = (
        "Medians, p10 to p90 in brackets. PyTorch as the paper runs it is the line `update and "
        "refresh`; Edgefold refreshes when a query finds the memory stale. `128 updates` include "
        "their consolidation. Floor: the longer of the arithmetic at "
        f"{ceilings['flops_per_s'] / 1e9:.0f} GFLOP/s (a large float32 product) and the traffic at "
        f"{ceilings['cache_bytes_per_s'] / 1e9:.0f} GB/s (a copy in cache; "
        f"{ceilings['memory_bytes_per_s'] / 1e9:.0f} GB/s in memory), both measured in one thread "
        "in the same run. The machine's noise: a fixed piece of numpy work took "
        f"{format_time(noise['p10_s'])} to {format_time(noise['p90_s'])} (p10 to p90, "
        f"n = {noise['n']:,})."
    )
    return [Table(header, rows, note)]


def constancy(data: Record) -> list[Table]:
    """Time and memory by number of points."""
    memory = {row["n_points"]: row for row in data["memory"]}
    rows = []
    for times in data["times"]:
        held = memory.get(times["n_points"])
        ratio = f"{times['ratio']:.3f} ({times['ratio_p10']:.3f} to {times['ratio_p90']:.3f})"
        needed = f"{held['needed_bytes'] / 1024:,.0f} KiB" if held else ""
        rows.append([f"{times['n_points']:,}", ranged(times), ratio, needed])
    header = ["points", "Stream.update", "beside 100 points", "needed memory"]
    traced, noise = data["traced"], data["noise"]
    note = (
        f"Over {traced['n_updates']:,} more updates Python's memory grew by "
        f"{traced['kept_bytes']:,} bytes in all, and rose by {traced['peak_bytes']:,} bytes at "
        "most while one ran. The machine's noise: a fixed piece of numpy work took "
        f"{format_time(noise['p10_s'])} to {format_time(noise['p90_s'])} (p10 to p90)."
    )
    return [Table(header, rows, note)]


def process(data: Record) -> list[Table]:
    """Memory and cold start by contender."""
    rows = []
    for name, own in data["contenders"].items():
        low, high = own["needed_bytes_range"]
        first, last = own["first_s_range"]
        needed = f"{megabytes(own['needed_bytes'])} ({low / 1e6:.1f} to {high / 1e6:.1f})"
        resident = megabytes(own["resident_peak_bytes"])
        start = f"{own['first_s']:.2f} s ({first:.2f} to {last:.2f})"
        rows.append([name, needed, resident, start, f"{own['cpu_s']:.2f} s", str(own["n"])])
    header = ["process", "needed memory", "resident peak", "start to first prediction"]
    header += ["CPU time in all", "n"]
    note = (
        "Medians, the whole range in brackets. The required figures are those of the largest run, "
        "and of the largest beside PyTorch's smallest. Resident counts clean pages of files, which "
        "the kernel can take back; how many depends on the page cache."
    )
    return [Table(header, rows, note)]


def growth(data: Record) -> list[Table]:
    """Time and memory of an update by points so far."""
    theirs = {row["n_points"]: row for row in data["pytorch"]}
    rows = []
    for ours in data["edgefold"]:
        beside = theirs.get(ours["n_points"])
        row = [f"{ours['n_points']:,}"]
        for own in (ours, beside):
            known = own and [format_time(own["median_s"]), megabytes(own["needed_bytes"])]
            row += known or ["", ""]
        rows.append(row)
    header = ["points so far", "Edgefold", "needed memory", "PyTorch, anew", "needed memory"]
    return [Table(header, rows)]


def reopen(data: Record) -> list[Table]:
    """Growth of the process over streams opened and closed."""
    rows = [
        [f"{row['n_cycles']:,}", f"{row['growth_bytes'] / 1024:,.0f} KiB"] for row in data["rows"]
    ]
    note = (
        f"Memory that the process needed while the last stream was open, less that of the first. A "
        f"stream of this size is {megabytes(data['stream_bytes'])}; opening it took "
        f"{ranged(data['open'])}."
    )
    return [Table(["streams opened and closed", "the process grew by"], rows, note)]
