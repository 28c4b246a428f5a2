"""A bundle in memory that a case changes and then writes, with every hash and the seal made again.

Anybody can do that: the hashes show damage, not authors. Values that Python's encoder of JSON
cannot write (a name with NUL, a number of 5,000 digits, 2,000 nested lists) are put in as text.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"


@dataclass(slots=True)
class Draft:
    """A bundle that can be changed.

    Attributes:
        source: The subject's folder; unchanged files are linked from there.
        form: The manifest.
        changed: New content of files, by name.
        special: What stands in the place of a file: "missing", "fifo", "folder", "link",
            "outside" (a link to a file elsewhere), "loop" (a link to itself) or "device".
        texts: Raw JSON by the placeholder that stands in the form.
    """

    source: Path
    form: dict[str, Any]
    changed: dict[str, bytes] = field(default_factory=dict)
    special: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    sealed: bool = True

    @classmethod
    def of(cls, source: Path) -> Draft:
        """Read a subject."""
        return cls(source, json.loads((source / MANIFEST).read_bytes()))

    def bytes_of(self, name: str) -> bytes:
        """A file's content."""
        return self.changed.get(name) or (self.source / name).read_bytes()

    @property
    def files(self) -> list[str]:
        """Names of the subject's files, the manifest last."""
        names = sorted(path.name for path in self.source.iterdir())
        return [*(name for name in names if name != MANIFEST), MANIFEST]

    @property
    def graphs(self) -> list[str]:
        """Names of the graphs' files."""
        return [name for name in self.files if name.endswith(".onnx")]

    def raw(self, text: str) -> str:
        """A placeholder for raw JSON."""
        name = f"@raw{len(self.texts)}@"
        self.texts[name] = text
        return name

    def write(self, folder: Path) -> None:
        """Write the bundle; the folder must be empty."""
        self._rehash()
        for name in self.files:
            if name != MANIFEST and name not in self.special and name not in self.changed:
                os.link(self.source / name, folder / name)
        for name, content in self.changed.items():
            if name not in self.special:
                (folder / name).write_bytes(content)
        manifest = self._text()
        if MANIFEST not in self.special:
            (folder / MANIFEST).write_bytes(manifest)
        for name, what in self.special.items():
            content = manifest if name == MANIFEST else self.bytes_of(name)
            _place(folder, name, what, content)

    def _rehash(self) -> None:
        """Give every changed file its hash and its size."""
        entries: list[Any] = [self.form.get("weights"), self.form.get("golden")]
        graphs = self.form.get("graphs")
        entries += list(graphs.values()) if isinstance(graphs, dict) else []
        for entry in entries:
            if not isinstance(entry, dict):
                continue
            name = entry.get("file")
            if isinstance(name, str) and name in self.changed:
                entry["sha256"] = hashlib.sha256(self.changed[name]).hexdigest()
                if "n_bytes" in entry:
                    entry["n_bytes"] = len(self.changed[name])

    def _text(self) -> bytes:
        form = {name: value for name, value in self.form.items() if name != "sha256"}
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(20_000)
        try:
            # As a reader will see it: raw text may stand for another value after parsing.
            text = self._filled(json.dumps(form))
            try:
                canonical = json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
            except (ValueError, RecursionError):
                canonical = self._filled(json.dumps(form, sort_keys=True, separators=(",", ":")))
        finally:
            sys.setrecursionlimit(limit)
        seal = hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()
        whole = f'{text[:-1]}, "sha256": "{seal}"}}' if self.sealed else text
        return whole.encode("utf-8", "surrogatepass")

    def _filled(self, text: str) -> str:
        for name, raw in self.texts.items():
            text = text.replace(f'"{name}"', raw)
        return text


def _place(folder: Path, name: str, what: str, content: bytes) -> None:
    """Put something that is not a regular file in a file's place."""
    path = folder / name
    if what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "link":
        (folder / "beside").write_bytes(content)
        path.symlink_to("beside")
    elif what == "outside":
        beside = folder.parent / "elsewhere.bin"
        beside.write_bytes(content)
        path.symlink_to(beside)
    elif what == "loop":
        path.symlink_to(name)
    elif what == "device":
        path.symlink_to("/dev/zero")
    elif what == "socket":
        import socket

        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))


def places_of(form: Any, start: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values of a JSON form."""
    if start:
        yield start
    if isinstance(form, dict):
        for key, value in form.items():
            yield from places_of(value, (*start, key))
    elif isinstance(form, list):
        for index, value in enumerate(form):
            yield from places_of(value, (*start, index))


def value_at(form: Any, place: tuple[Any, ...]) -> Any:
    """The value at a path."""
    for key in place:
        form = form[key]
    return form
