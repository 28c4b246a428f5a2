"""Use a bundle's C from Python with ctypes: nothing of Edgefold is installed, not even numpy.

    edgefold export examples/kalman.py:Kalman --out bundles/kalman
    edgefold build bundles/kalman --target x86-64-v3 --out dist
    python examples/native/from_python.py dist/edgefold_kalman.so kalman 1.0 1.2 1.4 1.6

The header beside the library documents each call. This script is for a model that learns from y
alone and predicts one mean and one deviation; with x, pass an array of doubles in place of None.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Iterator

MEAN, STD = 0, 1
"""Where the numbers of `prediction_mean` and `prediction_std` lie: a stream begins with them."""


def predictions(path: str, name: str, values: Iterable[float]) -> Iterator[tuple[float, float]]:
    """Predict each value by mean and standard deviation, then learn it.

    Args:
        path: Of the library.
        name: Of the model in C, as in `edgefold_NAME_update`.
        values: y, in the caller's units.

    Raises:
        RuntimeError: The library refused a call; the number is an `enum edgefold_status`.
    """
    library = ctypes.CDLL(path)
    n_bytes = ctypes.c_size_t.in_dll(library, "edgefold_native_stream_bytes").value
    stream = (ctypes.c_double * (n_bytes // 8))()  # as aligned as the struct must be

    def call(what: str, *arguments: object) -> None:
        status = getattr(library, f"edgefold_{name}_{what}")(stream, *arguments)
        if status:
            raise RuntimeError(f"edgefold_{name}_{what} returned {status}")

    getattr(library, f"edgefold_{name}_init")(stream)
    for value in values:
        call("query", ctypes.c_size_t(1), None)
        yield stream[MEAN], stream[STD]
        call("update", None, (ctypes.c_double * 1)(value))


if __name__ == "__main__":
    for mean, std in predictions(sys.argv[1], sys.argv[2], map(float, sys.argv[3:])):
        print(f"{mean:.3f} +- {std:.3f}")
