"""What the page costs in the loop's thread: appends, looks at the clock, and rare copies."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgefold.cli.page.event_ring import EventRing
from edgefold.cli.page.loop_page import latency_of
from edgefold.cli.page.page_watcher import (
    COPY_S,
    COPY_SHARE,
    LATENCIES,
    KnownSensor,
    LoopNote,
    PageWatcher,
)
from edgefold.runtime import Stream
from edgefold.runtime.loop.adapters import adapter_for
from edgefold.runtime.loop.loop import LoopOptions, PredictionLoop
from edgefold.runtime.loop.watcher import LoopWatcher, WatchedRow, Watchers
from edgefold.runtime.sinks.output_file import OutputFile
from edgefold.runtime.sources.row_source import open_row_source


def run_loop(bundle: Path, csv: Path, watcher: LoopWatcher, page: PageWatcher | None = None) -> int:
    """Run a loop over a file; return its number of rows."""
    with Stream.open(bundle) as stream:
        source = open_row_source(str(csv))
        adapter = adapter_for(stream.manifest)
        loop = PredictionLoop(
            stream, [adapter], source, OutputFile(None), None, LoopOptions(anomaly_z=4.0)
        )
        if page is not None:
            page.attach(loop, source)
        loop.run(watcher=watcher)
        source.close()
        return loop.counters.rows


class Rows(LoopWatcher):
    """Keeps all rows."""

    def __init__(self) -> None:
        self.all: list[WatchedRow] = []

    def row(self, row: WatchedRow) -> None:
        self.all.append(row)


def test_rows_bring_their_quartiles(series_bundle: Path, series_csv: Path) -> None:
    rows = Rows()
    assert run_loop(series_bundle, series_csv, rows) == len(rows.all) == 60
    known = [row.view for row in rows.all if row.view.mean == row.view.mean]
    assert known
    for view in known:
        assert view.low < view.lower_quartile < view.mean < view.upper_quartile < view.high


def test_facts_are_copied_only_while_somebody_looks(
    series_bundle: Path, series_csv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgefold.cli.page.page_watcher.COPY_SHARE", math.inf)
    for wanted in (None, frozenset[str](), frozenset({""})):
        ring = EventRing()
        page = PageWatcher(ring, clock=iter(range(10**6)).__next__)
        page.wanted = wanted
        watchers = Watchers()
        watchers.add(page)
        run_loop(series_bundle, series_csv, watchers, page)
        assert len([event for event in ring.take() if isinstance(event, WatchedRow)]) == 60
        if wanted is None:
            assert page.facts is None
            continue
        assert page.facts is not None and page.facts.loop.rows == 60
        assert set(page.facts.sensors) == wanted
        if wanted:
            assert page.facts.sensors[""].rows == 60
            assert page.facts.sensors[""].rmse is not None


class Counted:
    """A clock that a test sets; each copy of the facts takes `copy_s`."""

    def __init__(self, copy_s: float):
        self.now_s, self.copy_s, self.n_copies = 100.0, copy_s, 0

    def __call__(self) -> float:
        return self.now_s

    def copy(self, *_: Any) -> None:
        self.n_copies += 1
        self.now_s += self.copy_s


@pytest.mark.parametrize("copy_s", [0.0, 0.001, 0.1])
def test_copies_take_a_small_share_of_the_time(
    copy_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Counted(copy_s)
    page = PageWatcher(EventRing(), clock)
    page.wanted = frozenset({"a"})
    page._source = object()  # type: ignore[assignment]
    page._loop = SimpleNamespace(sensors=SimpleNamespace(notes=()))  # type: ignore[assignment]
    page._has_named = True
    monkeypatch.setattr("edgefold.cli.page.page_watcher.facts_of", clock.copy)
    start_s = clock.now_s
    while clock.now_s < start_s + 1000:
        clock.now_s += 0.05
        page.line()
    assert 0 < clock.n_copies <= 1000 / COPY_S + 1
    assert clock.n_copies * copy_s <= 1000 * COPY_SHARE + copy_s
    n_copies = clock.n_copies
    page.wanted = frozenset({"b"})  # somebody chose another sensor
    page.idle()
    assert clock.n_copies == n_copies + 1


def test_notes_are_read_before_the_progress_removes_them() -> None:
    ring = EventRing()
    page = PageWatcher(ring)
    notes = [(7, "a", "season of 24 slots")]
    page._loop = SimpleNamespace(sensors=SimpleNamespace(notes=notes))  # type: ignore[assignment]
    page.line()
    assert ring.take() == [LoopNote("a", 7, "season of 24 slots")]
    page.tell("the broker is away")
    assert page.take_told() == ["the broker is away"] and page.take_told() == []


def test_sensors_of_a_snapshot_are_named_before_their_first_row(
    series_bundle: Path, series_csv: Path
) -> None:
    ring = EventRing()
    page = PageWatcher(ring, clock=iter(range(10**6)).__next__)
    run_loop(series_bundle, series_csv, page, page)
    assert [event for event in ring.take() if isinstance(event, KnownSensor)] == [KnownSensor("")]


def test_the_latency_of_a_line_is_from_its_begin_to_its_end() -> None:
    now = [0.0]
    page = PageWatcher(EventRing(), lambda: now[0])
    assert page.latencies() == [] and latency_of([]) is None
    for _ in range(LATENCIES + 1):
        page.taken()
        now[0] += 0.25
        page.line()
        now[0] += 9.0
    assert page.latencies() == [0.25] * LATENCIES
    assert latency_of([1.0, 3.0, 2.0]) == {"p50_s": 2, "p99_s": 2.98, "max_s": 3, "n": 3}


def test_the_page_knows_whether_the_loop_waits_and_when_it_saved() -> None:
    now = [5.0]
    page = PageWatcher(EventRing(), lambda: now[0], lambda: 1e9)

    def figures() -> tuple[float | None, float, float | None]:
        return page.waits_since_s, page.alive_s, page.saved_at

    assert figures() == (None, 5.0, None)
    page.idle()
    now[0] = 9.0
    page.idle()
    assert figures() == (5.0, 9.0, None)
    page.line()
    page.saved()
    assert figures() == (None, 9.0, 1e9)
