"""The table of a whole run, its record in JSON, and the table in docs/attacks.md.

python -m attack.summary     write the table of attack/record.json into docs/attacks.md
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from typing import Any

from attack.outcomes import ENDS, FAILURES, SEED, Tally
from attack.subjects import ROOT

RECORD = ROOT / "attack/record.json"
PAGE = ROOT / "docs/attacks.md"
BEGIN, END = "<!-- attacks: begin -->", "<!-- attacks: end -->"
KINDS = {
    "bundles": "resealed bundles, through the Python interface",
    "builds": "resealed bundles, turned into C",
    "bundle_commands": "resealed bundles, through six commands",
    "imports": "changed ONNX files, through the importer",
    "signatures": "signed bundles with changed bytes",
    "crashes": "bundles that crashed onnxruntime above, through `check`",
    "snapshots": "changed snapshots: restored, and resumed by `run`",
    "rows": "files of rows, read whole and in two parts",
    "tables": "tables of unknown form, compared with the numbers they were made from",
    "kills": "commands killed up to three times, then finished",
    "broker_schedules": "loops, brokers and connections killed and cut, messages sent again",
    "torn": "files cut, zeroed, with junk or stale copies",
    "crash_states": "runs with a broker, cut at a legal state of the disk up to three times",
    "exceptions": "exceptions before a line inside a call of `Stream`",
    "sensor_exceptions": "exceptions before a line inside a call of `Sensors`",
    "sensor_threads": "threads that share one `Sensors`",
    "sensor_calls": "calls of `Sensors` with arguments of any type",
    "merge": "parts of a stream that are joined in any order and tree",
    "provenance": "histories of states that state their rows, and merge",
    "environments": "odd places: limits, locales, names, pipes, streams",
}


def machine() -> dict[str, str]:
    """Return a description of the machine of the attack."""
    packages = ("numpy", "onnxruntime", "onnx", "torch")
    versions = {name: importlib.metadata.version(name) for name in packages}
    return {
        "python": platform.python_version(),
        **versions,
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "cores": str(os.cpu_count()),
    }


def note(kind: str, tally: Tally, seconds: float, more: dict[str, int] | None = None) -> None:
    """Add one kind's counts to the record; the other kinds' stay."""
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {"kinds": {}}
    entry = {**tally.to_json(), "seconds": round(seconds, 1), **(more or {})}
    record = {"seed": SEED, "machine": machine(), "kinds": {**record["kinds"], kind: entry}}
    record["kinds"] = {name: record["kinds"][name] for name in KINDS if name in record["kinds"]}
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


def table(record: dict[str, Any]) -> str:
    """The counts as a table of Markdown."""
    rows = ["| kind | cases | ended as they may | failures | minutes |", "|---|---:|---|---|---:|"]
    for kind, entry in record["kinds"].items():
        verdicts = entry["verdicts"]
        fine = ", ".join(f"{n:,} {verdict}" for verdict, n in verdicts.items() if verdict in ENDS)
        bad = ", ".join(
            f"{n:,} {verdict}" for verdict, n in verdicts.items() if verdict in FAILURES
        )
        cases = f"{entry['cases']:,}"
        for name in ("rows", "kills"):
            if name in entry:
                cases += f" ({entry[name]:,} {name})"
        rows.append(
            f"| {kind}: {KINDS[kind]} | {cases} | {fine or 'none'} | {bad or 'none'} "
            f"| {entry['seconds'] / 60:.1f} |"
        )
    return "\n".join(rows)


def page(text: str, record: dict[str, Any]) -> str:
    """The page with the table between its markers."""
    facts = ", ".join(f"{name} {value}" for name, value in record["machine"].items())
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return f"{text[:begin]}\n{table(record)}\n\nSeed {record['seed']}; {facts}.\n{text[end:]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(), json.loads(RECORD.read_text())))
