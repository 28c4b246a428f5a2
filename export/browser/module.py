"""Compile the engine of sensors to a module of WebAssembly that imports nothing.

bundle ──generate──> C of the model and of the sensors' engine ─┐
                          the functions that JavaScript calls ──┴─zig──> edgefold_sensors.wasm
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from edgefold.export.native.generator import generate
from edgefold.export.native.sensors.sensor_bundle import is_of_sensors
from edgefold.export.native.toolchain.compilers import Compiler
from edgefold.export.native.toolchain.wasm import compile_module
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.errors import BundleError

GLUE = Path(__file__).parent / "engine" / "sensor_module.c"
FUNCTION = re.compile(r"^\w[\w *]*\b(sensor_\w+)\(", re.MULTILINE)


def compile_sensors(bundle: Path, compiler: Compiler) -> bytes:
    """Return the module of a bundle of the general model of sensors.

    Args:
        bundle: The bundle's folder.
        compiler: The compiler that `find_wasm_compiler` found.

    Raises:
        BundleError: The bundle holds another model.
        ExportError: An operator of the model is not covered.
        BackendError: The compiler failed.
    """
    if not is_of_sensors(load_manifest(bundle)):
        raise BundleError(
            f"{bundle} is not a bundle of the general model of sensors, which browsers get; give "
            "the word `sensors`, or one that `edgefold export sensors` wrote."
        )
    glue = GLUE.read_text(encoding="utf-8")
    files = {**generate(bundle, "sensors").files, GLUE.name: glue}
    with tempfile.TemporaryDirectory() as folder:
        return compile_module(files, FUNCTION.findall(glue), compiler, Path(folder))
