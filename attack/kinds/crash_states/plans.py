"""Draw the runs that are cut: their messages, their options and what the broker does."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

from attack.kinds.crash_states.broker import Script

Random = np.random.Generator
START_S = 1_764_280_000
"""Some hours before a midnight (UTC), so that days turn within the messages."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Holds one run.

    Attributes:
        words: The options of the command, without files.
        has_alarms: Whether alarms go to a file.
        has_folders: Whether snapshot, output and alarms are in folders of their own.
        messages: Topics and payloads.
        n_before: The number of messages that an earlier run has processed, which nothing cut.
        late: For each message, how often the loop waits in vain before it comes.
        breaks: Numbers of messages before which the connection breaks.
        has_bad: Whether some messages are refused, so that they are counted again when they come
            again.
    """

    words: tuple[str, ...]
    has_alarms: bool
    has_folders: bool
    messages: tuple[tuple[str, bytes], ...]
    n_before: int
    late: tuple[int, ...]
    breaks: frozenset[int]
    has_bad: bool

    def script(self, first: int, stop: int | None = None, has_breaks: bool = True) -> Script:
        """Return what the broker sends to a run from the message `first` on."""
        n = len(self.messages)
        return Script(
            self.messages,
            first,
            n if stop is None else stop,
            self.late,
            self.breaks if has_breaks else frozenset(),
        )

    def command(self, folder: Path) -> list[str]:
        """Return the words of the command with files in a folder."""
        files = ["--snapshot", f"{folder}/{self._place('state/')}s.npz"]
        files += ["--output", f"{folder}/{self._place('out/')}out.csv"]
        if self.has_alarms:
            files += ["--alarms", f"{folder}/{self._place('alarms/')}alarms.csv"]
        return ["run", "sensors", "--input", "mqtt://broker/%23", *files, *self.words]

    def _place(self, name: str) -> str:
        return name if self.has_folders else ""


def draw_plan(random: Random) -> Plan:
    """Draw one run."""
    n = int(random.integers(20, 61))
    every = int(random.choice([1, 3, 7, 20, 1000]))
    if every == 1:
        n = min(n, 30)
    rotation = str(random.choice(["", "", "500B", "1kB", "2kB", "day"]))
    words = ["--every", str(every), "--journal", "512kB", "--streams", "9"]
    words += ["--window", str(random.choice([1, 2, 4, 10, 20]))]
    words += ["--sync", str(random.choice([0.05, 1.0, 5.0]))]
    words += ["--false-alarms", str(random.choice([1e-4, 1e-2, 5e-2]))]
    words += ["--rotate", rotation] * bool(rotation)
    numbering = str(random.choice(["time", "time", "sequence", "received"]))
    words += ["--sequence", "count"] * (numbering != "time")
    bad_share = float(random.choice([0.0, 0.0, 0.15]))
    n_first_bad = int(random.choice([0, 0, 0, 2, 14]))
    messages = _messages(random, n, numbering, bad_share, n_first_bad)
    n_before = int(random.integers(1, n)) if random.random() < 0.3 else 0
    late = random.binomial(1, float(random.choice([0.0, 0.2, 0.6])), n)
    late *= random.integers(1, 8, n)
    breaks = random.integers(n, size=random.integers(1, 4)) if random.random() < 0.3 else ()
    return Plan(
        tuple(words),
        has_alarms=bool(random.random() < 0.7),
        has_folders=bool(random.random() < 0.3),
        messages=tuple(messages),
        n_before=n_before,
        late=tuple(map(int, late)),
        breaks=frozenset(map(int, breaks)),
        has_bad=bool(bad_share or n_first_bad),
    )


def _messages(
    random: Random, n: int, numbering: str, bad_share: float, n_first_bad: int
) -> list[tuple[str, bytes]]:
    """Draw messages whose times rise in each topic, with jumps that give alarms.

    Args:
        random: The random numbers.
        n: The number of messages.
        numbering: How a message that comes again is known: by its time, by a sequence, or by a
            sequence where the time is that of receipt.
        bad_share: The share of messages that give no row.
        n_first_bad: The number of such messages at the beginning.
    """
    n_topics, pad = int(random.integers(1, 5)), int(random.choice([0, 0, 300, 9000, 60_000]))
    step_s = int(random.choice([60, 900]))
    has_two = random.random() < 0.3
    times = [START_S] * n_topics
    messages = []
    for number in range(n):
        topic = int(random.integers(n_topics))
        times[topic] += step_s
        if number < n_first_bad or random.random() < bad_share:
            kind = random.integers(3)
            bad = (b"what,ever", b'{"state": "on"}', b"\xff\xfe")[kind]
            messages.append((f"home/{topic}", bad.ljust(pad)))
            continue
        value = round(20 + 3 * np.sin(number / 3) + 40 * (number % 17 == 16), 3)
        row: dict[str, object] = {"temperature": value, "humidity": 2 * value}
        if not has_two:
            row = {"value": value}
        if numbering != "received":
            when = datetime.fromtimestamp(times[topic], timezone.utc)
            row = {"time": when.isoformat().replace("+00:00", "Z"), **row}
        if numbering != "time":
            row["count"] = number + 1
        if pad:
            row["pad"] = "x" * int(random.integers(pad // 2, pad))
        messages.append((f"home/{topic}", json.dumps(row).encode()))
    return messages
