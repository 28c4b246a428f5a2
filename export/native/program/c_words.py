"""Translate names and types of a bundle to those of C."""

from __future__ import annotations

import re

C_TYPES = {
    **{"float16": "uint16_t", "float32": "float", "float64": "double", "bool": "unsigned char"},
    **{f"int{8 * n}": f"int{8 * n}_t" for n in (1, 2, 4, 8)},
    **{f"uint{8 * n}": f"uint{8 * n}_t" for n in (1, 2, 4, 8)},
}
"""C types by numpy's name. A float16 is only stored as uint16_t, and computed as float."""


def c_identifier(text: str) -> str:
    """Return a name with `_` for each character that C does not allow.

    The result may begin with a digit or be a word of C, so callers put a prefix before it.
    """
    return re.sub(r"\W", "_", text, flags=re.ASCII)


def model_identifier(name: str) -> str:
    """Return a model's name as a C identifier in lower case, for the names in its C code."""
    return c_identifier(name.lower()).strip("_") or "model"
