"""Find which TensorRT this machine has, and load it only when it is used.

There are two variants:

    tensorrt        TensorRT 10.3 and newer; on a Jetson a part of JetPack. It measures kernels on
                    the GPU where it builds, so an engine belongs to that GPU.
    tensorrt_rtx    TensorRT for RTX, with the same interface. It builds for a compute capability
                    (a kind of GPU), on any x86-64 machine, with or without a GPU.

All other code is the same for both and reads the differences from `Variant`.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from edgefold.runtime.backends.tensorrt.inspection import LOG_START
from edgefold.runtime.errors import BackendError

VARIANTS = ("tensorrt", "tensorrt_rtx")
"""Lists the names of both variants' Python modules, the preferred one first."""
OLDEST = {"tensorrt": (10, 3), "tensorrt_rtx": (1, 2)}
"""Gives the oldest supported version of each variant.

JetPack 6.1 brings 10.3. Since 1.2 the RTX variant can run without allocating memory of its own,
which is necessary to capture a step.
"""
INSTALL = (
    "On a Jetson it belongs to JetPack: sudo apt install nvidia-jetpack (or python3-libnvinfer), "
    "and make the virtual environment with --system-site-packages; on a server: "
    "pip install tensorrt-cu13 (tensorrt-cu12 with a driver for CUDA 12); on an RTX machine, or to "
    "build ahead without a GPU: pip install tensorrt-rtx."
)
KEPT_MESSAGES = 64
"""A logger keeps at most this many messages: it lives as long as its engines, perhaps for years."""


@dataclass(frozen=True, slots=True)
class Variant:
    """Holds an imported TensorRT.

    Attributes:
        name: "tensorrt" or "tensorrt_rtx".
        module: The imported Python module.
        version: The module's version, such as "10.3.0.26", with all numbers that it has.
    """

    name: str
    module: Any
    version: str

    @property
    def title(self) -> str:
        """Return the product's name and version for messages, such as "TensorRT 10.3.0"."""
        return f"{'TensorRT-RTX' if self.name == 'tensorrt_rtx' else 'TensorRT'} {self.version}"


def installed() -> str | None:
    """Return the first name in `VARIANTS` whose Python module is installed, or None.

    The module and its 230 MB of libraries are not loaded.
    """
    return next((name for name in VARIANTS if find_spec(name) is not None), None)


def find_variant(name: str | None = None) -> Variant:
    """Import a variant of TensorRT by its name, or with None the preferred one that is installed.

    Raises:
        BackendError: The variant is unknown, not installed, does not load, or is too old.
    """
    if name is not None and name not in VARIANTS:
        raise BackendError(f"variant {name!r} is unknown; choose one of: {', '.join(VARIANTS)}.")
    chosen = installed() if name is None else name
    if chosen is None or find_spec(chosen) is None:
        missing = chosen or "TensorRT"
        raise BackendError(f"{missing} is not installed for this Python. {INSTALL}")
    try:
        module = import_module(chosen)
        version = str(module.__version__)
    except Exception as error:  # the loader's OSError, and whatever a broken package raises
        raise BackendError(
            f"{chosen} is installed but does not load ({type(error).__name__}: {error}); its "
            "libraries are missing, or of another CUDA version or another Python. Install it "
            f"again. {INSTALL}"
        ) from error
    variant = Variant(chosen, module, version)
    _require_recent(variant)
    return variant


def _require_recent(variant: Variant) -> None:
    numbers = re.match(r"(\d+)\.(\d+)", variant.version)
    version = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    oldest = OLDEST[variant.name]
    if version < oldest:
        raise BackendError(
            f"{variant.title} is too old: Edgefold needs {oldest[0]}.{oldest[1]} or newer. "
            "JetPack 6.1 brings 10.3; JetPack 5 (TensorRT 8.5) is out of scope: use the backend "
            "onnxruntime there."
        )


def make_logger(variant: Variant) -> Any:
    """Return a logger that keeps TensorRT's warnings and errors instead of printing them.

    All calls for one variant return the same logger, because TensorRT keeps using the first one
    that a process gives it.

    Returns:
        An ILogger to pass wherever TensorRT takes a logger. Its attributes `errors` and `warnings`
        hold the last messages, oldest first, one line each; clear `errors` before a call that may
        fail. `kernels` holds the last message that lists an engine's kernels, for
        `inspection.read_log`.
    """
    return _logger_of(variant.module.ILogger)


@cache
def _logger_of(base: Any) -> Any:
    severity = base.Severity

    class CollectingLogger(base):  # type: ignore[misc]
        """Keeps TensorRT's last errors and warnings, and its last list of kernels."""

        def __init__(self) -> None:
            base.__init__(self)  # pybind11 demands the base's own, not super()'s
            self.errors: deque[str] = deque(maxlen=KEPT_MESSAGES)
            self.warnings: deque[str] = deque(maxlen=KEPT_MESSAGES)
            self.kernels = ""

        def log(self, level: Any, message: str) -> None:
            if level in (severity.INTERNAL_ERROR, severity.ERROR):
                self.errors.append(" ".join(message.split()))
            elif level == severity.WARNING:
                self.warnings.append(" ".join(message.split()))
            elif message.startswith(LOG_START):
                self.kernels = message

    return CollectingLogger()
