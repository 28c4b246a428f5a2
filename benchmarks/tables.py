"""Tables from records: docs/results.md, blocks of other pages, and what a benchmark prints.

    benchmarks/records/*.json ──> docs/results.md
                              ├─> README.md, between <!-- results:start --> and <!-- results:end -->
                              └─> `PAGES`, between <!-- budget:start --> and ... :end -->

Nothing is measured here and no figure is written by hand; a record that is missing leaves its
section out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.budget_table import budget
from benchmarks.energy_table import energy_simulation
from benchmarks.engine_table import engine_build
from benchmarks.examples_table import examples
from benchmarks.family_table import family
from benchmarks.gpu_table import gpu_latency
from benchmarks.headline import headline
from benchmarks.memory_table import memory_states
from benchmarks.precision_table import precision
from benchmarks.quality_table import quality
from benchmarks.record import RECORDS, ROOT, Record, read_records
from benchmarks.silero_table import silero
from benchmarks.table import KERNELS, Table, describe, error, megabytes, ranged
from benchmarks.wheel_table import wheel
from edgefold.cli.text.numbers import format_time

RESULTS = ROOT / "docs" / "results.md"
README = ROOT / "README.md"
START, END = "<!-- results:start -->", "<!-- results:end -->"
PAGES = {
    "memory_states": ROOT / "docs" / "budgets.md",
    "budget": ROOT / "docs" / "budgets.md",
    "examples": ROOT / "docs" / "examples" / "README.md",
    "silero": ROOT / "docs" / "examples" / "silero-vad.md",
    "wheel": ROOT / "docs" / "tasks.md",
}
"""These take the tables of one record, between <!-- NAME:start --> and <!-- NAME:end -->."""
ORDER = (
    "step_latency",
    "constancy",
    "process",
    "growth",
    "drift",
    "accuracy",
    "quality",
    "precision",
    "reopen",
    "gpu_latency",
    "memory_states",
    "budget",
    "energy_simulation",
    "engine_build",
    "examples",
    "silero",
    "family",
    "wheel",
)
IMAGES = {
    "growth": "img/flat.png",
    "drift": "img/drift.png",
    "energy_simulation": "img/energy.png",
    "family": "img/family.png",
    "wheel": "img/wheel.png",
}
GRAPH_OF = {
    "update": "update",
    "condition, 32 points": "condition",
    "consolidate graph alone": "consolidate",
    "refresh": "refresh",
    "query, 1 target": "query_one",
    "query, 16 targets": "query",
}
LEGS = {
    "folded": "Edgefold, 32 points a fold",
    "single": "Edgefold, point by point",
    "plain": "plain float32 sums",
    "paper": "the paper's log-count form",
}
PARTS = {
    ("drift", "attended"): "drift",
    ("drift", "count"): "of weights",
    ("scoring", "attended"): "scoring",
    ("error", "attended"): "error",
}


# One function a record ----------------------------------------------------------------------------


def step_latency(data: Record) -> list[Table]:
    """Each step on both sides, its work and its floor."""
    ours, theirs = data["times"]["edgefold"], data["times"]["pytorch"]
    ceilings, noise = data["ceilings"], data["noise"]
    rows = []
    for name, times in ours.items():
        n = times["n_points"] if name.startswith("128") else 1
        per_point = {key: v / n for key, v in times.items() if key.endswith("_s")}
        beside = theirs.get(name)
        ratio = f"{beside['median_s'] / times['median_s']:.1f}" if beside else ""
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
        rows.append([what, ranged(per_point), ranged(beside) if beside else "", ratio, *limits])
    header = ["step", "Edgefold", "PyTorch eager", "ratio", "MFLOP", "kB", "floor"]
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


def drift(data: Record) -> list[Table]:
    """Errors by points, every second moment, and the last of each leg."""
    legs = {leg["leg"]: {row["n_points"]: row for row in leg["rows"]} for leg in data["legs"]}
    moments = sorted({n for rows in legs.values() for n in rows})
    ends = {max(rows) for rows in legs.values()}
    shown = [n for i, n in enumerate(moments) if i % 2 == 0 or n in ends]

    def part(leg: str, n: int, kind: str) -> str:
        row = legs[leg].get(n)
        return error(row[kind]["norm"] if row else None)

    errors = [[f"{n:,}", *(part(leg, n, "error") for leg in LEGS)] for n in shown]
    drifts = []
    for n in (n for n in shown if n in legs["folded"] or n in legs["single"]):
        row = [f"{n:,}"]
        for leg in ("folded", "single"):
            found = legs[leg].get(n)
            for kind, which in PARTS:
                row.append(error(found[kind][which] if found else None))
        found = legs["folded"].get(n)
        drifts.append([*row, error(found["prediction_error"] if found else None)])
    note = (
        "Relative error of the state: the norm of the difference of all attended vectors from "
        f"float64's, over their norm. The model is {data['run']}; after {data['change']:,} points "
        "the stream goes on with other points."
    )
    names = {"folded": "32 a fold", "single": "by point"}
    header = [f"{names[leg]}: {PARTS[part]}" for leg in names for part in PARTS]
    below = (
        "The same by the worst latent: the largest error of any latent's attended vector, relative "
        "to that vector. Drift: against exact sums of the graph's own float32 scores and values, "
        "which is what the length of the stream adds; of the state, and of the sums of weights. "
        "Scoring: those exact sums against float64, which is the rounding of a single look at each "
        "point: it depends on which points come (the second set is scored more coarsely), not on "
        "how many, and takes the worst latent above the 1e-5 that the whole state is held to. Last "
        "column: largest error of mean and standard deviation of 16 predictions, in units of y. "
        "The required figures below are the largest along the stream."
    )
    return [
        Table(["points", *LEGS.values()], errors, note),
        Table(["points", *header, "32 a fold: prediction"], drifts, below),
    ]


def accuracy(data: Record) -> list[Table]:
    """Log-likelihoods of gp checkpoints, errors of series checkpoints."""
    tables = []
    gp = {name: run for name, run in data["runs"].items() if run["task"] == "gp"}
    rows = [["exact posterior, hyperparameters known", "", *_likelihoods(data["exact"])]]
    for name, run in gp.items():
        trained = (
            f"{run['training']['steps_done']:,} in {run['training']['duration_s'] / 3600:.1f} h"
        )
        rows.append([f"checkpoints/{name}", trained, *_likelihoods(run["scores"])])
    rows += [[name, "", *(f"{v:.2f}" for v in values)] for name, values in data["paper"].items()]
    header = ["1-D regression, log-likelihood", "training steps", *KERNELS.values()]
    batches = [run["n_batches"] for run in gp.values()]
    n = f"{batches[0]:,} batches of 16 tasks" if batches else "the papers' protocol"
    note = (
        f"Nats a target, plus or minus a standard error; {n}, the exact posterior on "
        f"{data['exact']['rbf']['n_batches']:,} of them."
    )
    tables.append(Table(header, rows, note))
    for name, run in data["runs"].items():
        if run["task"] == "series":
            tables.append(_series(name, run))
    return tables


def _likelihoods(scores: Record) -> list[str]:
    return [
        f"{scores[kernel]['log_likelihood']:.3f} ± {scores[kernel]['standard_error']:.3f}"
        for kernel in KERNELS
    ]


def _series(name: str, run: Record) -> Table:
    ranked = sorted(run["scores"].items(), key=lambda pair: float(pair[1]["rmse"]))
    rows = [
        [
            f"checkpoints/{forecast}" if forecast == name else forecast,
            f"{s['rmse']:.4f}",
            f"{s['mae']:.4f}",
            f"{100 * s['coverage_90']:.1f} %",
            f"{s['log_likelihood']:.3f}",
        ]
        for forecast, s in ranked
    ]
    header = [f"{run['file']}, one step ahead", "RMSE", "MAE", "in 90 % band", "log-likelihood"]
    n = ranked[0][1]["n"]
    return Table(header, rows, f"The last {n:,} rows, which training never saw; best RMSE first.")


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


RENDERERS: dict[str, Callable[[Record], list[Table]]] = {
    "step_latency": step_latency,
    "constancy": constancy,
    "process": process,
    "growth": growth,
    "drift": drift,
    "accuracy": accuracy,
    "quality": quality,
    "precision": precision,
    "reopen": reopen,
    "gpu_latency": gpu_latency,
    "memory_states": memory_states,
    "budget": budget,
    "energy_simulation": energy_simulation,
    "engine_build": engine_build,
    "examples": examples,
    "silero": silero,
    "family": family,
    "wheel": wheel,
}


# Pages --------------------------------------------------------------------------------------------


def required(record: Record) -> list[Table]:
    """The requirements of a record, met or not."""
    rows = [
        [r["what"], r["measured"], r["bound"], "met" if r["met"] else "NOT MET"]
        for r in record["requirements"]
    ]
    return [Table(["required", "measured", "bound", ""], rows)] if rows else []


def as_text(record: Record) -> str:
    """What a benchmark prints at its end."""
    tables = [*RENDERERS[record["name"]](record["data"]), *required(record)]
    return "\n\n".join([record["question"], *(t.markdown() for t in tables), describe(record)])


def results_page(records: dict[str, Record]) -> str:
    """docs/results.md."""
    parts = [
        "# Results",
        "Written by `python -m benchmarks.tables` from the records in `benchmarks/records/`; "
        "`make bench` measures everything again. Each table names the command that made it and "
        "what it ran on.",
    ]
    for name in ORDER:
        if name not in records:
            continue
        record = records[name]
        parts += [f"## {record['question']}", f"`{record['command']}`", describe(record)]
        if name in IMAGES:
            parts.append(f"![{record['question']}]({IMAGES[name]})")
        parts += [table.markdown() for table in RENDERERS[name](record["data"])]
        parts += [table.markdown() for table in required(record)]
    return "\n\n".join(parts) + "\n"


def with_block(page: str, block: str, marks: tuple[str, str] = (START, END)) -> str:
    """A page with its block of results replaced; unchanged if it has no markers."""
    start, end = marks
    if start not in page or end not in page:
        return page
    head, _, rest = page.partition(start)
    _, _, tail = rest.partition(end)
    inner = f"{block}\n" if block else ""
    return f"{head}{start}\n{inner}{end}{tail}"


def page_of(name: str, page: str, records: dict[str, Record]) -> str:
    """A page with the tables of one record replaced."""
    if name not in records:
        return page
    record = records[name]
    tables = [*RENDERERS[name](record["data"]), *required(record)]
    parts = [f"`{record['command']}`", describe(record), *(table.markdown() for table in tables)]
    marks = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
    return with_block(page, "\n\n".join(parts), marks)


def main() -> None:
    """Write all pages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder of the records")
    args = parser.parse_args()
    records = read_records(args.records)
    RESULTS.write_text(results_page(records))
    print(f"{RESULTS}: {len(records)} records", file=sys.stderr)
    for name, path in PAGES.items():
        path.write_text(page_of(name, path.read_text(), records))
    if README.exists():
        old = README.read_text()
        new = with_block(old, headline(records))
        if new != old:
            README.write_text(new)
            print(f"{README}: results replaced", file=sys.stderr)
        elif START not in old:
            print(f"{README} has no {START}; left as it is", file=sys.stderr)


if __name__ == "__main__":
    main()
