"""Write packages of npm: of the engine of sensors, and of any other model.

package.json, index.js, index.d.ts, README.md
node-red/, examples/            of the sensors: the node for Node-RED, and a flow to import
engine/*.js, tables/*.js        as they are in this folder, so far as the package needs them
edgefold_sensors.wasm, or edgefold_model.wasm
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgefold.export.native.licence import version_words

FOLDER = Path(__file__).parent
SENSORS = "edgefold-sensors"
"""The name of the package of sensors."""
SENSORS_MODULE, MODEL_MODULE = "edgefold_sensors.wasm", "edgefold_model.wasm"
NODE_RED = {"version": ">=3.0.0", "nodes": {SENSORS: "node-red/edgefold-sensors.js"}}
"""How the package of sensors says which node it has, as Node-RED reads it in package.json."""


def sensors_package(module: bytes) -> dict[str, bytes]:
    """Return the files of the package of sensors by their names, with the compiled module."""
    about = "Forecasts and alarms of any sensor without training, in WebAssembly."
    words = ("forecast", "anomaly-detection", "sensor", "time-series", "wasm", "node-red")
    code = ("engine/*.js", "tables/*.js")
    further = {"node-red": NODE_RED}
    return _package(SENSORS, about, words, "package", code, SENSORS_MODULE, module, further)


def model_package(module: bytes, name: str) -> dict[str, bytes]:
    """Return the files of the package of another model; `name` is that of the package."""
    about = "A streaming model of constant memory, in WebAssembly."
    code = ("engine/module_memory.js",)
    files = _package(name, about, ("model", "wasm"), "model", code, MODEL_MODULE, module, {})
    return {**files, "README.md": files["README.md"].replace(b"NAME", name.encode())}


def _package(
    name: str,
    about: str,
    keywords: Sequence[str],
    folder: str,
    code: Sequence[str],
    module_name: str,
    module: bytes,
    further: Mapping[str, object],
) -> dict[str, bytes]:
    """Return the files of a package by their names.

    Args:
        name: The package's name.
        about: A sentence on it.
        keywords: Words by which npm finds it.
        folder: The folder here with its own files; its C is compiled into the module.
        code: Patterns of the other files of JavaScript, which keep their folders.
        module_name: The name of the module.
        module: Its bytes.
        further: Further entries of package.json.
    """
    own = sorted(path for path in (FOLDER / folder).rglob("*") if path.is_file())
    files = {
        path.relative_to(FOLDER / folder).as_posix(): path.read_bytes()
        for path in own
        if path.suffix != ".c"
    }
    for path in sorted(path for pattern in code for path in FOLDER.glob(pattern)):
        files[path.relative_to(FOLDER).as_posix()] = path.read_bytes()
    description = {
        "name": name,
        "version": _npm_version(str(version_words()["version"])),
        "description": about,
        "license": "SEE LICENSE IN README.md",
        "type": "module",
        "exports": {
            ".": {"types": "./index.d.ts", "default": "./index.js"},
            f"./{module_name}": f"./{module_name}",
            "./package.json": "./package.json",
        },
        "types": "./index.d.ts",
        "engines": {"node": ">=18"},
        "sideEffects": False,
        "keywords": [*keywords],
        **further,
    }
    files["package.json"] = (json.dumps(description, indent=2) + "\n").encode()
    files[module_name] = module
    return files


def _npm_version(version: str) -> str:
    """Return a version of Python as npm writes it: three numbers, then what follows them."""
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    assert numbers is not None, "a version begins with a number"
    parts = [*numbers[0].split("."), "0", "0"][:3]
    rest = re.sub(r"[^0-9A-Za-z]+", ".", version[numbers.end() :]).strip(".")
    return ".".join(parts) + (f"-{rest}" if rest else "")
