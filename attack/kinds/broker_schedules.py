"""Schedules of faults between a publisher, a real broker and a loop: each row is learned once.

The loop is killed at random moments and at chosen calls, the broker is killed and started again,
connections are cut, held and slowed, messages come again, topics change their order. When all is
over, output, alarms and states of each sensor must be, byte for byte, those of an uninterrupted run
over the same rows in a file.

    JetStream    always: its log holds what it acknowledged
    mosquitto    always, unless it was killed and had not saved what it had acknowledged

A row counts as lost by the broker only if mosquitto acknowledged it to the publisher, was then
killed without a save between, and the loop has never acknowledged it. All other rows must be
learned, once and in order.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

from attack.brokers.loop_process import LoopProcess
from attack.brokers.plan import BROKERS, Plan, draw
from attack.brokers.servers import ServerError, wait_for
from attack.brokers.stage import PlayError, Stage, compared_words
from attack.brokers.verdict import difference, learned
from attack.outcomes import Outcome, random_of
from edgefold.runtime.errors import EdgefoldError

WAITS = True
BUNDLE = "sensors"
KEEP = os.environ.get("EDGEFOLD_ATTACK_KEEP", "")
"""A folder to which the files of schedules that fail are copied."""


class Cases:
    """Cases of schedules, of which every second one is of JetStream, the others of mosquitto."""

    def __init__(self, subjects: Path, scratch: Path):
        self._scratch = scratch
        self._backends = self._find_backends()

    def _find_backends(self) -> tuple[str, ...]:
        """Return the backends that run the model here."""
        from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
        from edgefold.runtime.stream.stream import Stream

        found = ["onnxruntime"]
        try:
            Stream.open(shipped_bundle(BUNDLE), "native").close()
            found.append("native")
        except EdgefoldError:
            pass  # nobody has compiled it
        return tuple(found)

    def _draw(self, number: int) -> Plan:
        broker = BROKERS[number % len(BROKERS)]
        return draw(random_of("broker_schedules", number), broker, self._backends)

    def describe(self, number: int) -> str:
        """Say what is published and what goes wrong when."""
        return str(self._draw(number))

    def play(self, number: int) -> Outcome:
        """Play a schedule, and compare with an uninterrupted run."""
        plan = self._draw(number)
        folder = Path(tempfile.mkdtemp(prefix="case-", dir=self._scratch))
        stage = Stage(plan, folder, BUNDLE)
        try:
            try:
                stage.play()
            except PlayError as error:
                outcome = _failed(folder, str(error))
            else:
                outcome = self._outcome(plan, stage)
            if outcome.failed:
                stage.note(f"{outcome.verdict} {outcome.detail}")
            (folder / "timeline").write_text("\n".join(stage.timeline) + "\n")
            if outcome.failed and KEEP:
                shutil.copytree(folder, Path(KEEP) / str(number), dirs_exist_ok=True)
            return outcome
        finally:
            stage.close()
            shutil.rmtree(folder, ignore_errors=True)

    def _outcome(self, plan: Plan, stage: Stage) -> Outcome:
        if stage.traffic.n_foreign:
            return Outcome("wrong", "the loop acknowledges what was not sent on this connection")
        lost = missing_rows(plan, stage.folder)
        if isinstance(lost, str):
            return Outcome("wrong", f"{plan.broker}: {lost}")
        for place in lost:
            if wrong := not_lost_by_broker(plan, stage, place):
                stage.note_message(place)
                return Outcome("wrong", f"{plan.broker}: {wrong}")
        whole = self._compared(plan, stage.folder, lost)
        if wrong := difference(stage.folder, whole):
            return Outcome("wrong", f"{plan.broker}: {wrong}")
        verdict = "lost by the broker" if lost else "resumed"
        return Outcome(verdict, f"{plan.broker}, {stage.n_kills} kills")

    def _compared(self, plan: Plan, folder: Path, lost: set[int]) -> Path:
        """Run the rows that were not lost without a fault; returns the folder of its files."""
        whole = folder / "whole"
        whole.mkdir()
        lines = [
            json.dumps({"series": series, "time": time, "value": value})
            for place, message in enumerate(plan.messages)
            if place not in lost
            for series, time, value in message.rows
        ]
        (whole / "rows.jsonl").write_text("\n".join(lines) + "\n")
        process = LoopProcess(compared_words(BUNDLE, whole, plan.options), whole / "errors")
        wait_for(lambda: not process.is_running, "the end of the compared run")
        if process.code:
            raise ServerError((whole / "errors").read_text()[-500:])
        return whole


def _failed(folder: Path, text: str) -> Outcome:
    """Return the verdict of a loop that ended by itself or did not end."""
    errors = (folder / "errors").read_text(errors="replace") if (folder / "errors").exists() else ""
    if "Traceback" in errors:
        return Outcome("traceback", errors.splitlines()[-1][:150])
    return Outcome("hang" if "does not" in text else "wrong", text)


def missing_rows(plan: Plan, folder: Path) -> set[int] | str:
    """Return the places of the messages that were not learned, or the fault of those that were."""
    lost: set[int] = set()
    places: dict[str, list[tuple[str, int]]] = {}
    for place, message in enumerate(plan.messages):
        for series, time, _ in message.rows:
            places.setdefault(series, []).append((time, place))
    times = learned(folder)
    if times.keys() - places.keys():
        return "a sensor that nobody has sent"
    for series, rows in places.items():
        found, wanted = times.get(series, []), [time for time, _ in rows]
        if len(set(found)) != len(found):
            return "a row was learned twice"
        if found != sorted(found, key=wanted.index):
            return "rows were learned out of order"
        lost |= {place for time, place in rows if time not in set(found)}
    return lost


def not_lost_by_broker(plan: Plan, stage: Stage, place: int) -> str:
    """Return why a message that was not learned was not lost by the broker; empty if it was."""
    if plan.broker == "jetstream":
        return "a row of the log was not learned"
    if place in stage.traffic.acknowledged:
        return "a row that the loop had acknowledged was not learned"
    for way in in_order(plan, place):
        moment = stage.publisher.acknowledged[way]
        kills = [kill for kill in stage.losses.kills if kill > moment]
        if not any(
            not any(moment < save < kill for save in stage.losses.saves) for kill in kills
        ) and not _without_session(stage, way, place):
            return "a row that the broker had was not learned"
    return ""


def in_order(plan: Plan, place: int) -> list[int]:
    """Return the places in a plan's order at which a message comes before later ones of its topic.

    Where it comes again behind them, the loop drops it by its numbers.
    """
    topic = plan.messages[place].topic
    found = []
    for n, sent in enumerate(plan.order):
        if sent == place:
            found.append(n)
        elif sent > place and plan.messages[sent].topic == topic:
            break
    return found


def _without_session(stage: Stage, way: int, place: int) -> bool:
    """Return whether the broker may have had no session of the loop when it took a message.

    It may take a message before the subscription and confirm the two in the other order, so the
    moment counts at which the message was sent.

    Args:
        stage: The schedule that was played.
        way: The message's place in the order in which messages were sent.
        place: Its place in the plan.
    """
    return place not in stage.traffic.sent and not _has_session(stage, stage.publisher.sent[way])


def _has_session(stage: Stage, moment: float) -> bool:
    """Return whether the broker had a session of the loop: since a subscription, or from its disk.

    A kill leaves what the last save wrote, which may have been without a session.
    """
    moments = {
        "subscribed": stage.traffic.subscribed,
        "saved": stage.losses.saves,
        "killed": stage.losses.kills,
    }
    events = sorted((time_s, name) for name, times in moments.items() for time_s in times)
    has_session = on_disk = False
    for time_s, name in events:
        if time_s > moment:
            break
        if name == "subscribed":
            has_session = True
        elif name == "saved":
            on_disk = has_session
        else:
            has_session = on_disk
    return has_session
