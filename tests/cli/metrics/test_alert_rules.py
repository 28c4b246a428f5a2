"""Each alert rule fires for the series that it is for and stays silent for sound ones.

The real promtool evaluates the rules.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.brokers import LIMIT_S, program

RULES = Path(__file__).parents[3] / "deploy" / "prometheus" / "edgefold.rules.yml"
OF = 'instance="board",loop="boiler"'
ONE = f'{OF},series="inlet"'
DAY = 1500  # minutes, a day and a margin

Series = dict[str, str]

SOUND: Series = {  # a sensor that is read each second, in minutes of a day
    f'up{{job="edgefold",{OF}}}': f"1x{DAY}",
    f"edgefold_running{{{OF}}}": f"1x{DAY}",
    f"edgefold_metrics_timestamp_seconds{{{OF}}}": f"0+60x{DAY}",
    f"edgefold_step_age_seconds{{{OF}}}": f"0.1x{DAY}",
    f"edgefold_source_connected{{{OF}}}": f"1x300 0x3 1x{DAY - 304}",  # the broker was restarted
    f"edgefold_rows_learned_total{{{ONE}}}": f"0+60x{DAY}",
    f'edgefold_rows_refused_total{{{OF},series="",kind="unreadable"}}': f"0x{DAY}",
    f'edgefold_rows_refused_total{{{ONE},kind="refused"}}': f"0x700 1x{DAY - 700}",
    f"edgefold_row_age_seconds{{{ONE}}}": f"0.4x{DAY}",
    f"edgefold_row_lag_seconds{{{ONE}}}": f"2x{DAY}",
    f"edgefold_values_below_q05_ratio{{{ONE}}}": f"0.06x{DAY}",
    f"edgefold_values_above_q95_ratio{{{ONE}}}": f"0.04x{DAY}",
    f"edgefold_values_scored_total{{{ONE}}}": f"0+60x{DAY}",
    f'edgefold_alarms_total{{{ONE},event="value"}}': f"0x200 1x600 6x400 9x{DAY - 1202}",
    f"edgefold_false_alarms_stated_ratio{{{OF}}}": f"0.0001x{DAY}",
    f"edgefold_storage_written_bytes_total{{{OF}}}": f"0+100000x{DAY}",
    f"edgefold_snapshot_age_seconds{{{OF}}}": f"90x{DAY}",
    f"edgefold_memory_resident_bytes{{{OF}}}": f"31000000x10 52000000x{DAY - 11}",
}
FAULTS: list[tuple[str, int, Series]] = [  # the alert, the minute at which it fires, the change
    ("EdgefoldLoopDown", 10, {f'up{{job="edgefold",{OF}}}': "1x3 0x20"}),
    ("EdgefoldLoopDown", 10, {f"edgefold_running{{{OF}}}": "1x3 0x20"}),
    ("EdgefoldLoopDown", 10, {f"edgefold_metrics_timestamp_seconds{{{OF}}}": "0+60x3 180x20"}),
    ("EdgefoldLoopHangs", 10, {f"edgefold_step_age_seconds{{{OF}}}": "0.1x3 60+60x20"}),
    ("EdgefoldBrokerAway", 20, {f"edgefold_source_connected{{{OF}}}": "1x5 0x60"}),
    (  # rows came each second until minute 600, then none
        "EdgefoldNoRows", 610,
        {f"edgefold_row_age_seconds{{{ONE}}}": "0.4x600 60+60x900",
         f"edgefold_rows_learned_total{{{ONE}}}": "0+60x600 36000x900"},
    ),
    (  # no row for longer than a day, so that nothing is known of the usual time
        "EdgefoldNoRows", 5,
        {f"edgefold_row_age_seconds{{{ONE}}}": "90000+60x20",
         f"edgefold_rows_learned_total{{{ONE}}}": "500x20"},
    ),
    (
        "EdgefoldRowsRefused", 40,
        {f'edgefold_rows_refused_total{{{OF},series="",kind="unreadable"}}': "0x20 0+2x60"},
    ),
    ("EdgefoldRowsLate", 30, {f"edgefold_row_lag_seconds{{{ONE}}}": "2x3 400x60"}),
    ("EdgefoldRowsFromTheFuture", 30, {f"edgefold_row_lag_seconds{{{ONE}}}": "-3600x60"}),
    ("EdgefoldBandsTooNarrow", 120, {f"edgefold_values_below_q05_ratio{{{ONE}}}": "0.3x200"}),
    (
        "EdgefoldBandsTooWide", 900,
        {f"edgefold_values_below_q05_ratio{{{ONE}}}": "0.001x1500",
         f"edgefold_values_above_q95_ratio{{{ONE}}}": "0.004x1500"},
    ),
    ("EdgefoldAlarm", 203, {}),
    (
        "EdgefoldAlarmsAboveStatedRate", 1000,
        {f'edgefold_alarms_total{{{ONE},event="value"}}': "0+0.06x1500"},
    ),
    (
        "EdgefoldFlashWear", 1450,
        {f"edgefold_storage_written_bytes_total{{{OF}}}": "0+800000x1500"},
    ),
    ("EdgefoldSnapshotTooOld", 120, {f"edgefold_snapshot_age_seconds{{{OF}}}": "0+60x200"}),
    (
        "EdgefoldMemoryGrows", 1400,
        {f"edgefold_memory_resident_bytes{{{OF}}}": "50000000+50000x1500"},
    ),
]  # fmt: skip
HARMLESS: list[tuple[str, str, int, Series]] = [  # why, the alert, the minute, the change
    (
        "a sensor that is read each hour is not silent after half an hour", "EdgefoldNoRows", 1400,
        {f"edgefold_row_age_seconds{{{ONE}}}": "1800x1500",
         f"edgefold_rows_learned_total{{{ONE}}}": " ".join(f"{hour}x59" for hour in range(25))},
    ),
    (
        "rows of a pause are not late once none comes", "EdgefoldRowsLate", 60,
        {f"edgefold_row_lag_seconds{{{ONE}}}": "900x100",
         f"edgefold_row_age_seconds{{{ONE}}}": "400+60x100"},
    ),
    (
        "few rows say little of a band", "EdgefoldBandsTooNarrow", 120,
        {f"edgefold_values_below_q05_ratio{{{ONE}}}": "0.3x200",
         f"edgefold_values_scored_total{{{ONE}}}": "400x200"},
    ),
    (
        "without rows a snapshot may be old", "EdgefoldSnapshotTooOld", 120,
        {f"edgefold_snapshot_age_seconds{{{OF}}}": "0+60x200",
         f"edgefold_rows_learned_total{{{ONE}}}": "5000x200"},
    ),
    (
        "four alarms of two rows a minute in a day are above the rate, three are not",
        "EdgefoldAlarmsAboveStatedRate", 1400,
        {f'edgefold_alarms_total{{{ONE},event="value"}}': "0x300 3x1200",
         f"edgefold_rows_learned_total{{{ONE}}}": "0+2x1500"},
    ),
]  # fmt: skip


def test_promtool_accepts_the_rules() -> None:
    command = [program("promtool"), "check", "rules", "--lint-fatal", str(RULES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def firing(series: Series, *expected: tuple[str, int, int]) -> dict[str, object]:
    """A test of promtool: alerts, each with a minute and how many of its name fire then."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                "eval_time": f"{at}m",
                "exp_samples": [{"labels": "{}", "value": n}] if n else [],
            }
            for alert, at, n in expected
        ],
    }


