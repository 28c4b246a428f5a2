"""Show the sensors of a loop in Home Assistant, by MQTT discovery (`discovery` has the payload).

    loop's thread   row ─> newest state of each series ─> line, idle: publish what is due
    paho's thread   holds the connection; a new one makes the loop's thread publish all again

States are retained and say what is now: the newest one of each series is kept while the broker is
away, older ones are dropped. So memory does not grow, and a loop never waits for the broker. A
message of quality of service 0 is enough: what a lost connection swallows is published again by the
next one. With 1, the client would send older states again after newer ones.

The broker publishes `offline` for a loop that dies (its last will).
"""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgefold.cli.loop.discovery import (
    DEVICE_COMPONENT,
    LoopIdentity,
    SeriesDevice,
    SeriesUnit,
)
from edgefold.runtime.brokers.broker_address import BrokerAddress
from edgefold.runtime.brokers.mqtt_connection import (
    KEEPALIVE_S,
    disconnect,
    loss,
    mqtt_address,
    mqtt_client,
    reason_of_failure,
    refusal,
)
from edgefold.runtime.brokers.own_messages import refuse_own_messages
from edgefold.runtime.errors import DataError
from edgefold.runtime.loop.watcher import ANOMALY, LoopWatcher, WatchedRow

if TYPE_CHECKING:
    from paho.mqtt.client import Client

PREFIX = "homeassistant"
OPTIONS = ("every", "expire", "hold")
EVERY_S, HOLD_S = 10.0, 60.0
MOST_DEVICES = 200
LAST_S = 2.0
"""Seconds that the end of a run waits for the broker to take the last messages."""


def home_assistant_address(text: str) -> BrokerAddress:
    """Read mqtt://[USER@]HOST[:PORT][/PREFIX]; the one topic is the prefix of the discovery.

    Raises:
        DataError: It is not such an address.
    """
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in ("mqtt", "mqtts"):
        raise DataError(f"{scheme}:// is not MQTT; write it as mqtt://HOST:PORT/{PREFIX}.")
    place, mark, query = rest.partition("?")
    host, _, prefix = place.partition("/")
    address = mqtt_address(f"{scheme}://{host}/{prefix or PREFIX}{mark}{query}", OPTIONS)
    if len(address.topics) != 1 or any(sign in address.topics[0] for sign in "+#"):
        raise DataError(f"{address} names no prefix of Home Assistant's discovery, as {PREFIX}.")
    for name in OPTIONS:
        seconds(address, name, 1.0)
    return address


def seconds(address: BrokerAddress, name: str, default: float) -> float:
    """Return an option of an address that is a number of seconds.

    Raises:
        DataError: It is none.
    """
    text = address.options.get(name)
    try:
        number = default if text is None else float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < 1e9:
        raise DataError(f"{address}: the option {name} is a number of seconds, as {name}=60.")
    return number


def require_no_circle(address: BrokerAddress, source: str, identity: LoopIdentity) -> None:
    """Raise OutputError if the loop would receive as rows what it publishes itself."""
    topics = identity.topic, f"{address.topics[0]}/{DEVICE_COMPONENT}"
    own = [("--home-assistant", str(replace(address, topics=(topic,)))) for topic in topics]
    refuse_own_messages(source, own)


class _State:
    """Holds the newest row of a series, its newest alarm, and when it is published next."""

    __slots__ = ("alarm", "device", "hold_s", "is_on", "next_s", "row")

    def __init__(self, device: SeriesDevice, row: WatchedRow) -> None:
        self.device, self.row = device, row
        self.alarm = ""  # as JSON
        self.is_on = False
        self.hold_s = self.next_s = -math.inf

    def text(self) -> str:
        """Return the state as JSON; what is not known is null."""
        row, view = self.row, self.row.view
        numbers = {
            "value": view.value,
            "mean": view.mean,
            "low": view.low,
            "high": view.high,
            "log_score": view.log_density,
        }
        found: dict[str, Any] = {"time": row.text, "problem": "ON" if self.is_on else "OFF"}
        found |= {name: n if math.isfinite(n) else None for name, n in numbers.items()}
        return json.dumps(found | {"event": row.event})


