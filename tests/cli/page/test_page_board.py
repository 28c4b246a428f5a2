"""A browser gets what it has not seen of the sensors that it looks at, in bounded memory."""

from __future__ import annotations

import json
import math

import pytest

from edgefold.cli.page.page_board import (
    KEPT_ALARMS,
    KEPT_REFUSED,
    MOST_VISIBLE,
    UNSEEN_TURNS,
    BrowserView,
    PageBoard,
)
from edgefold.cli.page.page_watcher import KnownSensor, LoopNote, RefusedRow
from edgefold.cli.page.row_history import ALL_ROWS, LEAST_ROWS, MOST_ROWS, rows_of_each
from edgefold.cli.page.sensor_entry import MOST_SPARKS
from edgefold.runtime.loop.watcher import RowView, WatchedRow
from tests.page_loops import HOSTILE, watched


def board_of(*rows: WatchedRow) -> PageBoard:
    board = PageBoard()
    board.take(rows, [], 1.0, 0)
    return board


def test_a_row_is_served_once() -> None:
    board, view = board_of(watched("a", 0), watched("a", 1)), BrowserView()
    board.choose(view, 0, 0, [0])
    first = board.changes(view)
    assert first["names"] == [[0, "a"]]
    assert [row[0] for row in first["detail"]["rows"]] == [1, 2]
    assert first["list"][0]["sparks"] == [0.0, pytest.approx(math.sin(1 / 9), abs=1e-11)]
    assert board.changes(view) == {}
    board.take([watched("a", 2)], [], 2.0, 0)
    second = board.changes(view)
    assert "names" not in second and len(second["list"][0]["sparks"]) == 1
    assert [row[0] for row in second["detail"]["rows"]] == [3]
    assert second["detail"]["after"] == 2


def test_rows_of_a_burst_come_in_one_message() -> None:
    board, view = board_of(), BrowserView()
    board.take([watched("a", n) for n in range(50)], [], 1.0, 0)
    board.choose(view, 0, 0, [0])
    found = board.changes(view)
    assert len(found["list"]) == 1 and len(found["detail"]["rows"]) == 50
    assert len(found["list"][0]["sparks"]) == MOST_SPARKS


def test_of_sensors_out_of_sight_only_summaries_come_and_only_now_and_then() -> None:
    names, view = [f"s{k}" for k in range(1000)], BrowserView()
    board = board_of(*(watched(name, 0) for name in names))
    board.choose(view, 5, 0, [5, 6])
    first = board.changes(view)
    assert [entry["id"] for entry in first["list"] if "sparks" in entry] == [5, 6]
    assert len(first["list"]) == 1000
    n_messages = []
    for turn in range(1, UNSEEN_TURNS + 1):
        board.take([watched(name, turn) for name in names], [], 1.0, 0)
        n_messages.append(len(board.changes(view)["list"]))
    assert n_messages == [2] * (UNSEEN_TURNS - 1) + [1000]


def test_a_sensor_that_comes_into_sight_brings_its_values() -> None:
    board, view = board_of(*(watched("a", n) for n in range(9))), BrowserView()
    assert "sparks" not in board.changes(view)["list"][0]
    board.choose(view, None, 0, [0])
    (entry,) = board.changes(view)["list"]
    assert len(entry["sparks"]) == 9 and entry["anew"]


def test_a_browser_that_comes_back_gets_what_came_meanwhile() -> None:
    board = board_of(*(watched("a", n, "value" if n == 2 else "") for n in range(5)))
    board.take([watched("a", 5, "drift")], [], 2.0, 0)
    view = BrowserView(seen=5)
    board.choose(view, 0, 4, [])
    found = board.changes(view)
    assert [row[0] for row in found["detail"]["rows"]] == [5, 6]
    assert [alarm["event"] for alarm in found["alarms"]] == ["drift"]
    assert [alarm["event"] for alarm in found["detail"]["alarms"]] == ["value", "drift"]


def test_memory_is_bounded_whatever_comes() -> None:
    board, view = PageBoard(), BrowserView()
    board.make_room(1)
    events = [watched("a", n, "value", math.inf if n % 2 else None) for n in range(2000)]
    refused = [RefusedRow("a", n, "r" * 5000, "refused") for n in range(2000)]
    notes = [LoopNote("a", n, "n" * 5000) for n in range(2000)]
    board.take([*events, *refused, *notes], ["told"], 1.0, 7)
    board.choose(view, 0, 0, list(range(5000)))
    found = board.changes(view)
    assert len(view.visible) == MOST_VISIBLE
    assert len(found["detail"]["rows"]) == MOST_ROWS and len(found["alarms"]) == KEPT_ALARMS
    assert found["refused"]["kinds"] == {"refused": 2000}
    assert len(found["refused"]["rows"]) == KEPT_REFUSED
    assert found["notes"][-1]["text"] == "told" and board.n_dropped == 7
    assert len(json.dumps(found, allow_nan=False)) < 150_000


def test_all_sensors_together_keep_a_fixed_number_of_rows() -> None:
    assert rows_of_each(1) == rows_of_each(100) == MOST_ROWS
    assert rows_of_each(500) * 500 <= ALL_ROWS
    assert rows_of_each(10**6) == LEAST_ROWS


def test_numbers_that_json_lacks_are_null() -> None:
    row = WatchedRow("a", 2, math.nan, "", RowView(math.nan, *[math.inf] * 4), None)
    board, view = board_of(row), BrowserView()
    board.choose(view, 0, 0, [0])
    text = json.dumps(board.changes(view), allow_nan=False)
    assert json.loads(text)["detail"]["rows"][0][1:4] == [None, None, None]


def test_shares_outside_the_band_are_counted() -> None:
    rows = [watched("a", n) for n in range(10)]
    low, high = (
        row._replace(view=row.view._replace(value=value))
        for row, value in ((rows[3], -50.0), (rows[4], 50.0))
    )
    board, view = board_of(*rows[:3], low, high, *rows[5:]), BrowserView()
    board.choose(view, 0, 0, [])
    scores = board.changes(view)["detail"]["scores"]
    assert (scores["n"], scores["below"], scores["above"]) == (10, 0.1, 0.1)
    assert scores["log_score"] == pytest.approx(-0.5)
    assert scores["error"] < scores["change"]


def test_refused_rows_and_sensors_of_a_snapshot_are_shown() -> None:
    board, view = PageBoard(), BrowserView()
    board.take([KnownSensor("a"), RefusedRow("a", 3, "late", "refused")], [], 1.0, 0)
    board.take([RefusedRow("", 4, "garbage", "unreadable")], [], 2.0, 0)
    found = board.changes(view)
    (entry,) = found["list"]
    assert (entry["rows"], entry["refused"], entry["value"]) == (0, 1, None)
    assert found["refused"]["kinds"] == {"refused": 1, "unreadable": 1}
    board.take([watched("a", 0)], [], 3.0, 0)
    view.n_turns = 0
    assert board.changes(view)["list"][0]["refused"] == 0


def test_a_hostile_name_stays_text_in_json() -> None:
    board, view = board_of(watched(HOSTILE, 0)), BrowserView()
    text = json.dumps(board.changes(view))
    assert json.loads(text)["names"] == [[0, HOSTILE]]
    assert "\n" not in text
    assert board.name_of(0) == HOSTILE and board.name_of(1) is None and board.name_of(None) is None
