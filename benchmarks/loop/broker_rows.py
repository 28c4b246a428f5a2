"""How many rows a second come through a real broker, in what memory, and how late is a result?

    mosquitto_pub ──> mosquitto ──> `edgefold run sensors` ──> output          1e6 rows, flat out
    publisher, 50 a second ──> mosquitto ──> loop ──> mosquitto ──> listener   publish to result

    python -m benchmarks broker_rows [--rows N] [--seconds S]

The loop runs on one core, with a snapshot and its journal; broker and publisher on the other ones.
Rows are published in advance of the loop by at most 20,000. The loop's memory is its resident set,
read each second: the medians of its second and its last tenth are compared, because pages come and
go within a second. A latency is the time from the call that publishes a row to the arrival of the
forecast at a listener, so it holds two ways through the broker. It needs mosquitto and its clients.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import (
    Requirement,
    arguments,
    at_least,
    at_most,
    conditions,
    finish,
    progress,
)
from benchmarks.tables import as_text
from tests.brokers import Broker, mosquitto, until

QUESTION = "How many rows a second come through a broker, in what memory, and how late?"
N_ROWS, SECONDS, RATE = 1_000_000, 60, 50
AHEAD = 20_000
WINDOW = 200
SETTINGS = (
    *("max_inflight_messages 1000", "max_queued_messages 2000000"),
    *("log_type subscribe", "log_type error"),
)


def programs() -> None:
    """End with a line if a program is missing."""
    for name in ("mosquitto", "mosquitto_pub"):
        if shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None:
            sys.exit(f"{name} is not installed; it is in the packages mosquitto and -clients")


class Loop:
    """A loop on the first core, whose memory is read each second."""

    def __init__(self, folder: Path, broker: Broker, topic: str, output: str, *more: str):
        self._errors = folder / f"{topic}.log"
        words = [sys.executable, "-m", "edgefold.cli.main", "run", "sensors", "--input"]
        words += [f"mqtt://127.0.0.1:{broker.port}/{topic}/#", "--output", output]
        words += ["--snapshot", str(folder / f"{topic}.npz"), "--window", str(WINDOW), *more]
        log = (folder / "mosquitto.log").read_text()
        with self._errors.open("w") as errors:
            self.process = subprocess.Popen(words, stderr=errors)
        os.sched_setaffinity(self.process.pid, {min(os.sched_getaffinity(0))})
        until(
            lambda: f" {topic}/#" in (folder / "mosquitto.log").read_text()[len(log) :],
            "the loop's subscription",
        )

    def resident_bytes(self) -> int:
        """Return the resident set of the process."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError(self._errors.read_text())

    def processor_s(self) -> float:
        """Return the processor time of the process so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> str:
        """Stop it, and return what it printed."""
        self.process.terminate()
        if self.process.wait(60):
            raise RuntimeError(self._errors.read_text())
        return self._errors.read_text()


def payloads(n_rows: int) -> Iterator[bytes]:
    """Yield rows of one sensor with a day and noise, as lines of JSON."""
    chance = random.Random(1)
    for row in range(n_rows):
        value = 20 + 5 * math.sin(row / 40) + chance.gauss(0, 0.3)
        yield b'{"time": %d, "value": %.3f}\n' % (1_700_000_000 + row, value)


def throughput(folder: Path, broker: Broker, n_rows: int) -> dict[str, Any]:
    """Let rows through as fast as the loop takes them."""
    output = folder / "out.csv"
    loop = Loop(folder, broker, "fast", str(output))
    publisher = subprocess.Popen(
        ["mosquitto_pub", "-p", str(broker.port), "-q", "1", "-t", "fast/a", "-l"],
        stdin=subprocess.PIPE,
    )
    n_out = 0

    def feed() -> None:
        assert publisher.stdin is not None
        for row, line in enumerate(payloads(n_rows)):
            while row - n_out > AHEAD:
                time.sleep(0.01)
            publisher.stdin.write(line)
        publisher.stdin.close()

    thread = threading.Thread(target=feed, daemon=True)
    start_s, start_cpu_s = time.monotonic(), loop.processor_s()
    thread.start()
    memory: list[tuple[int, int]] = []
    read = 0
    while n_out < n_rows:
        time.sleep(1.0)
        if output.exists():
            with output.open("rb") as file:
                file.seek(read)
                while block := file.read(1 << 20):
                    n_out += block.count(b"\n")
                    read += len(block)
        memory.append((n_out, loop.resident_bytes()))
        progress(f"rows: {n_out:,} of {n_rows:,}")
    lasted_s, used_s = time.monotonic() - start_s, loop.processor_s() - start_cpu_s
    thread.join()
    publisher.wait(60)
    text = loop.stop()
    return {
        "n_rows": n_rows,
        "rows_per_s": n_rows / lasted_s,
        "processor_us_per_row": 1e6 * used_s / n_rows,
        "backend": next(line for line in text.splitlines() if line.startswith("backend")),
        "resident_bytes": median_of(memory, 0.9, 1.0, n_rows),
        "growth_bytes": median_of(memory, 0.9, 1.0, n_rows) - median_of(memory, 0.1, 0.2, n_rows),
    }


def median_of(memory: list[tuple[int, int]], low: float, high: float, n_rows: int) -> int:
    """Return the median resident set while the rows of this part of the run came."""
    own = [size for row, size in memory if low * n_rows <= row <= high * n_rows]
    return int(np.median(own or [memory[-1][1]]))


def latency(folder: Path, broker: Broker, seconds: int) -> dict[str, Any]:
    """Publish rows at an even rate, and time each forecast at a listener."""
    from paho.mqtt.client import Client, MQTTv5
    from paho.mqtt.enums import CallbackAPIVersion

    arrived: list[float] = []

    def hear(client: Client, data: Any, message: Any) -> None:
        sent = datetime.fromisoformat(json.loads(message.payload)["time"].replace("Z", "+00:00"))
        arrived.append(time.time() - sent.timestamp())

    listener, publisher = (
        Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=MQTTv5)
        for name in ("listener", "publisher")
    )
    listener.on_message = hear
    for client in (listener, publisher):
        client.connect("127.0.0.1", broker.port)
        client.loop_start()
    listener.subscribe("results/#", 1)
    loop = Loop(folder, broker, "slow", f"mqtt://127.0.0.1:{broker.port}/results")
    n, start_s = seconds * RATE, time.monotonic()
    for row in range(n):
        time.sleep(max(0.0, start_s + row / RATE - time.monotonic()))
        content = {"time": round(time.time(), 6), "value": round(math.sin(row / 40), 3)}
        publisher.publish("slow/a", json.dumps(content), 1)
    until(lambda: len(arrived) >= n, "all results")
    loop.stop()
    for client in (listener, publisher):
        client.disconnect()
        client.loop_stop()
    p50, p99, most = np.quantile(arrived, (0.5, 0.99, 1.0))
    return {"rate": RATE, "n": n, "p50_s": float(p50), "p99_s": float(p99), "max_s": float(most)}


def requirements(data: Mapping[str, Any]) -> list[Requirement]:
    """Return the project's demands."""
    fast = data["fast"]
    return [
        at_least("rows a second through MQTT, one core", fast["rows_per_s"], 2000, ""),
        at_most("growth of memory over the run", fast["growth_bytes"] / 1024, 64, "KiB"),
    ]


def main() -> None:
    """Measure both, record."""
    parser = arguments(__doc__ or "", "broker_rows")
    parser.add_argument("--rows", type=int, default=N_ROWS, help=f"default {N_ROWS:,}")
    parser.add_argument("--seconds", type=int, default=SECONDS, help=f"default {SECONDS}")
    args = parser.parse_args()
    programs()
    before = conditions()
    n_rows, seconds = (5_000, 3) if args.quick else (args.rows, args.seconds)
    with tempfile.TemporaryDirectory() as name, mosquitto(Path(name), *SETTINGS) as broker:
        fast = throughput(Path(name), broker, n_rows)
    with tempfile.TemporaryDirectory() as name, mosquitto(Path(name), *SETTINGS) as broker:
        slow = latency(Path(name), broker, seconds)
    data = {"window": WINDOW, "fast": fast, "slow": slow}
    finish(args, "broker_rows", QUESTION, before, data, requirements(data), as_text)


if __name__ == "__main__":
    main()
