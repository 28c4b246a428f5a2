"""Alarms of sensors joined to incidents, and the file of `edgefold forecast --alarms`."""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from edgefold.cli.commands import forecast as command
from edgefold.cli.forecasting import ForecastRun
from edgefold.cli.main import main
from edgefold.runtime.sensors.alarms import incidents as module
from edgefold.runtime.sensors.alarms.incidents import N_OVER, N_TIMES, Incident, Incidents
from edgefold.runtime.sensors.forecasts import Forecast

pytestmark = pytest.mark.usefixtures("compiled_sensors")

Text = pytest.CaptureFixture[str]
Row = tuple[str, bool] | tuple[str, bool, int] | tuple[str, bool, int, float]
CALM: Row = ("", False)


def forecast(event: str, alarm: bool, since: int = 0, size: float = 0.0, v: float = 1.0) -> Any:
    known = dict.fromkeys(("mean", "q05", "q10", "q25", "q50", "q75", "q90", "q95"), 1.0)
    return Forecast(
        **known, time=0.0, value=v, log_density=0.0, p_value=1.0, alarm=alarm, event=event,
        n_missing=0, season=0, since=since, size=size, _horizons=(), _ahead=None,
    )  # fmt: skip


def follow(joined: Incidents, rows: Iterable[Row], series: str = "") -> list[Incident]:
    """Give rows at the times t0, t1, ..; the value of row i is i."""
    return [
        incident
        for i, row in enumerate(rows)
        for incident in joined.take(series, f"t{i}", str(i), forecast(*row))
    ]


def all_of(rows: Iterable[Row]) -> list[list[str]]:
    joined = Incidents()
    return [incident.fields for incident in [*follow(joined, rows), *joined.rest()]]


def test_a_shift_belongs_to_the_value_before_it() -> None:
    rows = [CALM, ("value", True), *[CALM] * 3, ("level shift", False), *[CALM] * 9]
    assert all_of(rows) == [["value", "t1", "t1", "t5", "5", "1", ""]]


def test_an_event_begins_before_its_alarm_and_lasts_with_its_rows() -> None:
    rows = [*[CALM] * 50, ("drift", True, 42, 3.25), *[("drift", False, 43, 3.5)] * 2, *[CALM] * 9]
    assert all_of(rows) == [["drift", "t8", "t50", "t52", "45", "50", "3.5"]]


def test_an_incident_that_goes_on_has_no_end() -> None:
    assert all_of([CALM, ("stuck", True), ("stuck", False)]) == [
        ["stuck", "t1", "t1", "", "2", "1", ""]
    ]
    assert all_of([("value", True), CALM]) == [["value", "t0", "t0", "t0", "1", "0", ""]]


def test_rows_without_a_value_are_not_counted() -> None:
    joined = Incidents()
    empty = forecast("", False, v=math.nan)
    joined.take("", "a", "1", forecast("stuck", True))
    for _ in range(2 * N_OVER):
        assert not joined.take("", "b", "", empty)
    joined.take("", "c", "1", forecast("stuck", False))
    assert [i.fields for i in joined.rest()] == [["stuck", "a", "a", "", "2", "1", ""]]


def test_another_alarm_begins_another_incident_and_what_lasts_goes_on() -> None:
    drift: Row = ("drift", False, 9, 1.0)
    rows = [("drift", True, 0, 0.5), drift, ("value", True), *[drift] * 6, *[CALM] * N_OVER]
    assert all_of(rows) == [
        ["drift", "t0", "t0", "t8", "9", "0", "1"],
        ["value", "t2", "t2", "t2", "1", "2", ""],
    ]


def test_an_incident_is_over_after_4_other_rows() -> None:
    apart = [("value", True), *[CALM] * N_OVER, ("value", True)]
    assert len(all_of(apart)) == 2
    assert len(all_of([apart[0], *apart[2:]])) == 1
    assert all_of([("drift", False), ("level shift", False)]) == []


def test_the_begin_is_sought_among_the_last_rows_only() -> None:
    ((_, begin, alarmed, *_),) = all_of([*[CALM] * 2000, ("drift", True, 3000)])
    assert (begin, alarmed) == (f"t{2001 - N_TIMES}", "t2000")


