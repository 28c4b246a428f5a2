"""A real Node-RED on loopback, headless, whose flows and context are reached by its admin API."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import LIMIT_S, free_port, listens, until

ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / ".node-red" / "node_modules" / ".bin"
"""`.ci/run` installs it there."""
SETTINGS = """module.exports = {{
    uiHost: "127.0.0.1",
    uiPort: {port},
    flowFile: "flows.json",
    editorTheme: {{ tours: false }},
    telemetry: {{ enabled: false, updateNotification: false }},
    logging: {{ console: {{ level: "info" }} }},
}};
"""


class NodeRed:
    """A running Node-RED."""

    def __init__(self, port: int, log: Path):
        self._url = f"http://127.0.0.1:{port}"
        self._log = log

    def _ask(self, path: str, content: Any = None) -> Any:
        body = None if content is None else json.dumps(content).encode()
        headers = {"Content-Type": "application/json", "Node-RED-API-Version": "v1"}
        request = urllib.request.Request(self._url + path, body, headers)
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            text = answer.read()
        return json.loads(text) if text.startswith(b"{") else None

    def deploy(self, flow: list[dict[str, Any]]) -> None:
        """Import a flow, and wait until it runs."""
        n = starts(self._log)
        self._ask("/flows", flow)
        until(lambda: starts(self._log) > n, "the flow started")

    def inject(self, node: str, **properties: str) -> None:
        """Press the button of an inject node, with texts as properties of its message if given."""
        props = [{"p": key, "v": text, "vt": "str"} for key, text in properties.items()]
        self._ask(f"/inject/{node}", {"__user_inject_props__": props} if props else {})

    def kept(self, flow: str, key: str) -> Any:
        """Return what a flow keeps under a key of its context; None for nothing."""
        found = self._ask(f"/context/flow/{flow}/{key}")
        return json.loads(found["msg"]) if found and found.get("format") == "Object" else None


def starts(log: Path) -> int:
    """How often Node-RED has started its flows."""
    return log.read_text().count("Started flows") if log.exists() else 0


def node_red_program() -> str:
    """The path of Node-RED; skips the test where it is missing."""
    program = shutil.which("node-red", path=f"{INSTALLED}:{os.environ.get('PATH', '')}")
    if program is None:
        pytest.skip("node-red is not installed; .ci/run installs it by npm")
    return program


@contextmanager
def node_red(folder: Path, environment: Mapping[str, str]) -> Iterator[NodeRed]:
    """Start Node-RED with all of its files in a folder; skips the test where it is missing."""
    program = node_red_program()
    port, log = free_port(), folder / "node-red.log"
    n = starts(log)
    (folder / "settings.js").write_text(SETTINGS.format(port=port))
    with log.open("ab") as out:
        process = subprocess.Popen(
            [program, "--userDir", str(folder)], cwd=folder, stdout=out, stderr=out,
            env={**os.environ, **environment},
        )  # fmt: skip

    def is_up() -> bool:
        assert process.poll() is None, log.read_text()[-2000:]
        return listens(port) and starts(log) > n

    try:
        until(is_up, "Node-RED listening")
        yield NodeRed(port, log)
    finally:
        process.terminate()
        process.wait(LIMIT_S)
