"""Write the package of npm with the engine of sensors: for node, browsers and bundlers.

package.json, index.js, index.d.ts, README.md
engine/*.js, tables/*.js        as they are in this folder
edgefold_sensors.wasm
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from edgefold.export.native.licence import version_words

FOLDER = Path(__file__).parent
NAME = "edgefold-sensors"
MODULE = "edgefold_sensors.wasm"
CODE = ("engine", "tables")


def package_of(module: bytes) -> dict[str, bytes]:
    """Return the files of the package by their names; `module` is the compiled engine."""
    files = {path.name: path.read_bytes() for path in sorted((FOLDER / "package").iterdir())}
    for folder in CODE:
        for path in sorted((FOLDER / folder).glob("*.js")):
            files[f"{folder}/{path.name}"] = path.read_bytes()
    description = {
        "name": NAME,
        "version": _npm_version(str(version_words()["version"])),
        "description": "Forecasts and alarms of any sensor without training, in WebAssembly.",
        "license": "SEE LICENSE IN README.md",
        "type": "module",
        "exports": {
            ".": {"types": "./index.d.ts", "default": "./index.js"},
            f"./{MODULE}": f"./{MODULE}",
            "./package.json": "./package.json",
        },
        "types": "./index.d.ts",
        "files": ["index.js", "index.d.ts", *CODE, MODULE],
        "engines": {"node": ">=18"},
        "sideEffects": False,
        "keywords": ["forecast", "anomaly-detection", "sensor", "time-series", "wasm"],
    }
    files["package.json"] = (json.dumps(description, indent=2) + "\n").encode()
    files[MODULE] = module
    return files


def _npm_version(version: str) -> str:
    """Return a version of Python as npm writes it: three numbers, then what follows them."""
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    assert numbers is not None, "a version begins with a number"
    parts = [*numbers[0].split("."), "0", "0"][:3]
    rest = re.sub(r"[^0-9A-Za-z]+", ".", version[numbers.end() :]).strip(".")
    return ".".join(parts) + (f"-{rest}" if rest else "")
