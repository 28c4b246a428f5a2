"""Records of benchmarks: their numbers, what they ran on, and whether requirements were met.

A record is JSON: the question, the command, the conditions (machine, load, versions, threads), the
verdict whether something disturbed it, the requirements with the measured figures beside the
bounds, and the script's own numbers under `data`.
Only the conditions and the machine's noise are measured here; `benchmarks.tables` draws tables.

The benchmarks run as modules from the repository's root: `python -m benchmarks step_latency`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from edgefold.devices.machine.condition import Condition, read_condition
from edgefold.devices.machine.machine import read_machine
from edgefold.devices.machine.validity import judge
from edgefold.runtime.record_fields import as_json

SCHEMA = 1
ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "benchmarks" / "records"
IMAGES = ROOT / "docs" / "img"
PACKAGES = ("edgefold", "numpy", "onnxruntime", "torch")

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Requirement:
    """A bound that the project set itself, and what was measured.

    Attributes:
        what: What is bounded, in words.
        measured, bound: As they are shown, with units.
        met: Whether the measured figure keeps the bound.
    """

    what: str
    measured: str
    bound: str
    met: bool


def at_most(what: str, value: float, bound: float, unit: str) -> Requirement:
    """A requirement `value <= bound`, both in `unit`."""
    return Requirement(
        what, f"{value:.3g} {unit}".strip(), f"<= {bound:,.6g} {unit}".strip(), bool(value <= bound)
    )


def at_least(what: str, value: float, bound: float, unit: str) -> Requirement:
    """A requirement `value >= bound`, both in `unit`."""
    shown = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return Requirement(
        what, f"{shown} {unit}".strip(), f">= {bound:,.6g} {unit}".strip(), bool(value >= bound)
    )


def arguments(doc: str, name: str) -> argparse.ArgumentParser:
    """A parser with the options that every benchmark has; `doc` is the script's docstring."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {name}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--record", type=Path, help=f"where the record goes; default benchmarks/records/{name}.json"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a smoke run of some seconds; writes no record unless --record is given",
    )
    return parser


def conditions(threads: int = 1, on_gpu: bool = False, root: Path = Path("/")) -> dict[str, Any]:
    """Return the conditions of this moment; call it before the work starts, for the load.

    Args:
        threads: That the work uses.
        on_gpu: The work runs on a GPU, whose clock then counts.
        root: What /proc, /sys, /etc and /var start from; tests pass a recorded tree.
    """
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **asdict(read_machine(root)),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "threads": threads,
        "on_gpu": on_gpu,
        "versions": versions,
        "start": asdict(read_condition(root)),
    }


def validity(before: dict[str, Any], root: Path = Path("/")) -> Record:
    """Return what disturbed the work since `conditions`; see `devices.machine.validity`."""
    blocks = [("the benchmark", Condition(**before["start"]), read_condition(root))]
    record: Record = as_json(judge(blocks, before["on_gpu"]))
    return record


def finish(
    args: argparse.Namespace,
    name: str,
    question: str,
    before: dict[str, Any],
    data: dict[str, Any],
    requirements: Sequence[Requirement],
    show: Callable[[Record], str],
    variant: str = "",
) -> Record:
    """Assemble a record, print what `show` makes of it, and write it unless this is a smoke run.

    A benchmark that keeps several records names each one's variant: NAME_VARIANT.
    """
    verdict = validity(before)
    started = {key: value for key, value in before.items() if key != "start"}  # stands in verdict
    record: Record = {
        "schema": SCHEMA,
        "name": record_name(name, variant),
        "question": question,
        "command": " ".join(["python", "-m", "benchmarks", name, *sys.argv[1:]]),
        "quick": args.quick,
        "conditions": {**started, "load_average_after": os.getloadavg()},
        "validity": verdict,
        "requirements": [asdict(requirement) for requirement in requirements],
        "data": data,
    }
    record = json.loads(json.dumps(record))  # what is printed is what a later reader gets
    if not args.quick or args.record:
        path = args.record or RECORDS / f"{record_name(name, variant)}.json"
        write_record(path, record)
        print(f"record: {path}", file=sys.stderr)
    print(show(record))
    return record


def record_name(name: str, variant: str = "") -> str:
    """The name of a benchmark's record."""
    return "_".join(filter(None, (name, variant)))


def write_record(path: Path, record: Record) -> None:
    """Write a record whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".tmp")
    beside.write_text(json.dumps(record, indent=1) + "\n")
    beside.replace(path)


def read_records(folder: Path = RECORDS) -> dict[str, Record]:
    """All records of a folder by name."""
    records = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    for record in records:
        if record.get("schema") != SCHEMA:
            raise ValueError(
                f"record {record.get('name')!r} has schema {record.get('schema')}, this version "
                f"reads {SCHEMA}; run its benchmark again."
            )
    return {record["name"]: record for record in records}


def spread(taken_ns: Any) -> dict[str, float]:
    """Median and spread of times in nanoseconds, told in seconds."""
    import numpy as np

    taken_s = np.asarray(taken_ns) / 1e9
    p10, p50, p90 = (float(q) for q in np.quantile(taken_s, (0.1, 0.5, 0.9)))
    return {
        "n": len(taken_s),
        "median_s": p50,
        "p10_s": p10,
        "p90_s": p90,
        "mean_s": float(taken_s.mean()),
    }


class Noise:
    """A fixed piece of work, timed throughout a benchmark: what varies in it is the machine."""

    def __init__(self) -> None:
        import numpy as np

        self._values = np.linspace(-1, 0, 16384, dtype=np.float32)
        self._out = np.empty_like(self._values)
        self._exp = np.exp
        self.taken_ns: list[int] = []

    def sample(self, n: int = 10) -> None:
        """Time it some times over; some ten microseconds each."""
        for _ in range(n):
            start = time.perf_counter_ns()
            self._exp(self._values, out=self._out)
            self.taken_ns.append(time.perf_counter_ns() - start)

    def summary(self) -> dict[str, float]:
        """Its spread, and `p90_to_p10`: 1 on a machine without noise."""
        times = spread(self.taken_ns)
        return {**times, "p90_to_p10": times["p90_s"] / times["p10_s"]}


def progress(line: str, last: bool = False) -> None:
    """One line on the terminal that the next one overwrites; plain lines when piped to a file."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="\n" if last else "", file=sys.stderr, flush=True)
    else:
        print(line, file=sys.stderr, flush=True)
