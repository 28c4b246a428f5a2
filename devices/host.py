"""Give access to the machine that meters read: its files, its commands and NVIDIA's library.

Tests pass a recorded tree of files and recorded answers.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefold.devices.nvidia import load_cudart, load_nvml
from edgefold.devices.sysfs import optional_text
from edgefold.runtime.errors import MeterError

Runner = Callable[[Sequence[str]], str]
"""Runs a command and returns what it printed; raises MeterError when it did not run."""


def run_command(words: Sequence[str]) -> str:
    """Run a vendor's command and return what it prints.

    Raises:
        MeterError: The command is not installed (caused by FileNotFoundError), fails (caused by
            CalledProcessError), or hangs.
    """
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=5, check=True
        )
    except FileNotFoundError as error:
        raise MeterError(f"{words[0]} is not installed") from error
    except subprocess.CalledProcessError as error:
        said = " ".join((error.stdout + " " + error.stderr).split())[:120]
        command = " ".join(words)
        raise MeterError(f"`{command}` failed with code {error.returncode}: {said!r}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MeterError(f"`{' '.join(words)}` did not run ({error})") from error
    return done.stdout


def optional_answer(run: Runner, *command: str) -> str:
    """Return the text that a command prints, or "" if it does not run."""
    try:
        return run(command)
    except MeterError:
        return ""


@dataclass(frozen=True, slots=True)
class Host:
    """Holds the folder, the commands and the modules through which meters read a machine.

    Attributes:
        root: The folder that holds /proc, /sys, /dev and /etc.
        run: Runs a vendor's command and returns the text that it prints.
        nvml: Returns the module pynvml, or raises MeterError.
        cudart: Returns CUDA's runtime module, or raises MeterError.
    """

    root: Path = Path("/")
    run: Runner = run_command
    nvml: Callable[[], Any] = load_nvml
    cudart: Callable[[], Any] = load_cudart


def read_board(root: Path = Path("/")) -> str | None:
    """Return the board's name from its device tree or its firmware; None where neither has one."""
    return optional_text(root / "proc/device-tree/model") or optional_text(
        root / "sys/class/dmi/id/product_name"
    )


def is_virtual(cpuinfo: Path) -> bool:
    """Return whether /proc/cpuinfo (the file `cpuinfo`) says that this machine is a virtual one."""
    return "hypervisor" in (optional_text(cpuinfo) or "").split()
