"""Changes of a manifest: fields of other types and ranges, exchanged, doubled, and removed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from attack.changes.drafts import Draft, places_of, value_at
from edgefold.runtime.bundle.manifest import DTYPES, ROLES, STEPS

Random = np.random.Generator
KINDS = ("gaussian", "quantiles", "categorical", "raw")
ODD_NUMBERS = (
    *(-1, 0, 1, 2, 3, 7, 16, 255, 1000, 65537, 2**31 - 1, 2**31, 2**53, 2**62 - 1, 2**62),
    *(2**63 - 1, 2**63, 2**64, 10**30, -(2**63), 0.5, 2.0, 2.5, -0.0, 1e-320, 1e308, -1e308),
)
ODD_TEXTS = (
    *("", " ", "x", "\0", "a\0b", "\ud800", "é", "\n", "..", "../x", "/", "/etc/passwd", "."),
    *("manifest.json", "weights.bin", "golden.npz", "con", "a" * 300, "a" * 70_000, "\x1b[31m"),
    *("nan", "1", "true", "float32", "state", "mean"),
)
ODD_RAW = (
    *("NaN", "Infinity", "-Infinity", "1e400", "-1e400", "9" * 4000, "9" * 5000),
    *("[" * 200 + "]" * 200, "[" * 993 + "]" * 993, "[" * 1500 + "]" * 1500),
    *('{"a":' * 400 + "1" + "}" * 400, '{"a":' * 992 + "1" + "}" * 992, "[" * 100_000),
    *('{"a":1,"a":2}', '"\\ud800"', '"\\u0000"', "1.0e0", "-0", "[1,]", "tru", ""),
)


def odd_value(random: Random, draft: Draft) -> Any:
    """A value that no exporter writes at most places."""
    pick = int(random.integers(8))
    if pick == 0:
        return [None, True, False, [], {}, [[]], {"": None}, [None]][random.integers(8)]
    if pick == 1:
        return ODD_TEXTS[random.integers(len(ODD_TEXTS))]
    if pick == 2:
        return draft.raw(ODD_RAW[random.integers(len(ODD_RAW))])
    if pick == 3:
        return [int(n) for n in random.integers(-2, 5, random.integers(1, 6))]
    if pick == 4:
        return {"offset": int(random.integers(-9, 99)), "n_bytes": int(random.integers(-9, 99))}
    if pick == 5:
        return [ODD_NUMBERS[random.integers(len(ODD_NUMBERS))] for _ in range(3)]
    return ODD_NUMBERS[random.integers(len(ODD_NUMBERS))]


def nearby(random: Random, draft: Draft, value: Any, places: list[tuple[Any, ...]]) -> Any:
    """A value like the one given, but another."""
    if isinstance(value, bool) or value is None:
        return [0, 1, "", not value][random.integers(4)]
    if isinstance(value, (int, float)):
        number = (value + 1, value - 1, value * 2, value * 1000, -value, value / 3, value + 0.5)
        return number[random.integers(len(number))]
    if isinstance(value, str):
        words: tuple[str, ...] = (value.upper(), value + " ", value[:-1], f"./{value}")
        for names in (ROLES, DTYPES, STEPS, KINDS):
            if value in names:
                words = names
        if random.random() < 0.4:  # another name of the same manifest
            texts = [v for p in places if isinstance(v := value_at(draft.form, p), str)]
            words = tuple(texts)
        return words[random.integers(len(words))]
    if isinstance(value, list):
        changed = copy.deepcopy(value)
        pick = int(random.integers(5))
        if pick == 0:
            changed.append(copy.deepcopy(changed[-1]) if changed else 1)
        elif pick == 1 and changed:
            changed.pop(int(random.integers(len(changed))))
        elif pick == 2:
            changed.reverse()
        elif pick == 3:
            changed.insert(0, 1)
        else:
            changed *= int(random.integers(2, 40))
        return changed
    return odd_value(random, draft)


def change_field(random: Random, draft: Draft) -> str:
    """Replace, move, double, rename or remove one field."""
    form = draft.form
    sections = sorted(set(form) - {"versions", "sha256"})
    section = sections[random.integers(len(sections))]
    places = [(section, *rest) for rest in ((), *places_of(form[section]))]
    place = places[random.integers(len(places))]
    parent, key = value_at(form, place[:-1]), place[-1]
    value = parent[key]
    pick = float(random.random())
    name = ".".join(map(str, place))
    if pick < 0.35:
        parent[key] = nearby(random, draft, value, places)
        return f"{name} = {_shown(parent[key])}"
    if pick < 0.65:
        parent[key] = odd_value(random, draft)
        return f"{name} = {_shown(draft.texts.get(str(parent[key]), parent[key]))}"
    if pick < 0.75:
        del parent[key]
        return f"{name} removed"
    if pick < 0.85:
        other = places[random.integers(len(places))]
        value_ = copy.deepcopy(value_at(form, other))
        parent[key] = value_
        return f"{name} = that of {'.'.join(map(str, other))}"
    if isinstance(parent, list):
        parent.append(copy.deepcopy(value))
        return f"{name} doubled"
    if pick < 0.93:
        parent[f"{key}_"] = copy.deepcopy(value)
        return f"{name} doubled"
    parent[ODD_TEXTS[random.integers(len(ODD_TEXTS))]] = parent.pop(key)
    return f"{name} renamed"


def swap_graphs(random: Random, draft: Draft) -> str:
    """Exchange parts of two graphs."""
    graphs = draft.form["graphs"]
    names = sorted(graphs)
    if len(names) < 2:
        return change_field(random, draft)
    one, other = (names[int(n)] for n in random.choice(len(names), 2, replace=False))
    keys = ["file", "inputs", "outputs", "step", "width", "precision"]
    key = keys[random.integers(len(keys))]
    graphs[one][key], graphs[other][key] = graphs[other][key], graphs[one][key]
    if key == "file":
        graphs[one]["sha256"], graphs[other]["sha256"] = (
            graphs[other]["sha256"],
            graphs[one]["sha256"],
        )
    return f"{key} of {one} and {other} exchanged"


def exchange_shapes(random: Random, draft: Draft) -> str:
    """Give a tensor another shape or type, everywhere where it is named or at one place."""
    form = draft.form
    lists = [form["state"], form["cache"], form["prediction"]["tensors"]]
    tensors = [t for group in lists for t in group]
    for graph in form["graphs"].values():
        tensors += graph["inputs"] + graph["outputs"]
    tensor = tensors[random.integers(len(tensors))]
    shape = list(tensor["shape"])
    dtype = tensor["dtype"]
    pick = int(random.integers(6))
    if pick == 0 and shape:
        shape[random.integers(len(shape))] = int(2 ** random.integers(0, 40))
    elif pick == 1:
        shape.insert(int(random.integers(len(shape) + 1)), int(random.integers(1, 9)))
    elif pick == 2 and shape:
        shape.pop(int(random.integers(len(shape))))
    elif pick == 3:
        dtype = DTYPES[random.integers(len(DTYPES))]
    elif pick == 4:
        shape = [2**31, 2**31, 2**31]
    else:
        shape = [1] * int(random.integers(30, 200))
    name, everywhere = tensor.get("of", tensor["name"]), random.random() < 0.6
    for other in tensors:
        if other is tensor or (everywhere and other.get("of", other["name"]) == name):
            other["shape"], other["dtype"] = list(shape), dtype
    where = "everywhere" if everywhere else "at one place"
    return f"{name} has shape {shape[:4]} ({len(shape)} axes) and type {dtype} {where}"


def add_state(random: Random, draft: Draft) -> str:
    """Add state tensors: huge ones, many, rings, or groups that multiply the bindings."""
    form = draft.form
    pick = int(random.integers(4))
    if pick == 0:
        side = int(10 ** random.integers(3, 13))
        form["state"].append(
            {"name": "big", "shape": [1, side], "dtype": "float32", "initial": 0.0}
        )
        if random.random() < 0.5:
            form["memory_plan"]["state_bytes"] = 8 * side
        return f"a state of {side} numbers that no graph uses"
    if pick == 1:
        count = int(random.integers(2, 5000))
        for index in range(count):
            form["state"].append(
                {"name": f"s{index}", "shape": [1, 4], "dtype": "float32", "initial": 0.0}
            )
        return f"{count} states that no graph uses"
    if pick == 2:
        count = int(random.integers(4, 26))
        graphs = form["graphs"]
        name, graph = next(iter(graphs.items()))
        for index in range(count):
            kept = {"name": f"g{index}", "shape": [1, 1], "dtype": "float32"}
            form["state"].append({**kept, "initial": 0.0})
            tensor = {**kept, "role": "state", "of": f"g{index}"}
            graph["inputs"].append({**tensor, "name": f"i{index}"})
            writer = {**copy.deepcopy(graph), "inputs": [], "outputs": [{**tensor, "name": "o"}]}
            graphs[f"w{index}"] = writer
        return f"{count} groups of states, all read by {name}"
    kept = form["state"][random.integers(len(form["state"]))]
    kept["ring"] = int(random.integers(-1, 5))
    return f"{kept['name']} is a ring along {kept['ring']}"


def set_plan(random: Random, draft: Draft) -> str:
    """Write another memory plan."""
    plan = draft.form["memory_plan"]
    places = list(places_of(plan))
    place = places[random.integers(len(places))]
    values: tuple[Any, ...] = (
        0,
        1,
        2**40,
        2**61,
        1.5,
        None,
        "1",
        draft.raw("Infinity"),
        draft.raw("NaN"),
        [],
        {},
    )
    value_at(plan, place[:-1])[place[-1]] = values[random.integers(len(values))]
    return f"memory_plan {place} changed"


def set_scaling(random: Random, draft: Draft) -> str:
    """Write other columns, shifts and scales of the points."""
    points = draft.form["points"]
    side = points["xy"[random.integers(2)]]
    pick = int(random.integers(5))
    key = ("shift", "scale")[random.integers(2)]
    if pick == 0:
        for name in ("shift", "scale"):
            side[name] = [1.0] * int(random.integers(0, 40))
        return f"{len(side['scale'])} columns"
    if pick == 1:
        for name in ("shift", "scale"):
            side[name] = [*side[name], 1.0]
        return "one column more"
    odd = (0, -1.0, 1e-320, 1e308, 1e-45, draft.raw("NaN"), draft.raw("1e400"), "1", None, [1.0])
    value = odd[random.integers(len(odd))]
    side[key] = [value for _ in side[key]] or [value]
    return f"{key} is {value!r}"


def set_features(random: Random, draft: Draft) -> str:
    """Write other features of a series."""
    features = draft.form["task"].setdefault(
        "features", {"clock": "number", "step": 1.0, "lags": 1}
    )
    draft.form["task"]["name"] = "series"
    names = ("clock", "step", "season", "lags", "season_lags", "harmonics", "level", "limit", "x")
    for _ in range(int(random.integers(1, 3))):
        name = names[random.integers(len(names))]
        values: tuple[Any, ...] = (
            *(0, 1, 2, 2.5, 1e-9, 1e9, 10**9, 10**12, 1e308, 1e-308, -1, "date", "number", None),
            *(True, draft.raw("NaN"), draft.raw("Infinity"), [], {}, "1", 7.0, 86400.0, 2**63),
        )
        features[name] = values[random.integers(len(values))]
    return f"features are {features}"


def change_top(random: Random, draft: Draft) -> str:
    """Change the whole text: another kind of JSON, no seal, junk, a size."""
    pick = int(random.integers(7))
    if pick == 0:
        draft.sealed = False
        return "no seal"
    if pick == 1:
        draft.form["schema"] = (0, 1, 3, -1, 2.0, True, "2", None, [2], 10**400)[
            random.integers(10)
        ]
        return f"schema is of another kind or number: {str(draft.form['schema'])[:9]}"
    if pick == 2:
        draft.form["padding"] = "x" * int(10 ** random.integers(3, 8))
        return f"a manifest of {len(draft.form['padding'])} bytes"
    if pick == 3:
        depth = int(random.integers(300, 1500))
        draft.form["padding"] = draft.raw("[" * depth + "]" * depth)
        return f"{depth} nested lists"
    if pick == 4:
        depth = int(random.integers(300, 1500))
        draft.form["model"]["x"] = draft.raw('{"a":' * depth + "1" + "}" * depth)
        return f"{depth} nested objects"
    if pick == 5:
        key = sorted(draft.form)[random.integers(len(draft.form))]
        draft.form[key] = odd_value(random, draft)
        return f"{key} is {_shown(draft.form[key])}"
    draft.form["extra"] = {"a": odd_value(random, draft), "": odd_value(random, draft)}
    return "a section more"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 80 else f"{text[:60]}... ({len(text)} characters)"


CHANGES: tuple[tuple[float, Callable[[Random, Draft], str]], ...] = (
    (0.52, change_field),
    (0.10, exchange_shapes),
    (0.06, swap_graphs),
    (0.06, add_state),
    (0.06, set_plan),
    (0.07, set_scaling),
    (0.07, set_features),
    (0.06, change_top),
)
"""Shares of the cases, and what changes the manifest."""
