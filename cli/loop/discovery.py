"""Describe the sensors of a loop to Home Assistant: the payload of its MQTT discovery.

Each series is a device of its own, with the entities

    expected, low, high    the forecast of the newest row and its 90 % band, as sensors
    alarm                  a binary sensor of the class problem; its attributes are the newest alarm
    log_score              how probable the value was, as a diagnostic sensor

One message describes a whole device (Home Assistant 2024.11 or later). It is retained, and the same
for each start, so that Home Assistant finds the device again after its own restart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from edgefold.runtime.hashing import sha256

DEVICE_COMPONENT = "device"
NO_ID = re.compile(r"[^a-zA-Z0-9]+")


class SeriesUnit(NamedTuple):
    """Says in which unit a series is measured.

    Attributes:
        pattern: The series' name, with the wildcards of a shell.
        unit: The unit, as °C; "" for none.
        device_class: Home Assistant's class of the values, as temperature; "" for none.
    """

    pattern: str
    unit: str
    device_class: str


class LoopIdentity(NamedTuple):
    """Holds what all devices of a loop share.

    Attributes:
        identity: Digits that no other loop has, the same after each start.
        name: The name of a sensor that the input does not name.
        model: The model that forecasts, as the device's model.
        version: Edgefold's version.
        expire_s: Seconds after which a state without news is unknown; 0 for never.
        has_center: Whether rows have an expected value.
        has_band: Whether rows have a band.
        has_score: Whether rows have a log score.
    """

    identity: str
    name: str
    model: str
    version: str
    expire_s: int
    has_center: bool = True
    has_band: bool = True
    has_score: bool = True

    @property
    def topic(self) -> str:
        """Return the topic below which all states lie."""
        return f"edgefold/{self.identity}"

    @property
    def status_topic(self) -> str:
        """Return the topic that says whether the loop runs."""
        return f"{self.topic}/status"


class SeriesDevice:
    """Describes one series as a device.

    Args:
        loop: What all devices of the loop share.
        series: The series' name; "" for a sensor that the input does not name.
        units: The units of series, of which the first one that fits counts.

    Attributes:
        state_topic: The topic of the newest row.
        alarm_topic: The topic of the newest alarm.
    """

    def __init__(self, loop: LoopIdentity, series: str, units: Sequence[SeriesUnit] = ()):
        self._loop, self._name = loop, series or loop.name
        # Two names may differ only in signs that an identity cannot have.
        digest = sha256(series.encode()).hexdigest()[:8]
        readable = NO_ID.sub("_", self._name).strip("_").lower()[:40]
        self._id = f"edgefold_{loop.identity}_{readable}_{digest}"
        base = f"{loop.topic}/{digest}"
        self.state_topic, self.alarm_topic = f"{base}/state", f"{base}/alarm"
        fitting = (unit for unit in units if fnmatchcase(series, unit.pattern))
        self._unit = next(fitting, SeriesUnit("", "", ""))

    def topic(self, prefix: str) -> str:
        """Return the topic on which Home Assistant waits for the payload.

        Args:
            prefix: The prefix of Home Assistant's discovery.
        """
        return f"{prefix}/{DEVICE_COMPONENT}/{self._id}/config"

    def payload(self) -> dict[str, Any]:
        """Return the payload that describes the device and its entities."""
        loop, components = self._loop, dict[str, Any]()
        if loop.has_center:
            components["expected"] = self._sensor("Expected value", "expected", "mean")
        if loop.has_band:
            components["low"] = self._sensor("Expected at least", "low", "low")
            components["high"] = self._sensor("Expected at most", "high", "high")
        components["alarm"] = self._entity("binary_sensor", "Alarm", "alarm", "problem") | {
            "device_class": "problem",
            "json_attributes_topic": self.alarm_topic,
        }
        if loop.has_score:
            components["log_score"] = self._entity(
                "sensor", "Log score", "log_score", "log_score"
            ) | {
                "state_class": "measurement",
                "entity_category": "diagnostic",
                "icon": "mdi:bell-curve",
                "suggested_display_precision": 2,
            }
        return {
            "device": {
                "identifiers": [self._id],
                "name": self._name,
                "manufacturer": "Edgefold",
                "model": loop.model,
                "sw_version": loop.version,
            },
            "origin": {"name": "Edgefold", "sw_version": loop.version},
            "availability_topic": loop.status_topic,
            "state_topic": self.state_topic,
            "components": components,
        }

    def _sensor(self, name: str, key: str, field: str) -> dict[str, Any]:
        """Return an entity whose values have the unit of the series."""
        found = self._entity("sensor", name, key, field) | {"state_class": "measurement"}
        if self._unit.unit:
            found["unit_of_measurement"] = self._unit.unit
        if self._unit.device_class:
            found["device_class"] = self._unit.device_class
        return found

    def _entity(self, platform: str, name: str, key: str, field: str) -> dict[str, Any]:
        found: dict[str, Any] = {
            "platform": platform,
            "name": name,
            "unique_id": f"{self._id}_{key}",
            "value_template": f"{{{{ value_json.{field} }}}}",
        }
        if self._loop.expire_s:
            found["expire_after"] = self._loop.expire_s
        return found
