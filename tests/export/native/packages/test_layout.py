"""The files of a library, for every ecosystem and every kind of model."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.generated_files import MARK
from edgefold.cli.main import main
from edgefold.export.native.packages.layout import KINDS, library_of, package_files
from edgefold.runtime import load_manifest
from edgefold.runtime.errors import ExportError
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from tests.export.native import c_streams
from tests.export.native.c_streams import FLAGS, compiler
from tests.export.native.packages.library_tools import STUBS, run, stubbed_library, write

BundleOf = Callable[[str], Path]
MODELS = ("sensors", *c_streams.KINDS)


def test_the_ecosystems_are_those_that_the_documents_name() -> None:
    assert KINDS == ("arduino", "cmake", "esp-idf", "platformio", "zephyr")


@pytest.mark.parametrize("kind", KINDS)
def test_all_c_files_lie_in_src_and_are_built(kind: str) -> None:
    more = {"clock.c": "int hours(void) { return 24; }\n", "clock.h": "int hours(void);\n"}
    library = stubbed_library(load_manifest(shipped_bundle()), more)
    files = package_files(kind, library)
    assert {n for n in files if n.startswith("src/")} == {f"src/{n}" for n in library.files}
    assert all(files[f"src/{name}"] == text for name, text in library.files.items())
    if kind in ("cmake", "esp-idf", "zephyr"):  # the others build all that is there
        assert "src/clock.c" in files["CMakeLists.txt"]
        assert ("src/clock.h" in files["CMakeLists.txt"]) == (kind == "cmake")


@pytest.mark.parametrize("kind", KINDS)
def test_each_file_states_its_licence_and_holds_no_word_of_a_template(kind: str) -> None:
    files = package_files(kind, stubbed_library(load_manifest(shipped_bundle())), MARK)
    for name, text in files.items():
        assert not re.search(r"<<\w+>>|^@(if|end)\b", text, re.MULTILINE), name
        assert "NAME" not in name and text.endswith("\n")
        if name.startswith("src/"):
            continue  # stubs
        if PurePosixPath(name).suffix == ".json":
            assert MARK in text[:300] and '"license": "Apache-2.0"' in text
        elif name != "README.md":
            assert "SPDX-License-Identifier: Apache-2.0" in text.splitlines()[0]


@pytest.mark.one_case
@pytest.mark.parametrize("model", MODELS)
def test_the_examples_compile_for_every_kind_of_model(
    model: str, bundle_of: BundleOf, tmp_path: Path
) -> None:
    path = shipped_bundle() if model == "sensors" else bundle_of(model)
    library = stubbed_library(load_manifest(path))
    for kind, example in (
        ("cmake", "example/main.c"),
        ("zephyr", f"samples/{library.name}/src/main.c"),
        ("esp-idf", f"examples/{library.name}/main/main.c"),
        ("arduino", f"examples/{library.name}/{library.name}.ino"),
        ("platformio", f"examples/{library.name}/src/main.cpp"),
    ):
        folder = write(package_files(kind, library), tmp_path / kind)
        c = kind not in ("arduino", "platformio")
        stub = STUBS / ("arduino" if not c else kind)
        options = FLAGS if c else ("-std=c++11", *FLAGS[1:], "-Wno-pedantic")
        command = [compiler("gcc" if c else "g++"), *options, f"-I{stub}", "-Isrc"]
        run(*command, "-fsyntax-only", *("-x", "c" if c else "c++"), example, folder=folder)


def test_a_models_name_breaks_no_manifest() -> None:
    manifest = load_manifest(shipped_bundle())
    bad = 'a"b\\c\n$d #{e} <<f>> é\t@g'
    named = dataclasses.replace(manifest, model={**manifest.model, "name": bad})
    words = stubbed_library(named).words
    assert words["sentence"] == "The streaming model abcd e f g as C, which learns row by row"


def test_a_name_that_is_too_long_for_a_library_is_refused(tiny_bundle: Path) -> None:
    from edgefold.export.native.generator import NativeSource

    native = NativeSource("n" * 60, "", "", "", {}, 0, 0, 0, 0, 0)
    with pytest.raises(ExportError, match="shorter --name"):
        library_of(load_manifest(tiny_bundle), native)


def test_the_command_writes_a_library_and_replaces_only_its_own_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "edgefold_gp"
    build = ["build", "gp-tiny", "--package", "platformio", "--name", "gp", "--out", str(out)]
    assert main(build) == ExitCode.DONE
    assert str(out / "README.md") in capsys.readouterr().out
    written = sorted(path for path in out.rglob("*") if path.is_file())
    assert out / "examples" / "edgefold_gp" / "src" / "main.cpp" in written
    assert all(MARK in path.read_text()[:300] for path in written)
    before = {path: path.read_bytes() for path in written}
    assert main(build) == ExitCode.DONE
    assert {path: path.read_bytes() for path in written} == before
    own = out / "examples" / "edgefold_gp" / "platformio.ini"
    own.write_text("[env:mine]\n")
    assert main(build) == ExitCode.REFUSED
    assert str(own) in capsys.readouterr().err and own.read_text() == "[env:mine]\n"
