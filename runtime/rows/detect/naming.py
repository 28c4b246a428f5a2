"""Find the column that names the sensor of each row, if a table holds the rows of several sensors.

times repeat, but pairs of a time and a word do not          ──> the column names the sensors
a known header, such as sensor_id                            ──> likewise
words take turns, and values differ far more between them    ──> likewise
words take turns, and values do not show whose they are      ──> refused: both is possible
words stay for many rows, or are states such as on and off   ──> no name: one sensor
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_fields import plain, shown
from edgefold.runtime.rows.detect.cells import Cells

STEADY = 0.95
"""The smallest share of lines in which the times of a clock must rise, or in which pairs of a time
and a sensor's name must be new."""
NUMBERING = re.compile(r"|#|no|nr|id|idx|index|row|rows|rowid|record|recno|line|unnamed: \d+", re.I)
WORDS = (
    "sensor|device|station|series|channel|tag|item|unique_id|location|room|site|machine|node|meter"
    "|probe|entity|topic|metric|measurement|variable|parameter|gateway|asset|place|host|geraet|gerät"
    "|raum|ort|kanal|messstelle"
)
SENSOR_WORDS = re.compile(rf".*(?:{WORDS}).*", re.IGNORECASE)
"""Matches headers that hold a word for a sensor, such as sensor_type."""
SENSOR_NAMES = re.compile(
    rf"(?:.*[\W_])?(?:{WORDS})s?(?P<end>[\W_]?(?:id|name|no|nr|number|key|code|label|uuid|serial))?",
    re.IGNORECASE,
)
"""Matches headers whose column names sensors, such as sensor or deviceId."""
STATE_NAMES = re.compile(
    r"(?:.*[\W_])?(?:state|status|quality|flag|mode|alarm|event|comment|note|valid|error|direction"
    r"|dir|day|weekday|month|season|weather|zustand|wochentag)s?(?:[\W_].*)?",
    re.IGNORECASE,
)
_STATES = """
on off ok true false yes no y n t f open closed opened shut up down good bad high low normal warn
warning alarm error fault auto manual idle run running stop stopped active inactive enabled disabled
day night weekday weekend an aus ja nein auf zu valid invalid
mon tue wed thu fri sat sun monday tuesday wednesday thursday friday saturday sunday
ne e se s sw w nw nne ene ese sse ssw wsw wnw nnw
"""
STATES = frozenset(_STATES.split())
"""Lists words, in small letters, that tell a state and name no sensor."""
FEW_LINES = 16
"""With fewer lines, a column with a known header is taken although it holds one name only."""
MANY = 6
"""A column with an unknown header may name sensors if each word comes so often on average."""
TURNS = 0.5
"""Words take turns if neighbours differ in this share of the cases that chance would give."""
FAR = 3.0
"""Values differ far more between words than within them if it is by this factor."""


def naming(
    columns: Sequence[Cells],
    time: Sequence[str],
    candidates: Sequence[Cells],
    source: str,
    options: tuple[str, str],
    has_values: bool,
) -> str:
    """Return the name of the column that names the sensor of each row; "" if there is none.

    Args:
        columns: All columns of the table.
        time: The names of the columns of times.
        candidates: The columns that may name sensors.
        source: The input's name, for messages.
        options: The command's options that name the columns of values and of the sensors' names.
        has_values: Whether the user named the columns of values. What cannot be decided is then no
            name.

    Raises:
        DataError: It cannot be decided which column names the sensors, or whether one does.
    """
    stamps = [cells.texts for cells in columns if cells.name in time]
    when = list(zip(*stamps, strict=True))
    possible = [c for c in candidates if _may_name(c, columns, time)]
    known = [c for c in possible if SENSOR_NAMES.fullmatch(c.name)]
    repeats = bool(when) and len(set(when)) < STEADY * len(when)
    if repeats:
        for cells in (*known, *(c for c in possible if c not in known)):
            if len(set(cells.texts)) > 1 and _are_new(when, [cells]):
                return cells.name
        _require_one(when, known, source)
    for cells in known:
        n = len(set(cells.texts))
        if n == 1 and len(cells.texts) >= FEW_LINES:
            continue
        if 2 * n <= len(cells.texts) or len(cells.texts) < FEW_LINES:
            return cells.name
        if not has_values:
            raise DataError(_both(cells, source, options, "holds another word in most rows"))
    for cells in possible:
        if cells in known or STATE_NAMES.fullmatch(cells.name) or not _take_turns(cells):
            continue
        if _is_far_apart(cells, columns, candidates):
            return cells.name
        if not has_values:
            n = len(set(cells.texts))
            raise DataError(_both(cells, source, options, f"holds {n} words that take turns"))
    return ""


