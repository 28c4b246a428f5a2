"""Collect what happens in a loop, and write what each browser has not seen yet as JSON.

    ring ──take──> PageBoard ──changes(view)──> one browser       at most five times a second each
     (page's thread, five times a second)  └──> another one

Nothing is queued for a browser: it gets what has changed since it was served last. A slow one gets
less often more, up to the rows that are kept, so its memory is that of its `BrowserView`.

Each event has a number. A browser that comes back names the last number that it has seen.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from edgefold.cli.page.page_watcher import KnownSensor, LoopNote, RefusedRow
from edgefold.cli.page.row_history import MOST_ROWS, rows_of_each
from edgefold.cli.page.sensor_entry import MOST_SPARKS, SensorEntry, number_of
from edgefold.runtime.loop.watcher import WatchedRow

KEPT_ALARMS, KEPT_REFUSED, KEPT_NOTES = 200, 20, 50
REASON_LENGTH = 300
MOST_VISIBLE = 100
"""Number of sensors of which a browser gets the values for small pictures."""
UNSEEN_TURNS = 10
"""A sensor outside of the visible part of the list is sent once in so many turns."""


@dataclass(slots=True)
class BrowserView:
    """Holds what one browser looks at, and up to which event it was served.

    Attributes:
        chosen: The number of the sensor that is shown in detail; None for none.
        visible: The numbers of the sensors in the visible part of the list.
        seen: The number of the last event that was served.
        seen_rows: The number of the last row of the chosen sensor that was served.
        is_new: Whether the chosen sensor was not served yet.
        sent: For each sensor, by number, the last event of it that was served.
        n_turns: How often the browser was served.
        n_sensors: Number of sensors whose names were served.
    """

    chosen: int | None = None
    visible: frozenset[int] = frozenset()
    seen: int = 0
    seen_rows: int = 0
    is_new: bool = True
    sent: dict[int, int] = field(default_factory=dict)
    n_turns: int = 0
    n_sensors: int = 0


class PageBoard:
    """Collects the events of a loop for all browsers.

    `take` is called by the page's thread, all other methods by the threads of the browsers; each
    holds the lock. The loop's thread never does.

    Attributes:
        lock: The lock, which `turn` waits on.
        n_dropped: Number of events that came too fast to be shown.
    """

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.n_dropped = 0
        self._number = self._n_rows = self._turn = 0
        self._most_rows = MOST_ROWS
        self._all: list[SensorEntry] = []
        self._by_name: dict[str, SensorEntry] = {}
        self._alarms: deque[dict[str, Any]] = deque(maxlen=KEPT_ALARMS)
        self._notes: deque[dict[str, Any]] = deque(maxlen=KEPT_NOTES)
        self._refused: deque[dict[str, Any]] = deque(maxlen=KEPT_REFUSED)
        self._kinds: Counter[str] = Counter()
        self._n_refused_at = 0  # the number of the last refused row

    def make_room(self, n_sensors: int) -> None:
        """Choose how many rows are kept of each sensor that comes from now on."""
        with self.lock:
            self._most_rows = rows_of_each(n_sensors)

    # In the page's thread -------------------------------------------------------------------------

    def take(self, events: Sequence[Any], told: Sequence[str], at: float, n_dropped: int) -> None:
        """Add events of the loop, and let the browsers look.

        Args:
            events: Rows (`WatchedRow`), refused rows (`RefusedRow`), notes (`LoopNote`)
                and sensors of a snapshot (`KnownSensor`).
            told: Sentences of the source.
            at: The time in seconds since 1970.
            n_dropped: Number of events that came too fast to be shown.
        """
        with self.lock:
            for event in events:
                self._number += 1
                if isinstance(event, WatchedRow):
                    self._add_row(event, at)
                elif isinstance(event, RefusedRow):
                    self._add_refused(event, at)
                elif isinstance(event, KnownSensor):
                    self._entry(event.series)
                elif isinstance(event, LoopNote):
                    self._note(event.series, event.line, event.text, at)
            for sentence in told:
                self._number += 1
                self._note("", 0, sentence, at)
            self.n_dropped = n_dropped
            self._turn += 1
            self.lock.notify_all()

    def wake(self) -> None:
        """Let the browsers look, also if nothing happened."""
        with self.lock:
            self._turn += 1
            self.lock.notify_all()

    def _entry(self, name: str) -> SensorEntry:
        entry = self._by_name.get(name)
        if entry is None:
            entry = SensorEntry(len(self._all), name, self._most_rows)
            self._all.append(entry)
            self._by_name[name] = entry
        return entry

    def _add_row(self, row: WatchedRow, at: float) -> None:
        entry = self._entry(row.series)
        if row.alarm is not None:
            alarm = {
                "number": self._number,
                "sensor": entry.number,
                "event": row.alarm.event,
                "time": number_of(row.time),
                "text": row.text[:100],
                "line": row.line,
                "value": number_of(row.alarm.value),
                "since": row.alarm.n_since,
                "size": number_of(row.alarm.size),
                "at": round(at, 1),
            }
            self._alarms.append(alarm)
            entry.alarms.append(alarm)
        entry.add(self._number, row, at)
        self._n_rows += 1

    def _add_refused(self, refused: RefusedRow, at: float) -> None:
        self._kinds[refused.kind] += 1
        self._n_refused_at = self._number
        entry = self._by_name.get(refused.series)
        if entry is not None:
            entry.refuse(self._number)
        self._refused.append(
            {
                "sensor": refused.series,
                "line": refused.line,
                "reason": refused.reason[:REASON_LENGTH],
                "kind": refused.kind,
                "at": round(at, 1),
            }
        )

    def _note(self, series: str, line: int, text: str, at: float) -> None:
        note = {"number": self._number, "sensor": series, "line": line}
        self._notes.append({**note, "text": text[:REASON_LENGTH], "at": round(at, 1)})

    # In the browsers' threads ---------------------------------------------------------------------

    @property
    def turn(self) -> int:
        """Return a number that rises whenever the browsers should look; hold the lock."""
        return self._turn

    def name_of(self, number: int | None) -> str | None:
        """Return the name of the sensor of this number; None if there is none."""
        with self.lock:
            is_known = number is not None and 0 <= number < len(self._all)
            return self._all[number].name if is_known and number is not None else None

    def choose(
        self, view: BrowserView, chosen: int | None, seen: int, visible: Sequence[int]
    ) -> None:
        """Change what a browser looks at.

        Args:
            view: The browser's view.
            chosen: The number of the sensor to show in detail; None for none.
            seen: The number of the last row of it that the browser holds.
            visible: The numbers of the sensors in the visible part of the list.
        """
        with self.lock:
            if chosen != view.chosen:
                view.chosen, view.seen_rows, view.is_new = chosen, seen, True
            for number in {*visible[:MOST_VISIBLE]} - view.visible:
                view.sent.pop(number, None)  # its values were not sent
            view.visible = frozenset(visible[:MOST_VISIBLE])
            self._turn += 1
            self.lock.notify_all()

    def changes(self, view: BrowserView) -> dict[str, Any]:
        """Return, as a JSON object, what a browser has not seen yet; it counts as seen then."""
        with self.lock:
            changes: dict[str, Any] = {}
            if new := self._all[view.n_sensors :]:
                changes["names"] = [[entry.number, entry.name] for entry in new]
                view.n_sensors = len(self._all)
            if entries := self._changed(view):
                changes["list"] = entries
            if alarms := [a for a in self._alarms if a["number"] > view.seen]:
                changes["alarms"] = alarms
            if notes := [note for note in self._notes if note["number"] > view.seen]:
                changes["notes"] = notes
            if self._n_refused_at > view.seen:
                changes["refused"] = {"kinds": dict(self._kinds), "rows": [*self._refused]}
            if view.chosen is not None and view.chosen < len(self._all):
                self._add_chosen(changes, view, self._all[view.chosen])
            view.seen = self._number
            view.n_turns += 1
            return changes

    def _changed(self, view: BrowserView) -> list[dict[str, Any]]:
        """Return the summaries of sensors that a browser has not seen, with values of visible ones.

        A sensor that is not visible is only sent now and then.
        """
        is_full, found = view.n_turns % UNSEEN_TURNS == 0, []
        for entry in self._all:
            is_visible = entry.number in view.visible
            seen = view.sent.get(entry.number, -1)
            if entry.changed <= seen or not (is_visible or is_full or seen < 0):
                continue
            summary = entry.summary()
            if is_visible:
                summary["sparks"] = entry.history.values(seen, MOST_SPARKS)
                summary["anew"] = seen < 0
            view.sent[entry.number] = entry.changed
            found.append(summary)
        return found

    def _add_chosen(self, changes: dict[str, Any], view: BrowserView, entry: SensorEntry) -> None:
        rows = entry.history.after(view.seen_rows, MOST_ROWS)
        if not rows and not view.is_new and entry.changed <= view.seen:
            return
        detail = {"id": entry.number, "after": view.seen_rows, "rows": rows}
        detail["scores"] = entry.scores()
        if view.is_new:
            detail["alarms"] = [*entry.alarms]
        if rows:
            view.seen_rows = int(rows[-1][0] or 0)
        view.is_new = False
        changes["detail"] = detail

    @property
    def most_rows(self) -> int:
        """Return how many last rows are kept of each sensor."""
        return self._most_rows

    @property
    def n_rows(self) -> int:
        """Return the number of rows of this run that the page has seen."""
        return self._n_rows
