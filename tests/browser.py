"""Drive a headless Chromium over its debugging pipe: open pages, run scripts, take pictures."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

LIMIT_S = 120.0
"""Only a broken page or browser lets a test wait for so long, on a loaded machine too."""
CHROMIUM = next(
    (
        path
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (path := shutil.which(name))
    ),
    None,
)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here: apt-get install chromium"
)
SWITCHES = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--lang=en-GB", "--disable-dev-shm-usage"),
)
START = """\
import fcntl, os, sys
commands, answers = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3])
os.dup2(commands, 3)
os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Gives the browser the pipe as its descriptors 3 and 4, then becomes the browser."""


class Browser:
    """A Chromium that this process started.

    Args:
        profile: An empty folder for its files.
        zone: The time zone in which it shows times.
    """

    def __init__(self, profile: Path, zone: str = "Europe/Berlin"):
        assert CHROMIUM is not None
        commands, self._to = os.pipe()
        self._from, answers = os.pipe()
        words = [CHROMIUM, *SWITCHES, f"--user-data-dir={profile}", "--remote-debugging-pipe"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, str(commands), str(answers), *words],
            pass_fds=(commands, answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TZ": zone},
        )
        os.close(commands)
        os.close(answers)
        self._buffer, self._number = b"", 0
        self.events: list[dict[str, Any]] = []

    def close(self) -> None:
        self._process.kill()
        self._process.wait(LIMIT_S)
        os.close(self._to)
        os.close(self._from)

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Call a method of the Chrome DevTools Protocol and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer}"
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        end_s = time.monotonic() + LIMIT_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0.0, end_s - time.monotonic()))
            block = os.read(self._from, 1 << 16) if ready else b""
            assert block, "the browser does not answer"
            self._buffer += block
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message


class Tab:
    """A page of a browser.

    Args:
        browser: The browser.
        url: The page's address.
        width: Width of the window in pixels of CSS.
        height: Its height.
        scale: Pixels of the screen for one of CSS.
        scheme: `light` or `dark`.
    """

    def __init__(
        self,
        browser: Browser,
        url: str,
        width: int = 1280,
        height: int = 900,
        scale: float = 1.0,
        scheme: str = "light",
    ):
        self._browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.call("Page.enable")
        self.call("Runtime.enable")
        self.call("Log.enable")
        self.resize(width, height, scale)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        self.call("Page.navigate", url=url)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def resize(self, width: int, height: int, scale: float = 1.0, mobile: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=mobile,
        )

    def value(self, script: str) -> Any:
        """Return the value of an expression of JavaScript in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def text(self, selector: str) -> str:
        """Return the text of an element; "" if there is none."""
        return str(self.value(f"document.querySelector({selector!r})?.innerText ?? ''"))

    def until(self, script: str) -> Any:
        """Wait until an expression is true, and return it."""
        end_s = time.monotonic() + LIMIT_S
        test = (
            f"(() => {{ try {{ const found = {script};"
            " return found instanceof Node ? true : found } catch {} })()"
        )
        while not (found := self.value(test)):
            assert time.monotonic() < end_s, (script, self.value("document.body.innerText"))
            time.sleep(0.02)
        return found

    def picture(self, path: Path, whole: bool = False) -> None:
        """Write what is shown as a PNG; the whole page if `whole`."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    @property
    def complaints(self) -> list[str]:
        """Return errors of scripts, and what the policy of the page has blocked."""
        found = []
        for event in self._browser.events:
            if event.get("sessionId") != self._session:
                continue
            parameters = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(parameters["exceptionDetails"])[:2000])
            if event["method"] == "Log.entryAdded":
                entry = parameters["entry"]
                if entry["source"] in ("security", "violation", "javascript"):
                    found.append(str(entry["text"]))
        return found


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """Start a browser for a block."""
    browser = Browser(profile)
    try:
        yield browser
    finally:
        browser.close()
