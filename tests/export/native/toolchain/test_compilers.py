from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edgefold.export.native.toolchain import zig
from edgefold.export.native.toolchain.compilers import (
    FLAGS,
    LEVELS,
    Compiler,
    compile_archive,
    compile_library,
    find_compiler,
)
from edgefold.export.native.toolchain.elf_sizes import sizes_of
from edgefold.export.native.toolchain.targets import TARGETS, Target, machine_flags
from edgefold.runtime.errors import BackendError
from tests.native_builds import (
    QUICK,
    STRICT,
    c_files,
    compiler_or_skip,
    prove_with_sanitizers,
)

SMALL = {
    "small.c": "int twice(int x);\nint twice(int x) { return 2 * x; }\n",
    "small_data.c": "extern const float numbers[64];\nconst float numbers[64] = {1.0f};\n",
}
Programs = Callable[..., dict[str, str]]


@pytest.fixture(autouse=True)
def without_pip_s_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package ziglang may be installed where the tests run."""
    monkeypatch.setattr(zig, "find_spec", lambda name: None)


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """Makes programs that tell the version of a compiler; gives an environment with no others."""

    def make(*names: str) -> dict[str, str]:
        for name in names:
            program = tmp_path / name
            told = "gcc (Debian 12-1) 12.2.0"
            told = "Debian clang version 14.0.6" if "clang" in name else told
            told = "clang version 22.1.8" if name == "zig" else told
            program.write_text(f"#!/bin/sh\necho '{told}'\n")
            program.chmod(0o755)
        return {"PATH": str(tmp_path)}

    return make


def test_the_first_compiler_on_the_path_is_taken(programs: Programs) -> None:
    found = find_compiler(environment=programs("gcc", "clang"))
    assert found.command == ("gcc",) and found.target is None
    assert set(FLAGS) < set(found.flags) and any("=native" in flag for flag in found.flags)


def test_cc_of_the_environment_comes_first_and_the_one_that_is_asked_for_before_it(
    programs: Programs, tmp_path: Path
) -> None:
    clang = str(tmp_path / "clang-14")
    environment = {**programs("gcc", "clang-14"), "CC": f"{clang} -m64"}
    found = find_compiler(environment=environment)
    assert found.command == (clang, "-m64")
    assert set(LEVELS["clang"]) < set(found.flags)
    own = find_compiler("gcc", environment=environment)
    assert own.command == ("gcc",) and set(LEVELS["gcc"]) < set(own.flags)


def test_zig_is_taken_where_there_is_no_other_compiler(programs: Programs) -> None:
    found = find_compiler(environment=programs("zig"))
    assert found.command == ("zig", "cc") and found.title == "zig's clang 22.1.8"
    assert set(LEVELS["zig"]) < set(found.flags)
    assert find_compiler(environment=programs("zig", "gcc")).command == ("gcc",)
    target = TARGETS["arm-linux-gnueabihf"]
    across = find_compiler(target=target, environment=programs("zig"))
    assert across.flags[-3:] == ("-target", "arm-linux-gnueabihf.2.17", across.flags[-1])
    assert "neon" in across.flags[-1]
    assert across.static_flags == ("-target", "arm-linux-musleabihf")
    with pytest.raises(BackendError):  # zig has no C library of a microcontroller
        find_compiler(target=TARGETS["cortex-m4"], environment=programs("zig"))


def test_the_package_ziglang_is_a_compiler_without_a_program_on_the_path(
    programs: Programs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'clang version 22.1.8'\n")
    python.chmod(0o755)
    monkeypatch.setattr(zig, "find_spec", lambda name: object())
    monkeypatch.setattr(sys, "executable", str(python))
    found = find_compiler(environment=programs())
    assert found.command == (str(python), "-m", "ziglang", "cc")
    assert found.archiver[-2:] == ("ziglang", "ar")


def test_flags_of_the_user_come_last(programs: Programs) -> None:
    flags = find_compiler(extra=("-O1", "-g"), environment=programs("cc")).flags
    assert flags[-2:] == ("-O1", "-g")


def test_without_a_compiler_the_message_has_the_package(programs: Programs) -> None:
    with pytest.raises(BackendError, match="cc, gcc, clang") as refused:
        find_compiler(environment=programs())
    assert refused.value.remedy is not None
    assert refused.value.remedy.command == "pip install ziglang"
    assert "sudo apt install gcc libc6-dev" in str(refused.value)


@pytest.mark.parametrize("name", [name for name in TARGETS if not TARGETS[name].is_native])
def test_a_target_takes_its_own_compiler_or_names_its_package(
    programs: Programs, name: str
) -> None:
    target = TARGETS[name]
    with pytest.raises(BackendError) as refused:
        find_compiler(target=target, environment={**programs("gcc"), "CC": "gcc"})
    assert refused.value.remedy is not None and refused.value.remedy.command is not None
    assert target.packages in refused.value.remedy.command
    found = find_compiler(target=target, environment=programs(os.path.basename(target.compiler)))
    assert found.command == (target.compiler,)
    assert found.flags == (*FLAGS, *LEVELS["gcc"], *target.flags)
    assert not any("native" in flag for flag in found.flags)


@pytest.mark.parametrize(
    ("compiler", "archiver"),
    [
        ("gcc", "ar"),
        ("gcc -m32", "ar"),
        ("ccache arm-none-eabi-gcc", "arm-none-eabi-ar"),
        ("clang", "ar"),
        ("gcc-12", "ar"),
        ("/opt/arm/bin/arm-none-eabi-gcc", "/opt/arm/bin/arm-none-eabi-ar"),
        ("/opt/zig/zig cc", "/opt/zig/zig ar"),
        ("python -m ziglang cc", "python -m ziglang ar"),
    ],
)
def test_the_archiver_comes_with_the_compiler(compiler: str, archiver: str) -> None:
    assert Compiler(tuple(compiler.split()), "", ()).archiver == tuple(archiver.split())


FOREIGN = [target for target in TARGETS.values() if not target.is_native]


@pytest.mark.parametrize("target", FOREIGN, ids=lambda target: target.name)
def test_clang_is_told_the_target_unless_the_user_tells_one(
    programs: Programs, target: Target
) -> None:
    environment = programs("clang", "gcc")
    own = f"--target={target.triple}"
    assert own in find_compiler("clang", target, environment=environment).flags
    assert own not in find_compiler("gcc", target, environment=environment).flags
    other = "--target=other-linux-gnu"
    assert own not in find_compiler(f"clang {other}", target, environment=environment).flags
    assert own not in find_compiler("clang", target, (other,), environment).flags


MACHINES = {"aarch64": 183, "arm": 40, "riscv32": 243, "x86_64": 62}
"""What a file of ELF says of its processor, by the beginning of a triple."""


@pytest.mark.parametrize("target", FOREIGN, ids=lambda target: target.name)
def test_clang_compiles_for_the_target_and_not_for_this_machine(
    target: Target, tmp_path: Path
) -> None:
    if not shutil.which("clang") or not shutil.which(target.compiler):
        pytest.skip(f"clang or {target.packages} is not installed")
    compiler = find_compiler("clang", target)
    if target.is_linux:
        compile_library(SMALL, compiler, tmp_path)
    else:
        compile_archive(SMALL, compiler, tmp_path)
    head = (tmp_path / "small.o").read_bytes()[:20]
    assert int.from_bytes(head[18:20], "little") == MACHINES[target.triple.partition("-")[0]]


def test_of_two_flags_that_set_the_same_the_last_holds() -> None:
    flags = (*TARGETS["cortex-m33"].flags, "-O1", "-mfloat-abi=softfp")
    assert machine_flags(flags) == (
        *("-mthumb", "-mcpu=cortex-m33", "-mfloat-abi=softfp", "-mfpu=fpv5-sp-d16"),
    )


def test_the_document_shows_the_flags_of_projects_and_of_sources() -> None:
    text = (Path(__file__).parents[4] / "docs" / "native.md").read_text()
    for target in TARGETS.values():
        if not target.is_linux:
            assert f"| `{' '.join(machine_flags(target.flags))}` |" in text, target.name
    assert text.count(f"\n{' '.join(('cc', *FLAGS, *LEVELS['gcc']))} ") == 2


def test_libraries_have_a_soname_and_two_of_one_name_do_not_disturb_each_other(
    tmp_path: Path,
) -> None:
    compiler, loaded = compiler_or_skip(), []
    for factor in (2, 3):
        folder = tmp_path / str(factor)
        folder.mkdir()
        text = f"int times(int x);\nint times(int x) {{ return {factor} * x; }}\n"
        library = compile_library({"small.c": text}, compiler, folder)
        assert b"\0small.so\0" in library.read_bytes()
        loaded.append(ctypes.CDLL(str(library)))
    assert [library.times(1) for library in loaded] == [2, 3]


def test_a_compiler_s_first_error_is_told(tmp_path: Path) -> None:
    compiler = compiler_or_skip()
    with pytest.raises(BackendError, match=r"small\.c:1.*error"):
        compile_library({"small.c": "int twice(int x) { return y; }\n"}, compiler, tmp_path)


def test_a_function_that_is_missing_is_told_when_the_library_is_made(tmp_path: Path) -> None:
    text = "int f(void);\nint g(void);\nint g(void) { return f(); }\n"
    with pytest.raises(BackendError, match="ended with code"):
        compile_library({"small.c": text}, compiler_or_skip(), tmp_path)


def test_fast_math_is_refused_by_the_generated_c(tiny_bundle: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="the generator reads the graphs with it")
    files = c_files(tiny_bundle)
    with pytest.raises(BackendError, match="#error"):
        compile_library(files, compiler_or_skip(flags=("-ffast-math",)), tmp_path)


@pytest.mark.one_case
@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_the_generated_c_compiles_without_a_warning(
    tiny_bundle: Path, tmp_path: Path, name: str
) -> None:
    compile_library(c_files(tiny_bundle), compiler_or_skip(name, (*QUICK, *STRICT)), tmp_path)


@pytest.mark.slow
def test_the_generated_c_passes_the_sanitizers(tiny_bundle: Path, tmp_path: Path) -> None:
    prove_with_sanitizers(tiny_bundle, tmp_path)


@pytest.mark.parametrize("name", [None, *TARGETS])
def test_sizes_are_those_that_binutils_tell(name: str | None, tmp_path: Path) -> None:
    target = TARGETS[name] if name else None
    try:
        compiler = find_compiler(target=target)
    except BackendError as error:
        pytest.skip(str(error))
    archive = compile_archive(SMALL, compiler, tmp_path)
    size = shutil.which(compiler.archiver[-1].removesuffix("ar") + "size")
    if size is None:
        pytest.skip("binutils' size is not installed")
    found = sizes_of(sorted(tmp_path.glob("*.o")))
    assert found.constants >= 256 and found.code > 0 and found.variables == 0
    told = subprocess.run([size, archive], capture_output=True, text=True, check=True).stdout
    text = sum(int(line.split()[0]) for line in told.splitlines()[1:])
    assert found.code + found.constants == text
