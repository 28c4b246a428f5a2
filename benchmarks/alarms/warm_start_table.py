"""The tables of `benchmarks.alarms.warm_start`: new sensors cold and with siblings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.record import Record
from benchmarks.table import Table


def warm_start(data: Record) -> list[Table]:
    """Kinds of families, then each family."""
    head = [
        *("sensors", "alarms, cold", "warm", "nats", "worst sensor", "band, cold", "warm"),
        *("hits, cold", "warm", "steady, cold", "warm"),
    ]
    kinds = [[kind, *_cells(told)] for kind, told in data["kinds"].items()]
    families = [[f"{one['name']} ({one['kind']})", *_cells(one)] for one in data["families"]]
    note = (
        f"Of a new sensor's first {data['n_rows']} rows, at a stated rate of {data['rate']:g}. "
        "Alarms: the mean number of a sensor. Nats: the mean log density of a row, warm less cold. "
        "Band: the share of values inside the 90 % band. Hits: values 8 scales away that are "
        "alarmed at once, of all sensors and of steady ones."
    )
    return [Table(["families", *head], kinds, note), Table(["family", *head], families)]


def _cells(told: Mapping[str, Any]) -> list[str]:
    def share(way: str, name: str) -> str:
        number = told[way][name]
        return "" if number is None else f"{100 * number:.1f} %"

    return [
        *(f"{told['n']}", f"{told['cold']['alarms']:.2f}", f"{told['warm']['alarms']:.2f}"),
        *(f"{told['gain']:+.3f}", f"{told['worst']:+.3f}"),
        *(share(way, name) for name in ("within", "hits", "steady_hits") for way in WAYS),
    ]


WAYS = ("cold", "warm")
