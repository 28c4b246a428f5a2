from __future__ import annotations

import subprocess
import sys

import pytest

from edgefold.runtime.backends.missing_onnxruntime import (
    System,
    has_wheel,
    not_installed,
    not_loaded,
    read_system,
)
from edgefold.runtime.errors import BackendError

PC = System("x86_64", glibc=True, bits=64)


@pytest.mark.parametrize("system", [PC, System("aarch64", glibc=True, bits=64)])
def test_a_system_with_wheels_is_given_the_extra(system: System) -> None:
    error = not_installed(system)
    assert error.remedy and error.remedy.command == "pip install 'edgefold[cpu]'"
    assert error.remedy.command in str(error)


@pytest.mark.parametrize(
    ("system", "words"),
    [
        (System("armv7l", glibc=True, bits=32), "armv7l with glibc and a Python of 32 bits"),
        (System("aarch64", glibc=True, bits=32), "aarch64 with glibc and a Python of 32 bits"),
        (System("riscv64", glibc=True, bits=64), "riscv64 with glibc"),
        (System("x86_64", glibc=False, bits=64), "x86_64 with musl"),
    ],
)
def test_a_system_without_wheels_is_shown_the_ways_of_compiled_code(
    system: System, words: str
) -> None:
    error = not_installed(system)
    assert words in str(error) and "--program" in str(error)
    assert error.remedy is None and "pip install" not in str(error)


def test_an_onnxruntime_for_the_other_numpy_is_named_so() -> None:
    """The text is numpy's own, as on a Jetson with NVIDIA's wheel of onnxruntime."""
    error = not_loaded(
        ImportError("A module that was compiled using NumPy 1.x cannot be run in NumPy 2.2.6")
    )
    assert error.remedy and error.remedy.command == "pip install 'numpy<2'"
    assert "--force-reinstall" in str(not_loaded(ImportError("libgomp.so.1: cannot open")))


def test_this_machine_is_read() -> None:
    system = read_system()
    assert system.bits in (32, 64) and system.architecture
    assert has_wheel(PC)


def test_a_missing_onnxruntime_is_an_error_of_the_backend() -> None:
    code = (
        "import sys; sys.modules['onnxruntime'] = None\n"
        "import edgefold.runtime.backends.onnxruntime_cpu"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "BackendError: onnxruntime is not installed" in done.stderr
    assert BackendError.__name__ in done.stderr.splitlines()[-1]
