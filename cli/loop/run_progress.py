"""Print the messages of `edgefold run` on stderr, while it runs and at its end."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING

from edgefold.cli.loop.disk_writes import DiskWrites
from edgefold.cli.terminal import StatusLine, say
from edgefold.cli.text.sensors import event_text, sensor_lines
from edgefold.cli.text.streams import short, table
from edgefold.runtime.loop.refused_alarm import FIRST, end_of_alarm, refused_alarm
from edgefold.runtime.loop.watcher import LoopWatcher, Refusal
from edgefold.runtime.rows.csv_fields import plain

if TYPE_CHECKING:
    from edgefold.cli.loop.alarm_delivery import AlarmDelivery
    from edgefold.runtime.loop.alarm import Alarm
    from edgefold.runtime.loop.loop import PredictionLoop
    from edgefold.runtime.sinks.row_sink import RowSink
    from edgefold.runtime.sources.row_source import RowSource
    from edgefold.runtime.trial.trial import Trial

SHOWN_BAD_ROWS = 20
SHOWN_NOTES = 20
SHOWN_ALARMS = 20
PROGRESS_S = 0.2


class Progress(LoopWatcher):
    """Shows a status line on stderr while the loop runs, and makes the summary at the end.

    Args:
        loop: The loop.
        source: The input of the loop.
        output: The output of the loop.
        keeps: Words on which points a full state keeps.
        prints_alarms: Whether each alarm is printed. Otherwise alarms are printed on a terminal
            only, and of a file no more than the first `SHOWN_ALARMS`.
        delivery: Delivers each alarm; None delivers none.
    """

    def __init__(
        self,
        loop: PredictionLoop,
        source: RowSource,
        output: RowSink,
        keeps: str,
        prints_alarms: bool = False,
        delivery: AlarmDelivery | None = None,
    ):
        self._loop, self._source, self._output = loop, source, output
        self._status = StatusLine(PROGRESS_S)
        self._start_s = time.monotonic()
        self._n_lines = self._n_bad = self._n_notes = 0
        self._lines_to_say: list[str] = []
        self._last_bad: dict[str, str] = {}  # of each sensor with bad rows in this run
        self._prints_alarms, self._n_alarms = prints_alarms, 0
        self._delivery = delivery
        self._writes = DiskWrites()
        self._keeps, self._has_reported_full = keeps, False

    @property
    def lost(self) -> dict[str, int]:
        """Return how many last rows of a sensor were all refused, for sensors with 20 or more."""
        counts = {name: self._loop.counters_of(name).refused_in_a_row for name in self._last_bad}
        return {name: n for name, n in counts.items() if n >= FIRST}

    @property
    def has_lost(self) -> bool:
        """Return whether the last 20 rows or more of a sensor were all refused.

        Also true if 20 rows or more of this run were of sensors beyond the number of --streams.
        """
        return bool(self.lost) or self._loop.n_without_slot >= FIRST

    wants_rows = False

    def refused(self, name: str, line: int, reason: str, kind: Refusal) -> None:
        """Count a malformed row of sensor `name`, and report it if it is one of the first 20."""
        self._n_bad += 1
        self._last_bad[name] = f"{self._source.unit} {line}: {reason}"
        if self._n_bad <= SHOWN_BAD_ROWS:
            self._lines_to_say.append(f"edgefold: {self._source.place(line)}: {reason}; skipped")
        if self._n_bad == SHOWN_BAD_ROWS:
            self._lines_to_say.append("edgefold: further malformed rows are only counted")
        n_in_a_row = self._loop.counters_of(name).refused_in_a_row
        alarm = refused_alarm(n_in_a_row, f"{self._source.unit} {line}", reason, _whose(name))
        if alarm and (self._loop.has_learned or self._source.is_live):
            self._lines_to_say.append(f"edgefold: {alarm}")
            self.tell()

    def resumed(self, name: str, line: int, n_refused: int) -> None:
        """Report that a sensor's rows are learned again, if 20 or more were refused before them.

        Args:
            name: Name of the sensor.
            line: Line of the first row that is learned again.
            n_refused: Number of rows that were refused directly before.
        """
        if end := end_of_alarm(n_refused, f"{self._source.unit} {line}", _whose(name)):
            self._lines_to_say.append(f"edgefold: {end}")

    def line(self) -> None:
        """Count a line of the input, report gaps, seasons and full states, show the status line."""
        self._n_lines += 1
        if self._loop.full and not self._has_reported_full:
            self._report_full()
        if self._loop.sensors.notes:
            self._note()
        if self._loop.sensors.alarms:
            self._report_alarms()
        if self._lines_to_say and self._loop.has_learned and self._loop.pace_is_known:
            self.tell()
        if self._status.is_due:
            self._status.show(self.status())

    def saved(self) -> None:
        """Remember the bytes that were written until this snapshot."""
        self._writes.saved()

    def status(self) -> str:
        """Return in a line how many rows have come, how fast, and how good the predictions are."""
        counters, lasted_s = self._loop.counters, time.monotonic() - self._start_s
        parts = [f"{counters.rows:,} rows", f"{self._n_lines / lasted_s:,.0f} rows/s"]
        if n_sensors := len(self._loop.sensors.named):
            parts.insert(0, f"{n_sensors:,} streams")
        if counters.rmse:
            parts.append(f"RMSE {_list(counters.rmse)}")
        has_band = self._loop.sensors.first.columns.has_band
        anomalies = f"{counters.anomalies:,} anomalies, " if has_band else ""
        parts.append(f"{anomalies}{counters.malformed:,} malformed")
        if share := self._source.progress():
            parts.append(share)
        return "   ".join(parts)

    def _note(self) -> None:
        """Report news of sensors: a gap, another time between rows, a season; only the first 20."""
        notes = self._loop.sensors.notes
        while notes:
            line, name, note = notes.popleft()
            self._n_notes += 1
            if self._n_notes <= SHOWN_NOTES:
                whose = f", stream {short(name)}" if name else ""  # the number is of all streams
                self._lines_to_say.append(f"edgefold: {self._source.place(line)}{whose}: {note}")
            if self._n_notes == SHOWN_NOTES:
                self._lines_to_say.append("edgefold: further gaps and seasons are not told")

    def _report_alarms(self) -> None:
        """Report the alarms of the last line, at once and in a line each, and start commands."""
        alarms = self._loop.sensors.alarms
        while alarms:
            alarm = alarms.popleft()
            if self._delivery is not None:
                self._delivery.give(alarm)
            if not (self._prints_alarms or self._status.is_live):
                continue
            self._n_alarms += 1
            is_shown = self._n_alarms <= SHOWN_ALARMS or self._prints_alarms
            if is_shown or self._source.is_live:
                self._lines_to_say.append(f"edgefold: {_alarm_text(alarm)}")
            elif self._n_alarms == SHOWN_ALARMS + 1:
                self._lines_to_say.append("edgefold: further alarms are in the output")

    def _report_full(self) -> None:
        """Report, once, that a sensor's state takes no more points."""
        self._has_reported_full = True
        name, line = next(iter(self._loop.full.items()))
        others = " Other streams that fill are only counted." if name else ""
        self._lines_to_say.append(
            f"edgefold: {self._source.place(line)}: WARNING: the state{_whose(name)} is "
            f"full: it {self._keeps}. Predictions go on; this row and later ones are not "
            "learned. To learn on, export with a larger capacity, or with when_full=overwrite or "
            f"reservoir.{others}"
        )
        self.tell()

    def tell(self) -> None:
        """Print the collected reports and empty their list.

        `line` calls this only after a row was learned, because in a wrong file none ever is.
        """
        self.clear()
        for line in self._lines_to_say:
            say(line)
        self._lines_to_say.clear()

    def clear(self) -> None:
        self._status.clear()

    def summary(self, stopped: bool, snapshot: Path | None) -> str:
        """Return the lines on all rows since the first start, and on the files of this run."""
        counters, lasted_s = self._loop.counters, time.monotonic() - self._start_s
        lines = [
            f"rows          {counters.rows - counters.not_learned:,} updates, "
            f"{counters.predicted:,} predictions, "
            f"{counters.malformed:,} malformed, {counters.missing:,} without a value"
        ]
        if counters.not_learned:
            lines.append(
                f"WARNING       {counters.not_learned:,} rows were predicted and not learned: the "
                f"state {self._keeps}"
            )
        if counters.rmse:
            lines.append(f"RMSE          {_list(counters.rmse)}")
        if counters.predicted and self._loop.sensors.first.columns.has_band:
            lines.append(f"90 % band     holds {counters.coverage_90:.1%} of the values")
            lines.append(f"anomalies     {counters.anomalies:,}")
        sensors = self._loop.sensors
        if own_lines := sensor_lines(sensors.named if sensors.are_named else sensors.all):
            lines += own_lines
        elif named := sensors.named:
            lines += ["", *table(named), ""]
        if self._loop.sensors.are_named and (n_lines := self._loop.unassigned.malformed):
            lines.append(
                f"no sensor     {n_lines:,} rows belong to none: they cannot be read, or name a "
                f"sensor beyond --streams {len(self._loop.sensors.all)}"
            )
        if trial := self._loop.trial:
            lines.append(f"candidate     {_trial_text(trial)}")
        if self._delivery is not None:
            lines.append(f"on alarm      {self._delivery.summary}")
        if lost := self.lost:
            lines.append(self._warning(lost))
        if self._loop.n_without_slot >= FIRST:
            lines.append(
                f"WARNING       {self._loop.n_without_slot:,} rows of this run are of sensors for "
                "which no slot is left; fix their names, or give a larger --streams"
            )
        what = "lines" if self._loop.sensors.are_named else "rows"
        lines.append(
            f"this run      {self._n_lines:,} {what} in {lasted_s:.1f} s, "
            f"{self._n_lines / max(lasted_s, 1e-9):,.0f} {what}/s"
            + (", resumed from the snapshot" if self._loop.resumed else "")
        )
        if written := self._writes.summary(self._source.is_live):
            lines.append(f"written       {written}")
        if n_removed := self._output.n_removed:
            again = "written again" if self._source.reads_again else "lost, as a pipe is read once"
            lines.append(
                f"removed       {n_removed:,} lines of {self._output.name}, written after the "
                f"snapshot from which this run resumed: {again}"
            )
        if by_place := self._loop.columns_by_place:
            lines.append(
                f"columns       read by their order, since no name was given: {plain(by_place)}"
            )
        if n_known := self._loop.known.n_skipped:
            lines.append(
                f"known         {n_known:,} rows of {self._source.name} were skipped: they are not "
                "newer than rows that were learned before"
            )
        if self._output.n_finished:
            lines.append(
                f"files         {self._output.n_finished:,} finished in this run beside "
                f"{self._output.name}"
            )
        lines += [f"{label:14}{sentence}" for label, sentence in self._source.notes()]
        if stopped:
            lines.append(
                f"stopped       the same command resumes from {snapshot}"
                if snapshot
                else "stopped       without --snapshot nothing was saved to resume from"
            )
        return "\n".join(lines)

    def _warning(self, lost: dict[str, int]) -> str:
        """Return a warning on refused rows; `lost` is the number of them by sensor, not empty."""
        named = {name: n for name, n in lost.items() if name}
        shown = ", ".join(f"{short(name)} ({n:,})" for name, n in named.items())
        whose = f"rows of {shown}" if named else f"{lost['']:,} rows"
        what = "their states are" if named else "the model is"
        return (
            f"WARNING       the last {whose} were all refused: {what} not updated any more. The "
            f"last, {self._last_bad[[*(named or lost)][-1]]}. Fix the input: its rows are learned "
            "again once they fit"
        )


def _trial_text(trial: Trial) -> str:
    """Return in words how far the trial of a candidate is."""
    if not trial.is_running:
        return f"{trial.phase}: {trial.reason}"
    who = "speaks, on probation" if trial.is_heard else "not heard yet"
    sign = -1 if trial.is_heard else 1
    odds = math.exp(min(trial.evidence.log_e, 50.0))
    return (
        f"{who}; over {trial.n_rows:,} rows {sign * trial.evidence.mean:+.3g} nats a row against "
        f"the old model, evidence {odds:.3g} of {1 / trial.risk:.3g}"
        + (" to bring the old one back" if trial.is_heard else " to speak")
    )


def _alarm_text(alarm: Alarm) -> str:
    """Return an alarm as the text of a line."""
    event = event_text(alarm.event, alarm.n_since)
    value = alarm.text or "missing"
    return f"ALARM{_whose(alarm.series)}: {event} at {alarm.time}, value {value}"


def _whose(name: str) -> str:
    return f" of stream {short(name)}" if name else ""


def _list(numbers: list[float]) -> str:
    return " ".join(f"{number:.4g}" for number in numbers)
