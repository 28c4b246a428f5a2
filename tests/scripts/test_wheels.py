"""Wheels: their archives, their C functions, and one that is built, installed and used."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform as host
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from edgefold.runtime.sensors.shipped_bundle import SHIPPED, shipped_bundle
from scripts.wheels.archives import read_wheel, rewrite_sdist, write_wheel
from scripts.wheels.platforms import ALONE, FLAGS, FREESTANDING, PLATFORMS, Platform
from tests.native_builds import c_files, compiler_or_skip

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".venv-wheels" / "bin" / "python"
DATE = (2026, 1, 2, 3, 4, 6)
EMULATORS = {
    "linux-aarch64": ("qemu-aarch64-static", "aarch64-linux-gnu"),
    "linux-armv7l": ("qemu-arm-static", "arm-linux-gnueabihf"),
    "linux-riscv64": ("qemu-riscv64-static", "riscv64-linux-gnu"),
}


def files() -> dict[str, bytes]:
    return {
        "edgefold/runtime/a.py": b"x = 1\n",
        "edgefold-1.dist-info/METADATA": b"Name: edgefold\n",
        "edgefold-1.dist-info/WHEEL": b"replaced",
    }


def test_a_wheel_has_the_bytes_of_its_content_and_a_true_record(tmp_path: Path) -> None:
    tags = ("manylinux_2_17_x86_64", "musllinux_1_2_x86_64")
    made = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        content = files() if folder.name == "a" else dict(reversed(files().items()))
        made.append(write_wheel(content, tags, folder, DATE))
    assert made[0].read_bytes() == made[1].read_bytes()
    assert made[0].name == f"edgefold-1-py3-none-{'.'.join(tags)}.whl"
    with zipfile.ZipFile(made[0]) as archive:
        *others, record = archive.namelist()
        about = archive.read("edgefold-1.dist-info/WHEEL").decode()
        lines = archive.read(record).decode().splitlines()
    assert "Root-Is-Purelib: false" in about
    assert [f"Tag: py3-none-{tag}" in about for tag in tags] == [True, True]
    assert [line.partition(",")[0] for line in lines] == [*others, record]
    assert others[-2:] == sorted(name for name in others if "dist-info" in name)
    assert read_wheel(made[0]).keys() == files().keys()


def test_a_source_archive_does_not_keep_times_and_owners(tmp_path: Path) -> None:
    made = []
    for name, mtime in (("a", 5), ("b", 7)):
        folder = tmp_path / name
        (folder / "out").mkdir(parents=True)
        file = folder / "edgefold.py"
        file.write_text("x = 1\n")
        os.utime(file, (mtime, mtime))
        file.chmod(0o600 if name == "a" else 0o644)
        with tarfile.open(folder / "edgefold-1.tar.gz", "w:gz") as archive:
            archive.add(file, "edgefold-1/edgefold.py")
        made.append(rewrite_sdist(folder / "edgefold-1.tar.gz", folder / "out", 315532800))
    assert made[0].read_bytes() == made[1].read_bytes()


def test_every_platform_has_a_level_that_its_simplest_processor_runs() -> None:
    for platform in PLATFORMS:
        needs = [set(level.needs) for level in platform.levels]
        assert all(more > fewer for more, fewer in pairwise(needs))
        assert not needs[-1] or platform.name == "linux-x86_64"  # where v2 is the simplest
        assert any(tag.startswith("musllinux") for tag in platform.tags) == platform.is_linux


@pytest.mark.long
@pytest.mark.parametrize("name", SHIPPED)
def test_the_library_of_a_shipped_bundle_links_without_a_c_library(
    name: str, tmp_path: Path
) -> None:
    if sys.platform != "linux":
        pytest.skip("only libraries for Linux are linked so")
    compiler = compiler_or_skip(flags=(*FLAGS, "-O1"))
    texts = {**c_files(shipped_bundle(name)), FREESTANDING.name: FREESTANDING.read_text()}
    for file, text in texts.items():
        (tmp_path / file).write_text(text)
        last = ("-ffreestanding", "-fno-builtin") if file == FREESTANDING.name else ()
        if file.endswith(".c"):
            command = [*compiler.command, *compiler.flags, *last, "-c", file]
            subprocess.run(command, cwd=tmp_path, check=True)
    objects = sorted(path.name for path in tmp_path.glob("*.o"))
    subprocess.run([*compiler.command, "-shared", *ALONE, *objects], cwd=tmp_path, check=True)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels of this machine and of those that can be emulated here, built or named.

    EDGEFOLD_TEST_WHEELS names a folder of wheels that `make wheels` built.
    """
    if "EDGEFOLD_TEST_WHEELS" in os.environ:
        return Path(os.environ["EDGEFOLD_TEST_WHEELS"])
    if not TOOLS.exists() or shutil.which("git") is None:
        pytest.skip("the tools of the wheels are not installed: make wheels installs them")
    names = [f"linux-{host.machine()}"] + [
        name
        for name, (emulator, sysroot) in EMULATORS.items()
        if shutil.which(emulator) and shutil.which(f"{sysroot}-gcc")
    ]
    known = {platform.name for platform in PLATFORMS}
    words = [word for name in names if name in known for word in ("--platform", name)]
    out = tmp_path_factory.mktemp("wheels") / "dist"
    done = subprocess.run(
        [TOOLS, "scripts/wheels/build.py", "--out", out, *words],
        cwd=ROOT,
        env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(ROOT / ".venv-wheels" / "zig-cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


def wheel_of(dist: Path, platform: Platform) -> Path:
    found = list(dist.glob(f"*{platform.tags[-1]}.whl"))
    if not found:
        pytest.skip(f"no emulator or cross-compiler for {platform.name}")
    return found[0]


@pytest.mark.slow
def test_an_installed_wheel_forecasts_with_its_own_library(dist: Path, tmp_path: Path) -> None:
    """In a clean environment, without the clone, a compiler and onnxruntime."""
    here = next((p for p in PLATFORMS if p.name == f"linux-{host.machine()}"), None)
    if here is None:
        pytest.skip(f"no wheel for {host.machine()}")
    env = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", env], check=True)
    site = next(env.glob("lib/python*/site-packages"))
    with zipfile.ZipFile(wheel_of(dist, here)) as archive:
        archive.extractall(site)
    (site / "numpy.pth").write_text(str(only_numpy(tmp_path)))
    rows = "".join(f"{i},{math.sin(i / 4):.4f}\n" for i in range(200))
    (tmp_path / "in.csv").write_text(f"time,level\n{rows}")
    environment = {"PATH": "", "HOME": str(tmp_path), "EDGEFOLD_CACHE": str(tmp_path / "cache")}

    def edgefold(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [env / "bin" / "python", "-m", "edgefold.cli.main", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    for bundle in ("sensors", "gp-tiny"):
        checked = edgefold("check", bundle, "--backend", "native")
        assert checked.returncode == 0, checked.stderr
        assert "library of the wheel, " in checked.stdout
    done = edgefold("forecast", "in.csv")
    assert done.returncode == 0, done.stderr
    assert "native, library of the wheel, " in done.stdout + done.stderr
    for library in site.glob("edgefold/runtime/shipped_libraries/*.so"):
        code = bytearray(library.read_bytes())
        code[len(code) // 2] ^= 1
        library.write_bytes(code)
    refused = edgefold("check", "gp-tiny", "--backend", "native")
    assert refused.returncode != 0 and "was changed since the wheel" in refused.stderr


def only_numpy(folder: Path) -> Path:
    """A folder with numpy of this environment and nothing else."""
    place = folder / "packages"
    place.mkdir()
    numpy = Path(np.__file__).parent
    (place / "numpy").symlink_to(numpy)
    libraries = numpy.with_name("numpy.libs")
    if libraries.exists():
        (place / "numpy.libs").symlink_to(libraries)
    return place


@pytest.mark.slow
@pytest.mark.parametrize("name", EMULATORS)
@pytest.mark.parametrize("bundle", ["sensors", "gp-tiny"])
def test_each_library_replays_the_golden_stream_under_emulation(
    name: str, bundle: str, dist: Path, tmp_path: Path
) -> None:
    """A C program of Debian's cross-compiler loads the wheel's file as any program would."""
    pytest.importorskip("onnx", reason="the generator reads the graphs with it")
    from edgefold.export.native.firmware_project import replay_sources
    from edgefold.export.native.toolchain.machines import EMULATED
    from edgefold.runtime.sensors.shipped_bundle import shipped_bundle

    platform = next(platform for platform in PLATFORMS if platform.name == name)
    emulator, sysroot = EMULATORS[name]
    for program in (emulator, f"{sysroot}-gcc"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: apt-get install, as .ci/run does")
    machine = next(each for each in EMULATED if each.name == "aarch64 Linux")
    sources = replay_sources(shipped_bundle(bundle), machine)
    # The wheel's library has no snapshots: Python writes them.
    sources["golden_replay.c"] = sources["golden_replay.c"].replace("    keep();\n", "")
    sources["golden.h"] = re.sub(
        r"static enum edgefold_status golden_(save|load)\(.*?\n}\n",
        "",
        sources["golden.h"],
        flags=re.DOTALL,
    )
    sources["golden_replay.c"] = re.sub(
        r"/\* Save, forget.*?\n}\n", "", sources["golden_replay.c"], flags=re.DOTALL
    )
    with zipfile.ZipFile(wheel_of(dist, platform)) as archive:
        for level in platform.levels:
            folder = tmp_path / level.name
            folder.mkdir()
            place = f"edgefold/runtime/shipped_libraries/{bundle}-{level.name}.so"
            (folder / "edgefold.so").write_bytes(archive.read(place))
            for file, text in sources.items():
                (folder / file).write_text(text)
            command = [f"{sysroot}-gcc", "-std=gnu99", "-O1", "-w", "golden_replay.c"]
            command += ["-DEDGEFOLD_WITHOUT_SNAPSHOTS", "machine_linux.c", "./edgefold.so"]
            subprocess.run([*command, "-lm", "-o", "replay"], cwd=folder, check=True)
            done = subprocess.run(
                [emulator, "-L", f"/usr/{sysroot}", "-E", "LD_LIBRARY_PATH=.", "./replay"],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0 and "PASS" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_libraries_need_no_other_and_know_no_path_of_this_machine(dist: Path) -> None:
    for path in dist.glob("*manylinux*.whl"):
        with zipfile.ZipFile(path) as archive:
            index = json.loads(archive.read("edgefold/runtime/shipped_libraries/libraries.json"))
            for entry in index["libraries"]:
                code = archive.read(f"edgefold/runtime/shipped_libraries/{entry['file']}")
                assert hashlib.sha256(code).hexdigest() == entry["sha256"]
                assert b"libc.so" not in code and b"libm.so" not in code
                for word in (str(ROOT), str(Path.home()), "/tmp/", "ziglang"):
                    assert word.encode() not in code
