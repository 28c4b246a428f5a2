"""Signed bundles of which bytes were changed, or that carry the signature of another bundle.

None opens with the trusted key, unless the change means nothing: other blanks in the JSON of the
signature file, or another spelling of the same key.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

from attack.changes.array_changes import change_bytes, one_of
from attack.changes.drafts import Draft
from attack.outcomes import Outcome, random_of
from edgefold.runtime.bundle.signature import FILE_NAME, load_expected, read_public_keys
from edgefold.runtime.bundle.signing import new_key, sign_bundle
from edgefold.runtime.errors import EdgefoldError

KEY = "own.pub"
OTHER = "other"


class Cases:
    """Cases of signed bundles."""

    def __init__(self, subjects: Path, scratch: Path):
        self._scratch, self._folder = scratch, scratch / "s"
        self._is_possible = importlib.util.find_spec("cryptography") is not None
        if not self._is_possible:
            return
        self._signed, self._other = scratch / "signed", scratch / "another"
        shutil.copytree(subjects / "kalman", self._signed)
        shutil.copytree(subjects / "gru", self._other)
        for name in ("own", OTHER):
            new_key(scratch / name)
        for bundle in (self._signed, self._other):
            sign_bundle(bundle, scratch / "own")
        self._key_id = read_public_keys([scratch / KEY])[0].id

    def _draw(self, number: int) -> tuple[str, bytes, str]:
        """Return the file that a case changes, its new content, and what was changed."""
        random = random_of("signatures", number)
        pick = float(random.random())
        if pick < 0.06:
            return FILE_NAME, (self._other / FILE_NAME).read_bytes(), "that of another bundle"
        if pick < 0.12:
            form = json.loads((self._signed / FILE_NAME).read_bytes())
            hexes = form["signatures"][0]["ed25519"]
            place = int(random.integers(len(hexes)))
            digit = f"{int(random.integers(16)):x}"
            form["signatures"][0]["ed25519"] = hexes[:place] + digit + hexes[place + 1 :]
            return FILE_NAME, json.dumps(form).encode(), f"digit {place} is {digit}"
        if pick < 0.5:
            name = FILE_NAME
        elif pick < 0.65:
            name = KEY
        else:
            name = str(one_of(random, Draft.of(self._signed).files))
        folder = self._scratch if name == KEY else self._signed
        content, what = change_bytes(random, (folder / name).read_bytes())
        return name, content, what

    def describe(self, number: int) -> str:
        """Say what the case changes."""
        if not self._is_possible:
            return "nothing: the package cryptography is missing"
        name, _, what = self._draw(number)
        return f"{name}: {what}"

    def play(self, number: int) -> Outcome:
        """Change a file, and open the bundle with the trusted key."""
        if not self._is_possible:
            return Outcome("accepted", "not played: the package cryptography is missing")
        name, content, _ = self._draw(number)
        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.copytree(self._signed, self._folder)
        key = self._scratch / KEY
        if name == KEY:
            key = self._folder.parent / "changed.pub"
            key.write_bytes(content)
        else:
            (self._folder / name).write_bytes(content)
        try:
            load_expected(self._folder, trusted_keys=[key])
        except EdgefoldError as error:
            if "\n" in str(error).strip():
                return Outcome("message", f"{type(error).__name__} of several lines")
            return Outcome("refused", type(error).__name__)
        if not self._means_the_same(name, key):
            return Outcome("wrong", f"opened, though {name} was changed")
        return Outcome("accepted")

    def _means_the_same(self, name: str, key: Path) -> bool:
        if name == KEY:
            return self._key_id in {public.id for public in read_public_keys([key])}
        before, after = self._signed / name, self._folder / name
        if name != FILE_NAME:
            return before.read_bytes() == after.read_bytes()
        return bool(_value(before, self._key_id) == _value(after, self._key_id))


def _value(path: Path, key_id: str) -> Any:
    """Return what a signature file says of a key: the bundle's hash and the bytes signed."""
    form = json.loads(path.read_bytes())
    values = [s["ed25519"].lower() for s in form["signatures"] if s["key"].lower() == key_id]
    return form["bundle_hash"].lower(), values
