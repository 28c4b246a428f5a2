"""Turn the counts of a loop into the metrics of Prometheus, when they are asked for.

Names follow Prometheus' rules: base units, and `_total` for what only rises. The package
prometheus-client comes with the extra `metrics`; this module is imported only where it is used.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, get_args

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from edgefold.cli.metrics.loop_metrics import (
    BOUNDS_S,
    COUNTED,
    MOST_SERIES,
    OTHER,
    WINDOW,
    LoopMetrics,
    SeriesMetrics,
)
from edgefold.runtime.loop.alarm import EVENTS
from edgefold.runtime.loop.watcher import ANOMALY, Refusal
from edgefold.runtime.sensors.shipped_bundle import word_of

if TYPE_CHECKING:
    from edgefold.runtime.loop.loop import PredictionLoop
    from edgefold.runtime.sources.row_source import RowSource

KIB = 1024
IN_WINDOW = f"exponential window of {WINDOW:,} scored rows"


class RunFacts(NamedTuple):
    """Holds what does not change during a run.

    Attributes:
        loop: The loop's name, which becomes a label of each metric: files of several loops are read
            by one node-exporter, which refuses two metrics with the same name and labels.
        version: Edgefold's version.
        stated_rate: The stated share of rows that may be false alarms; None without one.
        keeps_snapshots: Whether the run writes snapshots.
    """

    loop: str
    version: str
    stated_rate: float | None
    keeps_snapshots: bool


class _Pool:
    """Sums the numbers of all series that share a label."""

    def __init__(self) -> None:
        self.counts: dict[str, float] = defaultdict(float)
        self.alarms: dict[str, int] = defaultdict(int)
        self.ages_s: list[float] = []
        self.lags_s: list[float] = []

    def add_counted(self, numbers: Sequence[int]) -> None:
        for name, n in zip(COUNTED, numbers, strict=True):
            self.counts[name] += n

    def add(self, own: SeriesMetrics) -> None:
        for name in SeriesMetrics.__slots__:
            if name not in ("lag_s", "newest_s", "n_alarms"):
                self.counts[name] += getattr(own, name)
        for event, n in [*own.n_alarms.items()]:
            self.alarms[event] += n
        if own.lag_s == own.lag_s:
            self.lags_s.append(own.lag_s)


class LoopCollector(Collector):
    """Makes the metrics of one run each time they are asked for.

    Args:
        metrics: The counts of the run.
        loop: The loop.
        source: The input of the loop.
        facts: What does not change during the run.
        process: The folder of this process in /proc; tests pass a recorded one.

    Attributes:
        is_running: Whether the loop still runs; the text that is written at its end says no.
    """

    def __init__(
        self,
        metrics: LoopMetrics,
        loop: PredictionLoop,
        source: RowSource,
        facts: RunFacts,
        process: Path = Path("/proc/self"),
    ):
        self._metrics, self._loop, self._source = metrics, loop, source
        self._facts, self._process = facts, process
        self.is_running = True

    def describe(self) -> list[Metric]:
        """Return nothing, so that a registry does not collect when it is filled."""
        return []

    def collect(self) -> Iterator[Metric]:
        own = {"loop": self._facts.loop}
        for family in self._collect():
            family.samples = [s._replace(labels=own | s.labels) for s in family.samples]
            yield family

    def _collect(self) -> Iterator[Metric]:
        pools = self._pools()
        yield from self._of_run()
        yield from _of_rows(pools, self._metrics.n_refused, self._loop, self._source)
        yield from self._of_alarms(pools)
        yield from _of_calibration(pools)
        yield from self._of_time(pools)
        yield from self._of_machine()

    def _pools(self) -> dict[str, _Pool]:
        """Return the numbers by label: those of each series, and of the last ones together."""
        metrics, now_s = self._metrics, self._metrics.clock()
        pools: dict[str, _Pool] = defaultdict(_Pool)
        for index, (name, numbers) in enumerate(metrics.counted()):
            pool = pools[name if index < MOST_SERIES else OTHER]
            pool.add_counted(numbers)
            own = metrics.series.get(name)
            pool.ages_s.append(now_s - (own.newest_s if own else metrics.start_s))
            if own:
                pool.add(own)
        return pools

    def _of_run(self) -> Iterator[Metric]:
        facts, metrics = self._facts, self._metrics
        stream = self._loop.sensors.stream  # a candidate that takes over brings its own
        labels = {
            "version": facts.version,
            "backend": str(stream.backend_report["name"]),
            "bundle": word_of(str(stream.manifest.path)),
            "bundle_hash": stream.manifest.bundle_hash,
        }
        yield InfoMetricFamily(
            "edgefold_build", "Edgefold, its backend, and the bundle whose forecasts are written.",
            labels,
        )  # fmt: skip
        yield _gauge("running", "1 while the loop runs; 0 in the file that its end leaves.",
                     int(self.is_running))  # fmt: skip
        yield _gauge("source_connected", "0 while the broker or the device of the input is away; "
                     "else 1.", int(self._source.away_since is None))  # fmt: skip
        yield _gauge("metrics_timestamp_seconds", "This machine's clock when this text was made.",
                     metrics.wall())  # fmt: skip
        yield _gauge("series", f"Series that have come. Beyond {MOST_SERIES} they share the label "
                     f'series="{OTHER}".', len(metrics.counted()))  # fmt: skip

    def _of_alarms(self, pools: dict[str, _Pool]) -> Iterator[Metric]:
        sensors = self._loop.sensors.first.columns
        family = CounterMetricFamily(
            "edgefold_alarms", "Alarms of this run by event.", labels=["series", "event"]
        )
        for label, pool in pools.items():
            if sensors.has_band:  # another model, whose anomalies have no name
                family.add_metric([label, ANOMALY], pool.counts["anomalies"])
            elif self._facts.stated_rate is not None:
                for event in EVENTS:  # a count that begins at 1 would hide the first alarm
                    family.add_metric([label, event], pool.alarms[event])
        yield family
        if self._facts.stated_rate is not None:
            yield _gauge("false_alarms_stated_ratio", "Stated share of rows that may be alarms "
                         "where nothing is wrong.", self._facts.stated_rate)  # fmt: skip

    def _of_time(self, pools: dict[str, _Pool]) -> Iterator[Metric]:
        metrics, now_s = self._metrics, self._metrics.clock()
        ages = _by_series("row_age_seconds", "Seconds since the series' newest row in this run, or "
                          f"since the run's start. The largest of series={OTHER}.")  # fmt: skip
        lags = _by_series("row_lag_seconds", "This machine's clock less the time of the newest "
                          "row, when that row was learned. The largest of "
                          f"series={OTHER}.")  # fmt: skip
        is_dated = self._loop.sensors.first.adapter.is_dated
        for label, pool in pools.items():
            ages.add_metric([label], max(pool.ages_s))
            if pool.lags_s and is_dated:
                lags.add_metric([label], max(pool.lags_s))
        yield ages
        yield lags
        yield _gauge("step_age_seconds", "Seconds since the loop's last step: a line, a wait for "
                     "rows, or a snapshot. It waits at most 0.2 s.",
                     now_s - metrics.step_s)  # fmt: skip
        total, buckets = 0, []
        for bound, n in zip([*map(str, BOUNDS_S), "+Inf"], [*metrics.n_in_buckets], strict=True):
            total += n
            buckets.append((bound, float(total)))
        family = HistogramMetricFamily(
            "edgefold_line_duration_seconds",
            "Seconds that a line takes from its read and parsed text to the result in the "
            "output's buffer: its rows are predicted, scored, learned and written. Without waiting "
            "for the line and without snapshots.",
        )
        family.add_metric([], buckets, metrics.lines_s)
        yield family

    def _of_machine(self) -> Iterator[Metric]:
        metrics, status = self._metrics, self._fields("status")
        for name, key, text in (
            ("memory_resident_bytes", "VmRSS", "Memory of this process now (VmRSS)."),
            ("memory_resident_peak_bytes", "VmHWM", "Its largest so far (VmHWM)."),
        ):
            if key in status:
                yield _gauge(name, text, status[key] * KIB)
        if (written := self._fields("io").get("write_bytes")) is not None:
            yield _counter("storage_written_bytes", "Bytes that this process sent to storage "
                           "(write_bytes of /proc/self/io).", written)  # fmt: skip
        yield _counter("journal_written_bytes", "Of these, bytes of the journal of messages.",
                       self._source.n_bytes_written)  # fmt: skip
        if self._facts.keeps_snapshots:
            yield _counter("snapshots", "Snapshots of this run.", metrics.n_saved)
            yield _counter("snapshot_seconds", "Seconds that the loop stood still for them.",
                           metrics.saving_s)  # fmt: skip
            yield _gauge("snapshot_age_seconds", "Seconds since the newest snapshot, or since the "
                         "run's start.", metrics.clock() - metrics.saved_s)  # fmt: skip

    def _fields(self, name: str) -> dict[str, int]:
        """Return the numbers of a file of /proc by name; none where it cannot be read."""
        try:
            lines = (self._process / name).read_text().splitlines()
        except OSError:  # a container may hide it
            return {}
        parts = [line.replace(":", " ").split() for line in lines]
        return {part[0]: int(part[1]) for part in parts if len(part) > 1 and part[1].isdigit()}


def _of_rows(
    pools: dict[str, _Pool],
    n_refused: Mapping[tuple[str, Refusal], int],
    loop: PredictionLoop,
    source: RowSource,
) -> Iterator[Metric]:
    learned = _counts("rows_learned", "Rows of this run that were learned.")
    predicted = _counts("rows_predicted", "Rows of this run that had a forecast and a value.")
    missing = _counts("rows_missing", "Rows of this run without a value.")
    full = _counts("rows_not_learned", "Rows that were only predicted, as the state is full.")
    for label, pool in pools.items():
        counts = pool.counts
        learned.add_metric([label], counts["rows"] - counts["not_learned"])
        predicted.add_metric([label], counts["predicted"])
        missing.add_metric([label], counts["missing"])
        full.add_metric([label], counts["not_learned"])
    yield from (learned, predicted, missing, full)
    refused = CounterMetricFamily(
        "edgefold_rows_refused",
        "Rows of this run that were refused, by the kind of reason: unreadable, refused (not after "
        "the rows before it, or a value that the model cannot take), no slot (a sensor too many), "
        'pace (another time between rows). series="" without a known series.',
        labels=["series", "kind"],
    )
    sums: dict[tuple[str, Refusal], int] = defaultdict(int)
    for kind in get_args(Refusal):
        sums["", kind] = 0
    for (name, kind), n in [*n_refused.items()]:
        sums[name if name in pools else OTHER if name else "", kind] += n
    for (label, kind), n in sums.items():
        refused.add_metric([label, kind], n)
    yield refused
    yield _counter("rows_known", "Rows and messages that came again and were skipped.",
                   loop.known.n_skipped + source.n_repeated)  # fmt: skip


def _of_calibration(pools: dict[str, _Pool]) -> Iterator[Metric]:
    scored = _counts("values_scored", "Values of this run that had a forecast band.")
    n_below = _counts("values_below_q05", "Of these, values below the 5 % quantile.")
    n_above = _counts("values_above_q95", "Of these, values above the 95 % quantile.")
    plus = _counts("log_score_positive_nats", "Sum of the log scores above zero.")
    minus = _counts("log_score_negative_nats", "Sum of those below zero, without the sign.")
    below = _by_series("values_below_q05_ratio", f"Their share in an {IN_WINDOW}; should be 0.05.")
    above = _by_series("values_above_q95_ratio", f"Their share in an {IN_WINDOW}; should be 0.05.")
    nats = _by_series("log_score_nats", f"Mean log density of the values in an {IN_WINDOW}.")
    for label, pool in pools.items():
        counts = pool.counts
        for family, key in (
            (scored, "n_scored"),
            (n_below, "n_below"),
            (n_above, "n_above"),
            (plus, "positive_nats"),
            (minus, "negative_nats"),
        ):
            family.add_metric([label], counts[key])
        for gauge, key, weight in (
            (below, "below", "weight"),
            (above, "above", "weight"),
            (nats, "nats", "nats_weight"),
        ):
            if counts[weight] and math.isfinite(counts[key]):
                gauge.add_metric([label], counts[key] / counts[weight])
    yield from (scored, n_below, n_above, plus, minus, below, above, nats)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"edgefold_{name}", text, value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"edgefold_{name}", text, value)


def _by_series(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"edgefold_{name}", text, labels=["series"])


def _counts(name: str, text: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"edgefold_{name}", text, labels=["series"])
