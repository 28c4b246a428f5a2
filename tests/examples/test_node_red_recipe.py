"""The flows for Node-RED, imported by a real one, get the forecasts and alarms of edgefold."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import LIMIT_S, mosquitto, until
from tests.examples.node_red import node_red
from tests.loop_process import LoopProcess

RECIPES = Path(__file__).parents[2] / "examples" / "recipes"


def readings(n: int) -> list[str]:
    """Rows of the last minutes, one a second, with values from 20 to 23, and at last one of 900."""
    start = datetime.now(timezone.utc) - timedelta(seconds=n)
    times = [(start + timedelta(seconds=i)).isoformat() for i in range(n + 1)]
    values = [*(20 + i % 3 + i * 7 % 10 / 10 for i in range(n)), 900]
    return [json.dumps({"time": t, "value": v}) for t, v in zip(times, values, strict=True)]


def without_repeats(flow: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The flow whose readings come only when a test presses the button."""
    return [{**node, "repeat": ""} if node.get("repeat") else node for node in flow]


def test_forecasts_and_alarms_of_mqtt_arrive_in_the_flow(tmp_path: Path) -> None:
    client_module = pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
    from paho.mqtt.enums import CallbackAPIVersion

    flow = json.loads((RECIPES / "node-red-mqtt.json").read_text())
    with mosquitto(tmp_path, "log_type all") as broker, node_red(tmp_path, {}) as red:
        url = f"mqtt://127.0.0.1:{broker.port}"
        for node in flow:
            if node["type"] == "mqtt-broker":
                node.update(broker="127.0.0.1", port=str(broker.port))
        words = ["--output", f"{url}/edgefold/forecasts", "--alarms", f"{url}/edgefold/alarms"]
        loop = LoopProcess(tmp_path, f"{url}/plant/#", *words)
        client = client_module.Client(CallbackAPIVersion.VERSION2)
        try:
            red.deploy(without_repeats(flow))
            log = tmp_path / "mosquitto.log"
            until(lambda: log.read_text().count("Sending SUBACK") >= 3, "the subscriptions")
            client.connect("127.0.0.1", broker.port)
            client.loop_start()

            def publish(*payloads: str) -> None:
                for payload in payloads:
                    client.publish("plant/boiler", payload, qos=1).wait_for_publish(LIMIT_S)

            def forecast(series: str) -> dict[str, Any]:
                found = (red.kept("edgefold-mqtt", "forecasts") or {}).get(series, {})
                assert isinstance(found, dict)
                return found

            *usual, odd = readings(200)
            publish(*usual)
            until(lambda: forecast("plant/boiler").get("mean") is not None, "a forecast")
            assert 19 < float(forecast("plant/boiler")["mean"]) < 23
            red.inject("em-every")
            until(lambda: "value" in forecast("plant/demo"), "the flow's own reading")
            publish(odd)
            until(lambda: red.kept("edgefold-mqtt", "alarm") is not None, "an alarm")
            assert red.kept("edgefold-mqtt", "alarm")["series"] == "plant/boiler"
            assert loop.end() == 0
        finally:
            loop.kill()
            client.loop_stop()


def test_edgefold_that_an_exec_node_starts_gives_the_flow_its_rows(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "edgefold"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m edgefold.cli.main "$@"\n')
    program.chmod(0o755)
    flow = json.loads((RECIPES / "node-red-exec.json").read_text())
    pipe = tmp_path / "edgefold-rows"
    with node_red(tmp_path, {"PATH": f"{folder}:/usr/local/bin:/usr/bin:/bin"}) as red:
        red.deploy(without_repeats(flow))
        until(pipe.is_fifo, "the pipe")

        def write(*lines: str) -> None:
            with pipe.open("a") as file:
                file.write("".join(f"{line}\n" for line in lines))

        def kept(key: str) -> dict[str, str]:
            found = red.kept("edgefold-exec", key) or {}
            assert isinstance(found, dict)
            return found

        *usual, odd = readings(200)
        write(*usual)
        until(lambda: kept("forecast").get("mean", "") != "", "a forecast")
        assert 19 < float(kept("forecast")["mean"]) < 23
        write(odd)
        until(lambda: kept("alarm").get("value") == "900", "an alarm")
        red.inject("ee-every")
        until(lambda: len(kept("forecast")["value"]) > len("20.7"), "the flow's own reading")
