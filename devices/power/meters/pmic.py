"""Read the power chip of a Raspberry Pi 5 through `vcgencmd pmic_read_adc`.

It prints a current and a voltage for each rail behind the chip, under the rail's name:

    3V3_SYS_A current(1)=0.06245952A
    3V3_SYS_V volt(9)=3.30632200V

The numbers in brackets do not pair them, the names do. Their products are summed; EXT5V and BATT
have only a voltage and are left out. What is connected to the 5 V input directly (USB, HATs,
the fan) and the chip's own losses are in no rail, so the sum is below what a wall meter shows.
"""

from __future__ import annotations

import re
import subprocess

from edgefold.devices.host import Runner, run_command
from edgefold.devices.power.sensor import RailWatch
from edgefold.runtime.errors import MeterError, Remedy

MEASURING = ("Raspberry Pi 5", "Raspberry Pi Compute Module 5")  # boards with this power chip
COMMAND = ("vcgencmd", "pmic_read_adc")
PERIOD_S = 0.1  # one call starts a process and takes some milliseconds
MEMORY_S = 0.0  # the firmware converts when it is asked; no average is documented
LINE = re.compile(r"^\s*(\w+)_([AV])\s+(?:current|volt)\(\d+\)=(-?\d+(?:\.\d+)?)[AV]\s*$")


def remedy_of(board: str | None, cause: BaseException | None) -> Remedy | None:
    """Return the command or advice that gives a Raspberry Pi power readings; None elsewhere.

    `cause` is the exception that kept `vcgencmd` from answering; None if it answered.
    """
    if not (board or "").startswith("Raspberry Pi"):
        return None
    if not (board or "").startswith(MEASURING):
        return Remedy("energy figures: this board has no power sensor; use an external meter")
    if isinstance(cause, FileNotFoundError):
        return Remedy("energy figures of the power chip", "sudo apt install raspi-utils")
    if isinstance(cause, subprocess.CalledProcessError):
        return Remedy(
            "energy figures: the firmware is closed to this user (until the next login)",
            "sudo usermod -aG video $USER",
        )
    return None


class Pmic:
    """Reads the power of the rails behind the power chip, as one `PowerSensor`.

    Args:
        run: Runs a command and returns what it printed; tests pass recorded text.
        board: The board's name, which decides on the remedy in an error.

    Raises:
        MeterError: The command is missing or shows no rail (a Pi 4 and a Zero 2 W have no sensor).
    """

    period_s = PERIOD_S
    memory_s = MEMORY_S
    step_w = None
    scope = "the rails behind the power chip; USB, HATs and the chip's losses are not in"

    def __init__(self, run: Runner = run_command, board: str | None = None) -> None:
        self._run = run
        only = "only a Raspberry Pi 5 (and CM5, 500) measures its power"
        try:
            rails = self._read()
        except MeterError as error:
            remedy = remedy_of(board, error.__cause__)
            advice = f"{remedy.what}: `{remedy.command}`" if remedy and remedy.command else only
            raise MeterError(f"{error}; {advice}", remedy) from error.__cause__
        if not rails:
            raise MeterError(
                f"`{' '.join(COMMAND)}` shows no rail with current and voltage; {only}",
                remedy_of(board, None),
            )
        self.rails = tuple(rails)
        self._watch = RailWatch()
        self.name = f"PMIC ({len(rails)} rails)"

    def read_w(self) -> float:
        """Return the power now in W, summed over the rails.

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
        self._watch.see(rails)
        return sum(rails[name] for name in self.rails)

    @property
    def still_rails(self) -> tuple[str, ...]:
        """Return the names of the rails whose power has never changed."""
        return self._watch.still

    def _read(self) -> dict[str, float]:
        """Return the power in W of each rail that has a current and a voltage, by its name."""
        amperes: dict[str, float] = {}
        volts: dict[str, float] = {}
        for line in self._run(COMMAND).splitlines():
            if match := LINE.match(line):
                name, kind, value = match.groups()
                (amperes if kind == "A" else volts)[name] = float(value)
        return {name: a * volts[name] for name, a in amperes.items() if name in volts}
