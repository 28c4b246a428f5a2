"""Compile a bundle to a module of WebAssembly that imports nothing.

bundle ──generate──> C of the model, and of the sensors' engine ─┐
                          the functions that JavaScript calls ──┴─zig──> edgefold_NAME.wasm
"""

from __future__ import annotations

import math
import re
import tempfile
from pathlib import Path

from edgefold.export.native.generator import generate
from edgefold.export.native.program.c_words import c_identifier
from edgefold.export.native.sensors.sensor_bundle import is_of_sensors
from edgefold.export.native.toolchain.compilers import Compiler
from edgefold.export.native.toolchain.wasm import compile_module
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.errors import BundleError

FOLDER = Path(__file__).parent
BYTES = "module_bytes.h"
FUNCTION = re.compile(r"^\w[\w *]*\b((?:sensor|model)_\w+)\(", re.MULTILINE)
ONLY_OF = re.compile(r"#if EDGEFOLD_MODEL_IS_FILTER\n(.*?)#else\n(.*?)#endif\n", re.DOTALL)
"""Matches the functions of filters, and those of all other models."""


def compile_sensors(bundle: Path, compiler: Compiler) -> bytes:
    """Return the module of a bundle of the general model of sensors, with their engine.

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
            f"{bundle} is not a bundle of the general model of sensors, whose forecasts the page "
            "shows; give the word `sensors`, or one that `edgefold export sensors` wrote."
        )
    return _compiled(bundle, "sensors", FOLDER / "engine" / "sensor_module.c", {}, compiler)


def compile_model(bundle: Path, compiler: Compiler) -> bytes:
    """Return the module of a bundle of any model; see `compile_sensors`."""
    manifest = load_manifest(bundle)
    headers = {"predictions.h": _predictions(manifest)}
    return _compiled(bundle, "model", FOLDER / "model" / "model_module.c", headers, compiler)


def _predictions(manifest: Manifest) -> str:
    """Return a header with a call of PREDICTION for each tensor of the prediction."""
    calls = [
        f"PREDICTION({c_identifier(tensor.name)}, {math.prod(tensor.shape)})"
        for tensor in manifest.prediction_tensors
    ]
    return f"#define PREDICTIONS {' '.join(calls)}\n"


def _compiled(
    bundle: Path, name: str, glue: Path, headers: dict[str, str], compiler: Compiler
) -> bytes:
    """Compile a bundle's C, called edgefold_`name`, with the file of functions for JavaScript."""
    text = glue.read_text(encoding="utf-8")
    both = (FOLDER / BYTES).read_text(encoding="utf-8")
    files = {**generate(bundle, name).files, **headers, BYTES: both, glue.name: text}
    own = ONLY_OF.sub(lambda parts: parts[1 if load_manifest(bundle).is_filter else 2], text)
    with tempfile.TemporaryDirectory() as folder:
        return compile_module(files, FUNCTION.findall(own), compiler, Path(folder))
