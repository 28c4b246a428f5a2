"""The command with the machine's own compiler, on the tests' smallest bundles."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.main import main
from edgefold.cli.text import build as text
from edgefold.export.native import generator, loop_program
from edgefold.export.native.toolchain import zig
from edgefold.export.native.toolchain.compilers import FLAGS, LEVELS
from edgefold.export.native.toolchain.elf_sizes import ElfSizes, sizes_of
from edgefold.export.native.toolchain.targets import TARGETS, machine_flags
from edgefold.export.shorter_seasons import shorten_seasons
from edgefold.runtime.backends.native.library_store import LibraryStore
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.errors import ExportError
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from tests.native_builds import compiler_or_skip

QUICK = "--flags=-O1"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("EDGEFOLD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiler() -> str:
    return compiler_or_skip().command[0]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_bundle_is_compiled_proved_and_kept_and_then_taken_by_check_and_run(
    tiny_bundle: Path, cache: Path, compiler: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", str(tiny_bundle), QUICK]) == ExitCode.DONE
    printed = capsys.readouterr().out
    assert "proved" in printed and str(cache) in printed
    assert sorted(path.suffix for path in cache.iterdir()) == [".native", ".so", ".times"]
    for backend in ("native", "auto"):
        out = cache.parent / f"{backend}.json"
        assert main(["check", str(tiny_bundle), "--backend", backend, "--json", str(out)]) == 0
        assert json.loads(out.read_text())["backend"]["name"] == "native"
    (cache.parent / "rows.csv").write_text("x1,x2,y1\n0.1,0.2,0.3\n0.2,0.1,0.4\n")
    run = ["run", str(tiny_bundle), "--backend", "native", "--output", str(cache.parent / "out")]
    assert main([*run, "--input", str(cache.parent / "rows.csv")]) == ExitCode.DONE
    capsys.readouterr()
    assert main(["build", str(tiny_bundle), "--list"]) == ExitCode.DONE
    printed = capsys.readouterr().out
    assert "-O1" in printed and "golden stream" in printed and "not used" not in printed


def test_nothing_kept_is_told_with_the_command(
    tiny_bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", str(tiny_bundle), "--list"]) == ExitCode.DONE
    assert f"edgefold build {tiny_bundle}" in capsys.readouterr().out


@pytest.mark.long
def test_a_library_that_computes_something_else_is_not_kept(
    bundles: Path, cache: Path, compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its C is that of a bundle with other weights."""
    bundle, real = bundles / "tiny", generator.generate
    foreign = real(bundles / "foreign").files
    own = load_manifest(bundle).bundle_hash
    other = load_manifest(bundles / "foreign").bundle_hash
    files = {name: text.replace(other, own) for name, text in foreign.items()}

    class Made:
        def __init__(self, *_: object):
            self.files = files

    monkeypatch.setattr(generator, "generate", Made)
    assert main(["build", str(bundle), QUICK]) == ExitCode.WRONG_RESULT
    assert names(cache) == []


