"""The package of npm forecasts what the command forecasts, and its types hold."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import tomllib  # this test runs where the developers work, on Python 3.11

import edgefold.export.browser as browser
from edgefold.cli.browser_files import write_browser_files
from edgefold.cli.main import main
from edgefold.export.browser import module as browser_module
from edgefold.export.browser.module import compile_sensors
from edgefold.export.browser.package import SENSORS, SENSORS_MODULE, sensors_package
from edgefold.export.browser.page import page_of
from edgefold.export.native.toolchain import wasm
from edgefold.export.native.toolchain.compilers import Compiler
from edgefold.export.native.toolchain.wasm import IMPORTS, sections
from edgefold.runtime import Sensors
from edgefold.runtime.errors import BundleError, DataError, OutputError
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from tests.export.browser.built import NODE, ROOT, TOOLS, needs_node, needs_typescript
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
        for name, content in sensors_package(module).items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)

    return made_once(tmp_path_factory, "npm", make)


def node(*words: object, **options: Any) -> str:
    """Return the output of a program of node; an error fails the test."""
    assert NODE is not None
    command = [NODE, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]
    return str(done.stdout)


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
            except DataError as error:
                reasons.append(str(error))
    assert len(reasons) == len(bad)
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([*rows, *bad]).replace("Infinity", "1e999"))
    assert json.loads(node(HERE / "refuse_rows.mjs", package, path)) == reasons


@needs_node
def test_sensors_go_on_from_their_bytes_and_refuse_damaged_ones(package: Path) -> None:
    node(HERE / "keep_states.mjs", package)


@needs_node
@pytest.mark.skipif(NPM is None, reason="no npm here: apt-get install npm")
def test_npm_packs_all_files_and_installs_them(package: Path, tmp_path: Path) -> None:
    assert NPM is not None
    quiet = {**os.environ, "npm_config_update_notifier": "false", "npm_config_offline": "true"}
    words = [NPM, "pack", "--json", "--pack-destination", str(tmp_path), str(package)]
    packed = subprocess.run(words, capture_output=True, text=True, check=True, env=quiet)
    (found,) = json.loads(packed.stdout)
    files = {path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file()}
    assert {file["path"] for file in found["files"]} == files and SENSORS_MODULE in files
    assert found["size"] < 350_000
    words = [NPM, "install", "--no-audit", "--no-fund", str(tmp_path / found["filename"])]
    subprocess.run(words, cwd=tmp_path, check=True, env=quiet, capture_output=True)
    script = (
        f"import {{ openSensors }} from {json.dumps(SENSORS)}; console.log(await openSensors());"
    )
    (tmp_path / "use.mjs").write_text(script)
    assert "falseAlarms: 0.0001" in node("use.mjs", cwd=tmp_path)


@pytest.mark.long
@needs_typescript
def test_types_of_the_package_and_of_its_code_hold(package: Path, tmp_path: Path) -> None:
    installed = tmp_path / "node_modules" / SENSORS
    installed.parent.mkdir()
    shutil.copytree(package, installed)
    shutil.copy(HERE / "use_types.mts", tmp_path)
    options = ["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext"]
    library = ["--lib", "es2023,dom,dom.iterable,dom.asynciterable"]
    compiler = TOOLS / "typescript" / "bin" / "tsc"
    node(compiler, *options, *library, "use_types.mts", cwd=tmp_path)
    code = [str(path.relative_to(package)) for path in sorted(package.rglob("*.js"))]
    assert len(code) > 10
    node(compiler, *options, *library, "--allowJs", "--checkJs", *code, cwd=package)


def test_the_command_writes_a_page_and_a_package_and_replaces_them(
    module: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(browser_module, "compile_sensors", lambda *_: module)
    monkeypatch.setattr(wasm, "find_wasm_compiler", lambda _: Compiler(("zig",), "zig 1", ()))
    page, folder = tmp_path / "sensors.html", tmp_path / "package"
    for _ in range(2):
        assert main(["build", "sensors", "--page", "--out", str(page)]) == 0
        assert main(["build", "sensors", "--target", "wasm32", "--out", str(folder)]) == 0
    assert page.read_text(encoding="utf-8") == page_of(module)
    for name, content in sensors_package(module).items():
        assert (folder / name).read_bytes() == content
    assert len(gzip.compress(page.read_bytes())) < 600_000
    assert f"npm install {folder}" in capsys.readouterr().out


def test_a_page_of_another_model_is_refused(tiny_bundle: Path) -> None:
    with pytest.raises(BundleError, match="general model of sensors"):
        compile_sensors(tiny_bundle, Compiler(("zig",), "zig 1", ()))


def test_only_own_files_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "page.html").write_text("<p>mine</p>")
    for out, page in ((tmp_path, False), (tmp_path / "page.html", True), (tmp_path, True)):
        with pytest.raises(OutputError):
            write_browser_files(str(shipped_bundle()), "sensors", out, page, ())
    assert (tmp_path / "page.html").read_text() == "<p>mine</p>"


def test_all_files_of_the_folder_are_shipped() -> None:
    folder = Path(browser.__path__[0])
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
        "package-data"
    ]
    patterns = [*data["edgefold.export.browser"], *(f"**/{pattern}" for pattern in data["*"])]
    shipped = {path for pattern in patterns for path in folder.glob(pattern)}
    own = {
        path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert own == {path for path in shipped if path.is_file() and path.suffix != ".pyc"}
