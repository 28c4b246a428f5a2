"""Check messages of discovery with Home Assistant's own code, and record what it accepts.

    python scripts/home_assistant_schema.py MESSAGES.json [--record SCHEMA.json]

MESSAGES.json is a list of pairs of topic and payload. They go through the functions and schemas of
the installed package homeassistant, in the order in which its MQTT integration calls them; then
damaged copies must be refused. --record writes which keys and words it accepts, as JSON Schema.

homeassistant needs Python 3.14 and many compiled packages that its schemas do not use. Those that
are missing are replaced by empty ones, and each is named. `scripts/check-home-assistant` runs this
file in a Python 3.14 that npm has (Pyodide). Nothing of Edgefold is imported here.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any

NEEDED = ("homeassistant", "probatio", "jinja2", "markupsafe", "slugify", "awesomeversion", "attr",
          "propcache", "typing_extensions")  # fmt: skip
"""What the schemas use; it must be installed."""
UNUSED = ("homeassistant.util.ca_certs", "homeassistant.util.httpx2_ssl", "homeassistant.util.ssl")
"""Modules of homeassistant that read certificates when they are imported."""


class _Empty(type):
    """Is the class of all that an empty module holds: it can be called, indexed and inherited."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _empty(name)

    def __or__(cls, other: Any) -> Any:
        return cls

    def __ror__(cls, other: Any) -> Any:
        return cls

    def __getitem__(cls, key: Any) -> Any:
        return cls

    def __iter__(cls) -> Iterator[Any]:
        return iter(())

    def __call__(cls, *args: Any, **words: Any) -> Any:
        if not cls.__dict__.get("is_empty"):
            return super().__call__(*args, **words)
        is_decorated = len(args) == 1 and callable(args[0]) and not words
        return args[0] if is_decorated else _empty("called")


def _empty(name: str) -> Any:
    return _Empty(name, (Exception,), {"is_empty": True})


class _EmptyModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _empty(name)


class _Unbounded(dict[str, Any]):
    """Stands for lru.LRU, in which compiled templates are kept."""

    def __init__(self, size: int) -> None:
        super().__init__()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what is not installed as empty modules."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        top = name.partition(".")[0]
        if name not in UNUSED and (top in NEEDED or top in sys.stdlib_module_names):
            return None
        if name not in UNUSED and importlib.machinery.PathFinder.find_spec(top) is not None:
            return None
        self.names.add(name if name in UNUSED else top)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = _EmptyModule(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Fill nothing in."""


def load() -> tuple[dict[str, Any], Any, Any, list[str]]:
    """Import Home Assistant's MQTT integration.

    Returns:
        The schemas of entities by platform, the module of discovery, that of schemas, and the
        modules that were replaced by empty ones.
    """
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    if importlib.util.find_spec("lru").loader is finder:  # type: ignore[union-attr]
        sys.modules["lru"] = types.ModuleType("lru")
        sys.modules["lru"].LRU = _Unbounded  # type: ignore[attr-defined]
    from homeassistant import core  # type: ignore[import-not-found]
    from homeassistant.components.mqtt import (  # type: ignore[import-not-found]
        binary_sensor,
        discovery,
        schemas,
        sensor,
    )

    hass = type("Hass", (), {"data": {}, "config": types.SimpleNamespace(path=str)})
    core._hass.hass = hass()  # templates are compiled in its environment
    if "orjson" in finder.names:
        discovery.json_loads_object = json.loads
    entities = {
        "sensor": sensor.DISCOVERY_SCHEMA,
        "binary_sensor": binary_sensor.DISCOVERY_SCHEMA,
    }
    return entities, discovery, schemas, sorted(finder.names)


def accepted(topic: str, text: str, entities: dict[str, Any], discovery: Any) -> dict[str, Any]:
    """Return the entities that Home Assistant makes of a message; {} if it refuses the device.

    Raises:
        Exception: It refuses an entity.
    """
    match = discovery.TOPIC_MATCHER.match(topic.partition("/")[2])
    if not match or match["component"] != "device":
        return {}
    payload = discovery._parse_device_payload(
        None, text, topic, match["object_id"], match["node_id"]
    )
    found = {}
    for name, component in payload.get("components", {}).items():
        platform = component.pop("platform")
        config = discovery.MQTTDiscoveryPayload(component)
        config["device"], config["origin"] = payload["device"], payload["origin"]
        discovery._merge_common_device_options(config, payload)
        unknown = {*config} - {str(key) for key in _keys(entities[platform])}
        if unknown:
            raise ValueError(f"{name}: Home Assistant does not know {unknown}")
        found[name] = entities[platform](config)
    return found


def _keys(schema: Any) -> dict[str, Any]:
    """Return the keys of a schema, each with what it accepts; of several in a row the first."""
    while not isinstance(getattr(schema, "schema", None), dict):
        schema = schema.validators[0] if hasattr(schema, "validators") else schema.schema
    return {str(getattr(key, "schema", key)): key for key in schema.schema}


def damaged(payload: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield copies of a payload that Home Assistant must refuse, each with the damage in words."""
    changes: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
        ("no origin", lambda p: p.pop("origin")),
        ("no identifiers", lambda p: p["device"].pop("identifiers")),
        ("a key too many", lambda p: p.update(colour="red")),
        ("no platform", lambda p: p["components"]["alarm"].pop("platform")),
        ("no unique_id", lambda p: p["components"]["alarm"].pop("unique_id")),
        ("a class that is none", lambda p: p["components"]["alarm"].update(device_class="x")),
        ("a template that is none", lambda p: p["components"]["low"].update(value_template="{{")),
        ("a unit of another class", lambda p: p["components"]["low"].update(
            device_class="temperature", unit_of_measurement="kg")),
        ("no state_topic", lambda p: p.pop("state_topic")),
        ("a wildcard in a topic", lambda p: p.update(state_topic="a/#/b")),
        ("time that is none", lambda p: p["components"]["low"].update(expire_after=-1)),
    ]  # fmt: skip
    for words, change in changes:
        copy = deepcopy(payload)
        change(copy)
        yield words, copy


