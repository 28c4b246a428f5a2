"""Check a manifest before anything of its bundle is opened or allocated.

Anybody can write a manifest with a right checksum. So everything that the runtime relies on later
is checked here, from the manifest only: names, roles, shapes, and whether the memory plan (the
predicted bytes) is large enough for the shapes. The time and memory of a running graph cannot be
checked: a loop in the graph may run for ever, and a shape that it computes may be huge. The plan's
bytes for activations are believed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import PurePath
from typing import Any

import numpy as np

from edgefold.runtime.bundle.manifest import (
    DTYPES,
    FILE_NAME,
    PLANNED,
    STEPS,
    WHEN_FULL,
    Graph,
    Manifest,
    StateTensor,
    Tensor,
    WeightPlace,
)

MOST_GRAPHS = 64
MOST_TENSORS = 4096  # of the state, and of one side of a graph
MOST_AXES = 16
MOST_RESUMED = 64  # earlier bundles whose snapshots a bundle resumes
MOST_GROUPS = 6
"""A graph may read and write at most this many groups of state tensors; our bundles have up to 2.

Each group has two buffers that are swapped, and a step is bound to each of 2**groups combinations.
"""
NAME_LENGTH = 255  # bytes of a file's name

POINTS = ("points.x", "points.y")
MASKS = ("points.mask", "targets.mask")
SINGLE = (*POINTS, *MASKS, "targets.x", "finite")
"""Lists the roles that at most one tensor of a graph may have."""
TAKES: dict[str, tuple[str, ...]] = {
    "update": (*POINTS, "state"),
    "condition": (*POINTS, "points.mask", "state"),
    "consolidate": ("state",),
    "merge": ("state", "other"),
    "refresh": ("state",),
    "query": ("targets.x", "targets.mask", "state", "cache"),
    "step": ("points.x", "state"),
}
"""Lists for each step the roles that its inputs may have."""
GIVES: dict[str, tuple[str, ...]] = {
    "update": ("state", "row", "slot", "finite"),
    "condition": ("state", "row", "slot", "finite"),
    "consolidate": ("state", "finite"),
    "merge": ("state", "finite"),
    "refresh": ("cache", "finite"),
    "query": ("prediction", "finite"),
    "step": ("state", "row", "slot", "prediction", "finite"),
}
"""Lists for each step the roles that its outputs may have."""


def require_sound(m: Manifest) -> None:
    """Check everything in a manifest that the runtime relies on.

    Raises:
        ValueError, TypeError, KeyError: An entry is missing, or not as this version writes it.
    """
    for name in ("model", "task", "memory_plan", "precision", "versions", "weights", "golden"):
        _require(isinstance(getattr(m, name), dict), f"{name} is not an object")
    _require(is_count(m.n_streams, 1), f"n_streams is {m.n_streams!r}")
    _require(is_count(m.consolidate_every, 0), f"consolidate_every is {m.consolidate_every!r}")
    _require(is_count(m.capacity, 0), f"capacity is {m.capacity!r}")
    _require(m.when_full in WHEN_FULL, f"when_full is {m.when_full!r}")
    _require(isinstance(m.precision["name"], str), f"precision is {m.precision['name']!r}")
    _require_files(m)
    for name, scaling in (("x", m.scaling_x), ("y", m.scaling_y)):
        shift, scale = scaling.shift, scaling.scale
        _require(len(shift) == len(scale), f"points.{name} has no shift for each scale")
        _require(all(map(math.isfinite, shift + scale)), f"points.{name} is not finite")
        _require(min(scale, default=1) > 0, f"points.{name}.scale is not positive")
    for tensors in (m.state, m.cache, m.prediction_tensors):
        _require(len(tensors) <= MOST_TENSORS, f"it lists {len(tensors)} tensors at once")
        _require_unique(tensor.name for tensor in tensors)
    for tensor in (*m.state, *m.cache):
        _require_state_tensor(tensor, m.weights["n_bytes"])
    _require(all(tensor.ring is None for tensor in m.cache), "the cache has a ring")
    for part in m.prediction_tensors:
        _require_array(part.name, part.shape, part.dtype)
    expected = m.prediction.tensors(m.n_outputs)
    _require(m.prediction_tensors == expected, f"the prediction's tensors are not {expected}")
    _require_steps(m)
    groups, places = writers(m), _places(m)
    for graph in m.graphs.values():
        _require_graph(m, graph, groups, places)
    _require_plan(m)
    _require_task(m)


def is_count(value: Any, least: int) -> bool:
    """Return whether a value is an int, at least `least` and below 2**62."""
    return type(value) is int and least <= value < 1 << 62


def tensor_bytes(tensors: Iterable[StateTensor | Tensor]) -> int:
    """Return how many bytes the tensors take together, with one buffer each."""
    return sum(math.prod(t.shape) * np.dtype(t.dtype).itemsize for t in tensors)


def _require(sound: bool, what: str) -> None:
    if not sound:
        raise ValueError(what)


def _require_name(name: Any) -> None:
    sound = isinstance(name, str) and name.isprintable() and 0 < len(name.encode()) <= NAME_LENGTH
    _require(sound, f"{name!r} is not a name")


def _require_unique(names: Iterable[str]) -> None:
    for name, n in Counter(names).items():
        _require_name(name)
        _require(n == 1, f"{name!r} is listed {n} times")


def _require_files(m: Manifest) -> None:
    graphs = m.graphs.values()
    files = [*(graph.file for graph in graphs), m.weights["file"], m.golden["file"]]
    _require_unique([FILE_NAME, *files])
    for file in (*files, *m.graphs):  # an engine's file is named after its graph
        _require_name(file)
        plain = PurePath(file).name == file and file not in (".", "..")
        _require(plain, f"{file!r} is not a plain file name")
    _require(len(m.resumes) <= MOST_RESUMED, f"it resumes {len(m.resumes)} bundles")
    digests = [*(graph.sha256 for graph in graphs), m.weights["sha256"], m.golden["sha256"]]
    for digest in (*digests, *m.resumes):
        sound = isinstance(digest, str) and re.fullmatch("[0-9a-f]{64}", digest)
        _require(bool(sound), f"{digest!r} is not a SHA-256")
    for entry in (m.weights, m.golden):
        _require(is_count(entry["n_bytes"], 0), f"{entry['file']} has {entry['n_bytes']!r} bytes")


def _require_array(name: Any, shape: tuple[int, ...], dtype: Any) -> None:
    _require_name(name)
    sound = len(shape) <= MOST_AXES and all(is_count(length, 1) for length in shape)
    sound = sound and isinstance(dtype, str) and dtype in DTYPES
    # numpy counts bytes in 64 bits; a stream has 8 of them for each number at most.
    if not sound or math.prod(shape) >= 1 << 59:
        raise ValueError(f"{name} has shape {list(shape)[:MOST_AXES]} and type {dtype!r}")


def _require_state_tensor(tensor: StateTensor, n_stored: int) -> None:
    _require_array(tensor.name, tensor.shape, tensor.dtype)
    name, initial, dtype = tensor.name, tensor.initial, np.dtype(tensor.dtype)
    if isinstance(initial, WeightPlace):
        place = (initial.offset, initial.n_bytes)
        stored = all(is_count(number, 0) for number in place) and sum(place) <= n_stored
        _require(stored, f"{name} starts from {place}, beyond the weight file")
        _require(initial.n_bytes == tensor_bytes([tensor]), f"{name} starts from {place}")
    elif initial is not None:
        sound = type(initial) in (int, float) and math.isfinite(initial)
        if sound and dtype.kind == "f":
            sound = abs(initial) <= float(np.finfo(dtype).max)
        elif sound:
            low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
            sound = initial == int(initial) and low <= initial <= high
        _require(sound, f"{name} starts at {initial!r}")
    if tensor.ring is not None:
        ring = is_count(tensor.ring, 1) and tensor.ring < len(tensor.shape)
        _require(ring, f"{name} is a ring along axis {tensor.ring!r}")
    if tensor.slot is not None:
        _require_name(tensor.slot)
        _require(tensor.ring is not None, f"{name} has a slot and is not a ring")


def _require_steps(m: Manifest) -> None:
    """Raise ValueError if the graphs' steps are not those of a learning or a filtering model.

    A learning model has `update` and `query`, a filtering model has `step`.
    """
    graphs = list(m.graphs.values())
    _require(len(graphs) <= MOST_GRAPHS, f"it has {len(graphs)} graphs")
    counts = Counter(graph.step for graph in graphs)
    _require(counts.keys() <= set(STEPS), f"the graphs are {dict(counts)}")
    several = [step for step, n in counts.items() if n > 1 and step != "query"]
    _require(not several, f"it has several graphs of {several}")
    learns = {"update", "query"} <= counts.keys() <= set(STEPS) - {"step"}
    filters = "step" in counts and counts.keys() <= {"step", "consolidate"}
    _require(learns or filters, f"the graphs are only {dict(counts)}")
    every = not m.consolidate_every or "consolidate" in counts
    _require(every, f"nothing consolidates every {m.consolidate_every} points")
    for role, of in (("points.x", m.learns_from), ("points.y", m.learns_from)):
        _require_agreement(role, of)
    _require_agreement("targets.x", m.of_step("query"))
    made = {t.of for graph in m.of_step("refresh") for t in graph.outputs}
    for graph in m.of_step("query"):
        for tensor in graph.inputs:
            refreshed = tensor.role != "cache" or tensor.of in made
            _require(refreshed, f"graph {graph.name} reads {tensor.of}, which no refresh writes")


def _require_agreement(role: str, graphs: Collection[Graph]) -> None:
    n = sum(bool(graph.with_role(role)) for graph in graphs)
    _require(n in (0, len(graphs)), f"{role} goes to some of the graphs that share its rows")


Places = Mapping[str, Mapping[str, tuple[tuple[int, ...], str]]]


def _require_graph(
    m: Manifest, graph: Graph, groups: Mapping[str, frozenset[str]], places: Places
) -> None:
    """Raise ValueError if a graph's width, roles or shapes are not as its step needs them.

    Args:
        m: The manifest.
        graph: One of its graphs.
        groups: For each state tensor, by name, the names of the graphs that write it.
        places: The (shape, dtype) that a tensor must have, by its role and `Tensor.of`.
    """
    step = graph.step
    least, most = (0, 0) if step in ("consolidate", "merge", "refresh") else (1, 1)
    wide = is_count(graph.width, least) and (graph.width <= most or step in ("condition", "query"))
    _require(wide, f"graph {graph.name} is {graph.width!r} wide")
    _require(isinstance(graph.precision, str), f"graph {graph.name} has no precision")
    _require_unique(tensor.name for tensor in (*graph.inputs, *graph.outputs))
    for tensors, roles in ((graph.inputs, TAKES[step]), (graph.outputs, GIVES[step])):
        listed = Counter((t.role, "" if t.role in SINGLE else t.of) for t in tensors)
        _require(len(tensors) <= MOST_TENSORS, f"graph {graph.name} has {len(tensors)} tensors")
        for (role, of), n in listed.items():
            _require(role in roles, f"graph {graph.name} cannot have {role} there")
            _require(n == 1, f"graph {graph.name} has {n} tensors of {role} {of}")
        for tensor in tensors:
            _require_array(tensor.name, tensor.shape, tensor.dtype)
            _require_place(m, graph, tensor, places)
            ring = roles is GIVES[step] and tensor.role == "state" and tensor.of in places["row"]
            _require(not ring, f"graph {graph.name} writes the whole ring {tensor.of}")
    rows = _outputs_of(graph, "row")
    slots = {slot for t in m.state if (slot := t.slot) and t.name in rows}
    same = _outputs_of(graph, "slot") == slots
    _require(same, f"graph {graph.name} does not give slots for its rows")
    outputs = _outputs_of(graph, "prediction")
    names = {t.name for t in m.prediction_tensors} if "prediction" in GIVES[step] else set()
    text = f"graph {graph.name} predicts {sorted(outputs)}, not {sorted(names)}"
    _require(outputs == names, text)
    joins = step != "merge" or graph.with_role("other")
    _require(bool(joins), f"graph {graph.name} joins no other state")
    masked = step != "condition" or graph.with_role("points.mask")
    _require(bool(masked), f"graph {graph.name} takes no mask")
    masked = graph.with_role("targets.mask")
    _require(not masked or m.prediction.joint, f"graph {graph.name} takes a mask of targets")
    own = {groups[t.of] for t in (*graph.inputs, *graph.outputs) if t.role in ("state", "row")}
    _require(len(own) <= MOST_GROUPS, f"graph {graph.name} meets {len(own)} groups of state")


def _outputs_of(graph: Graph, role: str) -> set[str]:
    """Return the names of the tensors that a graph writes in a role, one of `ROLES`."""
    return {tensor.of for tensor in graph.outputs if tensor.role == role}


def _places(m: Manifest) -> Places:
    """Return the (shape, dtype) that a graph's tensor must have, by its role and `Tensor.of`."""
    return {
        "state": {t.name: (t.shape, t.dtype) for t in m.state},
        "other": {t.name: (t.shape, t.dtype) for t in m.state},
        "row": {t.name: (row_shape(t), t.dtype) for t in m.state if t.ring is not None},
        "slot": {t.slot: ((m.n_streams,), "int64") for t in m.state if t.slot is not None},
        "cache": {t.name: (t.shape, t.dtype) for t in m.cache},
        "prediction": {t.name: (t.shape, t.dtype) for t in m.prediction_tensors},
    }


