"""Play a schedule: server, proxies, publisher and loop, until the loop has learned everything.

    publisher ──> proxy ──> broker <── proxy <── loop
                    (what goes wrong goes wrong at one of the five)

One process without threads drives all of it, because it forks the loop.
"""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from attack.brokers.loop_process import LoopProcess
from attack.brokers.plan import Event, Plan
from attack.brokers.proxy import BLOCK, TcpProxy
from attack.brokers.publisher import MqttPublisher, NatsPublisher, Publisher, create_stream
from attack.brokers.servers import JetStream, Mosquitto, Server
from attack.brokers.traffic import Traffic
from edgefold.cli.exit_codes import ExitCode

LIMIT_S = 150.0
"""A schedule that does not come to its end in this time hangs; it usually takes a few seconds."""
TICK_S = 0.004
SLOW_BYTES = 1500
LOOK_S = 0.03


class PlayError(RuntimeError):
    """Raised where the loop ends by itself or does not end; the message is the verdict's detail."""


@dataclass(slots=True)
class Losses:
    """Holds when a broker may have lost what it had acknowledged.

    Attributes:
        saves: Moments at which mosquitto began to save everything.
        kills: Moments at which it was killed with whatever it had not saved.
    """

    saves: list[float] = field(default_factory=list)
    kills: list[float] = field(default_factory=list)


