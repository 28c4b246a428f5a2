"""Write what `edgefold build` makes for browsers: a page, or a package of npm.

A file or folder that was written before is replaced; anything else at its place is left alone.
"""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.terminal import say
from edgefold.cli.text.numbers import format_bytes, format_time
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.errors import BackendError, OutputError, Remedy, install_extra
from edgefold.runtime.files import write_atomic

PAGE_MARK = b'<meta name="generator" content="edgefold build">'
"""Text in every page that is written; a file without it is somebody else's."""


def write_browser_files(
    bundle: str, title: str, out: Path, page: bool, flags: Sequence[str], name: str | None = None
) -> int:
    """Compile a bundle to WebAssembly and write a page, or a package of npm; return DONE.

    The general model of sensors gets the package with their engine, any other model one with its
    steps.

    Args:
        bundle: The bundle's folder; for a page, of the general model of sensors.
        title: The bundle's name, for the output.
        out: The file of the page, or the folder of the package.
        page: Whether the page is written.
        flags: Further flags of the compiler.
        name: The name of the package; None for edgefold- and the model's name.

    Raises:
        BundleError: A page is asked for, and the bundle holds another model than that of sensors.
        ExportError: An operator of the model is not covered.
        OutputError: There is something at `out` that was not written by this function.
        BackendError: zig or the package that reads the graphs is missing, or zig failed.
    """
    try:
        from edgefold.export.browser.module import compile_model, compile_sensors
        from edgefold.export.browser.package import SENSORS, model_package, sensors_package
        from edgefold.export.browser.page import page_of
        from edgefold.export.native.sensors.sensor_bundle import is_of_sensors
        from edgefold.export.native.toolchain.wasm import find_wasm_compiler
    except ModuleNotFoundError as error:
        install = install_extra("build")
        raise BackendError(
            f"{error.name} is not installed, without which no C is written; {install} brings it "
            "and ziglang, which compiles it.",
            Remedy("what `edgefold build` needs", install),
        ) from error
    manifest = load_manifest(bundle)
    has_sensors = page or is_of_sensors(manifest)
    package = SENSORS if has_sensors else package_name(name or str(manifest.model.get("name")))
    _require_own_page(out) if page else _require_own_package(out, package)
    compiler = find_wasm_compiler(flags)
    say(f"compiling with {compiler.title} …")
    start_s = time.monotonic()
    module = (compile_sensors if has_sensors else compile_model)(Path(bundle), compiler)
    compiled_s = time.monotonic() - start_s
    if page:
        files = {out: page_of(module).encode()}
    else:
        own = sensors_package(module) if has_sensors else model_package(module, package)
        files = {out / path: content for path, content in own.items()}
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)
    whole = b"".join(files.values())
    packed = format_bytes(len(gzip.compress(whole, mtime=0)))
    print(f"{title}   WebAssembly by {compiler.title}\n")
    print(f"  {format_bytes(len(module)):>10}  module, with the weights")
    print(f"  {format_bytes(len(whole)):>10}  all, {packed} with gzip")
    print(f"  {format_time(compiled_s):>10}  to compile\n")
    print(f"written  {out}")
    folder = out if out.is_absolute() else f"./{out}"  # a bare name is one of npm's registry
    print(f"next     {'open it in a browser' if page else f'npm install {folder}'}")
    return ExitCode.DONE


def package_name(name: str) -> str:
    """Return the name of the package of a model, which npm allows: edgefold- and small letters."""
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return f"edgefold-{words or 'model'}"


def _require_own_page(out: Path) -> None:
    """Raise OutputError if there is something else than a page of ours at `out`."""
    if not out.exists() or (out.is_file() and PAGE_MARK in out.read_bytes()[:4096]):
        return
    hint = f"; give a file, such as {out / 'sensors.html'}" if out.is_dir() else ""
    raise OutputError(f"{out} exists, and `edgefold build --page` did not write it{hint}.")


def _require_own_package(out: Path, name: str) -> None:
    """Raise OutputError if `out` is neither absent, nor empty, nor a package of this name."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    try:
        if json.loads((out / "package.json").read_bytes())["name"] == name:
            return
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise OutputError(
        f"{out} exists, and `edgefold build --target wasm32` did not write it; give another --out."
    )
