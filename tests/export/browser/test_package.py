"""The package of npm forecasts what the command forecasts, and its types hold."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import edgefold.export.browser as browser
from edgefold.cli.browser_files import write_browser_files
from edgefold.cli.main import main
from edgefold.export.browser.package import MODULE, NAME, package_of
from edgefold.export.native.toolchain.wasm import IMPORTS, sections
from edgefold.runtime import Sensors
from edgefold.runtime.errors import OutputError
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from tests.export.browser.built import NODE, TOOLS, needs_node, needs_typescript
from tests.made_once import made_once
from tests.rough_files import hourly_with_holes, one_row_years_ahead

HERE = Path(__file__).parent
NPM = shutil.which("npm")
CLOSE = {"rel_tol": 2e-3, "abs_tol": 2e-3}
"""float32 in another order of sums, through a state that is fed back for a thousand rows."""


@pytest.fixture(scope="module")
def package(module: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package."""

    def make(folder: Path) -> None:
        for name, content in package_of(module).items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)

    return made_once(tmp_path_factory, "npm", make)


def node(*words: object, **options: Any) -> str:
    """What a program of node prints; an error fails the test."""
    assert NODE is not None
    command = [NODE, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def require_close(found: list[dict[str, str]], expected: list[dict[str, str]]) -> None:
    """Texts are equal; numbers that the model computed are close."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name, text in other.items():
            if name in ("series", "time", "value", "alarm", "event", "slots_ahead") or not text:
                assert one[name] == text, (name, one, other)
            elif name not in ("log_density", "p_value"):  # the tails' logarithms differ most
                assert math.isclose(float(one[name]), float(text), **CLOSE), (name, one, other)


def test_the_module_can_only_compute(module: bytes) -> None:
    assert module.startswith(b"\0asm") and IMPORTS not in sections(module)
    assert len(module) < 500_000


def wide() -> str:
    """Two sensors with a spike, a jump and a hole; some cells are empty, one is a word."""
    lines = ["time,roof,cellar"]
    for i in range(700):
        if 300 <= i < 320:
            continue
        roof = 20 + 5 * math.sin(i / 24 * 2 * math.pi) + 30 * (i == 200)
        cellar = 9 + 4 * (i > 500) + (i % 5) / 10
        cell = {50: "", 51: "n/a", 60: "x"}.get(i, f"{cellar:.1f}")
        lines.append(f"2024-01-{1 + i // 24:02} {i % 24:02}:00,{roof:.2f},{cell}")
        if i == 400:
            lines += ["2024-01-01 00:00,1,1", "2024-01-17 16:00,2,2", "2024-01-17,3"]
    return "\n".join(lines)


TABLES = {
    "wide": wide(),
    "holes": hourly_with_holes().text(),
    "ahead": one_row_years_ahead().text(),
}


@needs_node
@pytest.mark.long
@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_forecast_as_by_the_command(name: str, package: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    table = tmp_path / "table.csv"
    table.write_text(TABLES[name])
    found = json.loads(node(HERE / "forecast_tables.mjs", package, table))
    words = ["--out", str(tmp_path / "own.csv"), "--ahead", "--backend", "onnxruntime"]
    assert main(["forecast", str(table), *words]) == 0
    require_close(rows_of(found["csv"]), rows_of((tmp_path / "own.csv").read_text()))
    require_close(rows_of(found["next"]), rows_of((tmp_path / "own-next.csv").read_text()))
    assert found["tracks"]


@needs_node
def test_refused_rows_are_refused_with_the_words_of_python(package: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    rows = [(3600.0 * i, 20 + i % 3) for i in range(40)]
    bad = [(rows[-1][0], 1.0), (7200.0, 1.0), (1e12, 1.0), (math.inf, 1.0), (1e6, 1e31)]
    reasons = []
    with Sensors.open(backend="onnxruntime") as sensors:
        for time, value in [*rows, *bad]:
            try:
                sensors.step(time, value, dated=True)
            except ValueError as error:
                reasons.append(str(error))
    assert len(reasons) == len(bad)
    (tmp_path / "rows.json").write_text(json.dumps([*rows, *bad]).replace("Infinity", "1e999"))
    script = f"""
        import {{ readFileSync }} from "node:fs";
        const {{ RowRefused, openSensors }} = await import({json.dumps((package / "index.js").as_uri())});
        const sensors = await openSensors(), reasons = [];
        for (const [time, value] of JSON.parse(readFileSync({json.dumps(str(tmp_path / "rows.json"))}))) {{
          try {{ sensors.step(time, value, "", true); }}
          catch (error) {{ if (!(error instanceof RowRefused)) throw error; reasons.push(error.message); }}
        }}
        console.log(JSON.stringify(reasons));
    """
    assert json.loads(node("--input-type=module", "-e", script)) == reasons


@needs_node
def test_sensors_go_on_from_their_bytes_and_refuse_damaged_ones(package: Path) -> None:
    script = f"""
        import assert from "node:assert";
        const {{ openSensors }} = await import({json.dumps((package / "index.js").as_uri())});
        const row = (i) => [1.7e9 + 600 * i, 20 + 3 * Math.sin(i / 20) + (i * 7919 % 13) / 50];
        const whole = await openSensors(), first = await openSensors(), second = await openSensors();
        for (let i = 0; i < 300; i++) for (const name of ["a", "b"]) {{
          whole.step(...row(i), name);
          if (i < 150) first.step(...row(i), name);
        }}
        const bytes = first.save();
        second.step(5, 5, "other");
        second.restore(bytes);
        assert.deepEqual(second.names, ["a", "b"]);
        for (let i = 150; i < 300; i++) for (const name of ["a", "b"]) second.step(...row(i), name);
        assert.deepEqual(second.step(...row(300), "a"), whole.step(...row(300), "a"));
        assert.deepEqual(second.path(30, "b"), whole.path(30, "b"));
        for (const at of [0, 2, 5, 300, 5000, bytes.length - 1]) {{
          const damaged = bytes.slice();
          damaged[at] ^= 64;
          assert.throws(() => second.restore(damaged), RangeError);
        }}
        assert.throws(() => second.restore(bytes.subarray(0, 1000)), RangeError);
        assert.deepEqual(second.path(30, "b"), whole.path(30, "b"));
        assert.throws(() => second.path(0, "b"), RangeError);
        assert.throws(() => second.path(1, "c"), RangeError);
        assert.throws(() => second.step("now", 1), TypeError);
        assert.throws(() => second.step(1, "2"), TypeError);
        await assert.rejects(openSensors({{ falseAlarms: 1 }}), RangeError);
        assert(Number.isNaN((await openSensors()).step(null, 3).mean));
    """
    node("--input-type=module", "-e", script)


@needs_node
@pytest.mark.skipif(NPM is None, reason="no npm here: apt-get install npm")
def test_npm_packs_all_files_and_installs_them(package: Path, tmp_path: Path) -> None:
    assert NPM is not None
    quiet = {**os.environ, "npm_config_update_notifier": "false", "npm_config_offline": "true"}
    words = [NPM, "pack", "--json", "--pack-destination", str(tmp_path), str(package)]
    packed = subprocess.run(words, capture_output=True, text=True, check=True, env=quiet)
    (found,) = json.loads(packed.stdout)
    files = {path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file()}
    assert {file["path"] for file in found["files"]} == files and MODULE in files
    assert found["size"] < 350_000
    words = [NPM, "install", "--no-audit", "--no-fund", str(tmp_path / found["filename"])]
    subprocess.run(words, cwd=tmp_path, check=True, env=quiet, capture_output=True)
    script = f"""
        import {{ openSensors, openTable }} from {json.dumps(NAME)};
        console.log((await openSensors()).names.length, (await openTable("t,v\\n1,2\\n")).choice.values);
    """
    (tmp_path / "use.mjs").write_text(script)
    assert node("use.mjs", cwd=tmp_path).strip() == "0 [ 'v' ]"


USE = """
import { LEVELS, RowRefused, Sensors, TableError, TableRun, openSensors, openTable } from "edgefold-sensors";
const sensors: Sensors = await openSensors({ falseAlarms: 1e-3 });
const { mean, q05, event, alarm } = sensors.step(new Date(), 21.5, "roof");
const words: "" | "gap" | "value" | string = event;
const sum: number = mean + q05 + sensors.path(24, "roof").quantiles[0][3] + LEVELS.length;
const table = await openTable(new Blob(["t,v\\n1,2\\n"]), { decimal: "," });
const run = new TableRun(table, sensors, { row(track, forecast) { console.log(track.nRows, forecast.alarm); } });
await run.run(new AbortController().signal);
for await (const { line, parts } of table.rows()) console.log(line, parts[0]?.value);
console.log(sum, words, alarm, run.csv.size, RowRefused, TableError, sensors.save().length);
// @ts-expect-error a value is a number
sensors.step(1, "2");
// @ts-expect-error the decimal sign is one of two
await openTable("", { decimal: "x" });
"""


@needs_typescript
def test_types_of_the_package_and_of_its_code_hold(package: Path, tmp_path: Path) -> None:
    installed = tmp_path / "node_modules" / NAME
    installed.parent.mkdir()
    shutil.copytree(package, installed)
    (tmp_path / "use.mts").write_text(USE)
    options = ["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext"]
    library = ["--lib", "es2023,dom,dom.iterable,dom.asynciterable"]
    compiler = TOOLS / "typescript" / "bin" / "tsc"
    node(compiler, *options, *library, "use.mts", cwd=tmp_path)
    code = [str(path.relative_to(package)) for path in sorted(package.rglob("*.js"))]
    assert len(code) > 10
    node(compiler, *options, *library, "--allowJs", "--checkJs", *code, cwd=package)


def test_only_own_files_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "page.html").write_text("<p>mine</p>")
    for out, page in ((tmp_path, False), (tmp_path / "page.html", True), (tmp_path, True)):
        with pytest.raises(OutputError):
            write_browser_files(shipped_bundle(), out, page, ())
    assert (tmp_path / "page.html").read_text() == "<p>mine</p>"


def test_all_files_of_the_folder_are_shipped() -> None:
    folder = Path(browser.__path__[0])
    assert {path.name for path in folder.iterdir() if path.is_dir()} - {"__pycache__"} == {
        *("engine", "package", "page", "tables"),
    }
