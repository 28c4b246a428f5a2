"""Store the constants of a bundle's graphs as C arrays, each once for all graphs that read it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefold.export.native.program.c_words import c_identifier
from edgefold.export.native.program.values import Buffer

Array = NDArray[Any]
A_LINE = 8
UNNAMED = re.compile(r"c_[0-9a-f]{16}$|edgefold\.|rows/")
"""Matches names that the export gives to constants of its own, or by their content."""
PANELS = (16, 8, 4)
"""Widths, in columns, of the panels that c/products.c multiplies at once."""


@dataclass(slots=True)
class Constants:
    """Collects arrays; those with the same bytes and type are stored once.

    Attributes:
        prefix: Beginning of the arrays' names in C.
    """

    prefix: str
    _held: dict[tuple[str, bytes], Buffer] = field(default_factory=dict)
    _arrays: list[tuple[Buffer, Array]] = field(default_factory=list)
    _notes: list[str] = field(default_factory=list)

    def buffer(self, array: Array, reader: str = "", name: str = "") -> Buffer:
        """Add an array in row-major order if it is new, and return its buffer.

        Args:
            array: Numbers of any shape and type.
            reader: Words for a comment in C that say what reads it, such as "MatMul of scores".
            name: Name of the constant in the graph, from which that in C is made. A name by which
                the export marks equal contents is no name: the array then gets a number.
        """
        array = np.ascontiguousarray(array)
        key = array.dtype.name, array.tobytes()
        if key not in self._held:
            text = self._free_name(name if name and not UNNAMED.match(name) else "")
            self._held[key] = buffer = Buffer(text, array.dtype.name, array.size, "constant")
            stored = array.view(np.uint16) if array.dtype == np.float16 else array
            self._arrays.append((buffer, stored.reshape(-1)))
            shape = " x ".join(map(str, array.shape)) or "1"
            self._notes.append(f"/* {shape}{f', read by {reader}' if reader else ''} */\n")
        return self._held[key]

    def _free_name(self, name: str) -> str:
        """Return a name in C that no array has, made of `name` or, if that is "", of a number."""
        first = f"{self.prefix}_constant_{c_identifier(name or str(len(self._arrays)))}"
        taken, text, count = {buffer.name for buffer, _ in self._arrays}, first, 1
        while text in taken:
            count += 1
            text = f"{first}_{count}"
        return text

    @property
    def n_bytes(self) -> int:
        """Return the number of bytes that all arrays take in flash."""
        return sum(array.nbytes for _, array in self._arrays)

    def declarations(self) -> str:
        """Return the C lines that declare the arrays, for the file that reads them."""
        return "".join(f"extern const {b.c_type} {b.name}[{b.size}];\n" for b, _ in self._arrays)

    def definitions(self) -> str:
        """Return the C text that defines the arrays with their numbers."""
        arrays = zip(self._notes, self._arrays, strict=True)
        return "\n".join(note + _definition(*array) for note, array in arrays)


def _definition(buffer: Buffer, array: Array) -> str:
    head = f"EDGEFOLD_ALIGNED const {buffer.c_type} {buffer.name}[{buffer.size}] = {{\n"
    if array.dtype.kind == "f" and np.isfinite(array).all():
        form = "%.8ef," if array.dtype == np.float32 else "%.16e,"
    elif array.dtype.kind == "f":
        return head + "".join(f"{number_text(v, buffer.dtype)},\n" for v in array) + "};\n"
    else:
        form = "%d,"
        if array.itemsize == 8 and not np.array_equal(array.astype(np.int32), array):
            return head + "".join(f"{number_text(v, buffer.dtype)},\n" for v in array) + "};\n"
    rows, rest = divmod(array.size, A_LINE)
    text = (form * A_LINE + "\n") * rows + form * rest
    return head + text % tuple(array.tolist()) + "\n};\n"


def number_text(number: Any, dtype: str) -> str:
    """Return a number of a type (numpy's name) as C text."""
    if dtype in ("float32", "float16"):
        value = float(number)
        if not math.isfinite(value):
            return "NAN" if math.isnan(value) else ("(-INFINITY)" if value < 0 else "INFINITY")
        text = str(np.float32(value))
        text = text if "." in text or "e" in text else text + ".0"
        return f"({text}f)" if text.startswith("-") else text + "f"
    if dtype == "float64":
        return f"({float(number)!r})" if math.isfinite(number) else number_text(number, "float32")
    if dtype == "int64" and abs(int(number)) > 2**31 - 1:
        return "INT64_MIN" if int(number) == -(2**63) else f"INT64_C({int(number)})"
    text = str(int(number))
    return f"({text})" if text.startswith("-") else text


def packed(weights: Array) -> Array:
    """Return a matrix (K, N) as panels of columns, (K * N,), which c/products.c reads.

    The panels are 16 columns wide, the last ones 8, 4 and 1; within a panel row follows row.
    """
    n, parts, start = weights.shape[1], [], 0
    for width in (*PANELS, 1):
        while n - start >= width:
            parts.append(weights[:, start : start + width].reshape(-1))
            start += width
    return np.concatenate(parts) if parts else np.zeros(0, weights.dtype)
