"""`edgefold profile --paced`: options, table and page; how it measures is tested elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.main import main
from edgefold.cli.text.paced import crossing_sentence, paced_lines
from edgefold.devices.profile.paced import PacedOptions, measure_paced
from tests.devices.paced_bench import Device, PacedBench

Text = pytest.CaptureFixture[str]
CPU = Device(work_s=8e-3, work_w=2.5)
GPU = Device(work_s=2e-3, work_w=3.0, awake_s=0.25, awake_w=0.6)  # crosses the CPU at 43 Hz


def simulated(**changes: Any) -> dict[str, Any]:
    """The paced part of two backends on a virtual board."""
    bench = replace(PacedBench({"onnxruntime": CPU, "tensorrt": GPU}), **changes)
    record = measure_paced(
        {name: bench.call(name) for name in bench.devices},
        {"onnxruntime": {"device": "cpu"}, "tensorrt": {"device": "gpu"}},
        PacedOptions((2.0, 20.0, 80.0), (), 10.0),
        lambda line: None,
        bench.surroundings(),
    )
    return record | {"refused": {}}


@pytest.fixture(scope="module")
def paced() -> dict[str, Any]:
    return simulated(noise_w=0.02)


@pytest.fixture(scope="module")
def profiled(bundles: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the command writes on this machine: two rates, one backend twice."""
    path = tmp_path_factory.mktemp("paced") / "profile.json"
    words = ["profile", str(bundles / "tiny"), "--updates", "100", "--queries", "20"]
    words += ["--energy-seconds", "0.1", "--paced", "50,200", "--paced-seconds", "0.3"]
    assert main([*words, "--json", str(path)]) == 0
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


@pytest.mark.long
def test_the_record_has_a_run_of_each_rate(profiled: dict[str, Any]) -> None:
    paced = profiled["paced"]
    assert (paced["what"], paced["rates_hz"], paced["seconds"]) == ("row", [50, 200], 0.3)
    assert not paced["interrupted"] and paced["refused"] == {} and paced["crossings"] == []
    assert [run["rate_hz"] for run in paced["runs"]] == [50, 200]
    for run in paced["runs"]:
        assert run["latency"]["n"] > 0 and run["latency"]["from_due"]["max_s"] > 0
        assert run["cpu_share"] > 0 and run["n_blocks"] == 4
    assert paced["backends"]["onnxruntime"]["name"] == "onnxruntime"


def test_the_table_shows_every_run_and_the_crossing(paced: dict[str, Any]) -> None:
    text = "\n".join(paced_lines(paced))
    for rate in ("2 Hz", "20 Hz", "80 Hz"):
        assert text.count(f" {rate}  ") >= 4  # latency and energy of both
    assert "onnxruntime" in text and "above idle" in text and "too few for p99" in text
    crossing = paced["crossings"][0]
    assert crossing["verdict"] == "crossing"
    assert f"from {crossing['rate_hz']:.3g} Hz on, tensorrt needs less power" in text


@pytest.mark.parametrize("verdict", ["one", "part", "mixed", "unclear", "none"])
def test_every_verdict_has_a_sentence_that_names_both_backends(verdict: str) -> None:
    differences = [{"rate_hz": 1.0, "less": "a1"}, {"rate_hz": 7.0, "less": None}]
    crossing = {"a": "a1", "b": "b2", "verdict": verdict, "less": "a1", "reason": "no sensor"}
    sentence = crossing_sentence({**crossing, "differences": differences})
    assert "a1" in sentence and "b2" in sentence and "less power" in sentence


def test_what_could_not_be_measured_is_told(paced: dict[str, Any]) -> None:
    none = {"sensor": None, "reason": "no meter", "interrupted": True}
    runs = [{**run, "energy": None} for run in paced["runs"]]
    refused = {"onnxruntime-cuda": "there is no such provider"}
    text = "\n".join(paced_lines({**paced, **none, "runs": runs, "refused": refused}))
    for words in ("ended by Ctrl-C", "power unavailable", "onnxruntime-cuda: there is no such"):
        assert words in text


