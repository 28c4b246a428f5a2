"""The recipe for Modbus reads a real server, outlives it, and writes an alarm back."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.brokers import free_port, until
from tests.loop_process import LoopProcess

pytest.importorskip("pymodbus.simulator", reason="pymodbus is not installed")
from tests.examples.modbus_device import HOLDING, INPUT, modbus_device

RECIPES = Path(__file__).parents[2] / "examples" / "recipes"


def test_registers_are_read_scaled_and_read_again_after_a_restart(tmp_path: Path) -> None:
    lines, said = tmp_path / "lines", tmp_path / "said"
    with modbus_device(free_port()) as device, lines.open("wb") as out, said.open("wb") as errors:
        command = [sys.executable, str(RECIPES / "modbus_rows.py"), f"127.0.0.1:{device.port}"]
        command += [str(RECIPES / "registers.csv"), "--every", "0.02"]

        def fill(temperature: float) -> None:
            device.set(HOLDING, 0, round(temperature * 10), "INT16")
            device.set(INPUT, 10, 3.25, "FLOAT32", "little")
            device.set(HOLDING, 20, -70_123, "INT32", "big")

        def rows() -> list[dict[str, object]]:
            return [json.loads(line) for line in lines.read_text().splitlines()]

        fill(-21.5)
        process = subprocess.Popen(command, stdout=out, stderr=errors)
        try:
            until(lambda: len(rows()) > 2, "rows")
            device.stop()
            until(lambda: "does not answer" in said.read_text(), "the sentence on the device")
            device.start()
            fill(22.5)
            until(lambda: rows()[-1]["temperature"] == 22.5, "rows of the device that came back")
        finally:
            process.terminate()
            process.wait()
    first = rows()[0]
    assert str(first.pop("time")).endswith("+00:00")
    assert first == {"temperature": -21.5, "flow": 3.25, "power": -70.123}
    assert said.read_text().count("does not answer") == 1


def test_the_page_shows_the_registers_of_the_example() -> None:
    page = (RECIPES.parents[1] / "docs" / "recipes.md").read_text()
    assert f"```\n{(RECIPES / 'registers.csv').read_text()}```" in page


def test_a_register_that_the_device_refuses_is_a_missing_value(tmp_path: Path) -> None:
    registers = tmp_path / "registers.csv"
    registers.write_text(
        "name,table,address,type,words,scale\na,holding,0,int16,,\nb,input,9999,int16,,\n"
    )
    with modbus_device(free_port()) as device:
        command = [sys.executable, str(RECIPES / "modbus_rows.py"), f"127.0.0.1:{device.port}"]
        process = subprocess.Popen(
            [*command, str(registers)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout and process.stderr
        row = json.loads(process.stdout.readline())
        process.terminate()
        said = process.communicate()[1]
    assert (row["a"], row["b"]) == (0, None)
    assert "refuses b, address 9999" in said


def test_the_whole_recipe_learns_registers_and_sets_a_coil_at_an_alarm(tmp_path: Path) -> None:
    with modbus_device(free_port()) as device:
        address = f"127.0.0.1:{device.port}"
        coil = [sys.executable, str(RECIPES / "modbus_coil.py"), address, "7"]
        words = [sys.executable, str(RECIPES / "modbus_rows.py"), address]
        words += [str(RECIPES / "registers.csv"), "--every", "0.02"]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as reader:
            more = ["--print-alarms", "--on-alarm", shlex.join(coil)]
            loop = LoopProcess(tmp_path, "-", *more, stdin=reader.stdout)
            try:
                device.set(HOLDING, 0, 215, "INT16")
                loop.wait_for(3 * 60)
                device.reset(7)  # a loaded machine reads late, and a gap between rows is an alarm
                device.set(HOLDING, 0, 900, "INT16")
                until(lambda: device.coil(7), "the coil")
                assert "ALARM of stream temperature" in loop.errors.read_text()
            finally:
                reader.terminate()
                loop.kill()
