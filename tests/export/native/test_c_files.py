"""The arrows between files of C, read from their text: no compiler is needed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from edgefold.export.native.c_pieces import DEFINED
from edgefold.export.native.generator import FOLDER, PARTS
from edgefold.export.native.interface.interface import SNAPSHOT_FILES
from tests.test_architecture import circle

NATIVE = FOLDER.parent
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
TEXT = re.compile(r'"(?:[^"\\\n]|\\.)*"')
FUNCTION = re.compile(r"^(?!static\b)[A-Za-z][\w *]*?\b(\w+)\([^;{}]*\)\s*\{", re.MULTILINE)
CALL = re.compile(r"(?<![.>\w])(\w+)\(")
OWN = re.compile(r"^static\b[^;={(]*?\b(\w+)\(", re.MULTILINE)


def calls(files: Mapping[str, str]) -> dict[str, set[str]]:
    """The files whose functions each file calls."""
    code = {name: TEXT.sub('""', COMMENT.sub("", text)) for name, text in files.items()}
    owner = {word: name for name, text in code.items() for word in FUNCTION.findall(text)}
    return {
        name: {owner.get(word, name) for word in {*CALL.findall(text)} - {*OWN.findall(text)}}
        - {name}
        for name, text in code.items()
    }


def test_a_circle_of_files_is_found() -> None:
    files = {
        "a.c": "int one(int n)\n{\n    return two(n);\n}",
        "b.c": "int two(int n)\n{\n    return three(n); /* one( */\n}",
        "c.c": 'static int own(void) { say("one"); }\nint three(int n)\n{\n    return one(n);\n}',
    }
    assert calls(files) == {"a.c": {"b.c"}, "b.c": {"c.c"}, "c.c": {"a.c"}}
    assert circle(calls(files)) == ["a.c", "b.c", "c.c", "a.c"]


@pytest.mark.parametrize("folder", ["loop", "firmware"])
def test_no_file_of_a_program_calls_itself_by_way_of_others(folder: str) -> None:
    files = {path.name: path.read_text() for path in sorted((NATIVE / folder).glob("*.c"))}
    if folder == "firmware":  # one machine at a time
        files = {n: t for n, t in files.items() if n in ("golden_replay.c", "machine_linux.c")}
    graph = calls(files)
    assert not circle(graph), " -> ".join(circle(graph))
    if folder == "loop":
        assert {"text.c", "files.c"} <= graph["output.c"] and not graph["text.c"]


def test_the_fixed_pieces_of_a_model_use_only_what_stands_before_them() -> None:
    names = [*PARTS, *SNAPSHOT_FILES]
    owner: dict[str, str] = {}
    for name in names:
        text = COMMENT.sub("", (FOLDER / name).read_text())
        owner |= dict.fromkeys(DEFINED.findall(text), name)
        for word in re.findall(r"\w+", text):
            assert names.index(owner.get(word, name)) <= names.index(name), f"{name}: {word}"


def test_headers_do_not_include_each_other_in_a_circle() -> None:
    paths = [path for path in NATIVE.rglob("*.[ch]")]
    graph = {
        path.name: {
            Path(name).name
            for name in re.findall(r'^#include "(.*)"', path.read_text(), re.MULTILINE)
            if any(Path(name).name == other.name for other in paths)
        }
        for path in paths
    }
    assert not circle(graph), " -> ".join(circle(graph))
