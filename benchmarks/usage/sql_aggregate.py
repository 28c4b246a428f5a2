"""How fast does a model learn a table inside PostgreSQL, beside avg(x), and in what memory?

    table r (site, x, y), 1e7 rows ──> avg(x), corr(x, y)           the server's own aggregates
                                  ├──> cmanp(x, y)                  gp-tiny as an extension
                                  └──> ... GROUP BY site            1,000 states

    python -m benchmarks sql_aggregate [--rows N]

A real PostgreSQL runs in a temporary folder. Each query runs once before it is timed, and then in
turns with the others, in one process and with workers on all processors; the time is that of
EXPLAIN ANALYZE without its clocks for each row, so that it holds no transfer. The table lies in the
page cache. Memory is what the server's processes have of their own (RssAnon) while a query runs,
above what they have before, read each 20 ms.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.record import (
    Requirement,
    arguments,
    at_least,
    at_most,
    conditions,
    finish,
    progress,
)
from benchmarks.tables import as_text
from edgefold.cli.main import main as edgefold
from tests.postgres_server import PostgresServer, make_extension, missing, running, server_folder

QUESTION = "How fast does a model learn a table inside PostgreSQL, and in what memory?"
N_ROWS, N_SITES, N_TURNS = 10_000_000, 1_000, 3
EXTENSIONS = {"cmanp": "", "cmanp_own": "-march=native"}
"""Extensions of the bundle gp-tiny, and the flags for their processor."""
QUERIES = {
    "avg(x)": "SELECT avg(x) FROM r",
    "corr(x, y)": "SELECT corr(x, y) FROM r",
    "cmanp(x, y)": "SELECT length(cmanp(x, y)) FROM r",
    "cmanp(x, y), -march=native": "SELECT length(cmanp_own(x, y)) FROM r",
    "avg(x) of each site": "SELECT count(a) FROM (SELECT avg(x) AS a FROM r GROUP BY site) AS s",
    "cmanp(x, y) of each site": "SELECT sum(length(a)) FROM "
    "(SELECT cmanp(x, y) AS a FROM r GROUP BY site) AS s",
}
SETTINGS = ("shared_buffers=256MB", "max_wal_size=8GB", "jit=off", "work_mem=64MB")
PERIOD_S = 0.02


def own_bytes(server: PostgresServer) -> int:
    """Return the memory of the server's processes that they share with none."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":\t", 1) for line in path.read_text().splitlines())
        except OSError:
            continue  # it has ended
        if str(server.process_id) in (lines.get("PPid"), lines.get("Pid")):
            total += int(lines.get("RssAnon", "0").split()[0]) * 1024
    return total


@contextmanager
def peak_of(server: PostgresServer) -> Iterator[list[int]]:
    """Watch the memory of the server's processes; the list gets its peak above the beginning."""
    found, ended = [own_bytes(server)], threading.Event()

    def watch() -> None:
        while not ended.wait(PERIOD_S):
            found.append(own_bytes(server))

    thread = threading.Thread(target=watch)
    thread.start()
    peak: list[int] = []
    try:
        yield peak
    finally:
        ended.set()
        thread.join()
        peak.append(max(found) - found[0])


def run(server: PostgresServer, query: str, n_workers: int) -> dict[str, Any]:
    """Run a query with this many workers; return its time, its processes and its memory."""
    settings = f"SET max_parallel_workers_per_gather = {n_workers};"
    explain = "EXPLAIN (ANALYZE, TIMING OFF, BUFFERS OFF, FORMAT JSON)"
    with peak_of(server) as peak:
        (plan,) = json.loads(server.sql(f"{settings} {explain} {query}"))
    launched = [n.get("Workers Launched", 0) for n in nodes(plan["Plan"])]
    return {
        "time_s": plan["Execution Time"] / 1000,
        "n_processes": 1 + max(launched),
        "peak_bytes": peak[0],
    }


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a node of a plan and those below it."""
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


def measure(n_rows: int, n_turns: int) -> dict[str, Any]:
    """Build the extensions, fill a table, and time all queries."""
    with server_folder() as folder, tempfile.TemporaryDirectory() as work:
        for name, processor in EXTENSIONS.items():
            source = Path(work) / name
            build = ["build", "gp-tiny", "--package", "postgres", "--name", name]
            edgefold([*build, "--out", str(source)])
            make_extension(source, folder, f"PROCESSOR={processor}")
        with running(folder, SETTINGS) as server:
            server.sql(
                f"{' '.join(f'CREATE EXTENSION {name};' for name in EXTENSIONS)}\n"
                f"CREATE UNLOGGED TABLE r AS SELECT i % {N_SITES} AS site, 4 * random() - 2 AS x, "
                f"random() AS y FROM generate_series(1, {n_rows}) AS i; VACUUM ANALYZE r;"
            )
            n_workers = max(1, len(os.sched_getaffinity(0)) - 1)
            space = "SELECT aggtransspace FROM pg_aggregate WHERE aggfnoid = '{}'::regprocedure"
            facts = {
                "n_rows": n_rows,
                "n_sites": N_SITES,
                "n_turns": n_turns,
                "work_mem": server.sql("SHOW work_mem"),
                "state_bytes": int(server.sql(space.format("cmanp(float8, float8)"))),
                "table_bytes": int(server.sql("SELECT pg_table_size('r')")),
                "postgres": server.sql("SHOW server_version"),
            }
            return {**facts, "queries": timed(server, (0, n_workers), n_turns)}


def timed(
    server: PostgresServer, workers: Sequence[int], n_turns: int
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return what `run` found of each query in each turn, by the number of workers."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {name: {} for name in QUERIES}
    for turn in range(n_turns + 1):
        for name, query in QUERIES.items():
            for n in workers:
                progress(f"turn {turn} of {n_turns}: {name}, {n} workers")
                one = run(server, query, n)
                if turn:  # before, it ran to fill the caches
                    found[name].setdefault(str(n), []).append(one)
    return found


def rows_per_s(data: Mapping[str, Any], name: str, workers: str = "0") -> float:
    """Return how many rows a second a query aggregates, by the median of its times."""
    runs = data["queries"][name][workers]
    return float(data["n_rows"] / statistics.median(run["time_s"] for run in runs))


def requirements(data: Mapping[str, Any]) -> list[Requirement]:
    """Return the project's demands."""
    sites = data["queries"]["cmanp(x, y) of each site"]["0"]
    for_each = max(run["peak_bytes"] for run in sites) / data["n_sites"]
    return [
        at_least("rows a second, one process", rows_per_s(data, "cmanp(x, y)"), 500_000, ""),
        at_most("memory of a group beside SSPACE", for_each / data["state_bytes"], 1.5, ""),
    ]


def main() -> None:
    """Measure, record."""
    parser = arguments(__doc__ or "", "sql_aggregate")
    parser.add_argument("--rows", type=int, default=N_ROWS, help=f"default {N_ROWS:,}")
    args = parser.parse_args()
    if lacks := missing():
        sys.exit(f"missing: {lacks}")
    before = conditions(threads=len(os.sched_getaffinity(0)))
    n_rows, n_turns = (100_000, 1) if args.quick else (args.rows, N_TURNS)
    data = measure(n_rows, n_turns)
    finish(args, "sql_aggregate", QUESTION, before, data, requirements(data), as_text)


if __name__ == "__main__":
    main()
