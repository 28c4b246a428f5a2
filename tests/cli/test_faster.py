"""The line on compiling a bundle: when it is printed, and that its factors are the records'."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest

from edgefold.cli import faster
from edgefold.cli.faster import FACTORS, SENSORS_FACTOR, tell_faster
from edgefold.export.native.toolchain import compilers
from edgefold.runtime.errors import BackendError
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle

RECORDS = Path(__file__).parents[2] / "benchmarks/records"
REPORT: dict[str, Any] = {
    "asked": "auto",
    "name": "onnxruntime",
    "refused": {"native": "not built: run `edgefold build`"},
    "row_s": {},
}
Text = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a compiler and the generator of C."""
    monkeypatch.setattr(compilers, "find_compiler", lambda: SimpleNamespace(title="gcc 12"))
    monkeypatch.setattr(faster, "find_spec", lambda name: SimpleNamespace())


def told(capsys: Text, bundle: str, **others: Any) -> str:
    tell_faster(bundle, REPORT | others)
    out, error = capsys.readouterr()
    assert not out and error.count("\n") <= 1
    return error


def test_the_shipped_model_is_given_its_factor_and_command(capsys: Text) -> None:
    line = told(capsys, str(shipped_bundle()))
    assert "`edgefold build sensors`" in line and f"{SENSORS_FACTOR} times faster" in line


def test_the_other_shipped_bundle_is_named_by_its_word(capsys: Text) -> None:
    assert "`edgefold build gp-tiny`" in told(capsys, str(shipped_bundle("gp-tiny")))


def test_another_bundle_is_given_the_range_of_the_record(capsys: Text) -> None:
    line = told(capsys, "bundles/mine")
    assert "`edgefold build bundles/mine`" in line and f"{FACTORS[0]} to {FACTORS[2]}" in line


def test_the_extra_is_named_where_the_generator_is_missing(
    capsys: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faster, "find_spec", lambda name: None)
    assert "`pip install 'edgefold[build]' && edgefold build b`" in told(capsys, "b")


@pytest.mark.parametrize(
    "others",
    [
        {"asked": "onnxruntime"},
        {"name": "native", "refused": {}},
        {"name": "tensorrt"},
        {"row_s": {"onnxruntime": 1e-6, "native": 2e-6}},
    ],
    ids=["chosen by the user", "compiled", "on a GPU", "measured as slower"],
)
def test_nothing_is_said_where_it_would_not_help(others: dict[str, Any], capsys: Text) -> None:
    assert told(capsys, "bundle", **others) == ""


def test_nothing_is_said_without_a_compiler(capsys: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise BackendError("no C compiler")

    monkeypatch.setattr(compilers, "find_compiler", none)
    assert told(capsys, "bundle") == ""


def test_the_factors_are_those_of_the_records() -> None:
    """A record that is measured again may move by a quarter before the text is wrong."""
    times = json.loads((RECORDS / "sensor_cost.json").read_text())["data"]["times"]
    row_s = {entry["backend"]: entry["median_s"] for entry in times}
    assert pytest.approx(row_s["onnxruntime"] / row_s["native"], rel=0.25) == SENSORS_FACTOR
    bundles = json.loads((RECORDS / "native_speed.json").read_text())["data"]["bundles"]
    ratios = sorted(
        1 / graph["native"]["own"]["ratio"]
        for bundle in bundles.values()
        for name, graph in bundle["graphs"].items()
        if name in ("update", "step")
    )
    for factor, ratio in zip(FACTORS, (ratios[0], median(ratios), ratios[-1]), strict=True):
        assert factor == pytest.approx(ratio, rel=0.25)
