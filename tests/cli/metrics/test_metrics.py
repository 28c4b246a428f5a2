"""The metrics of a run say what its output says, and count from zero after each start."""

from __future__ import annotations

import csv
import math
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgefold.cli.main import main
from edgefold.cli.metrics.loop_metrics import MOST_SERIES, OTHER, WINDOW, LoopMetrics
from edgefold.runtime.loop.alarm import EVENTS, Alarm
from edgefold.runtime.loop.counters import Counters
from edgefold.runtime.loop.known_rows import KnownRows
from edgefold.runtime.loop.watcher import RowView, WatchedRow
from tests.brokers import LIMIT_S, program

pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from edgefold.cli.metrics.families import LoopCollector, RunFacts
from edgefold.cli.metrics.outlets import registry_of

Samples = dict[tuple[str, ...], float]


def samples(text: str) -> Samples:
    """All samples of a text, by name without its prefix and the values of its labels."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removeprefix("edgefold_")
            labels = (text for key, text in sorted(sample.labels.items()) if key != "loop")
            found[(name, *labels)] = sample.value
    return found


def write(path: Path, first: int, last: int) -> Path:
    """Rows of two sensors; roof has a spike at 250, and a line that cannot be read at 280."""
    lines = ["t,roof,wall"]
    for i in range(first, last):
        roof = 900.0 if i == 250 else 20 + math.sin(i / 9) + (i * 7919 % 13) / 20
        lines.append(f"{i},{'x' if i == 280 else roof},{'' if i == 290 else 30 + i * 31 % 7}")
    path.write_text("\n".join(lines) + "\n")
    return path


def run(*words: object) -> int:
    return main(["run", "sensors", *(str(word) for word in words)])


def test_the_metrics_say_what_the_output_says(tmp_path: Path) -> None:
    source, text = write(tmp_path / "in.csv", 0, 600), tmp_path / "m.prom"
    assert run("--input", source, "--output", tmp_path / "out.csv", "--metrics-file", text) == 0
    found = samples(text.read_text())
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["series"] == "roof"]
    scored = [row for row in rows if row["log_density"]]
    values = [tuple(float(row[n]) for n in ("value", "q05", "q95")) for row in scored]
    nats = [float(row["log_density"]) for row in scored]
    assert found["rows_learned_total", "roof"] == len(rows) == 599
    assert found["rows_predicted_total", "roof"] == len(scored)
    assert found["values_scored_total", "roof"] == len(scored)
    n_below = sum(value < low for value, low, _ in values)
    n_above = sum(value > high for value, _, high in values)
    assert found["values_below_q05_total", "roof"] == n_below > 0
    assert found["values_above_q95_total", "roof"] == n_above > 0
    difference = (
        found["log_score_positive_nats_total", "roof"]
        - found["log_score_negative_nats_total", "roof"]
    )
    assert difference == pytest.approx(sum(nats), rel=1e-6)  # the output has nine digits
    weights = [(1 - 1 / WINDOW) ** (len(nats) - 1 - i) for i in range(len(nats))]
    mean = sum(w * n for w, n in zip(weights, nats, strict=True)) / sum(weights)
    assert found["log_score_nats", "roof"] == pytest.approx(mean, rel=1e-6)
    alarms = {event: found["alarms_total", event, "roof"] for event in EVENTS}
    assert sum(alarms.values()) == sum(row["alarm"] == "1" for row in rows)
    assert alarms["value"] >= 1
    assert found["rows_refused_total", "unreadable", "roof"] == 1
    assert found["rows_missing_total", "wall"] == 1
    assert found["line_duration_seconds_count",] == 600
    assert found["line_duration_seconds_bucket", "+Inf"] == 600
    assert found["series",] == 2 and found["running",] == 0
    assert found["false_alarms_stated_ratio",] == 1e-4
    assert ("row_lag_seconds", "roof") not in found, "a count is no date"
    assert ("snapshots_total",) not in found, "no snapshot is kept"


def test_counts_begin_at_zero_with_each_run(tmp_path: Path) -> None:
    text, source = tmp_path / "m.prom", write(tmp_path / "in.csv", 0, 300)
    words = ("--input", source, "--metrics-file", text, "--snapshot", tmp_path / "s.npz")
    assert run(*words, "--every", "50") == 0
    found = samples(text.read_text())
    assert found["rows_learned_total", "wall"] == 300
    assert found["snapshots_total",] == 8, "the first row, each fifty, and the end"
    write(source, 0, 340)
    assert run(*words, "--every", "50") == 0
    found = samples(text.read_text())
    assert found["rows_learned_total", "roof"] == found["rows_learned_total", "wall"] == 40
    assert found["rows_missing_total", "wall"] == found["rows_refused_total", "unreadable", ""] == 0
    assert found["values_scored_total", "wall"] == found["rows_predicted_total", "wall"] == 40
    assert found["snapshot_age_seconds",] >= 0


def test_the_metrics_of_another_model_count_its_anomalies(
    tmp_path: Path, series_bundle: Path, series_csv: Path
) -> None:
    text = tmp_path / "m.prom"
    words = ["run", str(series_bundle), "--input", str(series_csv), "--metrics-file", str(text)]
    assert main(words) == 0
    found = samples(text.read_text())
    assert found["rows_learned_total", ""] > 0
    assert found["values_scored_total", ""] == found["rows_predicted_total", ""] > 0
    assert found["alarms_total", "anomaly", ""] >= 0
    assert math.isfinite(found["log_score_nats", ""])
    assert ("false_alarms_stated_ratio",) not in found


def test_promtool_finds_nothing_to_improve(tmp_path: Path) -> None:
    command, text = program("promtool"), tmp_path / "m.prom"
    source = write(tmp_path / "in.csv", 0, 300)
    assert run("--input", source, "--metrics-file", text, "--snapshot", tmp_path / "s.npz") == 0
    with text.open("rb") as file:
        done = subprocess.run(
            [command, "check", "metrics"],
            stdin=file,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


# Many series, by a loop that has only counters ----------------------------------------------------


class Sensors(SimpleNamespace):
    are_named = True
    stream = SimpleNamespace(
        manifest=SimpleNamespace(path="bundles/boiler", bundle_hash="ab"),
        backend_report={"name": "c"},
    )

    @property
    def named(self) -> list[Any]:
        every: list[Any] = self.all
        return every


def watched(names: list[str], now: list[float]) -> tuple[LoopMetrics, LoopCollector, list[str]]:
    """Metrics of a loop with these series, none of which had a row before this run."""
    columns = SimpleNamespace(has_band=False)
    every: list[Any] = []
    adapter = SimpleNamespace(is_dated=True)
    sensors = Sensors(all=every, first=SimpleNamespace(columns=columns, adapter=adapter))
    loop: Any = SimpleNamespace(sensors=sensors, known=KnownRows())
    source: Any = SimpleNamespace(n_repeated=2, n_bytes_written=4096, away_since=None)
    told: list[str] = []
    metrics = LoopMetrics(loop, told.append, lambda: now[0], lambda: 1000 + now[0])
    metrics.idle()  # the loop resumed, and waits
    for name in names:
        every.append(SimpleNamespace(name=name, counters=Counters(rows=1, predicted=1)))
    facts = RunFacts("boiler", "1", 1e-4, True)
    return metrics, LoopCollector(metrics, loop, source, facts), told


def learn(metrics: LoopMetrics, name: str, value: float, time: float, event: str = "") -> None:
    alarm = Alarm(name, event, "", "", value, 0, 0.0) if event else None
    metrics.taken()
    metrics.row(WatchedRow(name, 1, time, "", RowView(value, 0.0, -1.0, 1.0, -0.5), alarm))
    metrics.line()


def collected(collector: LoopCollector) -> Samples:
    return samples(generate_latest(registry_of(collector)).decode())


def test_series_beyond_the_bound_are_summed_and_said_once() -> None:
    names, now = [*(f"s{i}" for i in range(MOST_SERIES)), OTHER, "late", "later"], [0.0]
    metrics, collector, told = watched(names, now)
    for name in names:
        learn(metrics, name, 0.0, now[0])
        now[0] += 1.0
    learn(metrics, "late", 2.0, 5.0, "value")
    learn(metrics, "later", 3.0, 6.0, "value")
    metrics.refused("later", 9, "", "refused")
    metrics.refused("s3", 9, "", "refused")
    found = collected(collector)
    assert {key[1] for key in found if key[0] == "rows_learned_total"} == {*names[:-2]}
    assert found["rows_learned_total", OTHER] == 3
    assert found["alarms_total", "value", OTHER] == 2
    assert found["values_above_q95_total", OTHER] == 2
    shares = [1 / (1 + k) for k in (1 - 1 / WINDOW,)]  # of each late series; "other" has 0 of 1
    weight = 2 - 1 / WINDOW
    pooled = 2 * shares[0] * weight / (2 * weight + 1)
    assert found["values_above_q95_ratio", OTHER] == pytest.approx(pooled)
    assert found["rows_refused_total", "refused", OTHER] == 1
    assert found["rows_refused_total", "refused", "s3"] == 1
    assert found["row_age_seconds", OTHER] == now[0] - MOST_SERIES, "the largest: the one named so"
    assert found["series",] == len(names)
    assert len(told) == 1 and f"{MOST_SERIES}" in told[0]


def test_ages_lag_and_duration_follow_the_clocks() -> None:
    now = [10.0]
    metrics, collector, _ = watched(["a"], now)
    metrics.taken()
    metrics.row(WatchedRow("a", 1, 1004.0, "", RowView(*[math.nan] * 5), None))
    now[0] = 10.03
    metrics.line()
    now[0] = 10.53
    metrics.saved()
    now[0] = 70.0
    found = collected(collector)
    assert found["row_lag_seconds", "a"] == pytest.approx(6.0)
    assert found["row_age_seconds", "a"] == 60.0
    assert found["step_age_seconds",] == found["snapshot_age_seconds",] == pytest.approx(59.47)
    assert found["snapshot_seconds_total",] == pytest.approx(0.5)
    assert found["line_duration_seconds_sum",] == pytest.approx(0.03)
    assert found["line_duration_seconds_bucket", "0.025"] == 0
    assert found["line_duration_seconds_bucket", "0.05"] == 1
    assert found["metrics_timestamp_seconds",] == 1070.0
    assert ("values_below_q05_ratio", "a") not in found, "no row was scored"
    assert found["rows_known_total",] == 2 and found["journal_written_bytes_total",] == 4096


def test_counts_go_on_when_a_candidate_takes_over() -> None:
    metrics, collector, _ = watched(["a"], [0.0])
    first = metrics._loop.sensors
    first.all[0].counters.rows = 70
    counters = Counters(rows=5000, predicted=4000)  # it learned from rows that were kept
    other: Any = Sensors(all=[SimpleNamespace(name="a", counters=counters)], first=first.first)
    metrics._loop.sensors = other  # type: ignore[misc]
    learn(metrics, "a", 0.0, 1.0)
    assert collected(collector)["rows_learned_total", "a"] == 70
    counters.rows += 3
    assert collected(collector)["rows_learned_total", "a"] == 73
    metrics._loop.sensors = first  # type: ignore[misc]
    learn(metrics, "a", 0.0, 2.0)
    first.all[0].counters.rows += 1
    assert collected(collector)["rows_learned_total", "a"] == 74


def test_the_bundle_that_speaks_is_named_also_when_a_candidate_does() -> None:
    metrics, collector, _ = watched(["a"], [0.0])
    assert collected(collector)["build_info", "c", "bundles/boiler", "ab", "1"] == 1
    manifest = SimpleNamespace(path="bundles/new", bundle_hash="cd")
    other: Any = Sensors(all=[], first=metrics._loop.sensors.first)
    other.stream = SimpleNamespace(manifest=manifest, backend_report={"name": "c"})
    metrics._loop.sensors = other  # type: ignore[misc]
    found = collected(collector)
    assert found["build_info", "c", "bundles/new", "cd", "1"] == 1
    assert ("build_info", "c", "bundles/boiler", "ab", "1") not in found


def test_a_broker_that_is_away_is_a_source_that_is_not_connected() -> None:
    _, collector, _ = watched(["a"], [0.0])
    assert collected(collector)["source_connected",] == 1
    source: Any = collector._source
    source.away_since = 1.0
    assert collected(collector)["source_connected",] == 0


def test_before_the_loop_has_resumed_no_series_is_shown() -> None:
    first = SimpleNamespace(
        columns=SimpleNamespace(has_band=False), adapter=SimpleNamespace(is_dated=True)
    )
    sensors = Sensors(all=[], first=first)
    loop: Any = SimpleNamespace(sensors=sensors, known=KnownRows())
    source: Any = SimpleNamespace(n_repeated=0, n_bytes_written=0, away_since=None)
    facts = RunFacts("boiler", "1", None, False)
    collector = LoopCollector(LoopMetrics(loop), loop, source, facts)
    sensors.all.append(SimpleNamespace(name="a", counters=Counters(rows=10**6)))
    assert not [key for key in collected(collector) if key[0] == "rows_learned_total"]


def test_numbers_of_proc_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("Name:\tedgefold\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\n")
    _, collector, _ = watched(["a"], [0.0])
    collector._process = tmp_path
    found = collected(collector)
    assert found["memory_resident_bytes",] == 1 << 20
    assert found["memory_resident_peak_bytes",] == 2 << 20
    assert ("storage_written_bytes_total",) not in found
    (tmp_path / "io").write_text("rchar: 1\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n")
    assert collected(collector)["storage_written_bytes_total",] == 8192
