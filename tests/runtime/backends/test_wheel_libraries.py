"""Libraries of the installed wheel: which is chosen, when it is proved, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgefold.runtime import Stream
from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.backends.native import wheel_libraries
from edgefold.runtime.backends.native.processor import Processor, read_processor
from edgefold.runtime.backends.native.wheel_libraries import (
    WheelLibrary,
    choose_library,
    libraries_of_wheel,
)
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.errors import BackendError
from edgefold.runtime.hashing import sha256
from scripts.wheels.platforms import PLATFORMS
from tests.native_builds import Native

Wheel = Callable[..., Path]

# Flags of recorded /proc/cpuinfo files, without those that no level asks for.
X86_64_V2 = "cx16 lahf_lm pni popcnt sse4_1 sse4_2 ssse3 sse2"
X86_64_V3 = f"{X86_64_V2} abm avx avx2 bmi1 bmi2 f16c fma movbe xsave"
X86_64_V4 = f"{X86_64_V3} avx512bw avx512cd avx512dq avx512f avx512vl"
CPUINFO = {
    "Xeon Gold 6130": ("linux-x86_64", "x86_64", X86_64_V4, "x86-64-v4"),
    "N100": ("linux-x86_64", "x86_64", X86_64_V3, "x86-64-v3"),
    "Xeon Phi, with AVX-512 but not all of v4": (
        *("linux-x86_64", "x86_64", f"{X86_64_V3} avx512f avx512cd avx512er", "x86-64-v3"),
    ),
    "Atom E3845": ("linux-x86_64", "x86_64", X86_64_V2, "x86-64-v2"),
    "Core 2": ("linux-x86_64", "x86_64", "cx16 lahf_lm pni ssse3 sse2", None),
    "Raspberry Pi 5": ("linux-aarch64", "aarch64", "fp asimd crc32", "armv8-a"),
    "Raspberry Pi 2": ("linux-armv7l", "armv7l", "half thumb vfp neon vfpv3 vfpv4", "armv7-neon"),
    "32 bits on a kernel of 64": ("linux-armv7l", "aarch64", "fp asimd crc32", "armv7-neon"),
    "Marvell Armada 370": (
        "linux-armv7l",
        "armv7l",
        "vfp vfpv3 vfpv3d16",
        "armv7-vfpv3",
    ),
    "VisionFive 2": ("linux-riscv64", "riscv64", "rv64imafdc zba zbb", "rv64gc"),
    "a Pi with the wheel of a PC": ("linux-x86_64", "aarch64", "fp asimd", None),
}


@pytest.fixture
def manifest(tiny_bundle: Path) -> Manifest:
    return load_manifest(tiny_bundle)


@pytest.mark.parametrize("board", CPUINFO)
def test_the_level_is_chosen_by_the_processor_s_abilities(
    board: str, manifest: Manifest, tmp_path: Path
) -> None:
    name, machine, flags, expected = CPUINFO[board]
    key = {"x86_64": "flags", "riscv64": "isa"}.get(machine, "Features")
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nmodel name\t: {board}\n{key}\t\t: {flags}\n")
    processor = replace(read_processor(cpuinfo), architecture=machine)
    platform = next(platform for platform in PLATFORMS if platform.name == name)
    libraries = [
        WheelLibrary(
            *("a.so", manifest.bundle_hash, level.name, platform.architectures, level.needs, "", {})
        )
        for level in platform.levels
    ]
    if expected is None:
        with pytest.raises(BackendError, match="not used"):
            choose_library(manifest, processor, libraries)
    else:
        chosen = choose_library(manifest, processor, libraries)
        assert chosen is not None and chosen.level == expected


def test_a_wheel_without_the_bundle_has_nothing_to_choose(manifest: Manifest) -> None:
    foreign = WheelLibrary("a.so", "0" * 64, "x86-64-v2", ("x86_64",), (), "", {})
    assert choose_library(manifest, read_processor(), [foreign]) is None


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wheel:
    """Writes an index with a library's code, as a wheel holds it; returns the library's file."""

    def install(bundle: Path, code: bytes, **changes: Any) -> Path:
        folder = tmp_path / "shipped_libraries"
        folder.mkdir(exist_ok=True)
        (folder / "tiny.so").write_bytes(code)
        entry = {
            "file": "tiny.so",
            "bundle_sha256": load_manifest(bundle).bundle_hash,
            "level": "any-level",
            "architectures": [read_processor().architecture],
            "needs": [],
            "sha256": sha256(code).hexdigest(),
            "facts": {"compiler": "zig", "flags": "-O3"},
        }
        (folder / "libraries.json").write_text(json.dumps({"libraries": [{**entry, **changes}]}))
        monkeypatch.setattr(wheel_libraries, "FOLDER", folder)
        return folder / "tiny.so"

    return install


@pytest.fixture
def code(tiny_bundle: Path, native: Native) -> bytes:
    """The bytes of a library of the tiny bundle."""
    cache = native(tiny_bundle).cache
    assert cache is not None
    (library,) = cache.glob("*.so")
    return library.read_bytes()


@pytest.fixture
def empty(tmp_path: Path) -> EngineOptions:
    """A folder of built code in which nothing was built."""
    return EngineOptions(tmp_path / "cache")


def report_of(bundle: Path, engine: EngineOptions, backend: str = "native") -> dict[str, Any]:
    with Stream.open(bundle, backend, engine=engine) as stream:
        stream.query([[0.1, 0.2]])
        return stream.backend_report


def test_an_installation_without_libraries_opens_as_before(
    tiny_bundle: Path, tmp_path: Path, empty: EngineOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel_libraries, "FOLDER", tmp_path / "nothing")
    assert libraries_of_wheel() == []
    with pytest.raises(BackendError, match="not built: run"):
        report_of(tiny_bundle, empty)


@pytest.mark.long
def test_the_wheel_s_library_is_proved_once_and_the_report_names_it(
    tiny_bundle: Path, code: bytes, wheel: Wheel, empty: EngineOptions
) -> None:
    path = wheel(tiny_bundle, code)
    lines: list[str] = []
    engine = replace(empty, progress=lines.append)
    report = report_of(tiny_bundle, engine)
    assert (report["name"], report["library"]) == ("native", str(path))
    assert report["origin"] == "library of the wheel, any-level"
    assert report["proof"]["worst"] <= report["proof"]["tolerance"]
    assert len(lines) == 1 and "proving" in lines[0]
    assert report_of(tiny_bundle, engine)["proof"] == report["proof"]
    assert len(lines) == 1  # the record of the first proof was believed
    assert empty.cache is not None
    (record,) = empty.cache.iterdir()
    record.write_bytes(record.read_bytes().replace(b"worst", b"w0rst"))
    report_of(tiny_bundle, engine)
    assert len(lines) == 2  # a changed record is not


@pytest.mark.long
def test_a_library_that_was_built_here_comes_before_the_wheel_s(
    tiny_bundle: Path, code: bytes, wheel: Wheel, native: Native
) -> None:
    wheel(tiny_bundle, code)
    report = report_of(tiny_bundle, native(tiny_bundle))
    assert report["origin"] == "library built by edgefold build"


@pytest.mark.long
def test_a_flipped_byte_is_refused_and_the_next_backend_runs(
    tiny_bundle: Path, code: bytes, wheel: Wheel, empty: EngineOptions
) -> None:
    path = wheel(tiny_bundle, code)
    damaged = bytearray(code)
    damaged[len(code) // 2] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(BackendError, match="was changed since the wheel was built"):
        report_of(tiny_bundle, empty)
    report = report_of(tiny_bundle, empty, "auto")
    assert report["name"] == "onnxruntime"
    assert "was changed since the wheel was built" in report["refused"]["native"]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["not a library", "missing"])
def test_a_file_that_does_not_load_leads_to_the_next_backend(
    kind: str, tiny_bundle: Path, wheel: Wheel, empty: EngineOptions
) -> None:
    path = wheel(tiny_bundle, b"\x7fELF of another processor")
    if kind == "missing":
        path.unlink()
    report = report_of(tiny_bundle, empty, "auto")
    assert report["name"] == "onnxruntime"
    assert "the library of the wheel, any-level is not used" in report["refused"]["native"]
    assert "edgefold build" in report["refused"]["native"]  # which helps where a compiler is


@pytest.mark.long
def test_a_library_of_another_bundle_is_refused_by_what_it_says_itself(
    tiny_bundle: Path, bundles: Path, code: bytes, wheel: Wheel, empty: EngineOptions
) -> None:
    other = bundles / "foreign"
    wheel(other, code)
    with pytest.raises(BackendError, match="was built from the bundle"):
        report_of(other, empty)


@pytest.mark.parametrize(
    "text", ["", "{}", '{"libraries": [{"file": "a.so"}]}', '{"libraries": 7}']
)
def test_a_damaged_index_is_a_reason_and_not_a_crash(
    text: str, tiny_bundle: Path, wheel: Wheel, empty: EngineOptions
) -> None:
    path = wheel(tiny_bundle, b"")
    (path.parent / "libraries.json").write_text(text)
    with pytest.raises(BackendError, match=r"libraries\.json cannot be read"):
        report_of(tiny_bundle, empty)


def test_a_processor_that_shows_nothing_takes_only_what_needs_nothing(manifest: Manifest) -> None:
    hidden = Processor("armv7l", "", frozenset())
    libraries = [
        WheelLibrary("a.so", manifest.bundle_hash, name, ("armv7l",), needs, "", {})
        for name, needs in (("armv7-neon", ("neon|asimd",)), ("armv7-vfpv3", ()))
    ]
    chosen = choose_library(manifest, hidden, libraries)
    assert chosen is not None and chosen.level == "armv7-vfpv3"