@pytest.mark.long
def test_a_backend_that_does_not_open_is_told_and_fails_after_the_rest_is_kept(
    tiny_bundle: Path, tmp_path: Path, capsys: Text
) -> None:
    path = tmp_path / "profile.json"
    words = ["profile", str(tiny_bundle), "--updates", "20", "--queries", "5", "--json", str(path)]
    words += ["--energy-seconds", "0.1", "--paced", "100", "--paced-seconds", "0.1"]
    words += ["--paced-backend", "onnxruntime", "--paced-backend", "onnxruntime-cuda"]
    assert main(words) != 0
    out, error = capsys.readouterr()
    assert "not measured: onnxruntime-cuda" in out and "not paced" in error
    paced = json.loads(path.read_text())["paced"]
    assert list(paced["refused"]) == ["onnxruntime-cuda"]
    assert [run["backend"] for run in paced["runs"]] == ["onnxruntime"]


@pytest.mark.long
def test_an_interrupted_measurement_is_printed_and_ends_as_interrupted(
    profiled: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: Text
) -> None:
    cut = simulated(interrupt_at_s=60.0)
    assert cut["interrupted"]
    run = "edgefold.devices.profile.profile.Measurement.run"
    whole = {key: part for key, part in profiled.items() if key != "paced"}
    monkeypatch.setattr(run, lambda self: whole)
    monkeypatch.setattr("edgefold.devices.profile.paced.measure_bundle", lambda *_: cut)
    assert main(["profile", "a bundle", "--paced", "2"]) == 130
    assert "ended by Ctrl-C" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["--paced", "0"],
        ["--paced", "10,-1"],
        ["--paced", "nan"],
        ["--paced", "fast"],
        ["--paced", "1e6"],
        ["--paced-seconds", "5"],
        ["--paced-backend", "onnxruntime"],
        ["--paced", "5", "--paced-seconds", "0"],
        ["--paced", "5", "--paced-backend", "onnxruntime:none"],
        ["--paced", "5", "--paced-backend", "onnxruntime", "--paced-backend", "onnxruntime"],
    ],
)
def test_wrong_options_are_told_before_measuring(words: list[str], capsys: Text) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["profile", "no such bundle", *words])
    assert "--paced" in capsys.readouterr().err


def test_an_unknown_backend_is_told_before_measuring(tiny_bundle: Path, capsys: Text) -> None:
    words = ["profile", str(tiny_bundle), "--paced", "5", "--paced-backend", "abacus"]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == ExitCode.USAGE
    assert "abacus" in capsys.readouterr().err


@pytest.mark.long
def test_the_page_shows_latency_and_power_by_rate(
    profiled: dict[str, Any], paced: dict[str, Any]
) -> None:
    pytest.importorskip("matplotlib", reason="pip install 'edgefold[report]' for the HTML report")
    from edgefold.cli.plots.html_page import render

    text = render({**profiled, "paced": paced})
    assert 'id="paced-latency"' in text and 'id="paced-power"' in text
    assert 'id="paced-clocks"' not in text  # the bench shows none
    assert crossing_sentence(paced["crossings"][0]) in text
    clocks = {"cpu": [{"frequency_hz": 7e8, "n": 2}], "gpu": [{"frequency_hz": 0, "n": 1}]}
    runs = [{**run, "energy": None, "clocks": clocks} for run in paced["runs"]]
    text = render({**profiled, "paced": {**paced, "runs": runs}})
    assert 'id="paced-clocks"' in text and 'id="paced-power"' not in text
    assert 'id="paced' not in render({key: profiled[key] for key in profiled if key != "paced"})
    nothing = render({**profiled, "paced": {**paced, "runs": []}})
    assert 'id="paced' not in nothing  # interrupted before the first arrival
