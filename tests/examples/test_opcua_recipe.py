"""The recipe for OPC UA follows a real server, outlives it, and writes results to its variables."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.brokers import LIMIT_S, free_port, until
from tests.examples.opcua_server import FLOW, opcua_server

pytest.importorskip("asyncua", reason="asyncua is not installed")

RECIPES = Path(__file__).parents[2] / "examples" / "recipes"


@contextmanager
def started(*words: object, **pipes: object) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block."""
    process = subprocess.Popen([sys.executable, *map(str, words)], **pipes)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.kill()
        process.wait(LIMIT_S)
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()


@pytest.mark.long
def test_each_change_is_a_row_at_its_source_time_and_none_comes_twice(tmp_path: Path) -> None:
    lines, said = tmp_path / "lines", tmp_path / "said"
    words = [RECIPES / "opcua_rows.py", "", FLOW, "ns=2;s=Missing", "--period", "20"]

    def rows() -> list[dict[str, object]]:
        return [json.loads(line) for line in lines.read_text().splitlines()]

    with (
        opcua_server(tmp_path, free_port()) as server,
        lines.open("wb") as out,
        said.open("wb") as errors,
    ):
        words[1] = server.url
        server.measure(1.5, 1)
        with started(*words, stdout=out, stderr=errors):
            until(lambda: len(rows()) == 1, "the present value")
            for second in range(2, 9):  # more than one between two messages of the server
                server.measure(second + 0.5, second)
            until(lambda: len(rows()) == 8, "the changes")
            server.kill()
            until(lambda: "is away" in said.read_text(), "the sentence on the server")
            server.start()
            until(lambda: said.read_text().count("is connected") == 2, "the server that came back")
            server.measure(9.5, 9)
            until(lambda: rows()[-1]["value"] == 9.5, "the change after it")
    assert rows()[0] == {"series": FLOW, "time": "2026-01-01T00:00:01+00:00", "value": 1.5}
    own = [row["value"] for row in rows() if str(row["time"]).startswith("2026-01-01")]
    assert own == [second + 0.5 for second in range(1, 10)]
    assert "refuses ns=2;s=Missing: BadNodeIdUnknown" in said.read_text()


@pytest.mark.long
def test_the_whole_recipe_writes_what_is_expected_and_an_alarm(tmp_path: Path) -> None:
    said = tmp_path / "said"
    with opcua_server(tmp_path, free_port()) as server, said.open("wb") as errors:
        server.measure(20.0, 0)
        run = ["-m", "edgefold.cli.main", "run", "sensors", "--input", "-", "--stream", "series"]
        rows = [RECIPES / "opcua_rows.py", server.url, FLOW, "--period", "20"]
        with (
            started(*rows, stdout=subprocess.PIPE, stderr=errors) as reader,
            started(*run, "--output", "-", stdin=reader.stdout, stdout=subprocess.PIPE) as loop,
            started(RECIPES / "opcua_results.py", server.url, stdin=loop.stdout),
        ):
            until(lambda: "is connected" in said.read_text(), "the subscription")
            for second in range(1, 201):
                server.measure(20 + second % 3 + second * 7 % 10 / 10, second)
            until(lambda: 19 < server.read(f"{FLOW}.Expected") < 24, "the expected value")
            assert server.read(f"{FLOW}.Alarm") is False
            server.measure(900.0, 201)
            until(lambda: server.read(f"{FLOW}.Alarm") is True, "the alarm")
