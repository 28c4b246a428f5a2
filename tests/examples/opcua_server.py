"""An OPC UA server on loopback: asyncua's own, in a process that can be killed and come back."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.brokers import listens, until

FLOW = "ns=2;s=Boiler.Flow"


class OpcuaServer:
    """A server with the variables `FLOW` and those of its results."""

    def __init__(self, folder: Path, port: int):
        self.port, self.url = port, f"opc.tcp://127.0.0.1:{port}"
        self._log = folder / "server.log"
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.examples.opcua_server", self.url],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

        def is_up() -> bool:
            assert self._process.poll() is None, self._log.read_text()[-2000:]
            return listens(self.port)

        until(is_up, "the OPC UA server listening")

    def _ask(self, *words: Any) -> Any:
        assert self._process.stdin and self._process.stdout
        print(json.dumps(words), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def measure(self, value: float, second: int) -> None:
        """Give the flow a value that was measured at a second of 2026."""
        self._ask("measure", value, second)

    def read(self, name: str) -> Any:
        return self._ask("read", name)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            pipe.close()


@contextmanager
def opcua_server(folder: Path, port: int) -> Iterator[OpcuaServer]:
    server = OpcuaServer(folder, port)
    try:
        yield server
    finally:
        server.kill()


def _serve(url: str) -> None:
    """Run the server; it does what each line on standard input says, and answers in a line."""
    from datetime import datetime, timedelta, timezone

    from asyncua import ua
    from asyncua.sync import Server

    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    server = Server()
    server.set_endpoint(url)
    server.register_namespace("urn:edgefold:test")
    folder = server.nodes.objects
    flow = folder.add_variable(ua.NodeId.from_string(FLOW), "Flow", 0.0)
    for name, value in (("Expected", 0.0), ("Alarm", False)):
        node = folder.add_variable(ua.NodeId.from_string(f"{FLOW}.{name}"), name, value)
        node.set_writable()
    with server:
        for line in sys.stdin:
            action, *words = json.loads(line)
            if action == "read":
                print(json.dumps(server.get_node(words[0]).read_value()), flush=True)
                continue
            time = start + timedelta(seconds=words[1])
            measured = ua.Variant(float(words[0]))
            flow.write_value(ua.DataValue(measured, SourceTimestamp=time))  # type: ignore[arg-type]
            print("null", flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1])