class HomeAssistant(LoopWatcher):
    """Publishes the states of a loop's sensors; use it as a context manager around the loop.

    Args:
        address: The broker; its topic is the prefix of the discovery.
        identity: What all devices of the loop share.
        units: The units of series.
        tell: Function that gets a sentence for the user.
        clock: Function that returns a time in seconds that never goes back.
    """

    def __init__(
        self,
        address: BrokerAddress,
        identity: LoopIdentity,
        units: Sequence[SeriesUnit],
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ):
        self._address, self._identity, self._units = address, identity, units
        self._every_s = seconds(address, "every", EVERY_S)
        self._least_hold_s = seconds(address, "hold", HOLD_S)
        self._tell, self._clock = tell, clock
        self._states: dict[str, _State] = {}
        self._waiting: dict[str, _State] = {}  # those with news, or whose alarm may end
        self._due_s = math.inf
        self._is_connected = self._connects = self._is_full = False
        self._news: deque[str] = deque(maxlen=10)
        self._last_news = ""
        self._client: Client = mqtt_client(address, f"edgefold-ha-{identity.identity}")

    def __enter__(self) -> HomeAssistant:
        client = self._client
        client.will_set(self._identity.status_topic, "offline", 1, True)
        client.on_connect, client.on_connect_fail = self._connected, self._failed
        client.on_disconnect = self._disconnected
        client.connect_async(self._address.host, self._address.port, keepalive=KEEPALIVE_S)
        client.loop_start()
        return self

    def __exit__(self, *_: object) -> None:
        client = self._client
        if self._connects:
            self._publish_all()
        elif self._is_connected:
            for state in self._waiting.values():
                self._publish(state)
        if self._is_connected:
            last = client.publish(self._identity.status_topic, "offline", 1, True)
            with suppress(RuntimeError, ValueError):  # the connection broke
                last.wait_for_publish(LAST_S)
        disconnect(client)
        self._report()

    # In paho's thread -----------------------------------------------------------------------------

    def _connected(
        self, client: Client, data: Any, flags: Any, reason: Any, properties: Any
    ) -> None:
        if reason.is_failure:
            self._news.append(f"refuses the connection: {refusal(reason, self._address)[0]}")
            return
        self._news.append("is connected")
        self._is_connected = self._connects = True

    def _failed(self, client: Client, data: Any) -> None:
        self._news.append(f"cannot be reached: {reason_of_failure()[0]}")

    def _disconnected(self, client: Client, data: Any, flags: Any, reason: Any, *_: Any) -> None:
        self._is_connected = False
        if reason.is_failure:
            self._news.append(loss(reason))

    # In the loop's thread -------------------------------------------------------------------------

    def row(self, row: WatchedRow) -> None:
        state = self._states.get(row.series)
        if state is None:
            state = self._new(row)
            if state is None:
                return
        state.row = row
        if row.alarm is not None or row.event == ANOMALY:
            self._begin_alarm(state, row)
        elif state.is_on:
            self._end_alarm(state)
        self._wait(state)

    def _new(self, row: WatchedRow) -> _State | None:
        """Return the state of a series that comes first with this row; None if it is too many."""
        if len(self._states) >= MOST_DEVICES:
            if not self._is_full:
                self._is_full = True
                self._tell(f"Home Assistant shows the first {MOST_DEVICES} sensors")
            return None
        device = SeriesDevice(self._identity, row.series, self._units)
        self._states[row.series] = state = _State(device, row)
        if self._is_connected and not self._connects:
            self._describe(state)
        return state

    def _begin_alarm(self, state: _State, row: WatchedRow) -> None:
        alarm = row.alarm.to_json() if row.alarm is not None else {
            "series": row.series, "event": row.event, "time": row.text, "value": row.view.value,
        }  # fmt: skip
        state.alarm = json.dumps(alarm)
        state.is_on = True
        state.hold_s = self._clock() + self._least_hold_s
        state.next_s = -math.inf  # at once

    def _end_alarm(self, state: _State) -> None:
        """Switch the alarm off if its event is over and it has lasted long enough to be seen."""
        if not state.row.event and self._clock() >= state.hold_s:
            state.is_on = False
            state.next_s = -math.inf

    def _wait(self, state: _State) -> None:
        self._waiting[state.row.series] = state
        self._due_s = min(self._due_s, state.next_s)

    def line(self) -> None:
        if self._connects or self._news or self._clock() >= self._due_s:
            self._work()

    def idle(self) -> None:
        self.line()

    def _work(self) -> None:
        """Report news of the connection, and publish what is due."""
        self._report()
        if not self._is_connected:
            self._due_s = math.inf  # a new connection publishes all
            return
        if self._connects:
            self._publish_all()
            return
        now_s, waiting = self._clock(), self._waiting
        self._waiting, self._due_s = {}, math.inf
        for state in waiting.values():
            if state.is_on:
                self._end_alarm(state)
            if now_s >= state.next_s:
                self._publish(state)
                state.next_s = now_s + self._every_s
                if state.is_on and not state.row.event:  # it ends without a further row
                    state.next_s = max(state.hold_s, now_s)
                    self._wait(state)
            else:
                self._wait(state)

    def _publish_all(self) -> None:
        self._connects = False
        self._client.publish(self._identity.status_topic, "online", 0, True)
        for state in self._states.values():
            self._describe(state)
            self._publish(state)
            self._wait(state)

    def _describe(self, state: _State) -> None:
        device = state.device
        text = json.dumps(device.payload(), ensure_ascii=False)
        self._client.publish(device.topic(self._address.topics[0]), text, 0, True)

    def _publish(self, state: _State) -> None:
        if state.alarm:
            self._client.publish(state.device.alarm_topic, state.alarm, 0, True)
        self._client.publish(state.device.state_topic, state.text(), 0, True)

    def _report(self) -> None:
        """Print what happened to the connection, each news once until it changes."""
        while self._news:
            text = self._news.popleft()
            if text != self._last_news and (self._last_news or text != "is connected"):
                self._tell(f"Home Assistant's broker {self._address.host} {text}")
            self._last_news = "" if text == "is connected" else text
