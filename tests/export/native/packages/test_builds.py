"""Whole libraries, built as their ecosystems build them and used by their own examples.

CMake is real. Of Zephyr and ESP-IDF stand-ins define what their build systems offer, and of Arduino
a header: the ecosystems themselves take gigabytes.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from edgefold.export.native.generator import generate
from edgefold.export.native.packages.layout import CLibrary, library_of, package_files
from edgefold.export.shorter_seasons import shorten_seasons
from edgefold.runtime import load_manifest
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from tests.export.native.c_streams import compiler
from tests.export.native.packages.library_tools import STUBS, run, tool, write
from tests.export.native.toolchain.machine_tools import require

QUICK = "-DCMAKE_C_FLAGS=-O0"  # the library's own -O2 follows it; the example is quick to compile
ROWS = re.compile(r"^(\d+) mean -?\d+\.\d{3}$", re.MULTILINE)

pytestmark = pytest.mark.together("libraries")


@pytest.fixture(scope="module")
def library() -> CLibrary:
    bundle = shipped_bundle("gp-tiny")
    return library_of(load_manifest(bundle), generate(bundle, "gp"))


def lines(printed: str) -> list[int]:
    """The numbers of the rows that an example printed."""
    return [int(row) for row in ROWS.findall(printed)]


@pytest.fixture(scope="module")
def sensors(tmp_path_factory: pytest.TempPathFactory) -> tuple[CLibrary, Path]:
    """The library of the model of sensors, and a folder with its objects."""
    folder = tmp_path_factory.mktemp("sensors")
    shorten_seasons(shipped_bundle(), 24, folder / "bundle")
    native = generate(folder / "bundle", "sensors")
    write(native.files, folder)
    sources = sorted(name for name in native.files if name.endswith(".c"))
    run(compiler("gcc"), "-O1", "-c", *sources, folder=folder)
    return library_of(load_manifest(folder / "bundle"), native), folder


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("arduino", "examples/{}/{}.ino"),
        ("cmake", "example/main.c"),
        ("esp-idf", "examples/{}/main/main.c"),
        ("zephyr", "samples/{}/src/main.c"),
    ],
)
def test_the_example_of_a_sensor_says_when_there_is_no_forecast_and_prints_the_alarm(
    kind: str, place: str, sensors: tuple[CLibrary, Path], tmp_path: Path
) -> None:
    library, objects = sensors
    main = package_files(kind, library)[place.format(library.name, library.name)]
    suffix = "c"
    if kind == "arduino":
        main += "\nint main()\n{\n    setup();\n    for (int i = 0; i < 128; i++) loop();\n}\n"
        suffix = "cpp"
    (tmp_path / f"main.{suffix}").write_text(main)
    run(
        *(compiler("g++" if kind == "arduino" else "gcc"), "-Wall", "-Wextra", "-Werror"),
        *(f"-I{STUBS / kind}", f"-I{objects}", "-DN_SECONDS=128", f"main.{suffix}"),
        *(*sorted(objects.glob("*.o")), "-lm", "-o", "example"),
        folder=tmp_path,
    )
    printed = run(tmp_path / "example").splitlines()
    assert len(printed) == 128
    assert all(line.endswith(" no forecast yet") for line in printed[:11])
    assert all(re.fullmatch(r"\d+ mean -?\d+\.\d{3}(, ALARM: .*)?", row) for row in printed[11:])
    (alarm,) = (line for line in printed if "ALARM" in line)
    assert re.fullmatch(r"100 mean 2\d\.\d{3}, ALARM: value", alarm)


@pytest.mark.long
def test_cmake_builds_installs_and_finds_the_library(library: CLibrary, tmp_path: Path) -> None:
    cmake, cc = tool("cmake"), compiler()
    folder = write(package_files("cmake", library), tmp_path / "library")
    options = ("-G", "Unix Makefiles", f"-DCMAKE_C_COMPILER={cc}", QUICK)
    require("make")
    run(cmake, "-S", folder, "-B", tmp_path / "build", *options)
    run(cmake, "--build", tmp_path / "build")
    prefix = tmp_path / "installed"
    run(cmake, "--install", tmp_path / "build", "--prefix", prefix)
    shutil.rmtree(folder / "src")  # nothing but what was installed is used
    run(
        *(cmake, "-S", folder / "example", "-B", tmp_path / "user", *options),
        f"-DCMAKE_PREFIX_PATH={prefix}",
    )
    run(cmake, "--build", tmp_path / "user")
    assert lines(run(tmp_path / "user" / "example")) == [*range(48)]


@pytest.mark.long
def test_a_project_adds_the_library_as_a_folder_without_snapshots(
    library: CLibrary, tmp_path: Path
) -> None:
    cmake, cc = tool("cmake"), compiler()
    require("make")
    write(package_files("cmake", library), tmp_path / "library")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(user LANGUAGES C)\n"
        "add_subdirectory(library)\nadd_executable(user library/example/main.c)\n"
        "target_link_libraries(user PRIVATE edgefold_gp::edgefold_gp)\n"
    )
    options = ("-G", "Unix Makefiles", f"-DCMAKE_C_COMPILER={cc}", "-DEDGEFOLD_GP_SNAPSHOTS=OFF")
    run(cmake, "-S", tmp_path, "-B", tmp_path / "build", *options, QUICK)
    run(cmake, "--build", tmp_path / "build")
    assert lines(run(tmp_path / "build" / "user")) == [*range(48)]
    (archive,) = (tmp_path / "build").rglob("*.a")
    require("nm")
    assert "edgefold_gp_save" not in run("nm", archive)


@pytest.mark.long
@pytest.mark.parametrize("snapshots", ["y", ""])
@pytest.mark.parametrize("kind", ["zephyr", "esp-idf"])
def test_a_module_and_a_component_build_with_their_example(
    kind: str, snapshots: str, library: CLibrary, tmp_path: Path
) -> None:
    cmake, cc = tool("cmake"), compiler()
    require("make", "nm")
    folder = write(package_files(kind, library), tmp_path / "library")
    example = {"zephyr": "samples/{}/src/main.c", "esp-idf": "examples/{}/main/main.c"}[kind]
    shutil.copytree(STUBS / kind, tmp_path / "stub")
    run(
        *(cmake, "-S", tmp_path / "stub", "-B", tmp_path / "build", "-G", "Unix Makefiles"),
        *(f"-DCMAKE_C_COMPILER={cc}", QUICK, f"-DLIBRARY={folder}"),
        *("-DSYMBOL=EDGEFOLD_GP", f"-DSNAPSHOTS={snapshots}"),
        f"-DEXAMPLE={folder / example.format(library.name)}",
    )
    run(cmake, "--build", tmp_path / "build")
    assert lines(run(tmp_path / "build" / "example")) == [*range(30)]
    (archive,) = (tmp_path / "build").rglob("*.a")
    assert ("edgefold_gp_save" in run("nm", archive)) == bool(snapshots)


@pytest.mark.long
def test_a_sketch_runs_with_the_library_of_arduino(library: CLibrary, tmp_path: Path) -> None:
    files = package_files("arduino", library)
    folder = write(files, tmp_path)
    (folder / "loop.cpp").write_text(
        f'#include "examples/{library.name}/{library.name}.ino"\n'
        "int main()\n{\n    setup();\n    for (int i = 0; i < 20; i++) loop();\n}\n"
    )
    sources = sorted(str(path) for path in (folder / "src").glob("*.c"))
    run(compiler("gcc"), "-O1", "-c", *sources, folder=folder)
    objects = sorted(path.name for path in folder.glob("*.o"))
    include = (f"-I{STUBS / 'arduino'}", "-Isrc")
    run(compiler("g++"), *include, "loop.cpp", *objects, "-lm", "-o", "sketch", folder=folder)
    assert lines(run(folder / "sketch")) == [*range(20)]


@pytest.mark.long
def test_a_sketch_compiles_for_a_cortex_m4_with_the_flags_of_arduinos_boards(
    library: CLibrary, tmp_path: Path
) -> None:
    require("arm-none-eabi-g++", "arm-none-eabi-gcc")
    folder = write(package_files("arduino", library), tmp_path)
    board = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-Os")
    sections = ("-ffunction-sections", "-fdata-sections", "-Wall", "-Wextra", "-c")
    for source in sorted((folder / "src").glob("*.c")):
        run("arm-none-eabi-gcc", "-std=gnu11", *board, *sections, source, folder=folder)
    sketch = f"examples/{library.name}/{library.name}.ino"
    include = (f"-I{STUBS / 'arduino'}", "-Isrc", "-x", "c++")
    cpp = ("-std=gnu++11", "-fno-exceptions", "-fno-rtti")
    run("arm-none-eabi-g++", *cpp, *board, *sections, *include, sketch, folder=folder)
