"""Join modules of JavaScript into one script, so that a page or a package needs no other file.

The modules of this package import only from each other, by lines as `import { a } from "./b.js";`,
and share no name; so their texts can stand one after the other.
"""

from __future__ import annotations

import re
from pathlib import Path

IMPORT = re.compile(r'^import \{[^}]*\} from "(\.[^"]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?function|class|const)", re.MULTILINE)
AGAIN = re.compile(r"^export \{[^}]*\};\n", re.MULTILINE)


def joined(start: Path) -> str:
    """Return a module and all that it imports as the text of one script, without exports."""
    found: dict[Path, str] = {}
    _collect(start.resolve(), found)
    return "".join(found.values())


def _collect(path: Path, found: dict[Path, str]) -> None:
    """Add the modules that one imports, then itself, to `found`, which keeps their order."""
    if path in found:
        return
    text = path.read_text(encoding="utf-8")
    for name in IMPORT.findall(text):
        _collect((path.parent / name).resolve(), found)
    found[path] = AGAIN.sub("", EXPORT.sub("", IMPORT.sub("", text)))
