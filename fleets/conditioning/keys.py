"""Number the groups of a batch's rows by the values of some columns, and name groups' files."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np

from edgefold.fleets.conditioning.groups_file import GroupKey, GroupValue
from edgefold.fleets.tables.batches import LakeBatch
from edgefold.runtime.arrays import Array

LONGEST = 100
"""The most characters of a file's name before its end: file systems take 255 bytes."""
MOST_COUNTED = 1 << 18
PLAIN = frozenset("._+-= @")
"""Characters that a file's name has besides letters and digits."""


class GroupNumbers:
    """Gives each group a number when its first row comes.

    Args:
        by: The names of the columns that form groups; none puts all rows in one group.

    Attributes:
        keys: The values of each group, by its number.
    """

    def __init__(self, by: Sequence[str]):
        self._by = tuple(by)
        self.keys: list[GroupKey] = []
        self._numbers: dict[GroupKey, int] = {}

    def of(self, batch: LakeBatch) -> Array:
        """Return the number of each row's group, int64 (n,); -1 where a value is missing."""
        if not self._by:
            self._number(())
            return np.zeros(len(batch), np.int64)
        # Each row's codes as the digits of one number; the digit 0 is a missing value.
        joined, columns, n_all = np.zeros(len(batch), np.int64), list[list[GroupValue | None]](), 1
        for name in self._by:
            codes, values = batch.codes(name)
            columns.append([None if _is_missing(value) else _plain(value) for value in values])
            joined = joined * (len(values) + 1) + codes + 1
            n_all *= len(values) + 1
        if n_all <= MOST_COUNTED:
            different, back = np.flatnonzero(np.bincount(joined, minlength=n_all)), joined
            numbers = np.full(n_all, -1, np.int64)
            places = different
        else:  # a table of all combinations would be larger than sorting is slow
            different, back = np.unique(joined, return_inverse=True)
            numbers = np.full(len(different), -1, np.int64)
            places = np.arange(len(different))
        for place, code in zip(places.tolist(), different.tolist(), strict=True):
            key: list[GroupValue] = []
            for named in reversed(columns):
                code, digit = divmod(code, len(named) + 1)
                value = named[digit - 1] if digit else None
                if value is not None:
                    key.append(value)
            if len(key) == len(columns):
                numbers[place] = self._number(tuple(reversed(key)))
        return numbers[back]

    def _number(self, key: GroupKey) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.keys)
            self.keys.append(key)
        return number


def _is_missing(value: object) -> bool:
    return value is None or value != value  # NaN


def _plain(value: Any) -> GroupValue:
    """Return a value of a column as JSON can hold it."""
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    if isinstance(value, date):  # a datetime is one
        return value.isoformat()
    if isinstance(value, float) and value == 0:
        return 0.0  # -0.0 is the same group
    assert isinstance(value, str | int | float | bool)
    return value


def text_of(value: GroupValue) -> str:
    """Return a group's value as a text, as it stands in names and tables."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def file_names(by: Sequence[str], keys: Iterable[GroupKey]) -> dict[GroupKey, str]:
    """Return a name of a file for each group, such as site=3.npz.

    Characters that some file system refuses are written as %2F. A name that is too long, or equal
    to another one where capitals do not count, ends with ~ and 8 hexadecimal digits that follow
    from the values.
    """
    stems = {
        key: ",".join(
            f"{_quoted(name)}={_quoted(text_of(value))}"
            for name, value in zip(by, key, strict=True)
        )
        for key in keys
    }
    taken = Counter(_folded(stem) for stem in stems.values())
    names = {}
    for key, stem in stems.items():
        if len(stem.encode()) > LONGEST or taken[_folded(stem)] > 1:
            digest = hashlib.sha256(json.dumps([list(by), list(key)]).encode()).hexdigest()[:8]
            short = stem.encode()[:LONGEST].decode(errors="ignore")
            stem = f"{short}~{digest}"
        names[key] = f"{stem}.npz"
    return names


def _folded(stem: str) -> str:
    return unicodedata.normalize("NFKC", stem).casefold()


def _quoted(text: str) -> str:
    """Return a text with % and two digits for each byte of a character that may trouble."""
    return "".join(
        letter
        if letter.isalnum() or (letter in PLAIN and letter != "=")
        else "".join(f"%{byte:02X}" for byte in letter.encode(errors="surrogatepass"))
        for letter in text
    )
