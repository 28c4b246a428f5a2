"""Names and types of C that stand for those of a bundle."""

from __future__ import annotations

import re

C_TYPES = {
    **{"float16": "uint16_t", "float32": "float", "float64": "double", "bool": "unsigned char"},
    **{f"int{8 * n}": f"int{8 * n}_t" for n in (1, 2, 4, 8)},
    **{f"uint{8 * n}": f"uint{8 * n}_t" for n in (1, 2, 4, 8)},
}
"""By numpy's name; a float16 is only stored so, everything is computed in single precision."""


def c_identifier(text: str) -> str:
    """A name as C takes it, behind some prefix."""
    return re.sub(r"\W", "_", text, flags=re.ASCII)


def model_identifier(name: str) -> str:
    """Return the part of all names in a model's C that its own name gives."""
    return c_identifier(name.lower()).strip("_") or "model"
