from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.main import main
from edgefold.cli.records.comparison import compare, unlike, unsettled
from edgefold.cli.records.figures import read_record
from edgefold.devices.profile.latency import quantile_interval
from edgefold.runtime.errors import DataError

Text = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def measured(bundles: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The text of a short profile's record, with its CSV and Prometheus files beside it."""
    folder = tmp_path_factory.mktemp("compare")
    words = [
        "profile",
        str(bundles / "tiny"),
        "--updates",
        "400",
        "--queries",
        "40",
        "--energy-seconds",
        "0.1",
    ]
    for option in ("json", "csv", "prometheus"):
        words += [f"--{option}", str(folder / f"profile.{option}")]
    assert main(words) == 0
    assert len(list(folder.iterdir())) == 3
    record = json.loads((folder / "profile.json").read_text())
    calm = {"verdict": "valid", "reasons": [], "untold": [], "blocks": []}
    record["validity"] = calm  # the machine under test may be busy, also below
    step = record["latency"][0]
    step["p50_interval_s"] = [0.95 * step["p50_s"], 1.05 * step["p50_s"]]
    return json.dumps({**record, "files": str(folder)})


@pytest.fixture
def record(measured: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(measured)
    loaded.pop("files")
    return loaded


@pytest.fixture
def pair(record: dict[str, Any], tmp_path: Path) -> tuple[str, str]:
    """Files of two records; the second has updates of twice the time."""
    paths = tmp_path / "a.json", tmp_path / "b.json"
    paths[0].write_text(json.dumps(record))
    step = record["latency"][0]
    for name in ("p50_s", "p99_s"):
        step[name] *= 2
    for name in ("p50_interval_s", "p99_interval_s"):
        step[name] = [None if end is None else 2 * end for end in step[name]]
    paths[1].write_text(json.dumps(record))
    return str(paths[0]), str(paths[1])


def correlated(n_runs: int, n: int, memory: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Times (n, runs) of first-order processes on a logarithmic scale; the median is 1."""
    share = math.exp(-1 / memory) if memory else 0.0
    noise = np.random.default_rng(0).normal(size=(n, n_runs)) * math.sqrt(1 - share**2)
    values = noise.copy()
    values[0] /= math.sqrt(1 - share**2)
    for index in range(1, n):
        values[index] += share * values[index - 1]
    return np.asarray(np.exp(values))


@pytest.mark.parametrize("memory", [0, 10, 50])  # calls after which the likeness has fallen to 1/e
def test_the_interval_covers_the_quantile_of_calls_that_resemble_their_neighbours(
    memory: float,
) -> None:
    times = correlated(100, 10_000, memory)  # as many as a profile's updates
    for share, truth in ((0.5, 1.0), (0.9, math.exp(1.2815516))):
        covered = 0
        for run in times.T:
            low, high = quantile_interval(run, share) or (None, None)
            covered += (low or 0) <= truth <= (high or math.inf)
        assert covered >= 88  # 95 promised; 88 is what 95 % give in 999 of 1,000 sets of 100


def test_an_end_beyond_what_was_seen_is_open_and_few_calls_have_no_interval() -> None:
    times = correlated(1, 120, 0)[:, 0]
    found = quantile_interval(times, 0.99)
    assert found is not None and found[0] is not None and found[1] is None
    assert quantile_interval(times[:9], 0.5) is None


def test_calls_that_all_take_the_same_time_have_an_interval_of_no_width() -> None:
    assert quantile_interval(np.ones(100), 0.5) == (1.0, 1.0)


@pytest.mark.long
def test_a_ratio_of_a_record_to_itself_is_one_within_its_interval(record: dict[str, Any]) -> None:
    ratios = {ratio.name: ratio for ratio in compare(record, record)}
    assert {"update.p50", "update.p99", "row.p50", "needed"} <= set(ratios)
    for ratio in ratios.values():
        assert ratio.ratio == 1
        assert (ratio.low or 0) <= 1 <= (ratio.high or math.inf)
    assert ratios["needed"].low is None and ratios["needed"].base.exact


def test_the_interval_of_a_ratio_is_wider_than_either_and_narrower_than_both(
    record: dict[str, Any],
) -> None:
    step = record["latency"][0]
    step["p50_s"], step["p50_interval_s"] = 1.0, [1 / 1.1, 1.1]
    (ratio,) = (r for r in compare(record, record) if r.name == "update.p50")
    width = math.log(1.1) * math.sqrt(2)  # two errors of one size, on a logarithmic scale
    assert (ratio.low, ratio.high) == pytest.approx((math.exp(-width), math.exp(width)))


def test_the_interval_of_a_ratio_covers_the_truth() -> None:
    times, covered = correlated(200, 2000, 10), 0
    for one, other in zip(times.T[:100], times.T[100:], strict=True):
        records = [fake(float(np.median(run)), quantile_interval(run, 0.5)) for run in (one, other)]
        (ratio,) = (r for r in compare(*records) if r.name == "update.p50")
        assert ratio.low is not None and ratio.high is not None
        covered += ratio.low <= 1 <= ratio.high
    assert covered >= 88  # as above


def fake(median_s: float, interval: Any) -> dict[str, Any]:
    """The least of a profile that has one figure with an interval."""
    times = dict.fromkeys(("p90_s", "p99_s", "p999_s", "max_s", "mean_s"))
    step = {"name": "update", "n": 9, "n_late": 0, "p50_s": median_s, **times}
    sizes = dict.fromkeys(("needed_bytes", "needed_growth_bytes", "resident_peak_bytes"), 1)
    well = {"range_bytes": None, "reason": "none"}
    survey = {"gpu": {"memory_bytes": None, "reason": "none"}}
    return {
        "latency": [{**step, "p50_interval_s": interval}],
        "memory": {**sizes, "to_run_well": well, "survey": survey},
        "energy": {"steps": [], "sensor": None},
        "bundle": {"open_s": 1.0},
        "conditions": {},
    }


def test_the_table_shows_ratios_and_says_what_is_more(pair: tuple[str, str], capsys: Text) -> None:
    assert main(["compare", *pair]) == ExitCode.DONE
    (line,) = (t for t in capsys.readouterr().out.splitlines() if t.startswith("  update.p50"))
    assert " 2.000 " in line and " to " in line


def test_a_tolerance_makes_a_gate_of_it(pair: tuple[str, str], tmp_path: Path) -> None:
    record = json.loads(Path(pair[0]).read_text())
    step = record["latency"][0]
    step["p50_interval_s"] = [step["p50_s"] * 0.99, step["p50_s"] * 1.01]
    Path(pair[0]).write_text(json.dumps(record))
    words = ["compare", *pair, "--tolerance"]
    assert main([*words, "900%"]) == ExitCode.DONE
    record["memory"]["needed_bytes"] *= 2
    larger = tmp_path / "larger.json"
    larger.write_text(json.dumps(record))
    assert main(["compare", pair[0], str(larger), "--tolerance", "50%"]) == ExitCode.WRONG_RESULT


CHANGES: list[tuple[str, str, Any]] = [
    ("conditions", "board", "a board"),
    ("conditions", "cpu_model", "Cortex-A76"),
    ("conditions", "n_cores", 1000),
    ("conditions", "frequency_governor", "a governor"),
    ("conditions", "power_mode", {"name": "15W"}),
    ("conditions", "cpu_clocks", [{"governor": "g", "min_hz": 1e9, "max_hz": 2e9}]),
    ("conditions", "backend", {"name": "tensorrt", "device": "Orin"}),
    ("options", "threads", 7),
    ("bundle", "precision", "int8"),
    ("bundle", "n_streams", 3),
    ("energy", "replay", "power.csv"),
]


@pytest.mark.parametrize(("part", "name", "value"), CHANGES)
def test_unlike_conditions_are_refused_unless_asked_for(
    part: str,
    name: str,
    value: object,
    record: dict[str, Any],
    tmp_path: Path,
    capsys: Text,
) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    paths[0].write_text(json.dumps(record))
    record[part] = {**record[part], name: value}
    paths[1].write_text(json.dumps(record))
    words = ["compare", *map(str, paths)]
    assert main(words) == ExitCode.REFUSED
    assert capsys.readouterr().out == ""
    out = tmp_path / "c.json"
    assert main([*words, "--anyway", "--json", str(out)]) == ExitCode.DONE
    (comparison,) = json.loads(out.read_text())["comparisons"]
    assert comparison["unlike"] and all(t in capsys.readouterr().out for t in ("NOT ALIKE",))


@pytest.mark.parametrize("verdict", ["disturbed", "unsteady"])
def test_a_disturbed_record_does_not_compare(
    verdict: str, record: dict[str, Any], pair: tuple[str, str], tmp_path: Path
) -> None:
    record["validity"] = {"verdict": verdict, "reasons": ["heat"]}
    path = tmp_path / "hot.json"
    path.write_text(json.dumps(record))
    for words in ([pair[0], str(path)], [str(path), pair[0]]):
        assert main(["compare", *words]) == ExitCode.REFUSED
        assert main(["compare", *words, "--anyway"]) == ExitCode.DONE
    record["validity"]["verdict"] = "unknown"  # of a machine that tells nothing
    assert not unsettled(record) and not unlike(record, record)


def test_another_bundle_is_what_one_compares(
    pair: tuple[str, str], record: dict[str, Any], tmp_path: Path
) -> None:
    record["bundle"]["hash"] = "0" * 64
    path, out = tmp_path / "new.json", tmp_path / "c.json"
    path.write_text(json.dumps(record))
    assert main(["compare", pair[0], str(path), "--json", str(out)]) == ExitCode.DONE
    (comparison,) = json.loads(out.read_text())["comparisons"]
    assert comparison["changed"][0].startswith("bundle: ") and not comparison["unlike"]


def test_budgets_compare_too(tiny_bundle: Path, bundles: Path, tmp_path: Path) -> None:
    paths = []
    for name in ("tiny", "foreign"):
        paths.append(str(tmp_path / f"{name}.json"))
        words = ["budget", str(bundles / name), "--device", "raspberry-pi-5"]
        assert main([*words, "--json", paths[-1]]) == 0
    out = tmp_path / "c.csv"
    assert main(["compare", *paths, "--csv", str(out)]) == ExitCode.DONE
    rows = {row["figure"]: row for row in csv.DictReader(out.read_text().splitlines())}
    assert float(rows["arrival.at_most"]["ratio"]) == pytest.approx(1)  # weights cost nothing
    assert {"needed", "update.at_least"} <= set(rows)


def test_a_profile_and_a_budget_do_not_compare(
    pair: tuple[str, str], tiny_bundle: Path, tmp_path: Path
) -> None:
    other = str(tmp_path / "budget.json")
    words = ["budget", str(tiny_bundle), "--device", "raspberry-pi-5", "--json", other]
    assert main(words) == 0
    assert main(["compare", pair[0], other]) == ExitCode.REFUSED


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"latency": [], "conditions": {}}', "\xff"])
def test_what_is_no_record_is_refused(text: str, pair: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text, encoding="latin-1")
    assert main(["compare", pair[0], str(path)]) == ExitCode.REFUSED


def test_a_record_of_another_command_is_not_called_one_of_another_version(tmp_path: Path) -> None:
    path = tmp_path / "check.json"
    path.write_text('{"schema": 1, "passed": true, "rows": []}')
    with pytest.raises(DataError) as refused:
        read_record(path)
    assert refused.value.__cause__ is None  # no field was missed


# Other forms --------------------------------------------------------------------------------------


def test_the_csv_has_every_figure_in_si_units(measured: str) -> None:
    folder = Path(json.loads(measured)["files"])
    record = json.loads((folder / "profile.json").read_text())
    text = (folder / "profile.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    named = {row["figure"]: row for row in rows}
    assert len(named) == len(rows)
    update = record["latency"][0]
    assert float(named["update.p50"]["value"]) == update["p50_s"]
    ends = [named["update.p50"][end] for end in ("low", "high")]
    assert [float(end) if end else None for end in ends] == update["p50_interval_s"]
    assert named["update.p999"]["value"] == "" and named["update.p999"]["reason"]


METRIC = re.compile(r'(edgefold_[a-z_]+)\{((?:[a-z_]+="[^"\\\n]*",?)+)\} (-?[0-9.e+-]+)')


def test_the_prometheus_text_follows_the_exposition_format(measured: str) -> None:
    text = (Path(json.loads(measured)["files"]) / "profile.prometheus").read_text()
    assert text.endswith("\n")
    kinds: dict[str, str] = {}
    seen: list[tuple[str, str]] = []
    current = ""
    for line in text.splitlines():
        if line.startswith("# HELP"):
            current = line.split()[2]
            assert current not in kinds  # all lines of a metric stand together
        elif line.startswith("# TYPE"):
            _, _, name, kinds[current] = line.split()
            assert name == current
        else:
            found = METRIC.fullmatch(line)
            assert found, line
            assert re.sub("_(sum|count)$", "", found[1]) == current
            float(found[3])
            seen.append((found[1], found[2]))
    assert len(set(seen)) == len(seen)
    units = ("_seconds", "_bytes", "_ratio", "_joules", "_info", "_passed")
    assert all(name.endswith(units) for name in kinds)
    assert kinds["edgefold_step_latency_seconds"] == "summary"


def test_the_ratios_have_a_prometheus_form_too(pair: tuple[str, str], tmp_path: Path) -> None:
    out = tmp_path / "c.prom"
    assert main(["compare", *pair, "--prometheus", str(out)]) == 0
    lines = [line for line in out.read_text().splitlines() if 'figure="update.p50"' in line]
    found = [METRIC.fullmatch(line) for line in lines]
    assert [match[1] for match in found if match] == [
        "edgefold_compare_ratio",
        "edgefold_compare_low_ratio",
        "edgefold_compare_high_ratio",
    ]
    assert found[0] and float(found[0][3]) == pytest.approx(2)
