"""The C around the graph functions compiles everywhere without a warning."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from edgefold.runtime import load_manifest
from edgefold.runtime.bundle.manifest import Tensor
from tests.export.native.c_streams import FLAGS, NAME, compiler, stubbed_files
from tests.export.native.test_interface import BundleOf

COMPILERS = {
    "gcc": ["-O2", "-DEDGEFOLD_LIBRARY"],
    "clang": ["-O2", "-DEDGEFOLD_LIBRARY"],
    "arm-none-eabi-gcc": ["-Os", "-mcpu=cortex-m4", "-mthumb"],
    "riscv64-unknown-elf-gcc": ["-Os", "-march=rv32imc", "-mabi=ilp32", "--specs=picolibc.specs"],
}
VARIANTS: tuple[list[str], ...] = ([], ["-DEDGEFOLD_WITHOUT_SNAPSHOTS"])


@pytest.fixture(params=["streams", "shelves", "cmhp"])
def folder(request: pytest.FixtureRequest, bundle_of: BundleOf, tmp_path: Path) -> Path:
    for name, text in stubbed_files(load_manifest(bundle_of(request.param))).items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.one_case
@pytest.mark.parametrize("name", COMPILERS)
def test_the_source_gives_no_warning(folder: Path, name: str) -> None:
    for variant in VARIANTS:
        source = str(folder / f"edgefold_{NAME}.c")
        command = [compiler(name), *FLAGS, *COMPILERS[name], *variant, "-c", source]
        subprocess.run([*command, "-o", str(folder / "o")], check=True)


@pytest.mark.parametrize("kept", [True, False])
def test_the_arena_is_aligned_also_without_attributes(folder: Path, kept: bool) -> None:
    source = folder / f"edgefold_{NAME}.c"
    attribute, least = "__attribute__((aligned(64)))", 64 if kept else "__alignof__(uint64_t)"
    text = source.read_text()
    assert text.count(attribute) == 1
    rule = f"typedef char is_aligned[__alignof__(shared) >= {least} ? 1 : -1];\n"
    source.write_text(text.replace(attribute, attribute if kept else "") + rule)
    subprocess.run([compiler(), *FLAGS, "-fsyntax-only", str(source)], check=True)


def test_the_header_is_also_one_of_cpp(folder: Path) -> None:
    header = folder / f"edgefold_{NAME}.h"
    flags = ("-std=c++11", *FLAGS[1:], "-x", "c++", "-fsyntax-only")
    subprocess.run([compiler("g++"), *flags, str(header)], check=True)


def test_no_name_of_a_manifest_becomes_code(bundle_of: BundleOf, tmp_path: Path) -> None:
    """Names are any printable text, and whoever makes a bundle chooses them."""
    bad = ' "*/ #error }; \\ ?? é'
    manifest = load_manifest(bundle_of("anp"))

    def renamed(tensor: Tensor) -> Tensor:
        kept = tensor.role in ("state", "row", "cache")
        return replace(tensor, name=tensor.name + bad, of=tensor.of + bad * kept)

    graphs = {
        name + bad: replace(
            graph,
            name=name + bad,
            inputs=tuple(map(renamed, graph.inputs)),
            outputs=tuple(map(renamed, graph.outputs)),
        )
        for name, graph in manifest.graphs.items()
    }
    state, cache = (
        tuple(replace(t, name=t.name + bad) for t in tensors)
        for tensors in (manifest.state, manifest.cache)
    )
    model = {"name": bad, "summary": bad}
    hostile = replace(manifest, graphs=graphs, model=model, state=state, cache=cache)
    for name, text in stubbed_files(hostile).items():
        (tmp_path / name).write_text(text)
    source = str(tmp_path / f"edgefold_{NAME}.c")
    command = [compiler(), *FLAGS, "-DEDGEFOLD_LIBRARY", "-fsyntax-only", source]
    subprocess.run(command, check=True)
