"""A real Prometheus scrapes a run, and evaluates the board's and the rules' expressions on it."""

from __future__ import annotations

import json
import math
import os
import re
import urllib.error
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import LIMIT_S, Broker, free_port, program, until
from tests.cli.metrics.test_alert_rules import RULES
from tests.cli.metrics.test_metric_outlets import NO_PROXY, said_url, waiting_run

pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")

ROOT = Path(__file__).parents[3]
START = datetime(2026, 1, 1)
BOARD = ROOT / "deploy" / "grafana" / "edgefold.json"
VARIABLES = {
    "$instance": ".*", "$loop": ".*", "$series": ".*",
    "$__rate_interval": "1m", "$__interval": "1m",
}  # fmt: skip


class Prometheus:
    """The HTTP interface of a running Prometheus."""

    def __init__(self, port: int):
        self._url = f"http://127.0.0.1:{port}/api/v1/"

    def ask(self, name: str, **words: str) -> Any:
        url = f"{self._url}{name}?{urllib.parse.urlencode(words)}"
        try:
            with NO_PROXY.open(url, timeout=LIMIT_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:  # of an expression that does not parse
            with error:
                raise AssertionError(f"{words}: {error.read().decode()}") from None

    def values(self, expression: str) -> list[float]:
        """The finite values of an expression now."""
        data = self.ask("query", query=expression)
        found = [float(sample["value"][1]) for sample in data["result"]]
        return [value for value in found if math.isfinite(value)]


def answers(url: str) -> bool:
    try:
        with NO_PROXY.open(url, timeout=LIMIT_S):
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except OSError:
        return False


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[Prometheus]:
    """A Prometheus with the rules, which scrapes a target five times a second."""
    command, port = program("prometheus"), free_port()
    config = {
        "global": {"scrape_interval": "200ms", "evaluation_interval": "200ms"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "edgefold", "static_configs": [{"targets": [target]}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    words = [command, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/db"]
    words.append(f"--web.listen-address=127.0.0.1:{port}")
    server = Broker(words, port, folder / "prometheus.log")
    until(lambda: answers(f"http://127.0.0.1:{port}/-/ready"), "a Prometheus that is ready")
    try:
        yield Prometheus(port)
    finally:
        server.kill()


def expressions() -> list[str]:
    """All expressions of the board's panels and annotations, with values for its variables."""
    board = json.loads(BOARD.read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    found += [note["expr"] for note in board["annotations"]["list"] if "expr" in note]
    for name, value in VARIABLES.items():
        found = [expression.replace(name, value) for expression in found]
    return found


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\bedgefold_[a-z0-9_]+", text))


def lines(first: int, n: int) -> bytes:
    """Rows of two sensors; inlet has a spike now and then, and some of its values are missing."""
    rows = []
    for i in range(first, first + n):
        value = "" if i % 50 == 20 else f"{900 + i if i % 200 == 199 else 20 + i * 7919 % 13 / 9}"
        time = START + timedelta(minutes=i)
        rows.append(f"{time:%Y-%m-%d %H:%M},{value},{30 + i * 31 % 7}\n")
    return "".join(rows).encode()


@pytest.mark.long
def test_every_expression_of_the_board_and_the_rules_has_data(tmp_path: Path) -> None:
    program("prometheus")
    words = ("--metrics", "0", "--snapshot", str(tmp_path / "s.npz"), "--every", "20")
    with waiting_run(tmp_path, *words, "--output", str(tmp_path / "out.csv")) as run:
        process, pipe, errors = run
        os.write(pipe, b"t,inlet,outlet\n" + lines(0, 40))
        target = said_url(process, errors).removeprefix("http://").removesuffix("/metrics")
        with prometheus(tmp_path, target) as server:
            # Alarms before the first scrape are no increase.
            zeros = 'edgefold_alarms_total{event="value"} == 0'
            until(lambda: len(server.values(zeros)) == 2, "a first scrape")
            asked, rows, missing = expressions(), count(40, 20), set[str]()

            def have_data() -> bool:
                """Send rows and ask again for what had no data, until all have."""
                assert process.poll() is None, errors.read_text()
                os.write(pipe, lines(next(rows), 20))
                missing.clear()
                missing.update(e for e in asked if not server.values(e))
                return not missing

            try:
                until(have_data, "data of every expression")
            except AssertionError:
                pytest.fail(f"no data: {missing}")

            rules = server.ask("rules")["groups"][0]["rules"]
            until(
                lambda: (
                    {rule["health"] for rule in server.ask("rules")["groups"][0]["rules"]} == {"ok"}
                ),
                "an evaluation of each rule",
            )
            for name in set().union(*(names_in(rule["query"]) for rule in rules)):
                assert server.values(name), name

            def said() -> list[str]:
                found = server.ask("alerts")["alerts"]
                return [a["annotations"]["summary"] for a in found if a["state"] == "firing"]

            until(lambda: any(s.startswith("inlet: value (loop sensors") for s in said()), "alarm")
            process.kill()
            until(lambda: bool(server.values("up == 0")), "a scrape that fails")

            def pending() -> set[str]:
                return {alert["labels"]["alertname"] for alert in server.ask("alerts")["alerts"]}

            until(lambda: "EdgefoldLoopDown" in pending(), "an alert of the loop that is down")


def test_the_board_names_only_metrics_that_exist_and_each_is_documented() -> None:
    board, page = BOARD.read_text(), (ROOT / "docs" / "monitoring.md").read_text()
    documented = names_in(page)
    bare = {re.sub(r"_(bucket|sum|count)$", "", name) for name in names_in(board)}
    assert bare <= documented, bare - documented
    assert names_in(RULES.read_text()) <= documented


def test_the_board_is_laid_out_without_overlaps_and_ids_are_unique() -> None:
    panels = json.loads(BOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24 and not cells & taken, panel["title"]
        taken |= cells
