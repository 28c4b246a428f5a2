"""Tables from records: docs/results.md, blocks of other pages, and what a benchmark prints.

    benchmarks/records/*.json ──> docs/results.md
                              ├─> README.md, between <!-- results:start --> and <!-- results:end -->
                              ├─> docs/papers.md, from benchmarks/records/papers/
                              └─> `PAGES`, between <!-- budget:start --> and ... :end -->

Nothing is measured here and no figure is written by hand; a record that is missing leaves its
section out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.accuracy.error_tables import accuracy, drift
from benchmarks.accuracy.precision_table import precision
from benchmarks.alarms.sensor_faults_table import sensor_faults
from benchmarks.alarms.sensor_lasting_table import sensor_lasting
from benchmarks.alarms.sensor_schedules_table import sensor_schedules
from benchmarks.alarms.warm_start_table import warm_start
from benchmarks.attention.attention_tables import (
    attention_drift,
    attention_operations,
    attention_speed,
)
from benchmarks.fleets.condition_tables_table import condition_tables
from benchmarks.fleets.forecast_lake_table import forecast_lake
from benchmarks.headline import headline
from benchmarks.loop.broker_rows_table import broker_rows
from benchmarks.loop.candidates_table import candidates
from benchmarks.loop.simulated_days_table import simulated_days
from benchmarks.memory.budget_table import budget
from benchmarks.memory.energy_table import energy_simulation
from benchmarks.memory.engine_table import engine_build
from benchmarks.memory.memory_table import memory_states
from benchmarks.models.copy_table import copy_task
from benchmarks.models.family_table import family
from benchmarks.models.ordered_table import endless_events, ordered_quality
from benchmarks.models.quality_table import quality
from benchmarks.native.many_sensors_table import many_sensors
from benchmarks.native.native_host_tables import (
    comparisons,
    native_others,
    native_process,
    native_speed,
)
from benchmarks.native.native_sizes_table import native_sizes
from benchmarks.native.native_table import native_rows
from benchmarks.native.sensor_firmware_table import sensor_firmware
from benchmarks.numenta.sensor_nab_table import sensor_nab
from benchmarks.papers.departures_table import departures_table, effects
from benchmarks.papers.papers_page import page as papers_page
from benchmarks.papers.papers_page import records_of
from benchmarks.papers.papers_plots import draw_curves
from benchmarks.papers.published_tables import TABLES as PUBLISHED_TABLES
from benchmarks.record import IMAGES as PICTURES
from benchmarks.record import RECORDS, ROOT, Record, read_records
from benchmarks.sensors.sensor_cost_table import sensor_cost
from benchmarks.sensors.sensor_covariates_table import sensor_covariates
from benchmarks.sensors.sensor_m4_table import sensor_m4
from benchmarks.sensors.sensor_paths_table import draw_holds, sensor_paths
from benchmarks.sensors.sensors_table import sensors
from benchmarks.speed.floors_table import floors
from benchmarks.speed.gpu_table import gpu_latency
from benchmarks.speed.latency_tables import constancy, growth, process, reopen, step_latency
from benchmarks.speed.published_table import published_forms
from benchmarks.table import Table, describe
from benchmarks.usage.examples_table import examples
from benchmarks.usage.flash_table import flash
from benchmarks.usage.silero_table import silero
from benchmarks.usage.sql_aggregate_table import sql_aggregate
from benchmarks.usage.wheel_table import wheel

RESULTS = ROOT / "docs" / "results.md"
PAPERS = ROOT / "docs" / "papers.md"
README = ROOT / "README.md"
START, END = "<!-- results:start -->", "<!-- results:end -->"
MODELS = ROOT / "docs" / "models.md"
PAGES = {
    "memory_states": ROOT / "docs" / "budgets.md",
    "budget": ROOT / "docs" / "budgets.md",
    "flash": ROOT / "docs" / "budgets.md",
    "examples": ROOT / "docs" / "examples" / "README.md",
    "silero": ROOT / "docs" / "examples" / "silero-vad.md",
    "wheel": ROOT / "docs" / "tasks.md",
    "copy_task": ROOT / "docs" / "tasks.md",
    "sql_aggregate": ROOT / "docs" / "postgres.md",
    "departures": MODELS,
}
"""These take the tables of one record, between <!-- NAME:start --> and <!-- NAME:end -->."""
ORDER = (
    "step_latency",
    "constancy",
    "process",
    "growth",
    "drift",
    "drift_native",
    "accuracy",
    "quality",
    "quality_digits",
    "departures",
    "precision",
    "reopen",
    "gpu_latency",
    "memory_states",
    "budget",
    "flash",
    "energy_simulation",
    "engine_build",
    "examples",
    "silero",
    "native_rows",
    "native_sizes",
    "sensor_firmware",
    "family",
    "family_small",
    "published_forms",
    "floors",
    "native_speed",
    "comparisons",
    "native_process",
    "native_others",
    "attention_speed",
    "attention_operations",
    "attention_drift",
    "wheel",
    "copy_task",
    "ordered_quality",
    "endless_events",
    "sensors",
    "sensor_paths",
    "sensor_m4",
    "sensor_faults",
    "warm_start",
    "sensor_lasting",
    "sensor_schedules",
    "sensor_covariates",
    "sensor_cost",
    "many_sensors",
    "sensor_nab",
    "candidates",
    "broker_rows",
    "sql_aggregate",
    "simulated_days",
    "condition_tables",
    "forecast_lake",
)
FAMILIES = ("family", "family_small")
IMAGES = {
    "growth": "img/flat.png",
    "drift": "img/drift.png",
    "energy_simulation": "img/energy.png",
    "family": "img/family.png",
    "quality": "img/pareto.png",
    "wheel": "img/wheel.png",
    "attention_speed": "img/attention_speed.png",
    "attention_drift": "img/attention_drift.png",
    "sensor_paths": "img/sensor_paths.png",
}
RENDERERS: dict[str, Callable[[Record], list[Table]]] = {
    "sensors": sensors,
    "sensor_paths": sensor_paths,
    "sensor_m4": sensor_m4,
    "sensor_faults": sensor_faults,
    "warm_start": warm_start,
    "sensor_lasting": sensor_lasting,
    "sensor_schedules": sensor_schedules,
    "sensor_covariates": sensor_covariates,
    "sensor_cost": sensor_cost,
    "many_sensors": many_sensors,
    "sensor_nab": sensor_nab,
    "candidates": candidates,
    "broker_rows": broker_rows,
    "sql_aggregate": sql_aggregate,
    "simulated_days": simulated_days,
    "condition_tables": condition_tables,
    "forecast_lake": forecast_lake,
    "step_latency": step_latency,
    "constancy": constancy,
    "process": process,
    "growth": growth,
    "drift": drift,
    "drift_native": drift,
    "accuracy": accuracy,
    "quality": quality,
    "quality_digits": quality,
    "departures": effects,
    "precision": precision,
    "reopen": reopen,
    "gpu_latency": gpu_latency,
    "memory_states": memory_states,
    "budget": budget,
    "flash": flash,
    "energy_simulation": energy_simulation,
    "engine_build": engine_build,
    "examples": examples,
    "silero": silero,
    "native_rows": native_rows,
    "native_sizes": native_sizes,
    "sensor_firmware": sensor_firmware,
    "family": family,
    "family_small": family,
    "published_forms": published_forms,
    "floors": floors,
    "native_speed": native_speed,
    "comparisons": comparisons,
    "native_process": native_process,
    "native_others": native_others,
    "attention_speed": attention_speed,
    "attention_operations": attention_operations,
    "attention_drift": attention_drift,
    "wheel": wheel,
    "copy_task": copy_task,
    "ordered_quality": ordered_quality,
    "endless_events": endless_events,
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
    """Return the text that a benchmark prints at its end."""
    tables = [*RENDERERS[record["name"]](record["data"]), *required(record)]
    return "\n\n".join([record["question"], *(t.markdown() for t in tables), describe(record)])


def results_page(records: dict[str, Record]) -> str:
    """docs/results.md."""
    parts = [
        "# Results",
        "Written by `python -m benchmarks tables` from the records in `benchmarks/records/`; "
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
    families = [records[name]["data"] for name in FAMILIES if name in records]
    if families and "quality" in records:
        from benchmarks.models.family_plots import draw_pareto  # matplotlib is slow to import

        draw_pareto(families, records["quality"]["data"], PICTURES / "pareto.png")
    for name in PUBLISHED_TABLES:
        found = records_of(name, RECORDS / "papers")
        draw_curves(name, found, PICTURES / f"papers-{name}.png")
    if "sensor_paths" in records:
        draw_holds(records["sensor_paths"]["data"], PICTURES / "sensor_paths.png")
    marks = "<!-- papers:start -->", "<!-- papers:end -->"
    PAPERS.write_text(with_block(PAPERS.read_text(), papers_page(), marks))
    marks = "<!-- settings:start -->", "<!-- settings:end -->"
    MODELS.write_text(with_block(MODELS.read_text(), departures_table().markdown(), marks))
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
