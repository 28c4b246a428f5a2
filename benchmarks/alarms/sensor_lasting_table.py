"""The tables of `benchmarks.alarms.sensor_lasting`: what is found, and false alarms."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import Table


def sensor_lasting(data: Record) -> list[Table]:
    """Return what is found beside the oracle, and the alarms without a fault."""
    within = ", ".join(map(str, data["within"]))
    rows = []
    for name, told in data["faults"].items():
        shares = [
            f / max(best, 1e-9) for f, best in zip(told["found"], told["oracle"], strict=True)
        ]
        cells = [", ".join(f"{100 * n:.0f}" for n in of) for of in (told["oracle"], told["found"])]
        named = ", ".join(f"{event} {n}" for event, n in told["named"].items())
        rows.append([name, *cells, ", ".join(f"{100 * n:.0f}" for n in shares), named])
    header = ["fault", "oracle", "alarms", "alarms beside the oracle, %", "named"]
    text = (
        f"Per cent found within {within} rows at a stated rate of {data['rate']:g}; "
        f"{rows and data['faults'][rows[0][0]]['n']} plants. Before the fault they had "
        f"{data['plants_beside_rate']:.2f} times the stated alarms."
    )
    tables = [Table(header, rows, text)]
    if data["sensors"]:
        n = data["n_clean_rows"]
        events = [[event, f"{count}", f"{count / n / data['rate']:.2f}"]
                  for event, count in data["events"].items()]  # fmt: skip
        total = sum(data["events"].values())
        events.append(["all", f"{total}", f"{data['beside_rate']:.2f}"])
        told_of = f"{len(data['sensors'])} made-up sensors without faults, {n:,} rows."
        tables.append(Table(["event", "alarms", "beside the stated rate"], events, told_of))
    return tables
