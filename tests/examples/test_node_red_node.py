"""The node of the package of npm forecasts and alarms inside a real Node-RED."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from edgefold.export.browser.package import FOLDER, SENSORS, sensors_package
from tests.brokers import until
from tests.examples.node_red import NodeRed, node_red, node_red_program
from tests.export.browser.built import sensors_module

EXAMPLE = FOLDER / "package" / "examples" / "made-up-sensor.json"
ENGINE, TAB = "es-engine", "edgefold-sensors-example"
KEEP = """
const { n } = flow.get("KEY") || { n: 0 };
flow.set("KEY", { n: n + 1, last: msg });
"""
SPLIT = "for (const one of JSON.parse(msg.payload)) node.send(one);"
STEP = """
const { openSensors } = await import(process.argv[1]);
const sensors = await openSensors();
let last;
for (const { payload: { time, value } } of JSON.parse(process.argv[2])) {
  last = sensors.step(Date.parse(time) / 1000, value, "kiln");
}
console.log(JSON.stringify(last));
"""


def reading(i: int, value: float | None = None) -> dict[str, Any]:
    """The message of a sensor in one hour, with a value from 20 to 23 if none is given."""
    time = datetime(2024, 1, 1, tzinfo=timezone.utc) + timedelta(hours=i)
    usual = 20 + i % 3 + i * 7 % 10 / 10
    return {
        "topic": "kiln",
        "payload": {"time": time.isoformat(), "value": usual if value is None else value},
    }


def readings(n: int) -> list[dict[str, Any]]:
    """The messages of the first hours."""
    return [reading(i) for i in range(n)]


def observed_flow() -> list[dict[str, Any]]:
    """The example's flow, whose messages a test sends and keeps in the flow's context."""
    flow = json.loads(EXAMPLE.read_text())
    for node in flow:
        if node["type"] == "inject":
            node.update(repeat="", once=False)
        if node["id"] == ENGINE:
            for wires, key in zip(node["wires"], ("rows", "alarms"), strict=True):
                wires.append(f"keep-{key}")
    own = {"z": TAB, "x": 100, "y": 400, "outputs": 1, "wires": []}
    keys = "rows", "alarms", "errors", "states"
    return [
        *flow,
        {**own, "id": "send", "type": "inject", "props": [], "wires": [["split"]]},
        {**own, "id": "split", "type": "function", "func": SPLIT, "wires": [[ENGINE]]},
        {**own, "id": "e", "type": "catch", "scope": [ENGINE], "wires": [["keep-errors"]]},
        {**own, "id": "s", "type": "status", "scope": [ENGINE], "wires": [["keep-states"]]},
        *(
            {**own, "id": f"keep-{key}", "type": "function", "func": KEEP.replace("KEY", key)}
            for key in keys
        ),
    ]


class Watched:
    """Return the messages that left the node since Node-RED started."""

    def __init__(self, red: NodeRed):
        self._red = red

    def send(self, messages: list[dict[str, Any]]) -> None:
        """Send messages to the node, one after the other."""
        self._red.inject("send", payload=json.dumps(messages))

    def count(self, key: str) -> int:
        return int((self._red.kept(TAB, key) or {"n": 0})["n"])

    def last(self, key: str) -> dict[str, Any]:
        """The newest message that was kept under a key."""
        found = self._red.kept(TAB, key)["last"]
        assert isinstance(found, dict)
        return found

    def answer(self, *messages: dict[str, Any]) -> dict[str, Any]:
        """Send messages, wait until each has a row, and return the payload of the last one."""
        n = self.count("rows") + len(messages)
        self.send([*messages])
        until(lambda: self.count("rows") == n, f"{n} rows")
        row = self.last("rows")["payload"]
        assert isinstance(row, dict)
        return row


@pytest.fixture
def user_folder(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Path:
    """A user directory of Node-RED in which npm has installed the package."""
    node_red_program()
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm here: apt-get install npm")
    for name, content in sensors_package(sensors_module(tmp_path_factory)).items():
        path = tmp_path / SENSORS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    folder = tmp_path / "user"
    folder.mkdir()
    quiet = {**os.environ, "npm_config_update_notifier": "false", "npm_config_offline": "true"}
    words = [npm, "install", "--no-audit", "--no-fund", f"../{SENSORS}"]
    subprocess.run(words, cwd=folder, check=True, env=quiet, capture_output=True)
    return folder


def test_a_fault_is_alarmed_and_a_restart_goes_on_from_what_was_learned(user_folder: Path) -> None:
    usual, odd, after = readings(300), reading(300, 900), reading(301)
    with node_red(user_folder, {}) as red:
        red.deploy(observed_flow())
        watched = Watched(red)
        assert watched.answer(usual[0])["mean"] is None
        row = watched.answer(*usual[1:])
        assert row["series"] == "kiln" and row["q05"] < row["mean"] < row["q95"]
        assert 19 < row["mean"] < 23 and 0 < row["p_value"] <= 1
        n_alarms = watched.count("alarms")
        row = watched.answer(odd)
        assert row["alarm"] is True and row["event"] == "value" and row["value"] == 900
        until(lambda: watched.count("alarms") == n_alarms + 1, "the alarm")
        alarm = watched.last("alarms")
        assert alarm["topic"] == "kiln"
        about = {"series": "kiln", "event": "value", "since": 0, "size": None}
        assert alarm["payload"] == {**about, **odd["payload"]}
        until(lambda: watched.last("states")["status"]["fill"] == "red", "the red state")
        assert "value, 900" in watched.last("states")["status"]["text"]

    snapshot = user_folder / "edgefold-snapshots" / f"{ENGINE}.snapshot"
    assert snapshot.stat().st_size > 100_000
    with node_red(user_folder, {}) as red:
        watched = Watched(red)
        row = watched.answer(after)
        node = shutil.which("node")
        assert node is not None
        words = ["--input-type=module", "-e", STEP]
        index = (user_folder.parent / SENSORS / "index.js").as_uri()
        done = subprocess.run(
            [node, *words, index, json.dumps([*usual, odd, after])],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        whole = json.loads(done.stdout)
        same = ["mean", "q05", "q10", "q25", "q50", "q75", "q90", "q95"]
        assert {key: row[key] for key in same} == {key: whole[key] for key in same}
        assert row["log_density"] == whole["logDensity"] and row["p_value"] == whole["pValue"]


def test_payloads_are_read_refused_and_forgotten(user_folder: Path) -> None:
    with node_red(user_folder, {}) as red:
        red.deploy(observed_flow())
        watched = Watched(red)
        assert watched.answer({"payload": 3})["series"] == ""
        assert watched.answer({"topic": "text", "payload": " 21.5 "})["value"] == 21.5
        missing = watched.answer({"topic": "text", "payload": {"value": None, "time": 4e12}})
        assert missing["value"] is None and missing["p_value"] is None
        red.inject("es-spike")
        red.inject("es-every")
        until(lambda: watched.count("rows") == 4, "the row of the example's own sensor")
        row = watched.last("rows")["payload"]
        assert row["series"] == "boiler" and row["value"] >= 25  # 19 to 21.2 without it

        refused = [True, "warm", {}, {"time": "soon", "value": 1}, {"time": 5, "value": 1}]
        for n, payload in enumerate(refused, 1):
            watched.send([{"topic": "text", "payload": payload}])
            until(lambda: watched.count("errors") >= n, f"{n} errors")  # noqa: B023
        assert watched.count("rows") == 4

        usual = readings(60)
        assert watched.answer(*usual)["mean"] is not None
        watched.send([{"topic": "kiln", "reset": True}])
        until(lambda: "forgotten" in watched.last("states")["status"]["text"], "the reset")
        assert watched.answer(usual[0])["mean"] is None


def test_a_damaged_snapshot_is_kept_and_the_sensors_start_over(user_folder: Path) -> None:
    snapshot = user_folder / "edgefold-snapshots" / f"{ENGINE}.snapshot"
    snapshot.parent.mkdir()
    snapshot.write_bytes(b"damaged")
    with node_red(user_folder, {}) as red:
        red.deploy(observed_flow())
        assert Watched(red).answer(reading(0))["mean"] is None
    assert snapshot.with_name(f"{snapshot.name}.unread").read_bytes() == b"damaged"
    assert snapshot.stat().st_size > 100_000
