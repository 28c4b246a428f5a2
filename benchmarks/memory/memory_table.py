"""The tables of `memory_states`: three figures of each bundle beside measurements."""

from __future__ import annotations

from typing import Any

from benchmarks.record import Record
from benchmarks.table import Table, megabytes
from edgefold.runtime.stream.memory_estimate import PYTHON, RUN

STATES = {"written": "freshly written", "dropped": "dropped, faulted in", "warm": "warm"}


def memory_states(data: Record) -> list[Table]:
    """Needed memory by state, the other two figures, and loops beside each other."""
    return [_needed(data), _figures(data), *_loops(data)]


def _needed(data: Record) -> Table:
    rows = []
    for subject in data["subjects"]:
        for program in (RUN, PYTHON):
            predicted = subject["predicted"][program]["needed_bytes"]
            cells = [subject["name"], program, megabytes(predicted)]
            worst = 0.0
            for state in STATES:
                needed = subject["states"][state][program]["needed_bytes"]
                cells.append(megabytes(max(needed)))
                worst = max([worst, *(predicted / one - 1 for one in needed)], key=abs)
            rows.append([*cells, f"{worst:+.1%}"])
    note = (
        "The most anonymous memory of a fresh process, read every 3 ms; the largest of "
        f"{data['n_repeats']} processes, and the prediction's worst error over all of them. The "
        f"constants were read with {' and '.join(data['fitted'])}; the other bundles test them."
    )
    return Table(["bundle", "program", "predicted", *STATES.values(), "off by"], rows, note)


def _figures(data: Record) -> Table:
    rows = []
    for subject in data["subjects"]:
        predicted, states = subject["predicted"][PYTHON], subject["states"]
        low, high = predicted["looks_like_bytes"]
        looks = [n for s in states.values() for n in s[PYTHON]["looks_bytes"]]
        rows.append(
            [
                subject["name"],
                megabytes(predicted["to_run_well_bytes"]),
                _steps(states["dropped"][PYTHON]),
                f"{low / 1e6:.0f} to {high / 1e6:.0f} MB",
                f"{min(looks) / 1e6:.0f} to {max(looks) / 1e6:.0f} MB",
            ]
        )
    header = ["bundle", "to run well", "its steps after a drop", "looks like", "VmHWM"]
    note = (
        "A Python program. Its steps after a drop: what is needed and the pages of files that 150 "
        "arrivals brought back after MADV_PAGEOUT, without and with the pages that could not be "
        "dropped because other processes map them; starting takes more, which the prediction to "
        "run well counts. VmHWM: the least and the most over the three states."
    )
    return Table(header, rows, note)


def _steps(own: dict[str, Any]) -> str:
    needed, files = max(own["needed_bytes"]), own["files"]
    low, high = (needed + max(one[f"{end}_bytes"] for one in files) for end in ("least", "most"))
    return f"{low / 1e6:.0f} to {high / 1e6:.0f} MB"


def _loops(data: Record) -> list[Table]:
    found = data["loops"]
    if not found:
        return []
    n = len(found["pss_bytes"])
    low, high = found["predicted"]["looks_like_bytes"]
    rows = [
        [
            f"{n} x edgefold run, series-co2",
            megabytes(found["predicted"]["needed_bytes"]),
            megabytes(sum(found["needed_bytes"])),
            f"{low / 1e6:.0f} to {high / 1e6:.0f} MB",
            megabytes(sum(found["pss_bytes"])),
            megabytes(sum(found["rss_bytes"])),
        ]
    ]
    header = ["processes", "needed, predicted", "needed", "looks like, predicted", "Pss", "Rss"]
    note = (
        "Sums over the processes. Pss counts a page that several processes map once among them, "
        "other programs on this machine included; Rss counts it in each."
    )
    return [Table(header, rows, note)]
