"""Sizes as people write them on a command line: 256MiB, 64 MB, 4096."""

from __future__ import annotations

import argparse
import math
import re

UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_FACTORS = {"": 1, **{name.lower(): factor for name, factor in UNITS.items()}}


def byte_size(text: str) -> int:
    """Bytes of a size, for argparse; the unit's letters may be of either case.

    Raises:
        argparse.ArgumentTypeError: It is no positive number with a unit of `UNITS`.
    """
    parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    factor = _FACTORS.get(parts[2].lower(), 0) if parts else 0
    size = float(parts[1]) * factor if parts else 0.0
    n_bytes = round(size) if math.isfinite(size) else 0
    if n_bytes < 1:
        units = ", ".join(UNITS)
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 256MiB, or one of {units}")
    return n_bytes
