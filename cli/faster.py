"""Say in one line that compiling a bundle makes it faster, where `auto` opened a slower backend."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from edgefold.cli.terminal import printable, say
from edgefold.runtime.backends.registry import BACKENDS
from edgefold.runtime.errors import BackendError, install_extra

SENSORS_FACTOR = 30
"""The shipped model's step takes this many times longer on onnxruntime than as C, in the record
benchmarks/records/sensor_cost.json; reading and writing a row comes on top of both."""
FACTORS = (2, 10, 60)
"""Least, middle and largest of the same ratio for an update or a step of the models in
benchmarks/records/native_speed.json, compiled for the processor itself."""


def tell_faster(bundle: str, report: dict[str, Any]) -> None:
    """Print on stderr how to compile a bundle that `auto` opened uncompiled, if that helps here.

    Nothing is printed where the user chose the backend, a GPU runs the steps, times were compared,
    or there is neither a compiler nor what generates the C.

    Args:
        bundle: The bundle's folder, or the word for the shipped model.
        report: The stream's report of its backend.
    """
    compiled = next(info for info in BACKENDS.values() if info.runs_c)
    opened = BACKENDS[report["name"]]
    if report.get("asked") != "auto" or report.get("row_s") or opened.device != "cpu":
        return
    if opened is compiled or compiled.name not in report.get("refused", {}):
        return
    if command := _command(bundle):
        say(printable(_line(bundle, command)))


def _command(bundle: str) -> str | None:
    """Return the command that compiles the bundle; None where this machine cannot compile it."""
    from edgefold.runtime.sensors.shipped_bundle import word_of

    try:  # the Debian package has no edgefold.export
        from edgefold.export.native.toolchain.compilers import find_compiler

        find_compiler()
    except (BackendError, ModuleNotFoundError):
        return None
    build = f"edgefold build {word_of(bundle)}"
    return build if find_spec("onnx") else f"{install_extra('build')} && {build}"


def _line(bundle: str, command: str) -> str:
    from edgefold.runtime.sensors.shipped_bundle import SENSORS, word_of

    if word_of(bundle) == SENSORS:
        return (
            f"faster    `{command}` makes the model's steps some {SENSORS_FACTOR} times faster; it "
            "takes some 10 s on a PC, once"
        )
    least, middle, most = FACTORS
    return (
        f"faster    `{command}` compiles this bundle; an update of the models in docs/results.md "
        f"ran {least} to {most} times faster so, {middle} in the middle"
    )
