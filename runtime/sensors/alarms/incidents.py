"""Join the alarms of sensors to incidents, each from the row at which it began to its last row.

    rows        .   .   .   value   .   .   .   level shift   .   .   .   .
    alarm                   1                   0
    incident                |_______________________|         over after 4 rows without an event

A row with an event belongs to the open incident of this event. An alarm without such an incident
begins one. Any other row with an event, such as a level shift after a value that was alarmed,
belongs to the incident that began last, or to none if all are over. Several incidents of one sensor
may be open: a value may be alarmed during a drift. Only rows with a value or an event are counted.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

NAMES = ("event", "begin", "alarmed", "end", "rows", "value", "size")
"""The names of the fields of an incident."""
N_TIMES = 512
"""Number of a sensor's last rows whose times are kept, to state when an event began."""
TIMES_BYTES = 45_000
"""Memory that these times take, for each sensor."""
N_OVER = 4
"""An incident is over once so many rows in sequence did not belong to it. A level shift is reported
at the 4th row after the value that was alarmed, and so belongs to the same incident."""
MOST_WAITING = 10_000
"""At most about so many incidents wait for an older one that goes on; see `Incidents`."""


class EventRow(Protocol):
    """Says what happened at a row; a `Forecast` does, and describes the properties."""

    @property
    def value(self) -> float:
        """Return the row's value; NaN if it is missing."""

    @property
    def alarm(self) -> bool:
        """Return whether the row is an alarm."""

    @property
    def event(self) -> str:
        """Return the name of what happens to the sensor; empty for nothing."""

    @property
    def since(self) -> int:
        """Return how many rows before this one the event began."""

    @property
    def size(self) -> float:
        """Return the size of an event that lasts."""


@dataclass(slots=True)
class Incident:
    """Holds an incident of one sensor; times and value are texts as the table has them.

    Attributes:
        series: Name of the sensor.
        event: Event of the alarm with which the incident was reported.
        begin: Time of the row at which the event began, among the last `N_TIMES` rows.
        alarmed: Time of the alarm.
        end: Time of the last row of the incident; "" if that is the sensor's last row, so that the
            incident goes on.
        value: Value of the alarm.
        n_rows: Number of rows from the begin to the end, both included.
        size: The last size of the event that was reported; 0 for an event without a size.
        n_after: Number of rows since the last row of the incident.
        is_over: Whether no later row can belong to the incident.
    """

    series: str
    event: str
    begin: str
    alarmed: str
    end: str
    value: str
    n_rows: int
    size: float
    n_after: int = 0
    is_over: bool = False

    @property
    def fields(self) -> list[str]:
        """Return the incident as CSV fields named in `NAMES`."""
        size = f"{self.size:.9g}" if self.size else ""
        times = self.begin, self.alarmed, self.end
        return [self.event, *times, str(self.n_rows), self.value, size]


@dataclass(slots=True)
class _Sensor:
    """Holds the times of a sensor's last rows, and its open incidents, the oldest first."""

    times: deque[str] = field(default_factory=lambda: deque(maxlen=N_TIMES))
    open: list[Incident] = field(default_factory=list)


class Incidents:
    """Joins the alarms of all sensors to incidents, in a memory that depends on their number only.

    Incidents are returned in the order of their alarms, so that one that is over waits while an
    older one goes on. If more than `MOST_WAITING` wait, the oldest one loses its turn and is
    returned once it is over.

    Attributes:
        n: Number of incidents so far.
    """

    def __init__(self) -> None:
        self._sensors: dict[str, _Sensor] = {}
        self._waiting: deque[Incident] = deque()  # all that were not returned
        self.n = 0

    def take(self, series: str, time: str, value: str, forecast: EventRow) -> list[Incident]:
        """Take a row of a sensor, and return the incidents that are over and have their turn.

        Args:
            series: Name of the sensor.
            time: Time of the row as the table has it.
            value: Value of the row as the table has it.
            forecast: EventRow of the row, with its alarm and event.
        """
        if not forecast.event and forecast.value != forecast.value:
            return []
        sensor = self._sensors.get(series)
        if sensor is None:
            sensor = self._sensors[series] = _Sensor()
        sensor.times.append(time)
        if not (sensor.open or forecast.alarm):
            return []
        own = _own(sensor.open, forecast)
        if own is None and forecast.alarm:
            own = self._begin(series, sensor, value, forecast)
        for incident in sensor.open:
            incident.n_after += 1
            incident.is_over = incident is not own and incident.n_after >= N_OVER
        if own is not None:
            own.end = time
            own.n_rows += own.n_after
            own.n_after = 0
            if forecast.event == own.event:
                own.size = forecast.size
        sensor.open = [incident for incident in sensor.open if not incident.is_over]
        return self._due()

    def _begin(self, series: str, sensor: _Sensor, value: str, forecast: EventRow) -> Incident:
        """Open an incident at the newest row, which is an alarm; the row is not counted yet."""
        times = sensor.times
        since = min(forecast.since, len(times) - 1)
        begin, alarmed = times[-1 - since], times[-1]
        incident = Incident(series, forecast.event, begin, alarmed, "", value, since, 0.0)
        sensor.open.append(incident)
        self._waiting.append(incident)
        self.n += 1
        return incident

    def _due(self) -> list[Incident]:
        """Remove and return the incidents that are over and wait for no older one."""
        waiting, due = self._waiting, list[Incident]()
        if len(waiting) > MOST_WAITING and not waiting[0].is_over:
            waiting.rotate(-1)
        while waiting and waiting[0].is_over:
            due.append(waiting.popleft())
        return due

    def is_open(self, series: str) -> bool:
        """Return whether a later row may belong to an incident of a sensor."""
        return series in self._sensors and bool(self._sensors[series].open)

    def rest(self) -> list[Incident]:
        """Return all other incidents at the end of the table, in the order of their alarms."""
        for incident in self._waiting:
            if not (incident.is_over or incident.n_after):
                incident.end = ""
        return [*self._waiting]


def _own(incidents: list[Incident], forecast: EventRow) -> Incident | None:
    """Return the open incident to which a row belongs, or None."""
    if not forecast.event:
        return None
    for incident in incidents:
        if incident.event == forecast.event:
            return incident
    return incidents[-1] if incidents and not forecast.alarm else None