def row_shape(ring: StateTensor) -> tuple[int, ...]:
    """Return the shape of one row of a ring, which holds rows along the axis `ring.ring`.

    It is the ring's shape with the length 1 along this axis.
    """
    return tuple(1 if axis == ring.ring else length for axis, length in enumerate(ring.shape))


def writers(m: Manifest) -> dict[str, frozenset[str]]:
    """Return for each state tensor, by name, the names of the graphs that write it.

    Tensors that the same graphs write form a group: their buffers are swapped together.
    """
    graphs_of: dict[str, set[str]] = {tensor.name: set() for tensor in m.state}
    for graph in m.graphs.values():
        for tensor in graph.outputs:
            if tensor.role == "state":
                graphs_of.setdefault(tensor.of, set()).add(graph.name)
    return {name: frozenset(graphs) for name, graphs in graphs_of.items()}


def _require_place(m: Manifest, graph: Graph, tensor: Tensor, places: Places) -> None:
    """Raise ValueError if a tensor of a graph has another shape or dtype than its role needs.

    For the caller's points and for predictions only the number of elements is compared, because a
    graph may take the points of all streams along one axis.
    """
    what, role = f"{graph.name}: {tensor.name}", tensor.role
    rows = m.n_streams * graph.width
    if role in SINGLE:  # it stands for no tensor of the manifest
        _require(tensor.of in (tensor.name, role.rpartition(".")[2]), f"{what} is of {tensor.of!r}")
    if role in places:
        known = places[role]
        _require(tensor.of in known, f"{what} is of {tensor.of!r}")
    if role == "prediction":
        shape, dtype = places[role][tensor.of]
        same = math.prod(tensor.shape) == rows * math.prod(shape) and tensor.dtype == dtype
        _require(same, f"{what} has shape {list(tensor.shape)}")
    elif role in places:
        same = known[tensor.of] == (tensor.shape, tensor.dtype)
        _require(same, f"{what} has another shape than {tensor.of}")
    elif role in (*MASKS, "finite"):
        expected = (m.n_streams,) if role == "finite" else (m.n_streams, graph.width)
        _require(tensor.shape == expected, f"{what} has shape {list(tensor.shape)}")
    else:
        columns = m.n_outputs if role == "points.y" else m.n_inputs
        fits = math.prod(tensor.shape) == rows * columns
        sound = fits and np.dtype(tensor.dtype).kind == "f"
        _require(sound, f"{what} has shape {list(tensor.shape)} for {rows} rows of {columns}")


