"""Split the first lines of a table into cells, and find its delimiter, its header and its columns.

Lines that stand before the table, such as a title or a comment, are skipped and counted.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_columns import BadLineError, Layout
from edgefold.runtime.rows.csv_fields import plain, shown
from edgefold.runtime.rows.csv_reader import is_too_long, require_encoding, split_line
from edgefold.runtime.rows.dates import date_forms, is_data
from edgefold.runtime.rows.json_lines import is_json, parse_object
from edgefold.runtime.rows.row_format import RowFormat

DELIMITERS = (";", "\t", "|", ",", " ")
"""Lists the delimiters in the order in which they are tried: a comma may be a decimal sign, and a
space may be part of a date."""
OLDER = "cp1252"
TO_UTF8 = " as UTF-8 text; convert it, for instance: iconv -f WINDOWS-1252 -t UTF-8."
SEP = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
"""Describes a first line that Excel writes to state the delimiter."""
CONTROL = re.compile(r"[\0-\x08\x0b-\x1f\x7f]")
MOST_COMPARED = 20
"""The largest number of lines by which two delimiters are compared."""
STEADY = 0.8
"""The smallest share of lines that a delimiter must split into the same number of fields."""


@dataclass(frozen=True, slots=True)
class Head:
    """Holds the columns of a table's first lines, and where they stand.

    Attributes:
        names: The names of the columns; no name comes twice.
        cells: A list for each column, with the texts of its cells, one for each line.
        format: How fields are written, with the delimiter that was found.
        n_before: The number of lines before the first row: the header and the lines above it.
        header: The fields of the header; empty if there is no header.
        notes: Sentences that say what was assumed.
        keys: For JSON lines, the keys in the order of `names`, which holds them escaped.
    """

    names: list[str]
    cells: list[list[str]]
    format: RowFormat
    n_before: int
    header: tuple[str, ...]
    notes: tuple[str, ...] = ()
    keys: list[str] = field(default_factory=list)

    def add_keys(self, names: Sequence[str]) -> list[str]:
        """Add the keys among `names` that no line of JSON has so far; return them."""
        late = [name for name in names if name not in self.names]
        self.names.extend(late)
        self.cells.extend([""] * len(self.cells[0]) for _ in late)
        self.keys.extend(late)
        return late

    def layout(self, wanted: tuple[str, ...]) -> Layout:
        """Return where the wanted columns, given by name, are in a line."""
        places = tuple(self.names.index(name) for name in wanted)
        if self.format.delimiter is None:
            keys = tuple(self.keys[place] for place in places)
            return Layout(keys, tuple(range(len(keys))), len(keys), "", (), "json")
        return Layout(wanted, places, len(self.names), self.format.delimiter, self.header)


def read_head(raw: Sequence[bytes], name: str, format: RowFormat) -> Head:
    """Split the first lines of a table into cells.

    Args:
        raw: The first lines with their ends, as `first_lines` returns them.
        name: The input's name, for messages.
        format: The settings that are known of how fields are written.

    Raises:
        DataError: No line can be read.
    """
    if not raw:
        raise DataError(f"{name} is empty; give a table with a column of numbers.")
    require_encoding(raw[0], name)
    raw = [raw[0].removeprefix(codecs.BOM_UTF8), *raw[1:]]
    lines = [(i, text) for i, line in enumerate(raw) if (text := _text(line)) is not None]
    if not lines:
        raise DataError(f"{name} {_unreadable(raw)}")
    lines = _older(raw[: lines[0][0]]) + lines
    first = lines[0][1].lstrip()
    if first.startswith("["):
        raise DataError(f"{name} is one JSON list; write an object a line: jq -c '.[]' {name}")
    if is_json(first):
        return _of_json([text for _, text in lines], format)
    head = _of_csv(lines, raw, format, name)
    if not any(head.cells):
        others = [line for line in raw[head.n_before :] if line.strip() and _text(line) is None]
        advice = f", and {_unreadable(others)}" if others else "; give a table with some."
        raise DataError(f"{name} has a header and no rows{advice}")
    return head


def _unreadable(raw: Sequence[bytes]) -> str:
    """Return the rest of a message that says why no line of `raw` can be read as text."""
    if not any(line.strip() for line in raw):
        return "holds blank lines and nothing else; give a table with a column of numbers."
    if any(b"\0" in line for line in raw):
        return "holds NUL bytes, so it is a binary file; give a table as text."
    if any(map(is_too_long, raw)):
        return f"holds lines longer than {len(max(raw, key=len)):,} bytes; give shorter ones."
    return f"holds no line that can be read{TO_UTF8}"


def _text(line: bytes) -> str | None:
    """Return a line as text without its end.

    It is None for a line that is blank, too long, or not UTF-8 text.
    """
    if is_too_long(line):
        return None
    try:
        text = line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        return None
    return text if text.strip() and "\0" not in text else None


def _older(raw: list[bytes]) -> list[tuple[int, str]]:
    """Decode the lines above the first UTF-8 line as Windows-1252 text (`OLDER`).

    Old programs of Windows write such lines, for example a header with °C. The number (from 0) and
    the text of each line are returned; blank lines and those with control characters are left out.
    """
    whole = ((i, line) for i, line in enumerate(raw) if not is_too_long(line))
    texts = ((i, line.decode(OLDER, "replace").rstrip("\r\n")) for i, line in whole)
    return [(i, t) for i, t in texts if t.strip() and "\ufffd" not in t and not CONTROL.search(t)]


def _of_json(texts: list[str], format: RowFormat) -> Head:
    rows = []
    for text in texts:
        try:
            rows.append(parse_object(text))
        except ValueError:  # reported when its row is read
            continue
    keys = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_json_text(row.get(key)) for row in rows] for key in keys]
    return Head(column_names(keys), cells, format, 0, (), keys=keys)


def _json_text(value: object) -> str:
    """Return a JSON value as the text of a cell.

    Numbers are texts already. An object becomes "an object" and a list "a list", since no sensor
    has such values; null becomes an empty text.
    """
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, bool):
        return str(value).lower()
    return "an object" if isinstance(value, dict) else "a list"


def _of_csv(lines: list[tuple[int, str]], raw: list[bytes], format: RowFormat, name: str) -> Head:
    given = format.delimiter
    if stated := SEP.fullmatch(lines[0][1].strip(" ")):
        given, lines = given or stated[1], lines[1:]
    delimiter, split = _split(lines, given)
    _require_whole_lines([text for _, text in lines], delimiter, name)
    width = Counter(len(fields) for _, fields in split).most_common(1)[0][0]
    while len(split) > 1 and len(split[0][1]) != width:
        split.pop(0)  # above the table
    first, fields = split[0]
    rows = [row for _, row in split if len(row) == width]
    columns = [[row[i] for row in rows] for i in range(width)]
    n_before = first
    header: tuple[str, ...] = ()
    if _is_header(columns, format):
        header, n_before = tuple(field.strip() for field in fields), first + 1
        columns = [column[1:] for column in columns]
    names = column_names(header) if header else [f"column {i + 1}" for i in range(width)]
    notes = []
    above = sum(i < first for i, _ in lines)
    if above:
        notes.append(f"{above} {'line' if above == 1 else 'lines'} above the table skipped")
    if header and _text(raw[first]) is None:
        notes.append(f"line {first + 1:,} is not UTF-8, and is read as {OLDER}")
    if not header:
        notes.append("the table has no header, so its columns have numbers as names")
    settled = RowFormat(delimiter, format.decimal, format.time_format, format.missing)
    return Head(names, columns, settled, n_before, header, tuple(notes))


def _split(
    lines: list[tuple[int, str]], given: str | None
) -> tuple[str, list[tuple[int, list[str]]]]:
    """Find the delimiter; return it with the number and the fields of each line that it splits.

    Args:
        lines: The number of each line, from 0, and its text.
        given: The delimiter, if it is known.
    """
    candidates = []
    for delimiter in [given] if given else DELIMITERS:
        split = []
        for i, text in lines:
            try:
                split.append((i, split_line(text, delimiter, merges_spaces=True)))
            except BadLineError:  # reported when its row is read
                continue
        if not split:
            continue
        width, n = Counter(len(fields) for _, fields in split).most_common(1)[0]
        is_steady = width > 1 and n >= STEADY * len(lines)
        if given or (is_steady and delimiter not in ", "):
            return delimiter, split
        candidates.append((is_steady, delimiter, split))
    if not candidates:
        raise DataError("no line of the input can be split into fields; name its --delimiter.")
    steady = [one for one in candidates if one[0]]
    if len(steady) > 1:  # a comma may be a decimal sign between columns aligned by spaces
        steady.sort(key=lambda one: -_n_data(one[2]))
    comma = next((one for one in candidates if one[1] == ","), candidates[0])
    best = steady[0] if steady else comma
    return best[1], best[2]


def _n_data(split: Sequence[tuple[int, list[str]]]) -> int:
    """Return how many fields of the first lines are numbers or dates."""
    fields = [field for _, row in split[:MOST_COMPARED] for field in row]
    return sum(_is_data(field, RowFormat()) for field in fields)


def _require_whole_lines(texts: Sequence[str], delimiter: str, name: str) -> None:
    """Raise DataError if rows of the input, called `name`, have line breaks between quotes.

    Two such rows at least must have as many fields as most rows.
    """
    if sum(text.count('"') % 2 for text in texts) < 4:
        return
    try:
        rows = list(csv.reader([f"{text}\n" for text in texts], delimiter=delimiter))
    except csv.Error:
        return
    width = Counter(map(len, rows)).most_common(1)[0][0]
    broken = [row for row in rows if len(row) == width > 1 and any("\n" in f for f in row)]
    if len(broken) > 1:
        text = next(field for field in broken[0] if "\n" in field)
        raise DataError(
            f"{name} has rows with a line break between quotes, such as {shown(text)}; a row must "
            "be one line: replace the line breaks inside of cells by spaces."
        )


def _is_header(columns: Sequence[Sequence[str]], format: RowFormat) -> bool:
    """Return whether the first cells of the columns are a header.

    They are if one of them is a word above numbers or dates, or if all of them are words.
    """
    if not any(_is_data(column[0], format) for column in columns):
        return True
    for first, *others in columns:
        wanted = [text for text in others if not format.is_missing(text.strip())]
        share = sum(_is_data(text, format) for text in wanted)
        is_word = first.strip() and not format.is_missing(first.strip())
        if is_word and not _is_data(first, format) and wanted and share >= 0.9 * len(wanted):
            return True
    return False


def _is_data(text: str, format: RowFormat) -> bool:
    return is_data(text, format.time_format) or bool(date_forms(text.strip()))


def column_names(header: Sequence[str]) -> list[str]:
    """Return a name for each field of a header, or each key; no name comes twice.

    The second column called `a` is named `a (2)`, or `a (3)` if another column is called so. A #
    before the first name is removed, and characters that do not print are escaped.
    """
    written = [plain(name) if name else "" for name in header]
    if written and written[0].startswith("#") and len(written[0]) > 1:
        written[0] = written[0].lstrip("# ")
    names: dict[str, None] = {}
    taken = set(written)
    for name in written:
        unique, n = name, 1
        while unique in names or (n > 1 and unique in taken):
            n += 1
            unique = f"{name} ({n})"
        names[unique] = None
    return list(names)
