"""A wheel that stands in for edgefold's: it installs in a second, and its commands do little.

Its `check` and `build` write down how they were called in `$HOME/asked`; the files `check-code` and
`build-code` of the home are their exit codes.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

CODE = """
import json, os, sys
from pathlib import Path

HOME = Path(os.environ["HOME"])
RECORD = {record}


def main():
    words = sys.argv[1:]
    if words == ["--version"]:
        print("edgefold {version}")
        return 0
    with (HOME / "asked").open("a") as file:
        print(json.dumps([{version!r}, *words]), file=file)
    code = HOME / f"{{words[0]}}-code"
    number = int(code.read_text()) if code.exists() else 0
    if words[0] == "check":
        print(json.dumps({{**RECORD, "passed": number == 0}}))
    if words[0] == "build" and not Path(words[3]).read_bytes():
        return 1
    if number not in (0, 5):
        print("edgefold: error: it went wrong", file=sys.stderr)
    return number
"""
RECORD = {"worst": 2e-7, "tolerance": 1e-5, "backend": {"name": "stand-in", "version": "1"}}


def make_wheel(folder: Path, version: str, tags: str = "py3-none-any", requires: str = "") -> Path:
    """Write the wheel of a version into a folder, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path, info = folder / f"edgefold-{version}-{tags}.whl", f"edgefold-{version}.dist-info"
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        "edgefold_stand_in.py": CODE.format(version=version, record=json.dumps(RECORD)),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: edgefold\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tags}\n",
        f"{info}/entry_points.txt": "[console_scripts]\nedgefold = edgefold_stand_in:main\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, text)
    return path
