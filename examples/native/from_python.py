"""Use a bundle's C from Python with ctypes: nothing of Edgefold is installed, not even numpy.

    edgefold export examples/kalman.py:Kalman --out bundles/kalman
    edgefold build bundles/kalman --target x86-64-v3 --out dist
    python examples/native/from_python.py dist/edgefold_kalman.so kalman 1.0 1.2 1.4 1.6

The header beside the library documents each call. This script is for a library of one stream, whose
model predicts a mean and a deviation of one y. Where the model has x too, give points as x,y (with
several columns x1,x2,y):

    python examples/native/from_python.py dist/edgefold_cmanp.so cmanp -1.0,0.9 -0.9,0.7

With `--snapshot FILE` it goes on from the file if it is there, and writes it at the end.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

USAGE = "usage: from_python.py LIBRARY NAME [--snapshot FILE] [X,...]Y ..."
Callback = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class Model:
    """A stream of a library. A refused call raises RuntimeError with the status.

    Args:
        path: Of the library.
        name: Of the model in C, as in `edgefold_NAME_update`.
    """

    def __init__(self, path: str, name: str) -> None:
        self._library, self._name = ctypes.CDLL(path), name
        n_bytes = self._number("stream_bytes")
        self._stream = (ctypes.c_double * (n_bytes // 8))()  # as aligned as the struct must be
        self.n_inputs = self._number("inputs")
        if (self._number("outputs"), self._number("streams")) != (1, 1):
            raise ValueError(f"{path} is not for one y of one stream")
        # The struct begins with prediction_mean, then prediction_std: a number for each target.
        self._std = self._number("targets")
        getattr(self._library, f"edgefold_{name}_init")(self._stream)

    def query(self, x: Sequence[float]) -> tuple[float, float]:
        """Predict at x, which is empty for a model without x: mean and standard deviation."""
        self._call("query", ctypes.c_size_t(1), self._taken(x))
        return self._stream[0], self._stream[self._std]

    def update(self, x: Sequence[float], y: float) -> None:
        """Learn a point."""
        self._call("update", self._taken(x), (ctypes.c_double * 1)(y))

    def save(self, path: str) -> None:
        """Write the state, as `edgefold run --snapshot` does; the old file stays until the end."""
        written = bytearray()

        def write(_: Any, data: int, n: int) -> int:
            written.extend(ctypes.string_at(data, n))
            return n

        self._call("save", Callback(write), None, None, ctypes.c_size_t(0))
        with open(f"{path}.new", "wb") as file:
            file.write(written)
        os.replace(f"{path}.new", path)

    def load(self, path: str) -> None:
        """Take over the state of a snapshot, which `edgefold run` may have written."""
        with open(path, "rb") as file:

            def read(_: Any, data: int, n: int) -> int:
                part = file.read(n)
                ctypes.memmove(data, part, len(part))
                return len(part)

            self._call("load", Callback(read), None, None, ctypes.c_size_t(0))

    def _taken(self, x: Sequence[float]) -> Any:
        if len(x) != self.n_inputs:  # C would read what lies behind them
            raise ValueError(f"a point has {self.n_inputs} columns of x, and then y")
        return (ctypes.c_double * len(x))(*x)

    def _number(self, what: str) -> int:
        return ctypes.c_size_t.in_dll(self._library, f"edgefold_native_{what}").value

    def _call(self, what: str, *arguments: object) -> None:
        status = getattr(self._library, f"edgefold_{self._name}_{what}")(self._stream, *arguments)
        if status:
            raise RuntimeError(f"edgefold_{self._name}_{what} returned {status}")


def predictions(model: Model, points: Iterable[Sequence[float]]) -> Iterator[tuple[float, float]]:
    """Predict each point's y by mean and standard deviation, then learn it.

    Args:
        model: It keeps what it has learned.
        points: The columns of x, then y, in the caller's units.
    """
    for *x, y in points:
        yield model.query(x)
        model.update(x, y)


def main(arguments: Sequence[str]) -> None:
    """Predict and learn the points of the command line."""
    library, name, *words = arguments if len(arguments) > 2 else sys.exit(USAGE)
    snapshot, words = (words[1], words[2:]) if words[0] == "--snapshot" else ("", words)
    try:
        points = [[float(number) for number in word.split(",")] for word in words]
        model = Model(library, name)
        if snapshot and os.path.exists(snapshot):
            model.load(snapshot)
        for mean, std in predictions(model, points):
            print(f"{mean:.3f} +- {std:.3f}")
        if snapshot:
            model.save(snapshot)
    except (ValueError, OSError, AttributeError, RuntimeError) as error:
        sys.exit(f"{error}\n{USAGE}")


if __name__ == "__main__":
    main(sys.argv[1:])
