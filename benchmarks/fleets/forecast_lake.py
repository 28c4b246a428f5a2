"""How fast are thousands of sensors in Parquet forecast, and do kills change anything?

    rows as Parquet ──> names of the sensors only (the census)
                    ──> edgefold forecast --processes 1 ─┐
                    ──> edgefold forecast --processes 2 ─┼─ the same files, byte by byte?
                    ──> killed as a whole, then again    ─┤
                    ──> its processes killed now and then ┘
    some sensors    ──> Sensors.step, row by row: the same forecasts, to the bit?

Each file has some hundred rows of every sensor, as a lake that grows day by day. The values have a
day, noise, and a far value in 5,000; the rows are 5 minutes apart. The peak of a process's resident
memory is VmHWM of /proc. What `edgefold forecast` takes includes the start of its processes and the
picture.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fleets.condition_tables import (
    Killer,
    Watched,
    as_form,
    watched,
)
from benchmarks.record import arguments, at_least, at_most, conditions, finish, progress
from benchmarks.tables import as_text
from edgefold.fleets import open_lake
from edgefold.fleets.forecasting.census import take_census
from edgefold.fleets.forecasting.lake_forecast import WORK
from edgefold.runtime import Sensors

QUESTION = "How fast are thousands of sensors in Parquet forecast, and do kills change anything?"
N_SENSORS, N_ROWS, N_QUICK = 10_000, 2_000, (40, 400)
N_FILES, N_KILLS, N_SAMPLE = 7, 10, 20
DAY, PACE_S, SINCE_S = 288, 300, 1_700_000_000
N_STEPPED = 20_000
MOST_US, MOST_MB, LEAST_SPEED_UP = 26, 500, 1.7
COUNTED = ("mean", "q05", "q50", "q95", "log_density", "p_value", "alarm", "event")


def write_sensors(folder: Path, n_sensors: int, n_rows: int) -> Path:
    """Write a lake of files that follow each other in time, and return its folder."""
    import pyarrow as pa
    from pyarrow.parquet import write_table

    rng = np.random.default_rng(0)
    level, swing = rng.normal(20, 5, n_sensors), rng.uniform(0, 5, n_sensors)
    noise, phase = rng.uniform(0.1, 1, n_sensors), rng.integers(0, DAY, n_sensors)
    names = pa.array([f"sensor-{number:05}" for number in range(n_sensors)])
    folder.mkdir(parents=True)
    for number, at in enumerate(np.array_split(np.arange(n_rows), N_FILES)):
        sensor, row = np.tile(np.arange(n_sensors), len(at)), np.repeat(at, n_sensors)
        wave = np.sin(2 * np.pi * (row + phase[sensor]) / DAY)
        values = level[sensor] + swing[sensor] * wave
        values += noise[sensor] * rng.normal(size=len(row))
        far = rng.random(len(row)) < 1 / 5000
        values[far] += 15 * noise[sensor[far]]
        ticks = pa.array((SINCE_S + PACE_S * row) * 1_000_000)
        table = pa.table(
            {
                "sensor": pa.DictionaryArray.from_arrays(pa.array(sensor.astype(np.int32)), names),
                "time": ticks.cast(pa.timestamp("us", "UTC")),
                "value": values,
            }
        )
        write_table(table, folder / f"part-{number}.parquet")
    return folder


def forecast(
    lake: Path,
    out: Path,
    *words: str,
    disturb: Callable[[list[int]], None] = lambda workers: None,
    stop: Callable[[], bool] = lambda: False,
) -> Watched:
    """Run `edgefold forecast` on a lake, and watch its processes.

    Args:
        lake: The lake.
        out: The folder of results.
        words: Further options.
        disturb: Receives the numbers of the command's processes ten times a second.
        stop: Returns whether the command is killed now.
    """
    command = ["forecast", str(lake), "--by", "sensor", "--time", "time", "--columns", "value"]
    return watched([*command, "--out", str(out), *words], out, disturb, stop)


def same_results(one: Path, other: Path) -> bool:
    """Return whether two folders hold the same results, byte by byte, but for the picture."""
    names = {path.relative_to(one) for path in one.rglob("*") if path.is_file()}
    if names != {path.relative_to(other) for path in other.rglob("*") if path.is_file()}:
        return False
    return all(
        (one / name).read_bytes() == (other / name).read_bytes()
        for name in names
        if name.suffix != ".png"
    )


def n_same_alone(lake: Path, out: Path, n_sensors: int) -> tuple[int, int]:
    """Return how many of some sensors have the forecasts of `Sensors.step`, and their number."""
    import pyarrow as pa
    from pyarrow.parquet import read_table

    chosen = np.unique(np.linspace(0, n_sensors - 1, N_SAMPLE).astype(int)).tolist()
    n_same = 0
    for number in chosen:
        name = f"sensor-{number:05}"
        taken = [("sensor", "=", name)]
        rows = pa.concat_tables(
            read_table(path, filters=taken) for path in sorted(lake.iterdir())
        ).to_pylist()
        found = pa.concat_tables(
            read_table(path, filters=taken) for path in sorted((out / "forecasts").iterdir())
        ).to_pylist()
        with Sensors.open() as sensors:
            alone = [sensors.step(row["time"], row["value"]) for row in rows]
        n_same += len(found) == len(alone) and all(
            line["value"] == row.value
            and line["alarm"] == row.alarm
            and (line["event"] or "") == row.event
            and (
                not row.is_known
                or [line[c] for c in COUNTED[:6]] == [getattr(row, c) for c in COUNTED[:6]]
            )
            for line, row in zip(found, alone, strict=True)
        )
    return n_same, len(chosen)


def row_us() -> dict[str, float]:
    """Return the processor time of a row through `step`, and among many rows in one call, in us."""
    rng = np.random.default_rng(0)
    at = np.arange(N_STEPPED)
    times, values = (
        SINCE_S + PACE_S * at,
        20 + np.sin(2 * np.pi * at / DAY) + rng.normal(size=len(at)),
    )
    with Sensors.open() as sensors:
        began_s = time.process_time()
        for when, value in zip(times.tolist(), values.tolist(), strict=True):
            sensors.step(when, value, "one")
        stepped_s = time.process_time() - began_s
        began_s = time.process_time()
        sensors.step_rows(times, values, "many")
        many_s = time.process_time() - began_s
        rules = sensors.backend_report["rules"]
    return {
        "step_us": 1e6 * stepped_s / len(at),
        "rows_us": 1e6 * many_s / len(at),
        "in_c": float(rules == "C"),
    }


def measure(folder: Path, n_sensors: int, n_rows: int, n_kills: int) -> dict[str, Any]:
    """Run all that the module's docstring draws, and return its figures."""
    data: dict[str, Any] = {"n_sensors": n_sensors, "n_rows": n_rows, **row_us()}
    progress(f"{n_sensors * n_rows:,} rows are written ...")
    lake = write_sensors(folder / "lake", n_sensors, n_rows)
    data["n_bytes"] = sum(path.stat().st_size for path in lake.iterdir())
    began_s = time.perf_counter()
    census = take_census(open_lake([lake], ["sensor"]), ["sensor"])
    data["census_s"], data["n_shards"] = time.perf_counter() - began_s, len(census.shards)
    for n in (1, 2):
        progress(f"{n} processes ...")
        data[f"processes_{n}"] = as_form(
            forecast(lake, folder / f"results-{n}", "--processes", str(n))
        )
    one = folder / "results-1"
    data["result_bytes"] = sum(path.stat().st_size for path in one.rglob("*") if path.is_file())
    data["same_on_two"] = same_results(one, folder / "results-2")
    progress("some sensors one by one ...")
    data["n_same_alone"], data["n_alone"] = n_same_alone(lake, one, n_sensors)
    progress("killed as a whole, and again ...")
    stopped = folder / "stopped"

    def is_half() -> bool:
        done = len(list((stopped / WORK).glob("shard-?????")))
        return bool(done >= max(data["n_shards"] // 2, 1))

    forecast(lake, stopped, "--processes", "2", stop=is_half)
    data["n_shards_kept"] = len(list((stopped / WORK).glob("shard-?????")))
    data["resumed"] = as_form(forecast(lake, stopped, "--processes", "2"))
    data["same_after_a_stop"] = same_results(one, stopped)
    progress(f"{n_kills} kills of processes ...")
    killer = Killer(n_kills, data["processes_2"]["wall_s"] / (n_kills + 1))
    killed = folder / "killed"
    seen = forecast(lake, killed, "--processes", "2", disturb=killer.kill)
    data["killed"] = {**as_form(seen), "n_killed": killer.n_killed}
    data["same_after_kills"] = same_results(one, killed)
    progress("done", last=True)
    return data


def main() -> None:
    """Measure, and write the record."""
    parser = arguments(__doc__ or "", "forecast_lake")
    parser.add_argument("--sensors", type=int, help=f"sensors (default {N_SENSORS:,})")
    parser.add_argument("--rows", type=int, help=f"rows of each (default {N_ROWS:,})")
    parser.add_argument("--kills", type=int, help=f"kills of processes (default {N_KILLS})")
    parser.add_argument("--folder", type=Path, help="where the lake lies (default a new one)")
    run(parser.parse_args())


def run(args: argparse.Namespace) -> None:
    """Measure as the command line asks, judge the figures, and write the record."""
    sizes = N_QUICK if args.quick else (N_SENSORS, N_ROWS)
    n_sensors, n_rows = args.sensors or sizes[0], args.rows or sizes[1]
    n_kills = args.kills or (2 if args.quick else N_KILLS)
    before = conditions(threads=2)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        data = measure(Path(folder), n_sensors, n_rows, n_kills)
    one, two = (data[f"processes_{n}"] for n in (1, 2))
    equal = [data[f"same_{name}"] for name in ("on_two", "after_a_stop", "after_kills")]
    memory = max(one["worker_bytes"], two["worker_bytes"]) / 1e6
    requirements = [
        at_least("equal results: two processes, a stop, kills", sum(equal), 3, "of 3"),
        at_least("sensors equal to `Sensors.step`", data["n_same_alone"], data["n_alone"], ""),
        at_most("a row among many of one sensor", data["rows_us"], MOST_US, "us"),
        at_most("peak of a process's memory", memory, MOST_MB, "MB"),
        at_least(
            "two processes against one", one["wall_s"] / two["wall_s"], LEAST_SPEED_UP, "times"
        ),
    ]
    finish(args, "forecast_lake", QUESTION, before, data, requirements, as_text)


if __name__ == "__main__":
    main()
