"""A board on a serial line for tests: a pseudo terminal behind a link that stays when it goes."""

from __future__ import annotations

import os
import pty
from pathlib import Path


class SerialBoard:
    """A board that can be plugged in and out; the link to its device always has the same name."""

    def __init__(self, folder: Path):
        self.device = folder / "by-id-board"
        self._master = self._slave = -1

    def plug(self) -> None:
        self._master, self._slave = pty.openpty()
        self.device.unlink(missing_ok=True)
        self.device.symlink_to(os.ttyname(self._slave))

    def unplug(self) -> None:
        """Hang up, as a driver does when the adapter is pulled out."""
        if self._master >= 0:
            self.device.unlink()
            os.close(self._master)
            os.close(self._slave)
            self._master = self._slave = -1

    def print(self, *lines: str | bytes) -> None:
        """Send lines with the ends that `Serial.println` sends."""
        for line in lines:
            self.send((line.encode() if isinstance(line, str) else line) + b"\r\n")

    def send(self, content: bytes) -> None:
        while content:
            content = content[os.write(self._master, content) :]

    @property
    def settings(self) -> list[object]:
        """The settings of the line, as termios reads them."""
        import termios

        found: list[object] = termios.tcgetattr(self._slave)
        return found
