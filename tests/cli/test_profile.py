from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.main import main
from edgefold.cli.plots.matplotlib_check import NEWER
from edgefold.cli.text.numbers import format_bytes, format_time
from edgefold.cli.text.profile import table
from edgefold.devices.profile.latency import Timer, summarise, timeline
from edgefold.devices.profile.profile import N_FILES

Text = pytest.CaptureFixture[str]
FIGURES = ("latency-over-stream", "latency-distribution", "memory-over-stream", "memory-parts")
STEPS = ("update", "update_bare", "condition", "refresh", "query", "query_wide", "row")


@pytest.fixture(scope="module")
def record(bundles: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A short profile, as the command writes it."""
    path = tmp_path_factory.mktemp("profile") / "profile.json"
    words = ["profile", str(bundles / "tiny"), "--updates", "1200", "--queries", "200"]
    assert main([*words, "--json", str(path)]) == 0
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


@pytest.mark.long
def test_every_step_has_its_quantiles(record: dict[str, Any]) -> None:
    steps = {step["name"]: step for step in record["latency"]}
    assert tuple(steps) == STEPS
    assert steps["update"]["n"] == steps["update_bare"]["n"] == 1200
    assert steps["query"]["n"] == steps["row"]["n"] == 200
    assert steps["condition"]["n_points"] == 8
    for step in steps.values():
        assert 0 < step["p50_s"] <= step["p90_s"] <= step["max_s"]
        assert sum(step["counts"]) == step["n"]
    assert steps["update"]["p999_s"] is not None
    assert steps["query"]["p999_s"] is None  # 200 calls do not show one in a thousand


def test_memory_is_told_as_planned_and_as_measured(record: dict[str, Any]) -> None:
    memory = record["memory"]
    assert memory["plan"]["total_bytes"] > 0
    samples = [sample["needed_bytes"] for sample in memory["samples"]]
    assert memory["needed_bytes"] >= max(samples) > memory["plan"]["total_bytes"]
    assert memory["needed_growth_bytes"] == samples[-1] - samples[0]
    assert memory["n_readings"] == len(samples) + len(memory["stages"])
    predicted = memory["predicted"]
    assert predicted["complete"] and predicted["needed_bytes"] < predicted["to_run_well_bytes"]
    well = memory["to_run_well"]
    if well["range_bytes"] is None:  # a kernel before 5.4
        assert well["reason"]
    else:
        low, high = well["range_bytes"]
        assert memory["needed_bytes"] < low <= high and well["kept_bytes"] >= 0
    assert memory["resident_peak_bytes"] > 0 < memory["resident_peak_open_bytes"]
    assert memory["samples"][-1]["n_updates"] == 1200
    assert len(memory["stages"]) == 5


def test_the_files_beside_the_process_are_told_with_the_largest(record: dict[str, Any]) -> None:
    files = record["memory"]["files"]
    largest = files["largest"]
    for one in (files, *largest):
        assert 0 <= one["touched_bytes"] <= one["resident_bytes"] <= one["mapped_bytes"]
    assert files["touched_bytes"] > 0 and len(largest) == N_FILES
    assert any("onnxruntime" in file["path"] for file in largest)


def test_the_record_carries_its_conditions(record: dict[str, Any]) -> None:
    conditions = record["conditions"]
    for name in ("date", "cpu_model", "n_cores", "load_average", "python", "numpy", "onnxruntime"):
        assert conditions[name] is not None
    assert conditions["backend"]["name"] == "onnxruntime"
    assert len(record["bundle"]["hash"]) == 64
    assert record["options"]["rate_hz"] == 50


def test_energy_is_a_figure_or_a_reason(record: dict[str, Any]) -> None:
    energy = record["energy"]
    assert [c["kind"] for c in energy["candidates"]][:2] == ["INA238", "INA3221"]
    if energy["sensor"] is None:
        assert energy["update"] is None and energy["query"] is None
        shown = table(record)
        assert "unavailable: no sensor" in shown
        for candidate in energy["candidates"]:
            assert candidate["reason"] in shown


def test_the_table_says_which_backends_auto_tried_and_why_they_refused(
    record: dict[str, Any],
) -> None:
    backend: dict[str, Any] = {"asked": "auto", "name": "onnxruntime", "device": "cpu"}
    backend["version"] = "1.2"
    backend["refused"] = {"tensorrt": "no driver"}
    changed = {**record, "conditions": {**record["conditions"], "backend": backend}}
    line = "backend  onnxruntime 1.2 on cpu, 1 thread(s) (auto; tensorrt refused: no driver)"
    assert line in table(changed)
    backend["refused"] = {}
    assert "backend  onnxruntime 1.2 on cpu, 1 thread(s)\n" in table(changed)


@pytest.mark.parametrize(
    "words", [["--energy-error", "0"], ["--energy-seconds", "nan"], ["--rate", "-1"]]
)
def test_a_number_that_is_not_positive_is_wrong_usage(words: list[str], capsys: Text) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["profile", "no such bundle", *words])
    assert f"argument {words[0]}: " in capsys.readouterr().err


def test_a_recording_that_cannot_be_read_is_told_before_measuring(
    tmp_path: Path, capsys: Text
) -> None:
    assert main(["profile", "no such bundle", "--power-replay", str(tmp_path / "none.csv")]) == 1
    assert "none.csv cannot be read" in capsys.readouterr().err


def test_the_recording_is_not_replaced_by_the_record(tmp_path: Path, capsys: Text) -> None:
    path = tmp_path / "profile.json"
    path.write_text('{"time_s": [0, 1], "power_w": [5, 6]}')
    with pytest.raises(SystemExit, match="2"):
        main(["profile", "no such bundle", "--power-replay", str(path), "--json", str(path)])
    assert f"--json would replace {path}" in capsys.readouterr().err
    assert path.read_text().startswith('{"time_s"')


@pytest.mark.parametrize(("n_streams", "end"), [(1, ", int8"), (3, ", int8, 3 streams")])
def test_the_precision_and_several_streams_stand_beside_the_model(
    n_streams: int, end: str, record: dict[str, Any]
) -> None:
    assert record["bundle"]["precision"] == "float32"
    bundle = {**record["bundle"], "precision": "int8", "n_streams": n_streams}
    assert table({**record, "bundle": bundle}).splitlines()[0].endswith(end)


def test_the_table_shows_every_step_and_figure(record: dict[str, Any]) -> None:
    text = table(record)
    for step in record["latency"]:
        assert step["what"] in text
    for words in (
        "p99.9",
        "late at 50 Hz",
        "planned",
        "needed",
        "to run well",
        "looks like",
        "growth",
        "energy",
    ):
        assert words in text


def test_quantiles_misses_and_bins_of_known_latencies() -> None:
    taken_ns = np.arange(1, 1001, dtype=np.int64) * 1000  # 1 to 1000 us
    latency = summarise("step", "a step", 1, taken_ns, rate_hz=2000)
    assert latency.p50_s == pytest.approx(500.5e-6)
    assert latency.p99_s == pytest.approx(990.01e-6)
    assert latency.max_s == pytest.approx(1e-3)
    assert latency.n_late == 500  # longer than 500 us
    assert sum(latency.counts) == 1000
    line = timeline(taken_ns)
    assert line.calls[0] == 10 and line.calls[-1] == 1000 and len(line.calls) == 100
    assert line.max_s[-1] == pytest.approx(1e-3)


def test_a_timer_keeps_its_latencies_in_order() -> None:
    timer = Timer(5)
    called: list[int] = []
    for i in range(3):
        timer.time(lambda i=i: called.append(i))  # type: ignore[misc]
    assert called == [0, 1, 2]
    assert len(timer.taken_ns) == 3 and (timer.taken_ns > 0).all()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (2.5, "2.5 s"), (0.0123, "12.3 ms"), (5.6e-5, "56 µs"), (7e-7, "700 ns")],
)
def test_times_have_three_digits_and_a_unit(seconds: float | None, text: str) -> None:
    assert format_time(seconds) == text


def test_bytes_have_a_unit() -> None:
    assert [format_bytes(n) for n in (0, -8192, 80.1e6, 25.3e9)] == [
        "0 kB",
        "-8.2 kB",
        "80.1 MB",
        "25.3 GB",
    ]


def test_a_missing_matplotlib_is_told_before_measuring(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Text
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    html = tmp_path / "p.html"
    assert main(["profile", "no such bundle", "--html", str(html)]) == ExitCode.MACHINE
    assert "pip install 'edgefold[report]'" in capsys.readouterr().err
    assert not html.exists()


def test_a_matplotlib_that_does_not_import_is_told_before_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Text
) -> None:
    package = tmp_path / "matplotlib"
    package.mkdir()
    (package / "__init__.py").write_text(
        "raise ImportError('numpy.core.multiarray failed to import')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    html = tmp_path / "p.html"
    assert main(["profile", "no such bundle", "--html", str(html)]) == ExitCode.MACHINE
    said = capsys.readouterr().err
    assert "numpy.core.multiarray failed to import" in said and NEWER in said
    assert not html.exists()


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_a_place_that_cannot_be_written_is_told_before_measuring(
    option: str, tmp_path: Path, capsys: Text
) -> None:
    for place in (tmp_path / "none" / "p", tmp_path):
        assert main(["profile", "no such bundle", option, str(place)]) == 1
        error = capsys.readouterr().err
        assert str(place.parent) in error and error.count("\n") == 1


@pytest.mark.parametrize("stdout_is_gone", [False, True])
def test_neither_a_page_that_fails_nor_a_terminal_that_is_gone_costs_the_other(
    stdout_is_gone: bool,
    record: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Text,
) -> None:
    def answer(text: str) -> Callable[..., str]:
        def called(*_: object) -> str:
            if text:
                return text
            raise OSError(28, "No space left on device")

        return called

    pytest.importorskip("matplotlib", reason="pip install 'edgefold[report]' for the HTML report")
    monkeypatch.setattr("edgefold.devices.profile.profile.Measurement.run", lambda self: record)
    monkeypatch.setattr(
        "edgefold.cli.plots.html_page.render", answer("a page" if stdout_is_gone else "")
    )
    if stdout_is_gone:
        monkeypatch.setattr("edgefold.cli.commands.profile.table", answer(""))
    html = tmp_path / "profile.html"
    assert main(["profile", "a bundle", "--html", str(html)]) == ExitCode.MACHINE
    assert html.exists() == stdout_is_gone
    assert ("latency" in capsys.readouterr().out) != stdout_is_gone


# The page -----------------------------------------------------------------------------------------


def test_nothing_on_the_page_is_wider_than_a_telephone() -> None:
    pytest.importorskip("matplotlib", reason="pip install '.[report]' for the HTML report")
    from edgefold.cli.plots.html_page import CSS

    columns = re.findall(r"minmax\((.*?), 1fr\)", CSS)
    assert len(columns) == 2
    for least in columns:  # 320 px is the narrowest telephone, 16 px its margins
        assert re.fullmatch(r"min\(\d+px, 100%\)", least) or int(least.removesuffix("px")) <= 288


@pytest.fixture(scope="module")
def page(record: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("matplotlib", reason="pip install 'edgefold[report]' for the HTML report")
    from edgefold.cli.plots.html_page import render

    path = tmp_path_factory.mktemp("page") / "profile.html"
    path.write_text(render(record))
    return path


@pytest.fixture(scope="module")
def replayed(bundles: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record of a profile whose power comes from a recording, sampled faster than a sensor."""
    folder = tmp_path_factory.mktemp("replay")
    power, path = folder / "power.csv", folder / "profile.json"
    rows = (f"{0.005 * n:.3f},{5 + n % 7 / 100}\n" for n in range(500))
    power.write_text("time_s,power_w\n" + "".join(rows))
    words = ["profile", str(bundles / "tiny"), "--updates", "200", "--queries", "20"]
    words += ["--power-replay", str(power), "--energy-seconds", "3", "--json", str(path)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edgefold.devices.power.sampler.MIN_PERIOD_S", 0.005)
        patch.setattr("edgefold.devices.power.energy.MAX_MISSED", 1.0)  # runners may be busy
        patch.setattr("edgefold.devices.power.energy.SETTLE_S", 0.01)
        patch.setattr("edgefold.devices.power.energy.MIN_WINDOW_S", 0.25)
        assert main(words) == 0
    return path


@pytest.mark.long
def test_a_replay_is_never_taken_for_a_measurement(replayed: Path) -> None:
    record = json.loads(replayed.read_text())
    energy = record["energy"]
    assert energy["replay"].endswith("power.csv") and energy["sensor"].startswith("replay of")
    assert energy["reason"] is None
    for name in ("update", "query"):
        assert energy[name]["n_calls"] > 0 and energy[name]["standard_error_j"] > 0
    assert f"REPLAY of {energy['replay']}: not a measurement of this machine" in table(record)


@pytest.mark.long
def test_the_page_shows_power_over_time_and_the_parts_of_the_error(replayed: Path) -> None:
    pytest.importorskip("matplotlib", reason="pip install 'edgefold[report]' for the HTML report")
    from edgefold.cli.plots.html_page import render

    record = json.loads(replayed.read_text())
    text = render(record)
    assert 'id="power-over-time"' in text
    for word in ("REPLAY", "sampling", "idle", "drift", "quantisation", "edges", "unresolved"):
        assert word in text


@pytest.mark.long
def test_the_page_says_which_backends_refused(record: dict[str, Any]) -> None:
    pytest.importorskip("matplotlib", reason="pip install 'edgefold[report]' for the HTML report")
    from edgefold.cli.plots.html_page import render

    conditions = record["conditions"]
    backend = {**conditions["backend"], "refused": {"tensorrt": "no <driver>"}}
    text = render({**record, "conditions": {**conditions, "backend": backend}})
    assert "tensorrt refused: no &lt;driver&gt;" in text


@pytest.mark.long
def test_a_page_without_energy_tells_every_reason(record: dict[str, Any]) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, of the report extra, is not installed")
    from edgefold.cli.plots.html_page import render

    candidates: list[dict[str, Any]] = [
        {"kind": kind, "opened": False, "reason": f"no {kind} here"} for kind in ("RAPL", "PMIC")
    ]
    none = {"sensor": None, "update": None, "query": None, "reason": "no sensor", "replay": None}
    energy = {key: value for key, value in record["energy"].items() if key != "samples"}
    energy |= {**none, "candidates": candidates}
    text = render({**record, "energy": energy})
    assert 'id="power-over-time"' not in text
    assert "this machine shows no power sensor" in text
    for candidate in candidates:
        assert candidate["reason"] in text
    refused = render({**record, "energy": {**energy, "sensor": "RAPL", "reason": "too short"}})
    assert "the sensor gave no figure" in refused and "too short" in refused


def test_the_page_stands_alone(page: Path) -> None:
    text = page.read_text()
    assert "<script" not in text and "@import" not in text
    assert not re.findall(r'(?:src|href)="(?!#)', text)
    ids = re.findall(r'\bid="([^"]+)"', text)
    for figure in FIGURES:
        assert f'id="{figure}"' in text
    assert len(ids) == len(set(ids))  # a figure must not clip by another's path


CHROMIUM = next(
    (
        path
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (path := shutil.which(name))
    ),
    None,
)


def chromium(profile: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    assert CHROMIUM is not None
    switches = (
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    )
    return subprocess.run(
        [CHROMIUM, *switches, f"--user-data-dir={profile}", *words],
        capture_output=True,
        check=True,
        timeout=120,
    )


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
def test_a_browser_renders_every_figure_and_number(
    page: Path, record: dict[str, Any], tmp_path: Path
) -> None:
    dom = chromium(tmp_path / "a", "--dump-dom", page.as_uri()).stdout.decode()
    shown = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", dom))
    for figure in FIGURES:
        svg = re.search(rf'<svg id="{figure}".*?</svg>', dom, re.DOTALL)
        assert svg is not None and svg[0].count("<path") > 5 and "<text" in svg[0]
    for step in record["latency"]:
        assert step["what"] in shown and format_time(step["p50_s"]) in shown
    memory = record["memory"]
    for n_bytes in (memory["needed_bytes"], memory["resident_peak_bytes"]):
        assert format_bytes(n_bytes) in shown
    assert record["bundle"]["hash"][:16] in shown
    assert record["conditions"]["cpu_model"] in shown


@pytest.mark.long
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
def test_a_screenshot_is_no_empty_page(page: Path, tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image")
    png = tmp_path / "page.png"
    chromium(tmp_path / "a", "--window-size=1280,1650", f"--screenshot={png}", page.as_uri())
    pixels = image.imread(png)[..., :3]  # (height, width, 3), 0 to 1
    assert pixels.shape[:2] == (1650, 1280)
    rows, columns = pixels.shape[0] // 2, pixels.shape[1] // 2
    ink = np.abs(pixels - pixels[2, 2]).max(-1) > 0.2
    for part in (ink[:rows, :columns], ink[:rows, columns:], ink[rows:, :columns], ink[rows:]):
        assert part.mean() > 0.005
    coloured = np.ptp(pixels, axis=-1) > 0.3
    assert coloured[300:1000].mean() > 0.005  # curves and bars, where the four figures stand
