"""Every record has a schema that documents each of its fields, and keeps it."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from edgefold.cli.main import main
from edgefold.cli.schemas.__main__ import main as print_schema
from edgefold.cli.schemas.registry import NAMES, schema_of, whole_schema
from edgefold.devices.machine.machine import read_machine
from tests.recorded_boards import jetson_orin_nano, raspberry_pi_5

jsonschema = pytest.importorskip("jsonschema", reason="pip install --group test")
referencing = pytest.importorskip("referencing")

ROOT = Path(__file__).parents[2]
SCHEMAS = {name: schema_of(name) for name in (*NAMES, "parts")}
FREE = {  # whoever trains, exports or benchmarks says what is in these
    *("model", "task", "settings", "run", "scores", "data", "precision", "backend", "plan"),
    "machine",  # closed where it is used, because each use adds fields of its own
}
UNITS = {
    *("s", "B", "J", "W", "Hz", "°C", "%", "share", "ratio", "count", "index", "flop"),
    *("scaled output", "raw", "as the tensor", "as `unit` says", "W or J", "B/day", "years"),
}

Schema = dict[str, Any]


def errors(name: str, record: Any, part: str | None = None) -> list[str]:
    """What a record has that its schema does not allow."""
    resources = [
        (
            f"{key}.schema.json",
            referencing.Resource.from_contents(
                schema, default_specification=referencing.jsonschema.DRAFT202012
            ),
        )
        for key, schema in SCHEMAS.items()
    ]
    registry = referencing.Registry().with_resources(resources)
    target = f"{name}.schema.json" + (f"#/$defs/{part}" if part else "")
    kind = jsonschema.Draft202012Validator
    validator = kind({"$ref": target}, registry=registry, format_checker=kind.FORMAT_CHECKER)
    plain = json.loads(json.dumps(record, allow_nan=False))
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(plain)]


def walk(schema: Any, name: str) -> Iterator[tuple[str, Schema]]:
    """Every schema within a schema, by the name of its field."""
    if not isinstance(schema, dict):
        return
    yield name, schema
    for group in ("properties", "$defs"):
        for key, inner in schema.get(group, {}).items():
            yield from walk(inner, key)
    for key in ("items", "additionalProperties"):
        yield from walk(schema.get(key), name)
    for inner in (*schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from walk(inner, name)


# The schemas --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_valid(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])
    assert SCHEMAS[name]["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_field_has_a_description_every_number_a_unit_and_every_object_is_closed(
    name: str,
) -> None:
    for field, schema in walk(SCHEMAS[name], name):
        if "$defs" in schema or "$ref" in schema:
            continue
        assert schema.get("description", "").endswith("."), f"{name}: {field}"
        types = schema.get("type")
        if {"number", "integer"} & set(types if isinstance(types, list) else [types]):
            assert schema.get("unit") in UNITS, f"{name}: {field} has the unit {schema.get('unit')}"
        if types == "object" or (isinstance(types, list) and "object" in types):
            closed = "additionalProperties" in schema or "unevaluatedProperties" in schema
            assert closed or field in FREE, f"{name}: {field} takes any field"


@pytest.mark.parametrize("name", NAMES)
def test_a_printed_schema_is_complete_in_itself(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["schemas", name])
    print_schema()
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    references = {s["$ref"] for _, s in walk(schema, name) if "$ref" in s}
    assert references <= {f"#/$defs/{part}" for part in schema.get("$defs", {})}


def test_a_printed_schema_refuses_what_its_parts_refuse() -> None:
    validator = jsonschema.Draft202012Validator(whole_schema("doctor"))
    messages = [e.message for e in validator.iter_errors({"machine": {"no_such_field": 1}})]
    assert any("no_such_field" in message for message in messages)


def test_the_page_is_that_of_the_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import records_page  # type: ignore[import-not-found]

    assert (ROOT / "docs" / "records.md").read_text() == records_page.page(), (
        "write it again: python scripts/records_page.py > docs/records.md"
    )
    assert {*records_page.ORDER, "parts"} == set(SCHEMAS)
    assert set(records_page.PARTS) == set(SCHEMAS["parts"]["$defs"])


# Records that this test run makes -----------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("records")


@pytest.fixture(scope="module")
def written(folder: Path) -> Callable[..., Any]:
    """Run a command with --json and return the record."""

    def run(*words: object, code: int = 0) -> Any:
        path = folder / f"{len(list(folder.iterdir()))}.json"
        assert main([*map(str, words), "--json", str(path)]) == code
        record = json.loads(path.read_text())
        return record

    return run


@pytest.fixture(scope="module")
def profile(written: Callable[..., Any], bundles: Path, folder: Path) -> Any:
    """A short profile with gates, and with the energy of a recording."""
    power = folder / "power.csv"
    rows = (f"{0.005 * n:.3f},{5 + n % 7 / 100}\n" for n in range(500))
    power.write_text("time_s,power_w\n" + "".join(rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edgefold.devices.power.sampler.MIN_PERIOD_S", 0.005)
        patch.setattr("edgefold.devices.power.energy.MAX_MISSED", 1.0)  # runners may be busy
        patch.setattr("edgefold.devices.power.energy.SETTLE_S", 0.01)
        for name in ("profile.energy.SETTLE_S", "power.energy.MIN_WINDOW_S"):
            patch.setattr(f"edgefold.devices.{name}", 0.01, raising=False)
        calls = ("--updates", 200, "--queries", 20, "--fail-if", "needed > 9GB")
        energy = ("--power-replay", power, "--energy-seconds", 3)
        return written("profile", bundles / "tiny", *calls, *energy)


def test_a_profile(profile: Any) -> None:
    assert profile["energy"]["update"] and profile["gates"]
    assert not errors("profile", profile)


@pytest.mark.long
def test_a_profile_without_energy_or_gates(written: Callable[..., Any], bundles: Path) -> None:
    words = ("--updates", 20, "--queries", 20, "--energy-seconds", 0.01)
    assert not errors("profile", written("profile", bundles / "streams", *words))


@pytest.mark.parametrize("board", ["raspberry-pi-5", "jetson-orin-nano-8gb", "jetson-thor-t5000"])
@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt"])
def test_a_budget(board: str, backend: str, written: Callable[..., Any], bundles: Path) -> None:
    words = ("budget", bundles / "tiny", "--device", board, "--backend", backend)
    with_more = (*words, "--power", "15W", "--rate", 50, "--memory", "900MB")
    for asked in (words, with_more):
        path = bundles.parent / "budget.json"
        main([*map(str, asked), "--json", str(path)])  # whatever the verdict is
        assert not errors("budget", json.loads(path.read_text()))


def test_a_budget_of_a_microcontroller(written: Callable[..., Any], bundles: Path) -> None:
    record = written("budget", bundles / "tiny", "--device", "rp2040")
    assert not errors("budget-microcontroller", record)


def test_a_sweep(written: Callable[..., Any], bundles: Path) -> None:
    record = written("budget", "--sweep", bundles / "tiny", bundles / "scaled")
    assert len(record) > 10 and not errors("budget-sweep", record)


@pytest.mark.long
def test_a_doctor_with_and_without_a_bundle(written: Callable[..., Any], bundles: Path) -> None:
    assert not errors("doctor", written("doctor"))
    assert not errors("doctor", written("doctor", bundles / "tiny"))


@pytest.mark.parametrize("board", [jetson_orin_nano, raspberry_pi_5])
def test_a_recorded_board(board: Callable[[Path], Path], tmp_path: Path) -> None:
    machine = asdict(read_machine(board(tmp_path)))
    assert not errors("parts", machine, "machine")
    known = set(SCHEMAS["parts"]["$defs"]["machine"]["properties"])
    assert set(machine) <= known


def test_a_check(written: Callable[..., Any], bundles: Path) -> None:
    assert not errors("check", written("check", bundles / "streams"))


def test_a_comparison(written: Callable[..., Any], profile: Any, folder: Path) -> None:
    path = folder / "base.json"
    path.write_text(json.dumps(profile))
    record = written("compare", path, path, path, "--anyway")
    assert len(record["comparisons"]) == 2 and not errors("compare", record)


def test_the_scores_of_a_bundle(
    written: Callable[..., Any], series_bundle: Path, tmp_path: Path
) -> None:
    series = tmp_path / "series.csv"
    rows = [f"{i},{400 + 5 * math.sin(i / 3):.3f}" for i in range(300)]
    series.write_text("\n".join(["time,value", *rows]) + "\n")
    assert not errors("evaluate", written("evaluate", series_bundle, "--csv", series))


def test_the_manifest_of_every_bundle(bundles: Path) -> None:
    paths = sorted(bundles.glob("*/manifest.json"))
    assert len(paths) >= 5
    for path in paths:
        assert not errors("manifest", json.loads(path.read_text())), path


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks/records").glob("*.json")))
def test_the_record_of_a_benchmark(path: Path) -> None:
    assert not errors("benchmark", json.loads(path.read_text()))


# What a schema does not know ----------------------------------------------------------------------


def test_a_field_that_nobody_documented_fails(profile: Any) -> None:
    for place in ("bundle", "options", "memory", "energy", "conditions", "timeline"):
        changed = copy.deepcopy(profile)
        changed[place]["surprise_s"] = 1.0
        assert any("surprise_s" in error for error in errors("profile", changed)), place
    changed = copy.deepcopy(profile)
    changed["latency"][0]["surprise_s"] = 1.0
    assert errors("profile", changed)


def test_a_field_that_is_gone_fails(profile: Any) -> None:
    for name in SCHEMAS["profile"]["required"]:
        changed = {key: value for key, value in profile.items() if key != name}
        assert errors("profile", changed), name
