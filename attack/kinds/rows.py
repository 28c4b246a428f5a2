"""Files of rows as no program should write them, through `edgefold run`.

One case is one file of some thousand lines: a series or points, CSV or JSON lines, one sensor or
several. Demanded of each:

    every line is learned, missing or refused, exactly once, and counted
    the output is CSV of the header's width without control characters, its lines rise
    the state is finite, memory stays flat
    after all noise, rows of the true series are learned again from the fourth on
    the file cut in two at any line, run and resumed, gives the same bytes, counters and state
"""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from attack.commands import Ended, call
from attack.memory import Peak
from attack.outcomes import Outcome, random_of
from attack.subjects import as_series
from edgefold.runtime import Stream

Random = np.random.Generator
N_LINES = 4000
N_SOUND, N_GOOD = 12, 20
"""Good rows at the start of most files, which show a series' pace, and at the end of all."""
LEARNS_FROM = 3
"""Good rows that a loop may refuse after bad times, before it learns again."""
MARGIN_BYTES = 40_000_000
CELLS = (
    *(
        "",
        " ",
        "nan",
        "NaN",
        "inf",
        "-inf",
        "NA",
        "null",
        "None",
        "-",
        "?",
        "1e309",
        "-1e309",
        "1e99",
    ),
    *(
        "1_000",
        "0x10",
        "1e",
        "--1",
        "1,5",
        "1.000,5",
        "1 000",
        "١٢٣",
        "１２",
        "５e２",
        "½",
        "∞",
        "+1",
    ),
    *('"', '""', '"1', "'1'", "\t", "\x1b[31m", "\x7f", "\x85", "\u2028", "\ufeff", "\r", "=1+1"),
    *("a" * 300, "1" * 400, "0." + "0" * 300 + "1", "1;2", "1|2", "true", "[1]", "{}", "\\", "#1"),
    *("2020-01-01", "2020-01-01T10.5", "2020-01-01.123", "2020-W05-3", "20200105T101112", "1e400"),
    *("2020-02-30", "2020-1-1", "01/02/2020", "2020-01-01 12:30+25:00", "9999-12-31", "0000-00-00"),
    *("2020-01-01,12:30", "2020-01-01\x1b12:30", "2020-01-01\r12:30", '2020-01-01"12:30', "12:30"),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The shape of a case's file.

    Attributes:
        kind: "number" or "date" for a series' times, "points" for rows of points.
        json: JSON lines instead of CSV.
        sensors: Several sensors, named in a column.
        noise: Share of the lines that are not as they should be.
        cut: Lines of the first part, where the file is cut in two.
    """

    kind: str
    json: bool
    sensors: int
    noise: float
    cut: int
    bundle: str


def _number(random: Random) -> str:
    return f"{10 ** random.uniform(-12, 12) * random.choice([-1, 1]):.6g}"


def _time(kind: str, index: float) -> str:
    if kind == "date":
        return str(np.datetime64("1990-01-01T00:00:00") + np.timedelta64(round(index * 3600), "s"))
    return f"{index:g}"


def _value(random: Random, index: int) -> float:
    return round(float(20 + 3 * np.sin(index / 9) + 0.1 * random.normal()), 4)


class Lines:
    """Draws the lines of one file."""

    def __init__(self, plan: Plan, random: Random, n_inputs: int, n_outputs: int):
        self.plan, self.random = plan, random
        if plan.kind == "points":
            self.names = [f"x{i + 1}" for i in range(n_inputs)]
            self.names += [f"y{i + 1}" for i in range(n_outputs)]
        else:
            self.names = ["time", "value"]
        if plan.sensors > 1:
            self.names.append("sensor")
        self.delimiter = ",;\t"[random.integers(3)] if random.random() < 0.3 else ","

    def good(self, index: int) -> list[str]:
        """The cells of the true row at a place; several sensors take turns."""
        random, plan = self.random, self.plan
        step = index // plan.sensors
        if plan.kind == "points":
            cells = [f"{v:.4f}" for v in random.normal(size=len(self.names) - (plan.sensors > 1))]
        else:
            cells = [_time(plan.kind, step), str(_value(random, step))]
        return [*cells, f"s{index % plan.sensors}"] if plan.sensors > 1 else cells

    def joined(self, cells: list[str]) -> bytes:
        """A line of these cells."""
        if not self.plan.json:
            return self.delimiter.join(cells).encode("utf-8", "surrogatepass")
        form: dict[str, Any] = {}
        for name, cell in zip(self.names, cells, strict=False):
            is_text = name == "sensor" or (self.plan.kind == "date" and name == "time")
            form[name] = cell if is_text or self.random.random() < 0.1 else _as_json(cell)
        return json.dumps(form, ensure_ascii=bool(self.random.random() < 0.5)).encode(
            "utf-8", "surrogatepass"
        )

    def header(self) -> bytes:
        """The first line; JSON lines have none, so the first row is a good one."""
        if self.plan.json:
            return self.joined(self.good(0))
        return self.delimiter.join(self.names).encode()

    def noisy(self, index: int) -> bytes:
        """A line in the place of a good one."""
        random = self.random
        change = NOISE[random.integers(len(NOISE))]
        line: bytes = change(self, random, index)
        return line.replace(b"\n", b" ")


def _as_json(cell: str) -> Any:
    try:
        return float(cell)
    except ValueError:
        return cell


def _odd_cell(lines: Lines, random: Random, index: int) -> bytes:
    cells = lines.good(index)
    cells[random.integers(len(cells))] = CELLS[random.integers(len(CELLS))]
    return lines.joined(cells)


def _odd_number(lines: Lines, random: Random, index: int) -> bytes:
    cells = lines.good(index)
    cells[random.integers(len(cells))] = _number(random)
    return lines.joined(cells)


def _other_time(lines: Lines, random: Random, index: int) -> bytes:
    cells = lines.good(index)
    if lines.plan.kind == "points":
        return _odd_number(lines, random, index)
    far = float(10 ** random.uniform(0, 6)) * (1 if random.random() < 0.6 else -1)
    step = max(0.0, index // lines.plan.sensors + far)
    cells[0] = _time(lines.plan.kind, min(step, 6e7))
    return lines.joined(cells)


def _fraction(lines: Lines, random: Random, index: int) -> bytes:
    cells = lines.good(index)
    if lines.plan.kind != "points":
        cells[0] = _time(lines.plan.kind, index // lines.plan.sensors - random.random())
    return lines.joined(cells)


def _width(lines: Lines, random: Random, index: int) -> bytes:
    cells = lines.good(index)
    if random.random() < 0.5:
        return lines.joined([*cells, "1"] if random.random() < 0.5 else cells[:-1])
    return lines.joined(cells) + b"," * int(random.integers(1, 4))


def _bytes(lines: Lines, random: Random, index: int) -> bytes:
    return bytes(random.bytes(int(2 ** random.integers(0, 8))))


def _flipped(lines: Lines, random: Random, index: int) -> bytes:
    data = bytearray(lines.joined(lines.good(index)))
    for _ in range(int(random.integers(1, 4))):
        data[random.integers(len(data))] = int(random.integers(256))
    return bytes(data)


def _blank(lines: Lines, random: Random, index: int) -> bytes:
    blanks = (b"", b" ", b"\r", b"\t\t", b"\x0b", "\u3000".encode(), b"\xef\xbb\xbf", b"\0")
    return blanks[random.integers(len(blanks))]


def _repeated(lines: Lines, random: Random, index: int) -> bytes:
    return lines.joined(lines.good(max(0, index - int(random.integers(1, 30)))))


def _quoted(lines: Lines, random: Random, index: int) -> bytes:
    cells = lines.good(index)
    place = random.integers(len(cells))
    marks = ('"{}"', '"{}', '{}"', '""{}""', '"{},1"', '"{}\r"', "'{}'", " {} ")
    cells[place] = marks[random.integers(len(marks))].format(cells[place])
    return lines.delimiter.join(cells).encode()


def _long(lines: Lines, random: Random, index: int) -> bytes:
    if random.random() < 0.9:
        return _bytes(lines, random, index)
    return b"7" * int(random.choice([65535, 65536, 65537, 131072, 200_000]))


def _odd_json(lines: Lines, random: Random, index: int) -> bytes:
    texts = (
        *(b"{}", b"[]", b"null", b"1", b'"x"', b"{", b'{"time":1,"time":2,"value":3}', b"{'a':1}"),
        *(
            b'{"time":NaN,"value":1}',
            b'{"time":{"a":1},"value":[1]}',
            b'{"value":true}',
            b"[" * 3000,
        ),
        *(b'{"time":1e400,"value":1}', b'{"a":' * 2000, b'{"time":"\\ud800","value":"\\u0000"}'),
        *(b'{"time":' + b"9" * 5000 + b',"value":1}', b'{"sensor":{},"time":1,"value":2}'),
    )
    return texts[random.integers(len(texts))]


def _other_sensor(lines: Lines, random: Random, index: int) -> bytes:
    cells = lines.good(index)
    if lines.plan.sensors > 1:
        names = ("", "new", "s0 ", "S0", "é", "\x1b[31m", "a" * 300, '"', "s99", "../x")
        cells[-1] = names[random.integers(len(names))]
    return lines.joined(cells)


NOISE: tuple[Callable[[Lines, Random, int], bytes], ...] = (
    *(_odd_cell, _odd_cell, _odd_cell, _odd_number, _other_time, _other_time, _fraction, _width),
    *(_bytes, _flipped, _flipped, _blank, _repeated, _quoted, _long, _odd_json, _other_sensor),
)


def is_counted(line: bytes) -> bool:
    """Whether a line is a row, readable or not: blank lines are passed over."""
    try:
        text = line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        return True
    return "\0" in text or bool(text.strip())


class Cases:
    """Cases of files of rows."""

    def __init__(self, subjects: Path, scratch: Path):
        self._folder = scratch
        self._names = {"number": "cmanp", "points": "gru"}
        self._bundles = {kind: subjects / name for kind, name in self._names.items()}
        dated = scratch / "dated"
        dated.mkdir()
        for path in self._bundles["number"].iterdir():
            (dated / path.name).write_bytes(path.read_bytes())
        as_series(dated, "date", 3600.0)
        self._bundles["date"] = dated
        sizes = {}
        for kind, bundle in self._bundles.items():
            with Stream.open(bundle) as stream:
                sizes[kind] = (stream.manifest.n_inputs, stream.manifest.n_outputs)
        self._sizes = sizes
        self._peak = Peak()

    def _draw(self, number: int) -> tuple[Plan, list[bytes], int]:
        """A case's plan, its lines, and the number of the first row of the good end."""
        random = random_of("rows", number)
        kind = ("number", "date", "points")[random.integers(3)]
        as_json = random.random() < 0.3 and HAS_JSON
        sensors = int(random.integers(2, 4)) if random.random() < 0.25 and HAS_SENSORS else 1
        noise = (0.02, 0.3, 0.9)[random.integers(3)]
        plan = Plan(kind, as_json, sensors, noise, int(random.integers(1, N_LINES)), kind)
        lines = Lines(plan, random, *self._sizes[kind])
        content = [lines.header()]
        n_sound = N_SOUND * sensors if random.random() < 0.8 else 0
        n_noisy = N_LINES - 1 - N_GOOD * sensors
        for index in range(1, n_noisy + 1):
            is_noise = index > n_sound and random.random() < noise
            content.append(lines.noisy(index) if is_noise else lines.joined(lines.good(index)))
        start = n_noisy + 1
        content += [lines.joined(lines.good(i)) for i in range(start, start + N_GOOD * sensors)]
        return plan, content, start + 1

    def describe(self, number: int) -> str:
        """Say what the file is like."""
        plan, lines, _ = self._draw(number)
        path = self._folder / "described.csv"
        path.write_bytes(b"\n".join(lines) + b"\n")
        return f"{plan}, {len(lines)} lines, in {path}"

    def play(self, number: int) -> Outcome:
        """Run the whole file, then its two parts."""
        plan, lines, first_good = self._draw(number)
        every = ["--every", str(int(random_of("every", number).integers(50, 2000)))]
        whole = self._run(plan, "whole", lines, every)
        self._peak.begin()
        wrong = self._wrong(plan, whole, lines, first_good)
        if wrong:
            return wrong
        self._run(plan, "parts", lines[: plan.cut], every)
        parts = self._run(plan, "parts", lines, every, fresh=False)
        if self._peak.end() > MARGIN_BYTES:
            return Outcome("allocation", "while rows were read")
        if parts.judged().failed:
            return parts.judged()
        for name, what in (("out.csv", "another output"), ("s.npz", "another snapshot")):
            one, other = (self._folder / f"{part}-{name}" for part in ("whole", "parts"))
            same = _same_snapshot(one, other) if name == "s.npz" else _same_bytes(one, other)
            if not same:
                return Outcome("wrong", f"{what} when the file is read in two parts")
        return whole.judged()

    def _run(
        self, plan: Plan, part: str, lines: list[bytes], every: list[str], fresh: bool = True
    ) -> Ended:
        source, out, snapshot = (
            self._folder / f"{part}-{name}" for name in ("in.csv", "out.csv", "s.npz")
        )
        if fresh:
            out.unlink(missing_ok=True)
            snapshot.unlink(missing_ok=True)
        source.write_bytes(b"".join(line + b"\n" for line in lines))
        words = ["run", str(self._bundles[plan.bundle]), "--input", str(source), *every]
        if plan.sensors > 1:
            words += ["--stream", "sensor", "--streams", str(plan.sensors)]
        return call([*words, "--output", str(out), "--snapshot", str(snapshot)])

    def _wrong(
        self, plan: Plan, ended: Ended, lines: list[bytes], first_good: int
    ) -> Outcome | None:
        """Return the first fault after the whole file; None if there is none."""
        outcome = ended.judged()
        if outcome.failed:
            return outcome
        if _control(ended.err.replace("\n", "")):
            return Outcome("message", "control characters on stderr")
        out = self._folder / "whole-out.csv"
        if not out.exists():  # no row could be read at all
            return None if ended.error else Outcome("wrong", "no output and no error")
        text = out.read_bytes().decode("utf-8")
        if _control(text.replace("\n", "")):
            return Outcome("wrong", "control characters in the output")
        header, *rows = csv.reader(io.StringIO(text, newline=""), strict=True)
        if any(len(row) != len(header) for row in rows):
            return Outcome("wrong", "an output row of another width than its header")
        numbers = [int(row[header.index("line")]) for row in rows]
        if any(b <= a for a, b in pairwise(numbers)):
            return Outcome("wrong", "the output's lines do not rise")
        with np.load(self._folder / "whole-s.npz") as archive:
            record = json.loads(archive["extra.loop"].tobytes())
            state = [archive[n] for n in archive.files if n.split(".")[0] == "state"]
        if not all(np.isfinite(array).all() for array in state):
            return Outcome("wrong", "the state is not finite")
        counters = [record["counters"], *record.get("sensors", [])]
        counted = {
            name: sum(one.get(name, 0) for one in counters)
            for name in ("rows", "malformed", "missing")
        }
        n_rows = sum(map(is_counted, lines)) - (not plan.json)
        if counted["rows"] != len(rows) or sum(counted.values()) != n_rows:
            return Outcome("wrong", "rows lost or counted twice")
        learned = set(numbers)
        late = first_good + LEARNS_FROM * plan.sensors
        missed = [n for n in range(late, len(lines) + 1) if n not in learned]
        if missed:
            return Outcome("wrong", "rows of the true series are not learned after noise")
        return None


def _control(text: str) -> bool:
    return any(unicodedata.category(c) == "Cc" for c in set(text))


def _same_bytes(one: Path, other: Path) -> bool:
    if one.exists() != other.exists():
        return False
    return not one.exists() or one.read_bytes() == other.read_bytes()


def _same_snapshot(one: Path, other: Path) -> bool:
    """Whether state, history and counters are equal; marks of the input's end may differ."""
    if one.exists() != other.exists():
        return False
    if not one.exists():
        return True
    with np.load(one) as first, np.load(other) as second:
        if first.files != second.files:
            return False
        for name in first.files:
            if name == "record":
                continue
            pair = [archive[name].tobytes() for archive in (first, second)]
            if name == "extra.loop":
                forms = [json.loads(content) for content in pair]
                pair = [[form["counters"], form.get("sensors")] for form in forms]
            if pair[0] != pair[1]:
                return False
    return True


HAS_SENSORS = "--streams" in (lambda e: e.out + e.err)(call(["run", "--help"]))
HAS_JSON = "json" in (lambda e: (e.out + e.err).lower())(call(["run", "--help"]))