@pytest.mark.long
def test_a_library_that_crashes_is_a_line_and_is_not_kept(
    tiny_bundle: Path,
    cache: Path,
    compiler: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    real = generator.generate(tiny_bundle).files
    source = next(name for name in real if name.endswith(".c") and "_data" not in name)
    text = real[source].replace("(unsigned char *)arena", "(unsigned char *)64")
    text = text.replace(", arena);", ", (unsigned char *)64);")
    assert text != real[source]

    class Made:
        def __init__(self, *_: object):
            self.files = {**real, source: text}

    monkeypatch.setattr(generator, "generate", Made)
    assert main(["build", str(tiny_bundle), QUICK]) == ExitCode.REFUSED
    assert "SIGSEGV" in capsys.readouterr().err
    assert names(cache) == []


def test_an_operator_that_is_not_covered_leaves_nothing_behind(
    tiny_bundle: Path,
    cache: Path,
    compiler: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*_: object) -> None:
        raise ExportError("the operator Einsum of the node mix is not covered.")

    monkeypatch.setattr(generator, "generate", refuse)
    monkeypatch.setattr(loop_program, "generate", refuse)
    out = cache.parent / "out"
    for options in ([], ["--source", "--out", str(out)], ["--program", "--out", str(out)]):
        assert main(["build", str(tiny_bundle), *options]) == ExitCode.REFUSED
        assert "Einsum" in capsys.readouterr().err
    assert names(cache) == [] and not out.exists()


def test_without_a_compiler_the_machine_is_refused_with_what_to_install(
    tiny_bundle: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", str(cache))
    monkeypatch.setattr(zig, "find_spec", lambda _: None)
    assert main(["build", str(tiny_bundle)]) == ExitCode.MACHINE
    assert "sudo apt install gcc" in capsys.readouterr().err
    assert names(cache) == []


def test_a_folder_that_cannot_be_trusted_is_refused_before_anything_is_compiled(
    tiny_bundle: Path, cache: Path, compiler: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cache.mkdir()
    cache.chmod(0o777)
    assert main(["build", str(tiny_bundle)]) == ExitCode.REFUSED
    captured = capsys.readouterr()
    assert "others may write it" in captured.err and "compiling" not in captured.err


@pytest.mark.long
def test_sources_are_written_and_compile_as_they_are(
    tiny_bundle: Path, tmp_path: Path, compiler: str
) -> None:
    out = tmp_path / "new" / "source"
    build = ["build", str(tiny_bundle), "--source", "--out", str(out), "--name", "sensor"]
    assert main(build) == ExitCode.DONE
    files = ["edgefold_sensor.c", "edgefold_sensor.h", "edgefold_sensor_data.c"]
    assert names(out) == files
    for file in files[::2]:
        subprocess.run([compiler, "-std=c99", "-c", file, "-o", f"{file}.o"], cwd=out, check=True)


@pytest.mark.one_case
@pytest.mark.parametrize("options", [[], ["--program"]])
def test_the_command_that_is_shown_compiles_the_sources(
    tiny_bundle: Path,
    tmp_path: Path,
    compiler: str,
    options: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    build = ["build", str(tiny_bundle), "--source", "--out", str(tmp_path / "out"), *options]
    assert main([*build, "--name", "m"]) == ExitCode.DONE
    command = capsys.readouterr().out.splitlines()[-1].split()
    assert set(FLAGS) < set(command) and set(LEVELS["gcc"]) < set(command)
    command[0] = compiler
    subprocess.run([*command, "-O0"], cwd=tmp_path / "out", check=True)  # -O0: quickly
    made = "edgefold-m-run" if options else "edgefold_m.o"
    assert (tmp_path / "out" / made).exists()


@pytest.mark.parametrize("other", ["text", "folder", "link"])
def test_a_file_of_the_user_is_not_replaced_and_nothing_is_written_beside_it(
    tiny_bundle: Path, tmp_path: Path, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out, place = tmp_path / "out", tmp_path / "out" / "main.c"
    out.mkdir()
    if other == "text":
        place.write_text("int main(void) { return 0; }\n")
    elif other == "folder":
        place.mkdir()
    else:
        place.symlink_to("nowhere")
    build = ["build", str(tiny_bundle), "--source", "--program", "--out", str(out)]
    assert main(build) == ExitCode.REFUSED
    assert str(place) in capsys.readouterr().err
    assert names(out) == ["main.c"]


def test_files_that_edgefold_wrote_are_replaced(tiny_bundle: Path, tmp_path: Path) -> None:
    build = ["build", str(tiny_bundle), "--source", "--program", "--out", str(tmp_path)]
    assert main(build) == ExitCode.DONE
    before = (tmp_path / "main.c").read_text()
    (tmp_path / "main.c").write_text(f"{before}/* changed */\n")
    assert main(build) == ExitCode.DONE
    assert (tmp_path / "main.c").read_text() == before


def test_a_header_of_the_user_is_not_replaced_by_that_of_a_library(
    bundles: Path, tmp_path: Path, compiler: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "edgefold_m.h").write_text("#define MINE 1\n")
    own = next(name for name, target in TARGETS.items() if target.is_native)
    build = ["build", str(bundles / "tiny"), "--target", own, "--name", "m"]
    assert main([*build, "--out", str(tmp_path)]) == ExitCode.REFUSED
    assert "compiling" not in capsys.readouterr().err
    assert names(tmp_path) == ["edgefold_m.h"]


QUICK_TARGETS = ("aarch64-linux-gnu", "cortex-m4")


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [n if n in QUICK_TARGETS else pytest.param(n, marks=pytest.mark.slow) for n in TARGETS],
)
def test_a_target_gives_a_library_and_its_header(
    bundles: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = TARGETS[name]
    if not shutil.which(target.compiler):
        pytest.skip(f"{target.compiler} is not installed ({target.packages})")
    build = ["build", str(bundles / "tiny"), "--target", name, "--out", str(tmp_path / "out")]
    assert main([*build, "--name", "m", QUICK]) == ExitCode.DONE
    printed = capsys.readouterr()
    assert "compiling with" in printed.err
    if target.is_linux:
        assert names(tmp_path / "out") == ["edgefold_m.h", "edgefold_m.so"]
        assert sizes_of([tmp_path / "out" / "edgefold_m.so"]).code > 0
        assert "--library edgefold_m.so" in printed.out
    else:
        assert " ".join(machine_flags(target.flags)) in printed.out and "-lm" in printed.out
        assert names(tmp_path / "out") == ["edgefold_m.h", "libedgefold_m.a"]


@pytest.mark.long
def test_a_library_from_elsewhere_is_proved_and_kept(
    tiny_bundle: Path,
    bundles: Path,
    tmp_path: Path,
    cache: Path,
    compiler: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = next(name for name, target in TARGETS.items() if target.is_native)
    build = ["build", str(tiny_bundle), "--target", own, "--out", str(tmp_path / "out")]
    assert main([*build, QUICK]) == ExitCode.DONE
    assert names(cache) == []
    (library,) = (tmp_path / "out").glob("*.so")
    assert main(["build", str(tiny_bundle), "--library", str(library)]) == ExitCode.DONE
    assert len(LibraryStore().files("native")) == 1
    assert main(["check", str(tiny_bundle), "--backend", "native"]) == ExitCode.DONE
    capsys.readouterr()
    assert main(["build", str(bundles / "foreign"), "--library", str(library)]) == ExitCode.MACHINE
    told = capsys.readouterr().err
    assert f" {library} was built from" in told and "--target" in told
    library.chmod(0o666)
    assert main(["build", str(tiny_bundle), "--library", str(library)]) == ExitCode.MACHINE


def test_a_library_for_another_processor_is_refused(
    tiny_bundle: Path, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = tmp_path / "library.so"
    elf = bytearray(Path(ctypes.__file__).read_bytes()[:64])
    elf[:6], elf[18:20] = b"\x7fELF\x01\x01", b"\xff\xff"
    library.write_bytes(elf)
    library.chmod(0o644)
    assert main(["build", str(tiny_bundle), "--library", str(library)]) == ExitCode.MACHINE
    assert "no library for this processor" in capsys.readouterr().err
    assert names(cache) == []


@pytest.mark.parametrize(
    "options",
    [
        ["--source"],
        ["--program"],
        ["--target", "cortex-m4"],
        ["--out", "out"],
        ["--source", "--target", "cortex-m4", "--out", "out"],
        ["--source", "--flags=-O2", "--out", "out"],
        ["--program", "--target", "cortex-m4", "--out", "out"],
        ["--list", "--out", "out"],
        ["--list", "--library", "x.so"],
        ["--library", "x.so", "--compiler", "gcc"],
        ["--target", "z80", "--out", "out"],
        ["--package", "arduino"],
        ["--package", "arduino", "--source", "--out", "out"],
        ["--package", "arduino", "--target", "cortex-m4", "--out", "out"],
        ["--package", "mbed", "--out", "out"],
        ["--longest-season", "24"],
        ["--memory-map", "memory.png"],
        ["--memory-map", "memory.svg", "--flags=-O2"],
        ["--memory-map", "memory.svg", "--list"],
        ["--longest-season", "24", "--list"],
        ["--longest-season", "24", "--target", "aarch64-linux-gnu", "--out", "out"],
        ["--page"],
        ["--page", "--source", "--out", "out"],
        ["--page", "--target", "wasm32", "--out", "out"],
        ["--page", "--list"],
        ["--target", "wasm32"],
        ["--target", "wasm32", "--program", "--out", "out"],
        ["--target", "wasm32", "--compiler", "clang", "--out", "out"],
    ],
)
def test_options_that_make_no_sense_together_are_wrong_usage(
    tiny_bundle: Path, options: list[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["build", str(tiny_bundle), *options])
    assert ended.value.code == ExitCode.USAGE


@pytest.mark.parametrize("options", [["--source"], ["--source", "--program"]])
def test_a_bundle_for_shorter_seasons_is_written_as_c(
    tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    build = ["build", "sensors", "--longest-season", "24", *options, "--out", str(tmp_path)]
    assert main(build) == ExitCode.DONE
    assert "seasons  of at most 24 slots: rings of 8.9 kB instead" in capsys.readouterr().out
    assert "float state_values[640];" in (tmp_path / "edgefold_sensors.h").read_text()


@pytest.mark.parametrize("length", ["23", "1441", "7", "0", "-24", "24.5", "abc"])
def test_a_longest_season_out_of_range_is_wrong_usage(
    length: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["build", "sensors", "--out", "out"], ["budget", "sensors"]):
        with pytest.raises(SystemExit) as ended:
            main([*words, "--longest-season", length])
        assert ended.value.code == ExitCode.USAGE
        printed = capsys.readouterr().err
        assert "--longest-season" in printed and "24 to 1440" in printed


def test_the_sizes_of_firmware_for_a_sensor_are_those_of_its_engine(tmp_path: Path) -> None:
    shorten_seasons(shipped_bundle(), 168, tmp_path / "bundle")
    files = generator.generate(tmp_path / "bundle").files
    compiled = ElfSizes(code=112_000, constants=201_600, variables=24_000)
    firmware = text.sizes(files, compiled, 1.0, is_firmware=True)
    assert "    74.0 kB  RAM of each sensor\n" in firmware  # the record sensor_firmware
    assert "    24.0 kB  RAM that all sensors share" in firmware
    assert "201.6 kB  constants" in firmware and "197.6 kB of the model" in firmware
    assert "    91.4 kB  RAM of one stream" in text.sizes(files, compiled, 1.0)


def test_a_longest_season_as_long_as_the_whole_bundle_compares_no_sizes() -> None:
    whole = load_manifest(shipped_bundle())
    assert text.shorter_seasons(whole, whole).endswith("slots, as without --longest-season")


@pytest.mark.long
def test_a_library_for_shorter_seasons_comes_with_its_bundle(
    tmp_path: Path, compiler: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "sensors-24"
    build = ["build", "sensors", "--longest-season", "24", "--out", str(out), QUICK]
    assert main(build) == ExitCode.DONE
    assert main(["check", str(out), "--backend", "native"]) == ExitCode.DONE
    capsys.readouterr()
    assert main([*build[:3], "48", *build[4:]]) == ExitCode.REFUSED
    assert "is not this bundle" in capsys.readouterr().err
    assert main(build) == ExitCode.DONE  # the same again


def test_the_memory_map_alone_only_draws(
    tiny_bundle: Path, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "memory.svg"
    build = ["build", str(tiny_bundle), "--memory-map", str(picture)]
    assert main(build) == ExitCode.DONE
    assert capsys.readouterr().out == f"written  {picture}\n"
    assert picture.read_text().startswith("<svg") and names(cache) == []
    assert main([*build, "--source", "--out", str(tmp_path / "out")]) == ExitCode.DONE
    assert "edgefold_cmanp.c" in names(tmp_path / "out")
