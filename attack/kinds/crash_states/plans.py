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
N_WARM = 130
"""So many messages before the cut ones let a sensor give alarms, which it does after 60 rows."""

KEPT = "512kB"
"""The size of the rows that are kept for a candidate: none of them is overwritten."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Holds one run.

    Attributes:
        words: The options of the command, without files.
        every: The number of lines per snapshot.
        has_alarms: Whether alarms go to a file.
        has_folders: Whether snapshot, output and alarms are in folders of their own.
        messages: Topics and payloads.
        n_before: The number of messages that an earlier run has processed, which nothing cut.
        late: For each message, how often the loop waits in vain before it comes.
        breaks: Numbers of messages before which the connection breaks.
        has_bad: Whether some messages are refused, so that they are counted again when they come
            again.
        is_log: Whether the broker keeps a log with numbers (JetStream), and not a session (MQTT).
    """

    words: tuple[str, ...]
    every: int
    has_alarms: bool
    has_folders: bool
    messages: tuple[tuple[str, bytes], ...]
    n_before: int
    late: tuple[int, ...]
    breaks: frozenset[int]
    has_bad: bool
    is_log: bool

    def script(self, first: int, stop: int | None = None, has_breaks: bool = True) -> Script:
        """Return what the broker sends to a run from the message `first` on."""
        n = len(self.messages)
        return Script(
            self.messages,
            first,
            n if stop is None else stop,
            self.late,
            self.breaks if has_breaks else frozenset(),
            self.is_log,
        )

    def command(self, folder: Path, every: int) -> list[str]:
        """Return the words of the command with files in a folder.

        Args:
            folder: The folder.
            every: The number of lines per snapshot.
        """
        files = ["--snapshot", f"{folder}/{self._place('state/')}s.npz"]
        files += ["--output", f"{folder}/{self._place('out/')}out.csv"]
        if self.has_alarms:
            files += ["--alarms", f"{folder}/{self._place('alarms/')}alarms.csv"]
        return [
            "run",
            "sensors",
            "--input",
            "nats://broker/home" if self.is_log else "mqtt://broker/%23",
            *files,
            *self.words,
            "--every",
            str(every),
        ]

    def _place(self, name: str) -> str:
        return name if self.has_folders else ""


@dataclass(frozen=True, slots=True)
class Shape:
    """Says how messages are made.

    Attributes:
        numbering: How a message that comes again is known: by its "time", by a "sequence", or by a
            sequence where the time is that of receipt, "received".
        n_warm: The number of small messages before the others.
        n_first_bad: The number of messages at the beginning that give no row.
        bad_share: The share of such messages later.
        pad: The most bytes of a message, roughly.
    """

    numbering: str
    n_warm: int
    n_first_bad: int
    bad_share: float
    pad: int


def draw_plan(random: Random) -> Plan:
    """Draw one run."""
    n = int(random.integers(12, 41))
    every = int(random.choice([1, 4, 10, 25, 1000]))
    if every == 1:  # a snapshot takes more time than all the rest
        n = min(n, 14)
    rotation = str(random.choice(["", "", "", "1kB", "2kB", "day"]))
    words = ["--journal", "512kB", "--streams", "9"]
    words += ["--window", str(random.choice([1, 2, 4, 10, 20]))]
    words += ["--sync", str(random.choice([0.05, 1.0, 5.0]))]
    words += ["--false-alarms", str(random.choice([1e-4, 1e-2, 5e-2]))]
    words += ["--rotate", rotation] * bool(rotation)
    numbering = str(random.choice(["time", "time", "sequence", "received"]))
    words += ["--sequence", "count"] * (numbering != "time")
    n_warm = N_WARM * bool(random.random() < 0.4)
    shape = Shape(
        numbering,
        n_warm,
        n_first_bad=0 if n_warm else int(random.choice([0, 0, 0, 2, 14])),
        bad_share=float(random.choice([0.0, 0.0, 0.15])),
        pad=int(random.choice([0, 0, 300, 9000, 60_000])),
    )
    n_before = n_warm + (int(random.integers(1, n)) if random.random() < 0.3 else 0)
    n += n_warm
    messages = _messages(random, n, shape)
    late = random.binomial(1, float(random.choice([0.0, 0.2, 0.6])), n)
    late *= random.integers(1, 8, n)
    n_breaks = int(random.integers(1, 4)) if random.random() < 0.3 else 0
    breaks = random.integers(n_before, n, n_breaks)
    has_alarms, has_folders = bool(random.random() < 0.7), bool(random.random() < 0.3)
    is_log = bool(random.random() < 0.25)
    words += ["--keep-rows", KEPT] * bool(random.random() < 0.3)
    return Plan(
        tuple(words),
        every,
        has_alarms=has_alarms,
        has_folders=has_folders,
        messages=tuple(messages),
        n_before=n_before,
        late=tuple(map(int, late)),
        breaks=frozenset(map(int, breaks)),
        has_bad=bool(shape.bad_share or shape.n_first_bad),
        is_log=is_log,
    )


def _messages(random: Random, n: int, shape: Shape) -> list[tuple[str, bytes]]:
    """Draw messages whose times rise in each topic, with jumps that give alarms."""
    n_topics = int(random.integers(1, 3 if shape.n_warm else 5))
    step_s = int(random.choice([60, 900]))
    has_two = random.random() < 0.3
    times = [START_S] * n_topics
    messages = []
    for number in range(n):
        n_behind = number - shape.n_warm
        topic = int(random.integers(n_topics))
        times[topic] += step_s
        is_bad = n_behind >= 0 and random.random() < shape.bad_share
        if is_bad or number < shape.n_first_bad:
            bad = (b"what,ever", b'{"state": "on"}', b"\xff\xfe")[random.integers(3)]
            messages.append((f"home/{topic}", bad.ljust(shape.pad)))
            continue
        value = round(20 + 0.2 * random.normal() + 40 * (n_behind % 9 == 5 and n_behind > 0), 3)
        row: dict[str, object] = {"temperature": value, "humidity": 2 * value}
        if not has_two:
            row = {"value": value}
        if shape.numbering != "received":
            when = datetime.fromtimestamp(times[topic], timezone.utc)
            row = {"time": when.isoformat().replace("+00:00", "Z"), **row}
        if shape.numbering != "time":
            row["count"] = number + 1
        if shape.pad and n_behind >= 0:
            row["pad"] = "x" * int(random.integers(shape.pad // 2, shape.pad))
        messages.append((f"home/{topic}", json.dumps(row).encode()))
    return messages