def record(entities: dict[str, Any], schemas: Any, version: str) -> dict[str, Any]:
    """Return which keys and words are accepted, as JSON Schema."""
    from homeassistant.components.binary_sensor import (  # type: ignore[import-not-found]
        BinarySensorDeviceClass,
    )
    from homeassistant.components.sensor import (  # type: ignore[import-not-found]
        DEVICE_CLASS_UNITS,
        SensorDeviceClass,
        SensorStateClass,
    )

    def strict(schema: Any, **more: Any) -> dict[str, Any]:
        keys = _keys(schema)
        required = [name for name, key in keys.items() if type(key).__name__ == "Required"]
        properties = {name: more.get(name, True) for name in keys}
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }

    units = [
        {
            "if": {"properties": {"device_class": {"const": str(name)}},
                   "required": ["device_class"]},
            "then": {"properties": {"unit_of_measurement": {
                "enum": sorted(str(unit) for unit in allowed if unit)}}},
        }
        for name, allowed in sorted(DEVICE_CLASS_UNITS.items())
    ]  # fmt: skip
    common = {"entity_category": {"const": "diagnostic"}, "expire_after": {"type": "integer"},
              "unique_id": {"type": "string"}, "value_template": {"type": "string"}}  # fmt: skip
    sensor = strict(
        entities["sensor"],
        device_class={"enum": sorted(str(name) for name in SensorDeviceClass)},
        state_class={"enum": sorted(str(name) for name in SensorStateClass)},
        **common,
    )
    binary = strict(
        entities["binary_sensor"],
        device_class={"enum": sorted(str(name) for name in BinarySensorDeviceClass)},
        **common,
    )
    for name, entity in (("sensor", sensor), ("binary_sensor", binary)):
        # The state topic and the availability come from the device.
        entity["properties"]["platform"] = {"const": name}
        entity["required"] = ["platform", "unique_id"]
    whole = strict(
        schemas.DEVICE_DISCOVERY_SCHEMA,
        device=strict(schemas._MQTT_DEVICE_INFO_SCHEMA_BASE) | {"required": ["identifiers"]},
        origin=strict(schemas.MQTT_ORIGIN_INFO_SCHEMA),
        components={
            "type": "object",
            "additionalProperties": {"oneOf": [sensor | {"allOf": units}, binary]},
        },
    )
    words = f"Accepted by homeassistant {version}; written by scripts/home_assistant_schema.py."
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": words,
        **whole,
    }


def main(argv: Sequence[str]) -> int:
    """Check the messages of a file; return 0 if all were accepted and all damages refused."""
    with open(argv[0], encoding="utf-8") as file:
        messages: list[tuple[str, str]] = json.load(file)
    entities, discovery, schemas, replaced = load()
    from homeassistant.const import __version__ as version  # type: ignore[import-not-found]

    print(f"homeassistant {version}, Python {sys.version.split()[0]}")
    print(f"replaced by empty modules: {', '.join(replaced)}")
    n_wrong = 0
    for topic, text in messages:
        found = accepted(topic, text, entities, discovery)
        n_wrong += not found
        print(f"{'accepted' if found else 'REFUSED'}  {topic}: {', '.join(found)}")
    topic, text = messages[0]
    for words, payload in damaged(json.loads(text)):
        try:
            found = accepted(topic, json.dumps(payload), entities, discovery)
            reason = "the device"
        except Exception as error:  # probatio's errors, and that of an unknown key
            found, reason = {}, str(error)
        n_wrong += bool(found)
        print(f"{'NOT REFUSED' if found else 'refused'}  {words} ({reason})")
    if "--record" in argv:
        with open(argv[argv.index("--record") + 1], "w", encoding="utf-8") as file:
            json.dump(record(entities, schemas, version), file, indent=1, ensure_ascii=False)
            file.write("\n")
    return int(n_wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