def _may_name(cells: Cells, columns: Sequence[Cells], time: Sequence[str]) -> bool:
    """Return whether the cells of a column may be names: words, or whole numbers of sensors."""
    if cells.kind == "text":
        return True
    known = SENSOR_NAMES.fullmatch(cells.name)
    if cells.kind != "number" or not (known or NUMBERING.fullmatch(cells.name)):
        return False
    others = [c for c in columns if c.kind == "number" and c.name not in (*time, cells.name)]
    are_whole = all(text.isdecimal() for text in cells.texts if text)
    n = len(set(cells.texts))
    is_sure = known is not None and bool(known["end"])
    return bool(others) and are_whole and (is_sure or 1 < n <= len(cells.texts) / MANY)


def _are_new(when: Sequence[tuple[str, ...]], cells: Sequence[Cells]) -> bool:
    """Return whether hardly any row has the time and the words of another row."""
    rows = list(zip(when, *(c.texts for c in cells), strict=True))
    return len(set(rows)) >= STEADY * len(rows)


def _require_one(when: Sequence[tuple[str, ...]], known: Sequence[Cells], source: str) -> None:
    """Raise DataError if two columns together name the sensor of each row."""
    several = [cells for cells in known if len(set(cells.texts)) > 1]
    for i, one in enumerate(several):
        for other in several[i + 1 :]:
            if _are_new(when, [one, other]):
                raise DataError(
                    f"{source} names its sensors by two columns together, {plain(one.name)} and "
                    f"{plain(other.name)}; write both as one column, such as "
                    f"{shown(one.example + ' ' + other.example)}."
                )


def _both(cells: Cells, source: str, options: tuple[str, str], what: str) -> str:
    """Return a message with both readings of a column that may name sensors."""
    name = plain(cells.name)
    return (
        f"{source}: the column {name} {what}, such as {shown(cells.example)}. Give {options[1]} "
        f"{name} if it names the sensor of each row; give {options[1]} '' if all rows are of one "
        "sensor."
    )


def _take_turns(cells: Cells) -> bool:
    """Return whether a column has few words, each many times, that change from row to row."""
    texts = cells.texts
    counts = Counter(texts)
    if not 1 < len(counts) <= len(texts) / MANY or set(map(str.lower, counts)) <= {"", *STATES}:
        return False
    by_chance = 1 - sum((n / len(texts)) ** 2 for n in counts.values())
    n_changes = sum(a != b for a, b in pairwise(texts))
    return n_changes >= TURNS * by_chance * (len(texts) - 1)


def _is_far_apart(cells: Cells, columns: Sequence[Cells], candidates: Sequence[Cells]) -> bool:
    """Return whether a column's values differ far more between the words of `cells` than within.

    Compared are the mean steps from a row to the next one of another word, and to the next one of
    the same word.
    """
    for other in columns:
        if other.kind != "number" or other not in candidates or other is cells:
            continue
        if len(other.times) != len(cells.texts):  # some cells are empty
            continue
        last: dict[str, float] = {}
        within: list[float] = []
        between: list[float] = []
        for (word, value), (before, former) in zip(
            zip(cells.texts, other.times, strict=True),
            [("", math.nan), *zip(cells.texts, other.times, strict=True)],
            strict=False,
        ):
            if word in last:
                within.append(abs(value - last[word]))
            if word != before and former == former:
                between.append(abs(value - former))
            last[word] = value
        if within and between:
            apart, near = (sum(steps) / len(steps) for steps in (between, within))
            if apart > FAR * near:
                return True
    return False
