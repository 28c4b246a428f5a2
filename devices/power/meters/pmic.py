"""Raspberry Pi 5: the power chip's own meter, through `vcgencmd pmic_read_adc`.

It prints a current and a voltage for each rail behind the chip, under the rail's name:

    3V3_SYS_A current(1)=0.06245952A
    3V3_SYS_V volt(9)=3.30632200V

The numbers in brackets do not pair them, the names do. Their products are summed; EXT5V and BATT
have a voltage alone and are left out. What hangs on the 5 V input directly (USB, HATs, the fan) and
the chip's own losses are in no rail, so the sum lies below what a wall meter shows.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence

from edgefold.runtime.errors import MeterError

COMMAND = ("vcgencmd", "pmic_read_adc")
PERIOD_S = 0.1  # one call starts a process and takes some milliseconds
LINE = re.compile(r"^\s*(\w+)_([AV])\s+(?:current|volt)\(\d+\)=(-?\d+(?:\.\d+)?)[AV]\s*$")


def run_command(words: Sequence[str]) -> str:
    """What a command prints.

    Raises:
        MeterError: It is not installed, fails, or hangs.
    """
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=5, check=False
        )
    except FileNotFoundError:
        raise MeterError(
            f"{words[0]} is not installed: not a Raspberry Pi, or `sudo apt install "
            "raspi-utils` is missing"
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MeterError(f"`{' '.join(words)}` did not run ({error})") from error
    said = " ".join((done.stdout + " " + done.stderr).split())
    if done.returncode:
        raise MeterError(
            f"`{' '.join(words)}` failed with code {done.returncode}: {said[:120]!r}; if /dev/vcio "
            "is closed to you, `sudo usermod -aG video $USER` opens it after the next login"
        )
    return done.stdout


class Pmic:
    """The rails behind the power chip as one `PowerSensor`.

    Args:
        run: Runs a command and returns what it printed; tests pass recorded text.

    Raises:
        MeterError: The command is missing or shows no rail (a Pi 4 and a Zero 2 W have no sensor).
    """

    period_s = PERIOD_S
    step_w = None
    scope = "the rails behind the power chip; USB, HATs and the chip's losses are not in"

    def __init__(self, run: Callable[[Sequence[str]], str] = run_command) -> None:
        self._run = run
        rails = self._read()
        if not rails:
            raise MeterError(
                f"`{' '.join(COMMAND)}` shows no rail with current and voltage; only a Raspberry "
                "Pi 5 (and CM5, 500) measures them"
            )
        self.rails = tuple(rails)
        self.name = f"PMIC ({len(rails)} rails)"

    def read_w(self) -> float:
        """Watts now, summed over the rails.

        Raises:
            MeterError: The command failed, or a rail is missing that was there before.
        """
        rails = self._read()
        missing = [name for name in self.rails if name not in rails]
        if missing:
            raise MeterError(
                f"`{' '.join(COMMAND)}` no longer shows the rail {', '.join(missing)}; the sum "
                "would lack it, so there is no figure. Run the measurement again."
            )
        return sum(rails[name] for name in self.rails)

    def _read(self) -> dict[str, float]:
        """Watts of each rail that has both a current and a voltage."""
        amperes: dict[str, float] = {}
        volts: dict[str, float] = {}
        for line in self._run(COMMAND).splitlines():
            if found := LINE.match(line):
                name, kind, value = found.groups()
                (amperes if kind == "A" else volts)[name] = float(value)
        return {name: a * volts[name] for name, a in amperes.items() if name in volts}
