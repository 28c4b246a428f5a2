"""The tables of the benchmarks of bundles as C."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import Table, megabytes, ranged
from edgefold.cli.text.numbers import format_time


def native_speed(data: Record) -> list[Table]:
    """A row for each graph."""
    builds = list(data["compilers"])
    rows = []
    for name, bundle in data["bundles"].items():
        for graph, times in bundle["graphs"].items():
            row = [f"{name}, {graph}", ranged(times["onnxruntime"])]
            for build in builds:
                own = times["native"][build]
                row += [ranged(own), f"{own['ratio']:.3f}"]
            share = (format_time(times["python_s"][side]) for side in ("onnxruntime", "native"))
            rows.append([*row, *share, f"{times['difference']:.0e}"])
    header = ["graph alone", "onnxruntime"]
    for build in builds:
        header += [f"C, {build}", "ratio"]
    header += ["Python's call, onnxruntime", "native", "difference"]
    told = "; ".join(f"{b}: {title}, `{flags}`" for b, (title, flags) in data["compilers"].items())
    note = (
        "Medians of the rounds, p10 to p90 in brackets; ratio: the median of the rounds' ratios. "
        "What Python's call adds to each is told beside and is in neither. Difference: the largest "
        "of the outputs' elements between C and onnxruntime on the same inputs, over the largest "
        f"element of that output or 1. Builds: {told}."
    )
    return [Table(header, rows, note), _floors(data)]


def _floors(data: Record) -> Table:
    rows = []
    for name, bundle in data["bundles"].items():
        for build, own in bundle["graphs"].get("refresh", {"native": {}})["native"].items():
            floor = own["floor"]
            rows.append(
                [
                    f"{name}, {build}",
                    f"{floor['flops'] / 1e6:.1f}",
                    f"{floor['flops_per_s'] / 1e9:.0f} GFLOP/s",
                    f"{floor['weight_bytes'] / 1e6:.2f}",
                    f"{floor['bytes_per_s'] / 1e9:.0f} GB/s",
                    format_time(floor["floor_s"]),
                    f"{floor['over_floor']:.2f}",
                ]
            )
    header = ["refresh", "MFLOP of products", "kernel alone", "MB of weights", "read at"]
    note = (
        "Floor: the operations of the graph's matrix products at the kernel's rate, plus its "
        "weights at the rate of reading; softmax, normalisation and all else are not in it."
    )
    return Table([*header, "floor", "time over floor"], rows, note)


def comparisons(data: Record) -> list[Table]:
    """A row for each graph that writes state."""
    rows = []
    for name, graphs in data["models"].items():
        for graph, times in graphs.items():
            row = [f"{name}, {graph}"]
            for backend in ("onnxruntime", "native"):
                own = times[backend]
                row += [ranged(own["before"]), ranged(own["after"]), f"{own['ratio']:.2f}"]
            rows.append(row)
    header = ["graph alone"]
    for backend in ("onnxruntime", "C"):
        header += [f"{backend}, before", "after", "ratio"]
    title, flags = data["compiler"]
    note = (
        "Before: with Clip, Min and Max; after: with comparisons, as bundles are shipped. Medians "
        "of the rounds, p10 to p90 in brackets; ratio: the median of the rounds' ratios. C by "
        f"{title}, `{flags}`."
    )
    return [Table(header, rows, note)]


def native_process(data: Record) -> list[Table]:
    """A row for each process of each bundle."""
    titles = {
        "program": "C program",
        "onnxruntime": "edgefold run, onnxruntime",
        "native": "edgefold run, native",
    }
    rows = [
        [
            f"{name}: {title}",
            *(megabytes(own[process][f"{kind}_bytes"]) for kind in ("peak", "anonymous", "mapped")),
            f"{own[process]['growth_bytes'] / 1024:,.0f} KiB",
        ]
        for name, own in data.items()
        for process, title in titles.items()
    ]
    told = ", ".join(
        f"{name}: {own['n_rows']:,} rows, a file of {megabytes(own['file_bytes'])}"
        for name, own in data.items()
    )
    note = (
        "Peak: what was resident (VmHWM), pages of files included. Anonymous: what the kernel "
        "cannot take back. Mapped: all that the process may touch (VmPeak). Growth: of anonymous "
        f"memory from a fifth of the run to its end. The C program took {told}."
    )
    return [Table(["process", "peak", "anonymous", "mapped", "growth"], rows, note)]


def native_others(data: Record) -> list[Table]:
    """A row for each contender, two columns for each step."""
    steps = data["steps"]
    names = list(next(iter(steps.values())))
    rows = []
    for name in names:
        row = [name]
        for own in steps.values():
            row += [ranged(own[name]), f"{own[name]['ratio']:.1f}"]
        rows.append(row)
    header = ["compiled by"]
    for step in steps:
        header += [step, "to native"]
    title, flags = data["compiler"]
    versions = ", ".join(f"{name} {version}" for name, version in data["versions"].items())
    left_out = f" Left out: {', '.join(data['left_out'])}." if data["left_out"] else ""
    note = (
        "Medians of the rounds, p10 to p90 in brackets; to native: the median of the rounds' "
        f"ratios. {versions}. C by {title}, `{flags}`; emx-onnx-cgen's is compiled with these "
        "flags and -O3, and once with -ffast-math. ExecuTorch is called from Python, which is a "
        f"part of its time.{left_out}"
    )
    return [Table(header, rows, note)]
