"""Say what helps where onnxruntime is not installed: its wheel, or compiled code where none is.

onnxruntime's wheels are for x86-64 and 64-bit Arm with glibc. A Python of 32 bits takes no wheel of
64, also under a kernel that calls itself aarch64, as Raspberry Pi's 32-bit system does.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from edgefold.runtime.errors import BackendError, Remedy, install_extra

WHEELS = ("x86_64", "aarch64")


@dataclass(frozen=True, slots=True)
class System:
    """Names the facts on which it depends whether a wheel fits.

    Attributes:
        architecture: The kernel's name of the processor, such as "armv7l".
        glibc: Whether the C library is glibc; musl, as on Alpine, is not.
        bits: Size of the interpreter's addresses, 32 or 64.
    """

    architecture: str
    glibc: bool
    bits: int

    def __str__(self) -> str:
        words = f"{self.architecture} with {'glibc' if self.glibc else 'musl'}"
        return words + f" and a Python of {self.bits} bits" * (self.bits != 64)


def read_system() -> System:
    """Return the facts of the running interpreter."""
    try:
        glibc = bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (ValueError, OSError):  # musl does not know the name
        glibc = False
    return System(os.uname().machine, glibc, 64 if sys.maxsize > 2**32 else 32)


def has_wheel(system: System) -> bool:
    """Return whether onnxruntime publishes wheels for such a system."""
    return system.architecture in WHEELS and system.glibc and system.bits == 64


def not_installed(system: System) -> BackendError:
    """Return the error for a missing onnxruntime, with the remedy that helps on the system."""
    if has_wheel(system):
        command = install_extra("cpu")
        remedy = Remedy("onnxruntime, which opens every bundle, compiled or not", command)
        return BackendError(f"onnxruntime is not installed; {command} installs it.", remedy)
    return BackendError(
        f"onnxruntime is not installed, and has no wheel for {system}; there a bundle runs as "
        "compiled C: install Edgefold's wheel for this machine, which holds the shipped model's "
        "library, run `edgefold build BUNDLE` where a C compiler is, or make a program for this "
        "machine on a PC with `edgefold build BUNDLE --program`."
    )


def not_loaded(error: ImportError) -> BackendError:
    """Return the error for an onnxruntime that is installed, but cannot be imported."""
    # NumPy 2 prints the first; a module whose headers are NumPy 1's then raises the second.
    if "NumPy 1.x" in str(error) or "numpy.core.multiarray failed" in str(error):
        remedy = Remedy("this onnxruntime was built for NumPy 1", "pip install 'numpy<2'")
    else:
        remedy = Remedy(
            "onnxruntime is damaged or of another system",
            "pip install --force-reinstall numpy onnxruntime",
        )
    return BackendError(f"onnxruntime does not import ({error}); {remedy.command}.", remedy)