def alerts() -> list[str]:
    return [
        line.partition("alert:")[2].strip()
        for line in RULES.read_text().splitlines()
        if "alert:" in line
    ]


def evaluate(folder: Path, tests: list[dict[str, object]]) -> None:
    """Let promtool run tests; its report is what an assertion shows. JSON is YAML."""
    path = folder / "tests.yml"
    path.write_text(
        json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests})
    )
    done = subprocess.run(
        [program("promtool"), "test", "rules", str(path)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_rule_is_tried_with_a_fault() -> None:
    assert {alert for alert, _, _ in FAULTS} == {*alerts()}


@pytest.mark.parametrize("alert", sorted({alert for alert, _, _ in FAULTS}))
def test_an_alert_fires_for_its_fault(tmp_path: Path, alert: str) -> None:
    faults = [(at, change) for name, at, change in FAULTS if name == alert]
    evaluate(tmp_path, [firing(SOUND | change, (alert, at, 1)) for at, change in faults])


def test_no_alert_but_that_of_an_alarm_fires_for_a_sound_loop(tmp_path: Path) -> None:
    silent = [alert for alert in alerts() if alert != "EdgefoldAlarm"]
    expected = [(alert, at, 0) for alert in silent for at in (1, 30, 700, 1450)]
    evaluate(tmp_path, [firing(SOUND, *expected, ("EdgefoldAlarm", 300, 0))])


@pytest.mark.one_case
@pytest.mark.parametrize(("why", "alert", "at", "change"), HARMLESS, ids=[h[0] for h in HARMLESS])
def test_an_alert_stays_silent(
    tmp_path: Path, why: str, alert: str, at: int, change: Series
) -> None:
    evaluate(tmp_path, [firing(SOUND | change, (alert, at, 0))])