def test_incidents_come_in_the_order_of_their_alarms_and_few_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spike: list[Row] = [("value", True), *[CALM] * N_OVER]
    joined = Incidents()
    joined.take("roof", "t", "1", forecast("stuck", True))
    assert follow(joined, spike * 3, "cellar") == []
    ended = follow(joined, [CALM] * N_OVER, "roof")
    assert [incident.series for incident in ended] == ["roof", *["cellar"] * 3]

    monkeypatch.setattr(module, "MOST_WAITING", 2)
    joined.take("roof", "t", "1", forecast("stuck", True))
    early = follow(joined, spike * 9, "cellar")
    assert len(early) >= 7 and {incident.series for incident in early} == {"cellar"}
    late = [incident.series for incident in joined.rest()]
    assert sorted(late) == [*["cellar"] * (9 - len(early)), "roof"]


# The file -----------------------------------------------------------------------------------------


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def table(path: Path) -> Path:
    """Three values in turn; a spike in row 150, and from 190 on a sensor that is stuck."""
    rows = [f"{i},{20 + i % 3 if i < 190 else 21}" for i in range(240)]
    rows[150] = '150,"900"'
    path.write_text("\n".join(["t,v", *rows]) + "\n")
    return path


def test_each_incident_has_a_line(tmp_path: Path, capsys: Text) -> None:
    source = table(tmp_path / "log.csv")
    assert main(["forecast", str(source), "--alarms"]) == 0
    lines, rows = read(tmp_path / "log-forecast-alarms.csv"), read(tmp_path / "log-forecast.csv")
    assert [*lines[0]] == list(module.NAMES)
    assert len(lines) <= sum(row["alarm"] == "1" for row in rows)
    spike, stuck = lines[0], lines[-1]
    assert spike["event"] == "value" and spike["value"] == "900"
    assert spike["begin"] == spike["alarmed"] == "150"
    assert stuck["event"] == "stuck" and stuck["end"] == ""
    assert int(stuck["rows"]) == 240 - int(stuck["begin"])
    out = capsys.readouterr().out
    assert f"incidents     {len(lines)}, a line each in" in out
    assert out.count("log-forecast-alarms.csv") == 2
    assert main(["forecast", str(source), "--alarms"]) == 1
    assert "log-forecast-alarms.csv" in capsys.readouterr().err
    assert main(["forecast", str(source), "--force"]) == 0
    assert "incidents" not in capsys.readouterr().out


def test_an_incident_names_its_series(tmp_path: Path) -> None:
    source = tmp_path / "house.csv"
    rows = [f"{i},{20 + i % 3 if i != 150 else 900},{i % 4}" for i in range(200)]
    source.write_text("\n".join(["t,roof,wall", *rows]) + "\n")
    assert main(["forecast", str(source), "--alarms", "--out", str(tmp_path / "x.csv")]) == 0
    line = read(tmp_path / "x-alarms.csv")[0]
    assert (line["series"], line["event"], line["alarmed"]) == ("roof", "value", "150")


def test_memory_for_the_times_is_required(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = table(tmp_path / "log.csv")
    made: list[ForecastRun] = []

    def draw(path: Path, name: str, found: ForecastRun, *_: object) -> tuple[str, str]:
        made.append(found)
        return "", ""

    monkeypatch.setattr(command, "_draw", draw)
    for words in ((), ("--alarms", "--force")):
        assert main(["forecast", str(source), "--memory-limit", "10MB", *words]) == 0
    assert made[1]._most < made[0]._most


def drifting(path: Path, seed: int) -> Path:
    """Slow noise each quarter of an hour, which drifts in its last 60 rows by one scale a row."""
    start, noise, level = datetime(2024, 1, 1), random.Random(seed), 0.0
    lines = ["t,v"]
    for i in range(2560):
        level = 0.8 * level + noise.gauss(0.0, 1.0)
        lines.append(f"{start + i * timedelta(minutes=15)},{20 + level + max(0, i - 2500):.4f}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.long
def test_a_drift_begins_before_its_alarm(tmp_path: Path, capsys: Text) -> None:
    source = drifting(tmp_path / "log.csv", seed=1)
    assert main(["forecast", str(source), "--alarms"]) == 0
    line = next(x for x in read(tmp_path / "log-forecast-alarms.csv") if x["event"] == "drift")
    assert line["begin"] < line["alarmed"]
    assert int(line["rows"]) > 1 and float(line["size"]) > 0
    capsys.readouterr()
    assert main(["run", "sensors", "--input", str(source), "--print-alarms"]) == 0
    err = capsys.readouterr().err
    assert "ALARM: drift (begun " in err and f"at {line['alarmed']}" in err
