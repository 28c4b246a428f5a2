"""Draw a schedule: what is published, with which options the loop runs, and what goes wrong when.

Everything is drawn from the seed. Only the moments at which processes meet differ between two
plays of one schedule, since processes share the machine.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import numpy as np

from attack.brokers.loop_process import MOMENTS, Death

BROKERS = ("jetstream", "mosquitto")
START = datetime(2026, 3, 1, 22, tzinfo=timezone.utc)
STATES = (b"online %d", b'{"state": "ON %d"}', b"{broken %d", b"[1, %d]", b"\xff\xfe %d")
"""Payloads that give no row, or one that is refused."""
N_STATES = 160
"""So many messages without a row may come first; they can fill the journal before there is one."""
N_LAST = 2
"""The last messages of each topic, which are published once everything runs again."""
KEYS = ("temperature", "humidity")
EVENTS = {
    "kill loop": 5,
    "kill loop at a call": 5,
    "stop loop": 2,
    "kill broker": 3,
    "save, kill broker": 4,
    "stop broker": 1,
    "cut loop": 3,
    "cut publisher": 2,
    "hold loop": 1.5,
    "slow loop": 1,
    "hold publisher": 1,
    "pause": 1,
}
"""How often each event comes, relative to the others."""


@dataclass(frozen=True, slots=True)
class Published:
    """Holds one message and the rows that it stands for.

    Attributes:
        topic: The topic or subject.
        payload: The content.
        rows: The name of a sensor, the time and the value of each row.
    """

    topic: str
    payload: bytes
    rows: tuple[tuple[str, str, float], ...]


@dataclass(frozen=True, slots=True)
class Event:
    """Holds one event.

    Attributes:
        after: The number of messages that the broker has acknowledged when it comes.
        delay_s: Seconds after that.
        kind: A key of `EVENTS`.
        pause_s: Seconds that it lasts, or until the process is started again.
        abort: Whether a connection ends with an error.
        death: Where the next process of the loop kills itself, for "kill loop at a call".
    """

    after: int
    delay_s: float
    kind: str
    pause_s: float
    abort: bool
    death: Death | None


@dataclass(frozen=True, slots=True)
class Plan:
    """Holds a schedule.

    Attributes:
        broker: One of `BROKERS`.
        messages: The different messages, in the order of each topic.
        order: The places in `messages` in the order in which they are sent; one may come again.
        n_first: Number of places of `order` that are sent before everything runs again.
        events: What happens, in the order of `after`.
        options: Options of `edgefold run` that the compared run has too.
        own_options: Those that it has not.
        window: The most messages that the publisher has under way.
        address: The topics or the subject of the loop.
        names: Whether a JetStream server knows messages that come again by a name.
        saves: Whether mosquitto saves the loop's session as soon as it is there.
        rate: Messages that are sent in a second.
        lead: The most messages by which the publisher is ahead of the loop; 0 for any number.
    """

    broker: str
    messages: tuple[Published, ...]
    order: tuple[int, ...]
    n_first: int
    events: tuple[Event, ...]
    options: tuple[str, ...]
    own_options: tuple[str, ...]
    window: int
    address: str
    names: bool
    saves: bool
    rate: float
    lead: int

    @property
    def has_states_first(self) -> bool:
        """Return whether so many messages without a row come first that a stop may report them."""
        return sum(not message.rows for message in self.messages) == N_STATES

    @property
    def topics(self) -> list[str]:
        """Return the topics in the order of their first messages."""
        return list(dict.fromkeys(message.topic for message in self.messages))

    def __str__(self) -> str:
        events = "; ".join(f"{e.kind} after {e.after} + {e.delay_s:.2f} s" for e in self.events)
        return (
            f"{self.broker}, {len(self.messages)} messages of {len(self.topics)} topics in "
            f"{len(self.order)}, {self.window} under way, {' '.join(self.own_options)}: {events}"
        )


def draw(random: np.random.Generator, broker: str, backends: tuple[str, ...]) -> Plan:
    """Draw a schedule.

    Args:
        random: The random numbers of the case.
        broker: One of `BROKERS`.
        backends: The backends that this machine has.
    """
    n_topics = int(random.integers(2, 5))
    sequence = ((), (), (), ("count",), ("boot", "count"))[random.integers(5)]
    padding = _padding(random)
    most = 60 if padding > 2000 else 150
    topics = [
        _messages(random, f"home{'.' if broker == 'jetstream' else '/'}{name}", sequence, n, pad)
        for name, n, pad in (
            (name, int(random.integers(15, most // n_topics + 15)), padding)
            for name in ("kitchen", "attic", "boiler", "well")[:n_topics]
        )
    ]
    names = broker == "jetstream" and bool(random.random() < 0.5)
    is_known = bool(sequence) or names  # the loop or the server knows any message that comes again
    window = int((1, 2, 8, 20)[random.integers(4)] if is_known else random.integers(1, 3))
    messages = tuple(message for topic in topics for message in topic)
    order, n_first = _order(random, topics, bool(sequence), not is_known)
    states = _states(random, topics[0][0].topic.replace("kitchen", "state"))
    order = _with_states(random, order, n_first, range(len(messages), len(messages) + len(states)))
    messages, n_first = (*messages, *states), n_first + len(states)
    n_events = int(random.integers(2, 9))
    events = sorted((_event(random, broker, n_first) for _ in range(n_events)), key=_moment)
    options = [
        *("--streams", "8", "--false-alarms", "0.02"),
        *("--backend", backends[random.integers(len(backends))]),
    ]
    return Plan(
        broker,
        messages,
        tuple(order),
        n_first,
        tuple(events),
        tuple(options),
        _own_options(random, sequence),
        window,
        _address(random, broker, [topic[0].topic for topic in topics]),
        names,
        bool(random.random() < 0.8),
        float((60, 200, 1000)[random.integers(3)]),
        int((0, 10, 40)[random.integers(3)]),
    )


def _address(random: np.random.Generator, broker: str, topics: list[str]) -> str:
    """Return the topics or the subject of the loop, all of them or with wildcards."""
    if broker == "jetstream":
        return ("home.>", "home.*")[random.integers(2)]
    return ("home/#", "home/+", ",".join(topics))[random.integers(3)]


def _moment(event: Event) -> int:
    return event.after


def _padding(random: np.random.Generator) -> int:
    """Return the size of a text that makes payloads longer, in bytes."""
    kind = random.random()
    if kind < 0.5:
        return 0
    if kind < 0.75:
        return int(random.integers(200, 2000))
    return int(random.integers(2000, 20_000) if kind < 0.93 else random.integers(20_000, 65_000))


def _messages(
    random: np.random.Generator, topic: str, sequence: tuple[str, ...], n: int, padding: int
) -> list[Published]:
    """Return the messages of a topic, of one sensor or two, with jumps that are alarms.

    Args:
        random: The random numbers of the case.
        topic: The topic.
        sequence: The keys of the numbers of a message, "boot" and "count" or fewer.
        n: Number of messages.
        padding: The size of a text that makes payloads longer, in bytes.
    """
    keys = KEYS if random.random() < 0.4 else ("value",)
    as_text = random.random() < 0.5
    step_s = int((1, 60, 600, 3600)[random.integers(4)])
    boot, count, place, found = 1, 0, 0, []
    for i in range(n):
        place += 1 if random.random() < 0.95 else int(random.integers(2, 6))
        time = START + timedelta(seconds=place * step_s)
        text = time.isoformat().removesuffix("+00:00") + "Z"
        form: dict[str, object] = {"time": text if as_text else int(time.timestamp())}
        if "boot" in sequence and random.random() < 0.03:
            boot, count = boot + 1, 0
        form |= {key: {"boot": boot, "count": count}[key] for key in sequence}
        count += 1
        rows = []
        for k, key in enumerate(keys):
            jump = 30 * (random.random() < 0.05)
            value = round(20 + 10 * k + 3 * float(np.sin(i / (3 + k))) + random.normal() + jump, 3)
            form[key] = value
            rows.append((topic if key == "value" else f"{topic}/{key}", text, value))
        if padding:
            form["note"] = "x" * int(random.integers(padding // 2, padding))
        found.append(Published(topic, json.dumps(form).encode(), tuple(rows)))
    return found


def _states(random: np.random.Generator, topic: str) -> list[Published]:
    """Return messages without a row, no two of them equal."""
    kind = random.random()
    n = N_STATES if kind < 0.04 else int(random.integers(1, 12)) if kind < 0.4 else 0
    return [Published(topic, STATES[random.integers(len(STATES))] % i, ()) for i in range(n)]


def _with_states(
    random: np.random.Generator, order: list[int], n_first: int, places: range
) -> list[int]:
    """Mix messages without a row into those before the last ones; many of them come first.

    Args:
        random: The random numbers of the case.
        order: The order of the other messages.
        n_first: Number of its places before the last messages.
        places: The places of the messages without a row.
    """
    first = order[:n_first]
    if len(places) == N_STATES:
        return [*places, *order]
    for place in places:
        first.insert(int(random.integers(len(first) + 1)), place)
    return first + order[n_first:]


def _order(
    random: np.random.Generator,
    topics: list[list[Published]],
    has_blocks: bool,
    is_short: bool,
) -> tuple[list[int], int]:
    """Mix the topics, with old messages that are sent again; the last ones come at the end.

    Args:
        random: The random numbers of the case.
        topics: The messages of each topic.
        has_blocks: Whether long blocks are sent again.
        is_short: Whether at most one message of a topic may be sent again at a time.

    Returns:
        The order, and the number of its places before the last messages.
    """
    starts = np.cumsum([0, *map(len, topics)]).tolist()
    sent = [0] * len(topics)
    order: list[int] = []
    shares = random.dirichlet(np.full(len(topics), 2.0))
    while any(n < len(topic) - N_LAST for n, topic in zip(sent, topics, strict=True)):
        if random.random() < 0.05:
            shares = random.dirichlet(np.full(len(topics), 2.0))
        place = int(random.choice(len(topics), p=shares))
        if sent[place] >= len(topics[place]) - N_LAST:
            shares = np.full(len(topics), 1 / len(topics))
            continue
        order.append(starts[place] + sent[place])
        sent[place] += 1
        if has_blocks and random.random() < 0.03:
            n = int(random.integers(1, min(30, len(order)) + 1))
            first = int(random.integers(0, len(order) - n + 1))
            order += order[first : first + n]
        elif is_short and random.random() < 0.01:
            order.append(order[-1])
    n_first = len(order)
    for n in range(N_LAST, 0, -1):
        order += [starts[place] + len(topic) - n for place, topic in enumerate(topics)]
    return order, n_first


def _event(random: np.random.Generator, broker: str, n_first: int) -> Event:
    names = [name for name in EVENTS if broker == "mosquitto" or name != "save, kill broker"]
    weights = np.array([EVENTS[name] for name in names], np.float64)
    kind = names[int(random.choice(len(names), p=weights / weights.sum()))]
    death = Death(int(random.integers(1, 60)), MOMENTS[random.integers(len(MOMENTS))])
    return Event(
        int(random.integers(0, n_first + 1)),
        float(random.random() ** 2 * 0.4),
        kind,
        float(random.random() ** 2 * 0.6),
        bool(random.random() < 0.5),
        death if kind == "kill loop at a call" else None,
    )


def _own_options(random: np.random.Generator, sequence: tuple[str, ...]) -> tuple[str, ...]:
    every = (5, 20, 50, 1000)[random.integers(4)]
    options = ["--every", str(every), "--window", str((2, 6, 20, 60, 200)[random.integers(5)])]
    options += ["--sync", ("0.02", "0.1", "1")[random.integers(3)]]
    options += ["--journal", ("512KiB", "512KiB", "8MiB")[random.integers(3)]]
    if sequence:
        options += ["--sequence", ",".join(sequence)]
    rotate = ("", "", "4kB", "20kB", "day")[random.integers(5)]
    return (*options, *(["--rotate", rotate] if rotate else []))
