"""A job for tests of the crew: it writes a square, and dies or fails where it is asked to."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import NamedTuple

from edgefold.fleets.work.unit import Advance
from edgefold.runtime.errors import DataError


class Square(NamedTuple):
    """Asks for the square of a number.

    Attributes:
        number: The number.
        names: Results whose sum is added.
        n_deaths: The number of processes that die of it.
        fails: Whether it raises an error.
        is_odd: Whether that error cannot be pickled.
    """

    number: int
    names: tuple[str, ...] = ()
    n_deaths: int = 0
    fails: bool = False
    is_odd: bool = False


class OddError(Exception):
    """An error that needs two arguments and has one when it is read again."""

    def __init__(self, one: str, two: str):
        super().__init__(one)


class SquareJob:
    """Computes squares; each run is a line in the file `runs` of the folder."""

    def run(self, argument: Square, place: Path, advance: Advance) -> None:
        with place.with_name("runs").open("a") as file:
            file.write(f"{place.name} {os.environ['OMP_NUM_THREADS']}\n")
        runs = place.with_name("runs").read_text().split()[::2]
        if runs.count(place.name) <= argument.n_deaths:
            os.kill(os.getpid(), signal.SIGKILL)
        if argument.is_odd:
            raise OddError("odd", "error")
        if argument.fails:
            raise DataError("it fails")
        advance(1)
        total = sum(int(place.with_name(name).read_text()) for name in argument.names)
        place.write_text(str(argument.number**2 + total))

    def close(self) -> None:
        pass


def open_square_job(setup: str) -> SquareJob:
    assert setup == "setup"
    return SquareJob()
