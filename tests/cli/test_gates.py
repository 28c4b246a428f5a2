from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.main import main
from edgefold.cli.records.figures import figures_of, names_of
from edgefold.cli.records.gates import judge_gates, parse_gate
from edgefold.runtime.bundle.manifest_file import load_manifest

Text = pytest.CaptureFixture[str]
SHORT = ("--updates", "400", "--queries", "40", "--energy-seconds", "0.1")


@pytest.fixture(scope="module")
def profile(bundles: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record of a short profile."""
    path = tmp_path_factory.mktemp("gates") / "profile.json"
    assert main(["profile", str(bundles / "tiny"), *SHORT, "--json", str(path)]) == 0
    return path


def validity(verdict: str, *reasons: str) -> dict[str, Any]:
    return {"verdict": verdict, "reasons": list(reasons), "untold": [], "blocks": []}


@pytest.fixture
def record(profile: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(profile.read_text())
    loaded["validity"] = validity("valid")  # the machine under test may be busy
    return loaded


@pytest.fixture
def replayed(
    profile: Path, record: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """Let the command return the record instead of measuring."""
    monkeypatch.setattr("edgefold.devices.profile.profile.Measurement.run", lambda self: record)
    return record


@pytest.mark.parametrize(
    ("text", "gate"),
    [
        ("update.p99 > 2ms", ("update.p99", ">", 2e-3)),
        ("update.p99>=2.5us", ("update.p99", ">=", 2.5e-6)),
        (" needed > 60MB ", ("needed", ">", 60e6)),
        ("needed > 64 MiB", ("needed", ">", 64 * 2**20)),
        ("update.late > 1%", ("update.late", ">", 0.01)),
        ("row.late > 0", ("row.late", ">", 0.0)),
        ("query.energy > 3µJ", ("query.energy", ">", 3e-6)),
        ("update.p50 < 1e-6 s", ("update.p50", "<", 1e-6)),
    ],
)
def test_a_gate_is_read_with_its_unit(text: str, gate: tuple[str, str, float]) -> None:
    found = parse_gate(text)
    assert (found.text, found.name, found.comparison) == (text, *gate[:2])
    assert found.bound == pytest.approx(gate[2])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "update.p99",
        "update.p99 > ",
        "update.p99 > fast",
        "update.p99 > 2",  # of what?
        "update.p99 > 2MB",
        "update.late > 5",
        "needed > 60ms",
        "needed == 60MB",
        "p99 > 2ms",
        "update.p98 > 2ms",
        "update.p99 > 1e999ms",
        "update.p99 > nan ms",
        "update.p99 > -2ms",
    ],
)
def test_what_is_no_gate_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_gate(text)


@pytest.mark.parametrize("bundle", ["tiny", "scaled"])
def test_the_names_that_are_promised_are_those_of_the_record(bundle: str, bundles: Path) -> None:
    path = bundles / bundle
    steps = {graph.step for graph in load_manifest(path).graphs.values()}
    from edgefold.devices.profile.profile import Measurement
    from edgefold.devices.profile.record import ProfileOptions

    options = ProfileOptions(n_updates=20, n_queries=20)
    record = Measurement(str(path), options, lambda line: None).run()
    assert sorted(names_of(steps)) == sorted(figures_of(record))


def test_a_figure_that_the_bundle_lacks_is_wrong_usage_before_anything_is_measured(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: Text
) -> None:
    monkeypatch.setattr("edgefold.devices.profile.profile.Measurement.run", None)
    with pytest.raises(SystemExit) as left:
        main(["profile", str(tiny_bundle), "--fail-if", "step.p99 > 2ms"])
    assert left.value.code == ExitCode.USAGE
    assert "update.{p50," in capsys.readouterr().err


@pytest.mark.long
def test_gates_decide_the_exit_code_and_stand_in_the_record(
    replayed: dict[str, Any], tiny_bundle: Path, tmp_path: Path, capsys: Text
) -> None:
    words = ["profile", str(tiny_bundle), "--json", str(tmp_path / "p.json")]
    gates = ["--fail-if", "update.p50 > 100s", "--fail-if", "needed > 4GB"]
    assert main([*words, *gates]) == ExitCode.DONE
    assert main([*words, *gates, "--fail-if", "needed > 1kB"]) == ExitCode.WRONG_RESULT
    written = json.loads((tmp_path / "p.json").read_text())["gates"]
    assert [gate["verdict"] for gate in written] == ["passed", "passed", "FAILED"]
    assert written[2]["value"] == figures_of(replayed)["needed"].value
    assert "FAILED  needed > 1kB" in capsys.readouterr().out


def test_what_was_not_measured_does_not_pass(record: dict[str, Any]) -> None:
    energy = {"sensor": "RAPL", "update": None, "query": None, "reason": "it stood still"}
    record["energy"] |= {**energy, "steps": ["update", "query"]}
    gates = [parse_gate("update.energy > 1J"), parse_gate("query.p999 > 1s")]
    outcomes = judge_gates(gates, record)
    assert [outcome.verdict for outcome in outcomes] == ["UNSURE", "UNSURE"]
    assert "it stood still" in outcomes[0].reason and "too few" in outcomes[1].reason


def test_a_disturbed_run_settles_neither_time_nor_energy_but_memory(record: dict[str, Any]) -> None:
    gates = [parse_gate(text) for text in ("update.p50 > 100s", "update.p50 > 1ns", "needed > 4GB")]
    record["validity"] = validity("disturbed", "the fan stood still")
    outcomes = judge_gates(gates, record)
    assert [outcome.verdict for outcome in outcomes] == ["UNSURE", "UNSURE", "passed"]
    assert "the fan stood still" in outcomes[0].reason
    record["validity"]["verdict"] = "unknown"  # a machine that tells nothing, as most virtual ones
    assert [o.verdict for o in judge_gates(gates, record)] == ["passed", "FAILED", "passed"]


def test_late_calls_are_a_share(record: dict[str, Any]) -> None:
    step = record["latency"][0]
    step["n_late"] = step["n"] // 2
    (outcome,) = judge_gates([parse_gate("update.late > 49%")], record)
    assert outcome.verdict == "FAILED" and outcome.figure.value == 0.5


# The baseline -------------------------------------------------------------------------------------


def baseline_of(record: dict[str, Any], folder: Path, factor: float) -> str:
    """Write a baseline in which every update was faster by a factor."""
    older = json.loads(json.dumps(record))
    step = older["latency"][0]
    for name in ("p50_s", "p99_s"):
        step[name] /= factor
    for name in ("p50_interval_s", "p99_interval_s"):
        step[name] = [None if end is None else end / factor for end in step[name]]
    path = folder / "baseline.json"
    path.write_text(json.dumps(older))
    return str(path)


@pytest.mark.parametrize(("factor", "code"), [(1.0, ExitCode.DONE), (9.0, ExitCode.WRONG_RESULT)])
def test_a_step_slower_than_the_baseline_fails(
    factor: float, code: ExitCode, replayed: dict[str, Any], tiny_bundle: Path, tmp_path: Path
) -> None:
    step = replayed["latency"][0]
    step["p50_interval_s"] = [step["p50_s"] * 0.98, step["p50_s"] * 1.02]
    baseline = baseline_of(replayed, tmp_path, factor)
    assert main(["profile", str(tiny_bundle), "--baseline", baseline, "--tolerance", "50%"]) == code


def test_an_interval_that_reaches_into_the_tolerance_passes(
    replayed: dict[str, Any], tiny_bundle: Path, tmp_path: Path
) -> None:
    step = replayed["latency"][0]
    step["p50_interval_s"] = [step["p50_s"] * 0.7, step["p50_s"] * 1.3]
    step["p99_interval_s"] = [None, None]
    baseline = baseline_of(replayed, tmp_path, 1.3)  # 30 % slower, give or take 40 %
    assert main(["profile", str(tiny_bundle), "--baseline", baseline]) == ExitCode.DONE


def test_memory_beyond_the_tolerance_fails(
    replayed: dict[str, Any], tiny_bundle: Path, tmp_path: Path
) -> None:
    baseline = baseline_of(replayed, tmp_path, 1.0)
    replayed["memory"]["needed_bytes"] = round(replayed["memory"]["needed_bytes"] * 1.2)
    words = ["profile", str(tiny_bundle), "--baseline", baseline]
    assert main(words) == ExitCode.WRONG_RESULT
    assert main([*words, "--tolerance", "25%"]) == ExitCode.DONE


def test_a_disturbed_run_is_unsure_and_a_disturbed_baseline_is_refused(
    replayed: dict[str, Any], tiny_bundle: Path, tmp_path: Path
) -> None:
    baseline = baseline_of(replayed, tmp_path, 9.0)
    words = ["profile", str(tiny_bundle), "--baseline", baseline]
    replayed["validity"] = validity("disturbed", "heat")
    assert main(words) == ExitCode.UNSURE
    hot = baseline_of(replayed, tmp_path, 1.0)
    replayed["validity"]["verdict"] = "valid"
    assert main([*words[:3], hot]) == ExitCode.REFUSED


@pytest.mark.parametrize("what", ["missing", "not JSON", "a list", "a budget", "another machine"])
def test_a_baseline_that_says_nothing_is_refused(
    what: str, replayed: dict[str, Any], tiny_bundle: Path, tmp_path: Path, capsys: Text
) -> None:
    path = tmp_path / "baseline.json"
    if what == "another machine":
        conditions = {**replayed["conditions"], "cpu_model": "Cortex-A76"}
        path.write_text(json.dumps({**replayed, "conditions": conditions}))
    elif what == "a budget":
        words = ["budget", str(tiny_bundle), "--device", "raspberry-pi-5", "--json", str(path)]
        assert main(words) == 0
    elif what != "missing":
        path.write_text("[1]" if what == "a list" else "{")
    kept = tmp_path / "p.json"
    words = ["profile", str(tiny_bundle), "--baseline", str(path), "--json", str(kept)]
    assert main(words) == ExitCode.REFUSED
    assert str(path) in capsys.readouterr().err
    assert kept.exists() == (what == "another machine")  # what was measured is not lost


@pytest.mark.parametrize("words", [["--tolerance", "10%"], ["--baseline", "x", "--tolerance", "5"]])
def test_a_tolerance_without_its_baseline_or_its_unit_is_wrong_usage(words: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["profile", "no such bundle", *words])


def test_the_baseline_is_not_replaced_by_the_new_record(profile: Path, tiny_bundle: Path) -> None:
    before = profile.read_bytes()
    words = ["profile", str(tiny_bundle), "--baseline", str(profile), "--json", str(profile)]
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert profile.read_bytes() == before
