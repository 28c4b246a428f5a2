"""Select the fixed C code that a bundle's functions call, from the files in folder `c`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

NAME = re.compile(r"\bedgefold_\w+")
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
DEFINED = re.compile(r"^(?:static|EDGEFOLD_INLINE)\b[^(\[=;]*\b(edgefold_\w+)", re.MULTILINE)


def needed(texts: Iterable[str], code: str) -> str:
    """Join those pieces of some C files that `code` needs, in their order.

    A piece is the text between two blank lines, outside of braces and of #if blocks. A piece that
    defines functions or constants is kept if one of their names is used in `code` or in a piece
    that is kept; all other pieces are always kept.
    """
    pieces = [piece for text in texts for piece in _pieces(text)]
    defined = [set(DEFINED.findall(piece)) for piece in pieces]
    flags = [not names for names in defined]
    used = _named(code)
    for piece, stays in zip(pieces, flags, strict=True):
        used.update(_named(piece) if stays else ())
    while True:
        more = [k for k, names in enumerate(defined) if not flags[k] and names & used]
        if not more:
            break
        for k in more:
            flags[k] = True
            used.update(_named(pieces[k]))
    return "\n".join(piece for piece, stays in zip(pieces, flags, strict=True) if stays)


def _named(text: str) -> set[str]:
    """Return the names that begin with edgefold_ in a text, outside of comments."""
    return set(NAME.findall(COMMENT.sub("", text)))


def _pieces(text: str) -> Iterator[str]:
    lines: list[str] = []
    depth = 0
    for line in [*text.splitlines(), ""]:
        if line.startswith(("#if", "#endif")):
            depth += 1 if line.startswith("#if") else -1
        depth += line.count("{") - line.count("}")
        if line or depth:
            lines.append(line)
        elif lines:
            yield "\n".join(lines) + "\n"
            lines = []
