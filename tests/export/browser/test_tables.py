"""The reader of tables in the browser finds what the reader in Python finds, number for number."""

from __future__ import annotations

import base64
import io
import json
import math
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import edgefold.export.browser as browser
from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_columns import Row
from edgefold.runtime.rows.csv_reader import BadRow
from edgefold.runtime.rows.detect.columns import open_table
from edgefold.runtime.rows.sensor_columns import SensorsRow
from tests.export.browser.built import NODE, needs_node
from tests.rough_files import ROUGH_FILES

ROOT = Path(__file__).parents[3]
pytestmark = needs_node
NAMES = {"timeFormat": "time_format", "delimiter": "delimiter", "decimal": "decimal"}
"""Settings of the reader in the browser, and what a `RowFormat` calls them."""
Job = tuple[bytes, dict[str, Any]]


def in_browser(jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """Read all tables by the JavaScript in one process of node."""
    assert NODE is not None
    reader = Path(*browser.__path__) / "tables" / "table.js"
    listed = [
        {"content": base64.b64encode(content).decode(), "options": options}
        for content, options in jobs
    ]
    command = [NODE, str(Path(__file__).with_name("read_tables.mjs")), str(reader)]
    done = subprocess.run(command, input=json.dumps(listed).encode(), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def in_python(content: bytes, options: dict[str, Any]) -> dict[str, Any]:
    """Read a table by the reader of `edgefold forecast`."""
    own = {key: options[key] for key in ("name", "time", "values", "series") if key in options}
    given = {NAMES[key]: options[key] for key in NAMES if key in options}
    try:
        table = open_table(io.BytesIO(content), **own, given=given)
    except DataError as error:
        return {"error": str(error)}
    rows = [[row.line, parts_of(row)] for row in table.rows()]
    choice = table.choice
    return {
        "time": list(choice.time),
        "clock": choice.clock,
        "values": list(choice.values),
        "series": choice.series,
        "notes": list(table.notes),
        "rows": rows,
        "unread": table.columns.unread,
        "written": choice.written(1234567890.125, "") if rows else "",
    }


def parts_of(row: SensorsRow | BadRow) -> object:
    """The sensors of a line as the JavaScript writes them; NaN is null in JSON."""
    if isinstance(row, BadRow):
        return row.reason
    return [[name, cell_of(part)] for name, part in row.parts]


def cell_of(part: Row | BadRow) -> object:
    if isinstance(part, BadRow):
        return part.reason
    time, value = part.numbers
    return [time, None if math.isnan(value) else value, *part.texts]


def require_same(jobs: Sequence[Job]) -> None:
    for (content, options), found in zip(jobs, in_browser(jobs), strict=True):
        expected = in_python(content, options)
        assert found == expected, (content[:400], options)


def lines(header: str, form: str, n: int = 100) -> bytes:
    """A header, and n lines of a form that is given the number of the line."""
    rows = (form.format(i=i, h=i % 24, d=1 + i // 24, v=20 + i % 7) for i in range(n))
    return ("\n".join([header, *rows] if header else rows) + "\n").encode()


def test_rough_files_are_read_alike() -> None:
    require_same([(make().text().encode(), {"name": make().name}) for make in ROUGH_FILES.values()])


def test_real_series_are_read_alike() -> None:
    files = sorted((ROOT / "data").glob("*.csv"))
    assert files
    require_same([(path.read_bytes(), {"name": path.name}) for path in files])


def taking_turns(header: str, *values: str) -> bytes:
    """A log of two sensors, each of which reports at times of its own."""
    rows = [
        f"2024-01-01T00:{i:02}:{1 + 30 * k:02}Z,{('roof', 'cellar')[k]},{value.format(v=i % 3)}"
        for i in range(10, 59)
        for k, value in enumerate(values)
    ]
    return "\n".join([header, *rows]).encode()


CLOCKS = {
    "ISO": lines("ds,y", "2024-01-{d:02}T{h:02}:00,{v}"),
    "offsets": lines("ds,y", "2024-01-{d:02}T{h:02}:00:05.125+02:00,{v}"),
    "German": lines("y;Datum", "{v},5;{d:02}.01.2024 {h:02}:00"),
    "two columns": lines("Datum;Uhrzeit;T", "{d:02}.01.2024;{h}:00;{v}"),
    "day first": lines("when,v", "{d}/1/2024 {h}:00,{v}"),
    "month first": lines("when,v", "1/{d}/2024 {h}:00,{v}", 240),
    "both": lines("time,v", "3/4/2024 {h}:00,{v}", 24),
    "halves": lines("time,v", "1/{d}/24 07:{i:02} PM,{v}", 24),
    "compact": b"day,v\n20240101,1\n20240102,2\n20240103,1\n",
    "numbers": lines("t,v", "{i},{v}"),
    "no header": lines("", "{i},{v}"),
    "rows": lines("v", "{v}.5"),
    "spaces": lines("", "2024-01-01 00:{i:02} {v}", 60),
    "aligned": b"   date       time   temp\n"
    + lines("", "2024-01-{d:02}   {h:02}:00   {v}.25"),
    "numbered": lines(",when,v", "{i},2024-01-{d:02} {h:02}:00,{v}"),
    "seconds": lines("stamp,v", "17000000{i:02},{v}"),
    "microseconds": lines("stamp,v", "17000000{i:02}000000,{v}"),
    "mark": b"\xef\xbb\xbf" + lines("time,v", "2024-01-{d:02} {h:02}:00,{v}"),
    "left out": lines(
        "id,time,v,state,epoch", "7,2024-01-{d:02} {h:02}:00,{v},OK,17000{i:02}000"
    ),
    "above": b"Station 7\nmade by a logger\n" + lines("time,v", "2024-01-{d:02} {h:02}:00,{v}"),
    "comments": b"# station\n# b\n" + lines("#time,v", "2024-01-{d:02} {h:02}:00,{v}"),
    "units": b"time,T [\xc2\xb0C]\ns,degree\n" + lines("", "2024-01-{d:02} {h:02}:00,{v}"),
    "quotes": lines('"time","a ""b"", c"', '"2024-01-{d:02} {h:02}:00","{v},5"'),
    "broken quotes": lines("time,v", "2024-01-{d:02} {h:02}:00,{v}") + b'2024,"1"x\n2025,"1\n',
    "sep": b"sep=;\n" + lines("t;v", "{i};{v},5"),
    "Windows": lines("time,v", "{i},{v}\r"),
    "tabs": lines("time\tv\tw", "2024-01-{d:02} {h:02}:00\t{v}\t{i}"),
    "groups": lines("time;v", "2024-01-{d:02} {h:02}:00;1.0{v},5"),
    "old header": lines("Zeit;Wert °C", "{d:02}.01.2024 {h:02}:00;{v}").decode().encode("cp1252"),
    "newest first": b"ts,v\n" + b"".join(b"17%08d,%d\n" % (300 - i, i % 7) for i in range(300)),
    "newest first, torn": b"\xef\xbb\xbfts,v\n"
    + b"".join(b"17%08d,%d\n" % (900 - i, i % 7) for i in range(900)) + b"1700000000,3",
    "no rows": b"time,v\n",
    "nothing": b"",
    "blank": b"\n\n\n",
    "words": b"a,b\nx,y\n",
    "list": b'[{"a": 1}]',
    "no values": b"time,v\n" + b"".join(b"%d,\n" % i for i in range(9)),
    "CR": b"time,v\r1,2\r3,4\r",
    "gzip": b"\x1f\x8b\x08\0\n",
    "UTF-16 without a mark": "time,v\n1,2\n".encode("utf-16-le"),
    "UTF-32": "time,v\n1,2\n".encode("utf-32"),
    "NUL": b"ab\0\0\0\0c\n",
    "not UTF-8": b"time,v,unit\n" + 9 * b"2024-01-01,1,\xb0C\n",
    "line breaks": b"t,b,v\n" + b"".join(b'%d,"x\ny",1\n' % i for i in range(9)),
    "two readings": b"time,v\n" + b"".join(b"%d,%d\n" % (i, 900 + i) for i in range(100))
    + b'100,"1,000"\n',
    "late thousands": b"time,v\n" + b"".join(b"%d,%d\n" % (i, i % 900) for i in range(450))
    + b'450,"1,000"\n',
    "very long": b"time,v\n1,1\n" + 2_200_000 * b"x" + b"\n" + lines("", "{i},{v}", 500),
    "long at the end": lines("time,v", "{i},{v}") + 65536 * b"7",
    "just short enough": lines("time,v", "{i},{v}") + b"9," + 65533 * b"7",
    "bad times": lines("time,v", "2024-01-{d:02} {h:02}:00,{v}")
    + b"2024-02-30,1\n24:00,1\n,1\nNA,1\n1700000000,1\n17/03/2024,1\n2024-1-5,1\n01/02/2024,1\n"
    + "\uff12024-01-01,1\n".encode(),
    "bad values": lines("time,v,w", "2024-01-{d:02} {h:02}:00,{v}.5,1")
    + b'2024-01-06,"1,5",2\n2024-01-06,1e200,2\n2024-01-06,1_000,-nan\n2024-01-06,inf,?\n'
    + "2024-01-06,٣,x\x07\n2024-01-06, 7 ,\u00a0\n2024-01-06,0x1,'\"\n".encode(),
    "long table": b"time,place,v,unit\n"
    + b"".join(b"2024-01-01 %02d:00,%s,%d.5,C\n" % (i // 2, (b"roof", b"wall")[i % 2], i)
               for i in range(48)),
    "long table of two": b"time,s,a b,b\n"
    + b"".join(b"%d,x,1,2\n%d,x a,3,4\n" % (i, i) for i in range(60)),
    "turns": taking_turns("time,sensor,value", "20", "500"),
    "turns, known": taking_turns("time,deviceId,value", "2{v}", "2{v}"),
    "turns, far": taking_turns("time,which,value", "2{v}", "50{v}"),
    "turns, unclear": taking_turns("time,which,value", "2{v}", "2{v}"),
    "ids": b"time,sensor_id,v\n"
    + b"".join(b"%d,%d,%d.5\n" % (i, 1 + i % 3, i % 7) for i in range(60)),
    "an id a row": b"time,sensor_id,v\n"
    + b"".join(b"%d,k%d,%d\n" % (i, i, i % 7) for i in range(60)),
    "two names": b"time,device,metric,v\n"
    + b"".join(b"%d,%s,%s,1\n" % (i, d, m) for i in range(30) for d in (b"a", b"b")
               for m in (b"temp", b"hum")),
    "states": b"t,state,v\n"
    + b"".join(b"%d,%s,1.5\n" % (i, (b"on", b"off")[i % 2]) for i in range(60)),
    "equal names": b"time,a,a,a (2)\n" + b"".join(b"%d,1,2,%d\n" % (i, i % 3) for i in range(60)),
}  # fmt: skip
"""Tables of many forms; what each of them shows stands in the tests of the Python reader."""
KEYS = [
    {"time": i, "a\ud800": 2, "b\x1b\n": "3,5", "b\\x1b\\n": 4} | ({"late": 1} if i > 420 else {})
    for i in range(500)
]
JSON_LINES = {
    "keys": "\n".join(map(json.dumps, KEYS)).encode(),
    "bad": lines("", '{{"time": "2024-01-{d:02} {h:02}:00", "value": {v}.5e0}}')
    + b'{"time": 1}\n{"time": 1, "time": 2}\n{"time": NaN}\n[1]\n7\n{"a": 1,}\n{"a" 1}\n{a: 1}\n'
    + b'{"value": {"x": [1, -Infinity]}}\n{"time": "2024-01-09", "value": null}\n{"a": "\\q"}\n'
    + b'{"time": "2024-01-09", "value": [1]}\n{"time": "2024-01-09", "value": true}\n{"a": 01}\n'
    + b'{"a": "x\n{"a": "\\u12"}\n{"a": [1 2]}\n{"a": [1,]}\n{"a": 1} x\n{"a": tru}\n{"a": -}\n{',
    "points": lines("", '{{"t": {i}.0, "v": "{v},5", "w": {v}.5}}'),
}
NAMED: list[Job] = [
    (CLOCKS["two readings"], {"decimal": "."}),
    (CLOCKS["two readings"], {"decimal": ","}),
    (CLOCKS["turns, unclear"], {"series": "which"}),
    (CLOCKS["turns, unclear"], {"series": ""}),
    (CLOCKS["turns, unclear"], {"values": ["value"]}),
    (CLOCKS["both"], {"timeFormat": "%m/%d/%Y %H:%M"}),
    (CLOCKS["both"], {"timeFormat": "%d/%m/%Y"}),
    (CLOCKS["seconds"], {"timeFormat": "unix"}),
    (CLOCKS["left out"], {"time": "epoch", "values": ["v", "id"]}),
    (CLOCKS["left out"], {"time": "state"}),
    (CLOCKS["left out"], {"time": "nowhere"}),
    (CLOCKS["tabs"], {"delimiter": ","}),
    (CLOCKS["numbers"], {"delimiter": "x"}),
    (JSON_LINES["keys"], {"values": ["late", "later"]}),
    (lines("t;v", "05-Jan-{d:02} {h:02}:00;{v}"), {"timeFormat": "%d-%b-%y %H:%M"}),
]


def test_tables_of_all_forms_are_read_alike() -> None:
    jobs = [
        (content, {"name": "sensor.csv"}) for content in (*CLOCKS.values(), *JSON_LINES.values())
    ]
    require_same([*jobs, *NAMED])


def test_tables_made_by_chance_are_read_alike() -> None:
    draw = random.Random(1)
    pieces = [
        *"0123456789,;.:-/ \t|\"'{}[]\n\r#eE", "time", "2024-01-01", "NA", "\n", "1.5,", "\0", "é",
        "1/2/2024", "\n2024-01-02 10:00,5", '{"a": ', "\ufeff", "\u2028", "\x1c",
    ]  # fmt: skip
    texts = ["".join(draw.choices(pieces, k=draw.randrange(60))).encode() for _ in range(1500)]
    noise = [draw.randbytes(draw.randrange(200)) for _ in range(300)]
    require_same([(content, {}) for content in texts + noise])


@pytest.mark.long
def test_damaged_tables_are_read_alike() -> None:
    """Some characters of sound tables are replaced, so that most lines stay readable."""
    draw = random.Random(2)
    sound = [c for c in (*CLOCKS.values(), *JSON_LINES.values()) if 0 < len(c) < 20_000]
    signs = b"0123456789,;.:-/ \t|\"'{}[]\n\r#eE\xc3\xa9"
    jobs: list[Job] = []
    for _ in range(600):
        content = bytearray(draw.choice(sound))
        for _ in range(draw.randrange(1, 12)):
            content[draw.randrange(len(content))] = draw.choice(signs)
        jobs.append((bytes(content), {"name": "damaged"}))
    require_same(jobs)


def test_tables_of_several_pieces_are_read_alike() -> None:
    """Files are read in pieces of 1 MiB; lines and signs of two bytes cross their ends."""
    draw = random.Random(3)
    rows = [
        f"{1_700_000_000 + 60 * i},{i % 97}.{i % 7},{'é' * draw.randrange(40)}\n"
        for i in range(60_000)
    ]
    for at in (9_000, 17_500, 40_000):
        rows[at] = f"{rows[at][:10]},1,{'é' * draw.choice([30_000, 40_000, 700_000])}\n"
    forward = "time,v,word\n" + "".join(rows)
    backward = "time,v,word\n" + "".join(reversed(rows)).rstrip("\n")
    assert len(forward.encode()) > 4 << 20
    require_same([(text.encode(), {}) for text in (forward, backward)])


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "cp1252"])
def test_other_encodings_are_read_where_the_command_refuses_them(encoding: str) -> None:
    """A browser has no iconv: UTF-16 is known by its mark, Windows-1252 is chosen."""
    text = "Zeit;Größe €\n" + "".join(f"01.02.2024 10:{i:02};{i},5\n" for i in range(60))
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    options = {"encoding": "windows-1252"} if encoding == "cp1252" else {}
    found, expected = in_browser([((mark + text).encode(encoding), options), (text.encode(), {})])
    assert found["values"] == ["Größe €"] and found["rows"] == expected["rows"]
    assert found["notes"][1:] == expected["notes"]


def test_numbers_are_written_as_python_writes_them() -> None:
    draw = random.Random(4)
    numbers = [draw.gauss(0, 1) * 10.0 ** draw.randrange(-12, 15) for _ in range(3000)]
    numbers += [draw.randrange(-(10**9), 10**9) / 2 ** draw.randrange(20) for _ in range(3000)]
    numbers += [0.0, -0.0, 999_999_999.5, 1e-5, 1e22, 1234567.125, 1234567.375, 0.5, 1e-300]
    text = Path(*browser.__path__) / "tables" / "text.js"
    script = f"""
        const {{ general }} = await import({json.dumps(text.as_uri())});
        const numbers = {json.dumps(numbers)};
        console.log(JSON.stringify([3, 6, 9, 12].map((n) => numbers.map((x) => general(x, n)))));
    """
    assert NODE is not None
    command = [NODE, "--input-type=module", "-"]
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=True)
    expected = [[f"{x:.{digits}g}" for x in numbers] for digits in (3, 6, 9, 12)]
    assert json.loads(done.stdout) == expected
