"""Random tables of unknown form, each with the numbers that it was made from.

A table is drawn as its truth first: for each series the times and the values. Then it is written
in a random form. What cannot be decided by the text is marked, so that a reader must refuse it.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

import numpy as np

Random = np.random.Generator
START = datetime(2024, 1, 1, tzinfo=timezone.utc)
STEPS_S = (60, 600, 3600, 7200)
DATES = {
    "iso": "%Y-%m-%d %H:%M:%S",
    "zulu": "%Y-%m-%dT%H:%M:%SZ",
    "slash": "%Y/%m/%d %H:%M:%S",
    "german": "%d.%m.%Y %H:%M:%S",
    "day first": "%d/%m/%Y %H:%M:%S",
    "month first": "%m/%d/%Y %H:%M:%S",
}
CLOCKS = (*DATES, *DATES, "two columns", "unix", "unix-ms", "numbers", "none")
WORDS = ("roof", "cellar", "attic", "yard 2", "Küche", "n7", "a/b")
KNOWN = ("sensor", "device_id", "Station", "sensorName", "room")
HEADERS = ("value", "temp [°C]", "flow", "p_1", "Leistung (kW)", "humidity %", "a b", "b")
MISSING = ("", "NA", "-", "null")
N_HEAD = 400
POINT = re.compile(r"[+-]?(?:\d+|[1-9]\d{0,2}(?:,\d{3})+)(?:\.\d+)?", re.ASCII)
COMMA = re.compile(r"[+-]?(?:\d+|[1-9]\d{0,2}(?:\.\d{3})+)(?:,\d+)?", re.ASCII)


@dataclass(slots=True)
class Made:
    """A table and its truth.

    Attributes:
        data: The bytes of the file.
        truth: For each series, times and values in the order of time; NaN for a missing value.
        refusals: Words of options, one of which a refusal must name; "" in it allows reading too.
        is_dated: Whether times are seconds since 1970.
        is_backward: Whether the newest row comes first.
        may_swap: Whether days and months may be exchanged, which must be noted.
        unread: JSON keys that come late, with the number of their lines.
        about: What the table is like, in words.
    """

    data: bytes = b""
    truth: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    refusals: tuple[str, ...] = ()
    is_dated: bool = True
    is_backward: bool = False
    may_swap: bool = False
    unread: dict[str, int] = field(default_factory=dict)
    about: str = ""


def draw(random: Random, n_rows: int) -> Made:
    """Draw a table of about `n_rows` lines."""
    form = _Form(random, n_rows)
    return form.made()


class _Form:
    """The form of one table, and how its lines are written."""

    def __init__(self, random: Random, n_rows: int):
        self.random, self.n = random, n_rows
        self.clock = str(random.choice(CLOCKS))
        self.layout = str(random.choice(["single", "wide", "together", "turns", "turns"]))
        if self.clock == "none" and self.layout == "together":
            self.layout = "wide"  # nothing would say which rows are of one time
        n_series = 1 if self.layout == "single" else int(random.integers(2, 5))
        self.json = random.random() < 0.2
        self.sign = "," if not self.json and random.random() < 0.35 else "."
        self.groups = not self.json and random.random() < 0.15
        self.digits = int(random.integers(0, 4))
        self.delimiter = str(random.choice([",", ",", ";", "\t", "|", " "]))
        self.words = [str(w) for w in random.permutation(WORDS)[:n_series]]
        if self.delimiter == " ":
            self.words = [word.replace(" ", "_") for word in self.words]
        self.step_s = int(random.choice(STEPS_S))
        self.made_of = Made(is_dated=self.clock not in ("numbers", "none"))

    # The truth ------------------------------------------------------------------------------------

    def _values(self, n: int, centre: float) -> list[tuple[str, float]]:
        """Texts and numbers of n values; some are missing."""
        random = self.random
        scale = float(random.choice([0.5, 2.0, 40.0, 300.0]))
        course = centre + scale * (np.sin(np.arange(n) / 9) + 0.3 * random.normal(size=n))
        lost = random.random(n) < (0.02 if random.random() < 0.5 else 0.0)
        lost[0] = False
        words = MISSING[1:] if self.delimiter == " " or self.json else MISSING
        cells = []
        for value, is_lost in zip(course, lost, strict=True):
            if is_lost:
                cells.append((str(random.choice(words)), math.nan))
                continue
            text = f"{value:,.{self.digits}f}" if self.groups else f"{value:.{self.digits}f}"
            number = float(text.replace(",", ""))
            if self.sign == ",":
                text = text.translate(str.maketrans(",.", ".,"))
            cells.append((text, number))
        return cells

    def _time(self, i: int) -> tuple[list[str], float]:
        """The cells of the i-th time, and the time as a number."""
        if self.clock == "none":
            return [], float(i + 1)
        if self.clock == "numbers":
            return [str(2 * i)], 2.0 * i
        moment = START + timedelta(seconds=i * self.step_s)
        seconds = moment.timestamp()
        if self.clock in ("unix", "unix-ms"):
            return [f"{seconds * (1000 if self.clock == 'unix-ms' else 1):.0f}"], seconds
        if self.clock == "two columns":
            return [f"{moment:%Y-%m-%d}", f"{moment:%H:%M:%S}"], seconds
        return [moment.strftime(DATES[self.clock])], seconds

    def rows(self) -> tuple[list[str], list[list[str]], list[str]]:
        """The header, the rows of cells and the cells of values; keeps the truth."""
        random, truth = self.random, self.made_of.truth
        times = {"none": [], "two columns": ["date", "time of day"]}.get(self.clock, ["time"])
        centres = random.choice([0.0, 20.0, 1000.0, 5000.0], size=4)
        written: list[str] = []
        rows = []
        if self.layout in ("single", "wide"):
            names = [str(name) for name in random.permutation(HEADERS)[: len(self.words)]]
            if self.delimiter == " ":
                names = [name.replace(" ", "_") for name in names]
            if self.layout == "wide" and random.random() < 0.1 and not self.json:
                names[-1] = names[0]
            shown = [*names]
            if len(set(names)) < len(names):
                shown[-1] = f"{names[-1]} (2)"
            columns = [self._values(self.n, float(c)) for c in centres[: len(names)]]
            for i in range(self.n):
                cells, time = self._time(i)
                rows.append([*cells, *(column[i][0] for column in columns)])
                for name, column in zip(shown, columns, strict=True):
                    truth.setdefault(name, []).append((time, column[i][1]))
            written = [text for column in columns for text, _ in column]
            return [*times, *names], rows, written
        is_known = random.random() < 0.7
        header = str(random.choice(KNOWN)) if is_known else "which"
        if self.layout == "turns" and not is_known:
            self.made_of.refusals = ("", "--series", "--stream")
        k = len(self.words)
        columns = [self._values(self.n // k + 1, float(c)) for c in centres[:k]]
        for i in range(self.n):
            which, at = i % k, i // k
            cells, time = self._time(at if self.layout == "together" else i)
            text, value = columns[which][at]
            rows.append([*cells, self.words[which], text])
            truth.setdefault(self.words[which], []).append((time, value))
            written.append(text)
        return [*times, header, "value"], rows, written

    # The text -------------------------------------------------------------------------------------

    def made(self) -> Made:
        """Write the table."""
        made, random = self.made_of, self.random
        header, rows, written = self.rows()
        if random.random() < 0.3:
            self._add(header, rows, "unit", ["C"] * self.n)
        if random.random() < 0.3:
            states = random.choice(["on", "off"], size=self.n)
            self._add(header, rows, "state", [str(state) for state in states])
        if self.clock != "none" and random.random() < 0.1:
            rows.reverse()
            made.is_backward = True
        made.may_swap = self.clock in ("day first", "month first")
        made.about = (
            f"{self.layout}, {self.clock}, {'JSON' if self.json else repr(self.delimiter)}, "
            f"decimal {self.sign}, {self.digits} digits{', groups' * self.groups}"
            f"{', backward' * made.is_backward}, {self.n} rows"
        )
        if self.json:
            self._write_json(header, rows)
            return made
        if not self.digits and not self.groups:
            self.sign = "."  # nothing shows a decimal sign
        if self.delimiter == "," and self.sign == ",":
            made.about += ", quoted"
        self._judge(written)
        self._write_csv(header, rows)
        return made

    def _add(self, header: list[str], rows: list[list[str]], name: str, cells: list[str]) -> None:
        """Add a column that is no sensor."""
        header.append(name)
        for row, cell in zip(rows, cells, strict=True):
            row.append(cell)

    def _judge(self, written: list[str]) -> None:
        """Mark a table whose numbers can be read with either decimal sign."""
        head = [text for text in written if text not in MISSING]
        signed = [text for text in head if "," in text or "." in text]
        if not signed or not all(POINT.fullmatch(t) and COMMA.fullmatch(t) for t in head):
            return
        is_dot = "." in signed[0]
        if is_dot and len(signed) == len(head):
            # Three digits behind each point: a fraction, unless thousands were written.
            self.made_of.refusals += ("", "--decimal") if self.groups else ()
        elif is_dot or self.delimiter != ";":
            self.made_of.refusals = ("--decimal",)
        elif self.groups and self.sign == ".":
            self.made_of.refusals += ("", "--decimal", "any number")

    def _write_json(self, header: list[str], rows: list[list[str]]) -> None:
        random, made = self.random, self.made_of
        numbers = {"time"} if self.clock in ("unix", "unix-ms", "numbers") else set()
        is_late = random.random() < 0.3 and len(rows) > N_HEAD
        lines = []
        for i, row in enumerate(rows):
            form: dict[str, object] = {}
            for name, cell in zip(header, row, strict=True):
                is_number = re.fullmatch(r"-?\d+(?:\.\d+)?", cell) is not None
                word = name in KNOWN or name in ("which", "unit", "state")
                form[name] = float(cell) if is_number and not word else cell
                if name in numbers:
                    form[name] = int(cell)
            if is_late and i >= N_HEAD and i % 3 == 0:
                form["late"] = 1.5
                made.unread["late"] = made.unread.get("late", 0) + 1
            lines.append(json.dumps(form, ensure_ascii=bool(random.random() < 0.5)))
        made.data = ("\n".join(lines) + "\n").encode()

    def _write_csv(self, header: list[str], rows: list[list[str]]) -> None:
        random, made = self.random, self.made_of
        has_header = self.layout not in ("single", "wide") or random.random() < 0.9
        if not has_header:
            n_times = len(header) - len(rows[0]) + len(self._time(0)[0])
            renamed = {name: f"column {n_times + i + 1}" for i, name in enumerate(list(made.truth))}
            made.truth = {renamed[name]: rows for name, rows in made.truth.items()}
        is_quoted = self.delimiter != " " and random.random() < 0.2
        lines = [header, *rows] if has_header else rows
        if self.delimiter == " ":
            widths = [max(len(row[i]) for row in lines) + 2 for i in range(len(rows[0]))]
            dated = self.clock in DATES and " " in rows[0][0]
            head = [["date", "time"], header[1:]] if dated else [[], header]
            texts = [
                "".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
                for row in rows
            ]
            if has_header:
                texts.insert(0, "  ".join(name.replace(" ", "_") for part in head for name in part))
        else:
            texts = [self.delimiter.join(self._quoted(row, is_quoted)) for row in lines]
        if has_header and random.random() < 0.1 and self.delimiter != " ":
            texts[:0] = ["Logger 7 in the yard", "made for tests"]
        end = "\r\n" if random.random() < 0.2 else "\n"
        text = end.join(texts) + end * (random.random() < 0.8)
        chance = random.random()
        if chance < 0.05:
            made.data, made.refusals = text.encode("utf-16-le"), ("UTF-16",)
        elif chance < 0.1:
            made.data, made.refusals = text.encode("utf-16"), ("UTF-16",)
        elif chance < 0.25:
            made.data = b"\xef\xbb\xbf" + text.encode()
        else:
            made.data = text.encode()

    def _quoted(self, row: list[str], always: bool) -> list[str]:
        return [
            '"' + cell.replace('"', '""') + '"' if always or self.delimiter in cell else cell
            for cell in row
        ]