def _require_plan(m: Manifest) -> None:
    """Raise ValueError if the memory plan states fewer bytes than the tensors' shapes take."""
    plan, graphs = m.memory_plan, m.graphs.values()
    for name in PLANNED:
        _require(is_count(plan[name], 0), f"memory_plan.{name} is not a number of bytes")
    for graph in graphs:
        for part in ("weights", "activations"):
            figure = plan["graphs"][graph.name][f"{part}_bytes"]
            _require(is_count(figure, 0), f"memory_plan of {graph.name} is {figure!r}")
    io = (t for g in graphs for t in (*g.inputs, *g.outputs) if t.role not in ("state", "cache"))
    counted = {
        "state": sum(tensor_bytes([t]) * (2 if t.ring is None else 1) for t in m.state),
        "cache": tensor_bytes(m.cache),
        "io": tensor_bytes(io),
    }
    for part, n_bytes in counted.items():
        planned = plan[f"{part}_bytes"]
        text = f"memory_plan.{part}_bytes is {planned}, the shapes take {n_bytes}"
        _require(n_bytes <= planned, text)
    parts = sum(plan[name] for name in PLANNED if name != "total_bytes")
    _require(plan["total_bytes"] >= parts, "memory_plan.total_bytes is below the sum of its parts")


def _require_task(m: Manifest) -> None:
    """Raise ValueError if the task "series" has other numbers of columns than the graphs take.

    Later code allocates arrays by the task's numbers of columns of x and y. Other tasks pass.
    """
    features = m.task.get("features")
    if m.task.get("name") != "series" or not isinstance(features, dict):
        return
    from edgefold.runtime.series.spec import SeriesSpec  # other bundles do without it

    columns = SeriesSpec.from_json(features).n_inputs, 1
    expected = m.n_inputs, m.n_outputs
    _require(columns == expected, f"a series of {columns} columns, the graphs take {expected}")
