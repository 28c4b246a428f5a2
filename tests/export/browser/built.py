"""The engine of sensors as WebAssembly, made once in a run, and the programs that tests need."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgefold.export.native.toolchain.compilers import Compiler
from edgefold.export.native.toolchain.wasm import find_wasm_compiler
from edgefold.runtime.errors import BackendError
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from tests.made_once import made_once

ROOT = Path(__file__).parents[3]
NODE = shutil.which("node")
TOOLS = ROOT / ".node-tools" / "node_modules"
ZIG = ROOT / ".zig" / "ziglang"
"""Where `.ci/run` installs what only tests need: of npm, and zig."""
needs_node = pytest.mark.skipif(NODE is None, reason="no node here: apt-get install nodejs")
needs_typescript = pytest.mark.skipif(
    NODE is None or not (TOOLS / "typescript").is_dir(),
    reason="no TypeScript here: npm install --prefix .node-tools typescript@5.9",
)
needs_axe = pytest.mark.skipif(
    not (TOOLS / "axe-core").is_dir(),
    reason="no axe here: npm install --prefix .node-tools axe-core@4.11",
)


@contextmanager
def zig() -> Iterator[Compiler]:
    """The compiler of WebAssembly for a block; the test is skipped where there is none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", os.pathsep.join([str(ZIG), os.environ["PATH"]]))
        try:
            compiler = find_wasm_compiler()
        except BackendError as error:
            pytest.skip(str(error))
        yield compiler


def sensors_module(factory: pytest.TempPathFactory) -> bytes:
    """The module of the shipped bundle."""
    from edgefold.export.browser.module import compile_sensors

    def make(folder: Path) -> None:
        (folder / "module.wasm").write_bytes(compile_sensors(shipped_bundle(), compiler))

    with zig() as compiler:
        return (made_once(factory, "wasm", make) / "module.wasm").read_bytes()