class Stage:
    """Plays one schedule.

    Args:
        plan: The schedule.
        folder: An empty folder for all files.
        bundle: The bundle of the model, or its name.
    """

    def __init__(self, plan: Plan, folder: Path, bundle: str):
        self._plan, self.folder, self._bundle = plan, folder, bundle
        self.server: Server = (
            JetStream(folder / "server") if plan.broker == "jetstream" else
            Mosquitto(folder / "server")
        )  # fmt: skip
        self.traffic = Traffic(plan.messages)
        is_mqtt = plan.broker == "mosquitto"
        self._to_loop = TcpProxy(self.traffic.watch) if is_mqtt else TcpProxy()
        self._to_publisher = TcpProxy()
        self.publisher = self._publisher(is_mqtt)
        self._loop: LoopProcess | None = None
        self._due: list[tuple[float, Callable[[], None]]] = []  # what is done later, and when
        self._begun_s = self._looked_s = time.monotonic()
        self._n_learned = 0
        self.losses = Losses()
        self.n_kills = self.n_broker_kills = 0
        self.timeline = [str(plan)]

    def _publisher(self, is_mqtt: bool) -> Publisher:
        plan = self._plan
        messages = [plan.messages[place] for place in plan.order]
        if is_mqtt:
            return MqttPublisher(self._to_publisher.port, messages, plan.window)
        return NatsPublisher(self._to_publisher.port, messages, plan.window, plan.names)

    @property
    def output(self) -> Path:
        """Return the output in work."""
        return self.folder / "out.csv"

    def words(self) -> list[str]:
        """Return the arguments of the loop."""
        scheme = "mqtt" if self._plan.broker == "mosquitto" else "nats"
        url = f"{scheme}://127.0.0.1:{self._to_loop.port}/{self._plan.address}"
        return [
            *("run", self._bundle, "--input", url, "--output", str(self.output)),
            *("--alarms", str(self.folder / "alarms.csv")),
            *("--snapshot", str(self.folder / "s.npz")),
            *(*self._plan.options, *self._plan.own_options),
        ]

    # Acts -----------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Add a line to the timeline."""
        self.timeline.append(f"{time.monotonic() - self._begun_s:8.3f} {text}")

    def note_message(self, place: int) -> None:
        """Add to the timeline when a message was sent and taken, and when the loop was there."""
        plan, publisher = self._plan, self.publisher
        for way in (way for way, sent in enumerate(plan.order) if sent == place):
            times = publisher.sent.get(way, 0.0), publisher.acknowledged.get(way, 0.0)
            words = [f"{time - self._begun_s:.3f}" for time in (*times, *self.traffic.subscribed)]
            is_sent = place in self.traffic.sent
            self.note(f"message {place}: sent, taken, subscriptions {words}, in turn {is_sent}")

    def _start_loop(self, event: Event | None = None) -> None:
        if self._loop is None:
            death = event.death if event else None
            self.note(f"loop starts, {death}")
            self._loop = LoopProcess(self.words(), self.folder / "errors", death)

    def _start_server(self) -> None:
        if not self.server.port:
            self.server.start()
            self._to_loop.target = self._to_publisher.target = self.server.port
            self.note("broker starts")

    def _end_server(self, number: signal.Signals) -> None:
        self._to_loop.target = self._to_publisher.target = 0
        self.server.end(number)
        for proxy in (self._to_loop, self._to_publisher):
            proxy.cut()
        self.publisher.lose()

    def _later(self, delay_s: float, act: Callable[[], None]) -> None:
        self._due.append((time.monotonic() + delay_s, act))

    def _do(self, event: Event) -> None:
        """Let an event happen."""
        self.note(f"{event.kind}, {event.pause_s:.2f} s")
        loop, server = self._loop, self.server
        if event.kind in ("kill loop", "kill loop at a call", "stop loop"):
            if loop is None:
                return
            number = signal.SIGTERM if event.kind == "stop loop" else signal.SIGKILL
            self._end_loop(loop, number)
            self._later(event.pause_s / 3, lambda: self._start_loop(event))
        elif event.kind.endswith("broker"):
            if not server.port:
                return
            if event.kind.startswith("save"):
                self._save_first()
            elif event.kind == "kill broker":
                self.losses.kills.append(time.monotonic())
            is_stop = event.kind == "stop broker"
            self.n_broker_kills += not is_stop
            self._end_server(signal.SIGTERM if is_stop else signal.SIGKILL)
            self._later(event.pause_s / 3, self._start_server)
        elif event.kind == "pause":
            self._hold(self.publisher, event.pause_s)
        else:
            proxy = self._to_loop if event.kind.endswith("loop") else self._to_publisher
            if event.kind.startswith("cut"):
                proxy.cut(event.abort)
            elif event.kind.startswith("hold"):
                self._hold(proxy, event.pause_s)
            else:
                proxy.most = SLOW_BYTES
                self._later(event.pause_s, lambda: setattr(proxy, "most", BLOCK))

    def _hold(self, held: TcpProxy | Publisher, pause_s: float) -> None:
        held.is_stopped = True
        self._later(pause_s, lambda: setattr(held, "is_stopped", False))

    def _save_first(self) -> None:
        """Let the broker save while no acknowledgement reaches the publisher until its end."""
        self.losses.saves.append(time.monotonic())
        self.server.save()

    def _end_loop(self, loop: LoopProcess, number: signal.Signals) -> None:
        """End the loop; a stop must end it with all done, unless it dies at its call before."""
        loop.signal(number)
        end_s = time.monotonic() + LIMIT_S
        while loop.is_running:  # the network goes on meanwhile
            if time.monotonic() > end_s:
                loop.tell_stacks()
                raise PlayError("the loop does not end by SIGTERM")
            self._step()
        self._loop = None
        self._judge(loop)

    def _judge(self, loop: LoopProcess) -> None:
        self.note(f"loop ends with {loop.code}")
        if loop.code in (-signal.SIGKILL, -signal.SIGTERM):  # it had not begun to wait for SIGTERM
            self.n_kills += 1
        elif loop.code == ExitCode.REFUSED and self._plan.has_states_first:
            return  # it was stopped while it had refused them all
        elif loop.code:
            lines = (self.folder / "errors").read_text(errors="replace").splitlines()
            last = (lines or [""])[-1].replace(str(self.folder), "")
            raise PlayError(f"the loop ends with {loop.code}: {last[:150]}")

    # Time -----------------------------------------------------------------------------------------

    def _step(self) -> None:
        """Wait a moment, then let everything move on."""
        sockets = [*self._to_loop.sockets, *self._to_publisher.sockets, *self.publisher.sockets]
        select.select(sockets, [], [], TICK_S)
        for each in (self._to_loop, self._to_publisher, self.publisher):
            each.step()

    def _turn(self) -> None:
        """Do one step, what is due, and watch the loop."""
        self._step()
        now_s = time.monotonic()
        if now_s > self._begun_s + LIMIT_S:
            if self._loop is not None:
                self._loop.tell_stacks()
            raise PlayError(f"it does not come to its end in {LIMIT_S:g} s")
        for item in [item for item in self._due if item[0] <= now_s]:
            self._due.remove(item)
            item[1]()
        loop = self._loop
        if loop is not None and not loop.is_running:
            self._loop = None
            if loop.code == 0:
                raise PlayError("the loop ends without a signal")
            self._judge(loop)
            if loop.death is None:
                raise PlayError("the loop was killed by another")
            self._start_loop()

    def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._turn()

    def _text(self) -> str:
        """Return the output so far, all parts of it."""
        text = ""
        for path in sorted(self.folder.glob("out*.csv")):
            with suppress(FileNotFoundError):  # it has got another name
                text += path.read_text()
        return text

    def _allow(self, n: int, since_s: float, before: int) -> None:
        """Let the publisher send up to n messages, at its rate and not too far before the loop."""
        plan, now_s = self._plan, time.monotonic()
        allowed = before + int((now_s - since_s) * plan.rate)
        if plan.lead:
            if now_s > self._looked_s + LOOK_S:
                self._looked_s, self._n_learned = now_s, self._text().count("\n")
            slow = before + int((now_s - since_s) * 20)  # a message that was lost is not waited for
            allowed = min(allowed, max(slow, self._n_learned + plan.lead))
        self.publisher.allowed = max(self.publisher.allowed, min(n, allowed))

    # The schedule ---------------------------------------------------------------------------------

    def play(self) -> None:
        """Play the schedule to its end.

        Raises:
            PlayError: The loop ended by itself, or does not come to its end.
            ServerError: A server does not do what it must.
        """
        self._start_server()
        if isinstance(self.server, JetStream):
            create_stream(self.server.port, "home.>")
        self._start_loop()
        if isinstance(self.server, Mosquitto):
            self._until(lambda: bool(self.traffic.subscribed))
            if self._plan.saves:
                self._save_first()
        self._play_first()
        self.note("everything runs again")
        self._until(lambda: not self._due and self._loop is not None and self.server.port > 0)
        loop = self._loop
        if loop is not None and loop.death is not None:  # it has not come to its call
            self._end_loop(loop, signal.SIGKILL)
            self._start_loop()
        self._await_subscription()
        self._play_last()
        assert self._loop is not None
        self.note("everything is learned")
        self._end_loop(self._loop, signal.SIGTERM)

    def _play_first(self) -> None:
        """Publish all messages but the last ones, and let the events happen."""
        plan, events = self._plan, list(self._plan.events)
        start_s = time.monotonic()
        reached: float | None = None
        while events or self.publisher.n_done < plan.n_first:
            self._allow(plan.n_first, start_s, 0)
            self._turn()
            if not events or self.publisher.n_done < min(events[0].after, plan.n_first):
                continue
            now_s = time.monotonic()
            reached = now_s if reached is None else reached
            if now_s >= reached + events[0].delay_s:
                self._do(events.pop(0))
                reached = None

    def _await_subscription(self) -> None:
        """Wait until the broker has a session of the loop, so that it keeps what comes now.

        A session of a killed broker may be gone. A connection that is cut is made again, which
        shows the session.
        """
        if self._plan.broker == "mosquitto":
            n = len(self.traffic.subscribed)
            self._to_loop.cut()
            self._until(lambda: len(self.traffic.subscribed) > n)

    def _play_last(self) -> None:
        """Publish the last messages, and wait until the loop has learned the last one of each."""
        plan, start_s = self._plan, time.monotonic()
        n = len(plan.order)
        while self.publisher.n_done < n:
            self._allow(n, start_s, plan.n_first)
            self._turn()
        last = {
            message.topic: [f"\n{series},{time}," for series, time, _ in message.rows]
            for message in plan.messages
        }
        wanted = [start for starts in last.values() for start in starts]
        look_s = 0.0

        def is_learned() -> bool:
            nonlocal look_s
            if time.monotonic() < look_s:
                return False
            look_s = time.monotonic() + LOOK_S
            text = self._text()
            return all(start in text for start in wanted)

        self._until(is_learned)

    def close(self) -> None:
        """End all processes and connections."""
        if self._loop is not None:
            self._loop.signal(signal.SIGKILL)
        for each in (self.publisher, self._to_loop, self._to_publisher):
            each.close()
        with suppress(Exception):
            self.server.end(signal.SIGKILL)


def compared_words(bundle: str, folder: Path, options: Sequence[str]) -> list[str]:
    """Return the arguments of the uninterrupted run over the same rows in a file."""
    return [
        *("run", bundle, "--input", str(folder / "rows.jsonl"), "--time", "time"),
        *("--value", "value", "--stream", "series", "--output", str(folder / "out.csv")),
        *("--alarms", str(folder / "alarms.csv"), "--snapshot", str(folder / "s.npz")),
        *("--every", "100000", *options),
    ]
