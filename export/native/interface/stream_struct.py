"""Lay out `struct edgefold_NAME`: it keeps a stream's state, and the inputs and outputs of graphs.

Members are ordered by the size of their elements, so that there is no padding between them and the
size of the struct is known in advance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from edgefold.export.native.program.c_words import C_TYPES, c_identifier
from edgefold.runtime.backends.base import STAGED
from edgefold.runtime.bundle.manifest import Graph, Manifest, StateTensor, Tensor
from edgefold.runtime.bundle.manifest_rules import row_shape, writers
from edgefold.runtime.errors import ExportError

COMMIT_BYTES = 24
KINDS = {
    "predictions": "predictions",
    "commits": "which side of the state is current",
    "state": "state, both sides: a step reads one and writes the other",
    "rings": "rings: the last rows, on one side",
    "rows": "new rows of the rings, until they are written there",
    "cache": "cache: what queries read of the state",
    "staged": "inputs and outputs of steps",
}
"""Kinds of memory in the struct, in their order where elements have the same size."""
UNITS = {
    "affine": ", in units of y",
    "scale": ", in units of y",
    "log-density": ", logarithm of a density per unit of y",
    "none": "",
}
"""Text of the header for the unit of a prediction, by the prediction's `unscale`."""


@dataclass(frozen=True, slots=True)
class Member:
    """Describes an array in the struct.

    Attributes:
        name: C name of the array.
        dtype: numpy's name of the element type.
        size: Number of elements of each copy.
        note: Comment behind the array in the header.
        sides: Number of copies: 2 for state of which a step reads one copy and writes the other.
    """

    name: str
    dtype: str
    size: int
    note: str
    sides: int = 1

    @property
    def n_bytes(self) -> int:
        return self.sides * self.size * np.dtype(self.dtype).itemsize

    def text(self, place: int) -> str:
        """Return the C line that declares the array at byte `place` of the struct."""
        sides = f"[{self.sides}]" * (self.sides > 1)
        note = f"{place}: {self.n_bytes} bytes, {self.note}"
        return f"    {C_TYPES[self.dtype]} {self.name}{sides}[{self.size}]; /* {note} */"


@dataclass(frozen=True, slots=True)
class Region:
    """Describes members of one kind that follow each other in the struct.

    Attributes:
        kind: Key of `KINDS`.
        start: First byte in the struct.
        members: The arrays; none for the commits.
    """

    kind: str
    start: int
    members: tuple[Member, ...]

    @property
    def n_bytes(self) -> int:
        if self.kind == "commits":
            return 2 * COMMIT_BYTES
        return sum(member.n_bytes for member in self.members)

    @property
    def text(self) -> str:
        """Return the C lines that declare the members, below a comment on all of them."""
        lines = [f"    /* {KINDS[self.kind]}: {self.n_bytes} bytes at {self.start} */"]
        if self.kind == "commits":
            lines.append("    struct edgefold_commit commits[2];")
        place = self.start
        for member in self.members:
            lines.append(member.text(place))
            place += member.n_bytes
        return "\n".join(lines)


@dataclass(slots=True)
class StreamStruct:
    """Holds all members of the struct.

    State tensors that are not rings have two sides: a step reads one and writes the other. Tensors
    that the same steps write are a group. The struct records after each step, in the member
    `commits`, which side is current: one bit for each group.

    Attributes:
        manifest: The bundle's manifest.
        c_name: Name of the struct, "edgefold_NAME".
        predictions: Members for predictions in raw units, by tensor of the prediction.
        state, cache: Members by name of the tensor in the manifest.
        rows: Members for the new row of each ring, by name of the ring.
        staged: Members for inputs and outputs of graphs, by name of the graph and of its tensor.
        group_of: Number of each state tensor's group, which is the number of its bit.
    """

    manifest: Manifest
    c_name: str
    predictions: dict[str, Member] = field(default_factory=dict)
    state: dict[str, Member] = field(default_factory=dict)
    cache: dict[str, Member] = field(default_factory=dict)
    rows: dict[str, Member] = field(default_factory=dict)
    staged: dict[tuple[str, str], Member] = field(default_factory=dict)
    group_of: dict[str, int] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        m = self.manifest
        for predicted in m.prediction_tensors:
            shape = (m.n_streams, m.targets, *predicted.shape)
            member = self._member("prediction", predicted.name, "float64", shape)
            unit = UNITS[predicted.unscale]
            self.predictions[predicted.name] = replace(member, note=f"{member.note}{unit}")
        for state in m.state:
            sides = 2 if state.ring is None else 1
            self.state[state.name] = self._member(
                "state", state.name, state.dtype, state.shape, sides
            )
            if state.ring is not None:
                self.rows[state.name] = self._member(
                    "row", state.name, state.dtype, row_shape(state)
                )
        for state in m.cache:
            self.cache[state.name] = self._member("cache", state.name, state.dtype, state.shape)
        for graph in m.graphs.values():
            for tensor in (*graph.inputs, *graph.outputs):
                if tensor.role in STAGED and tensor.role != "other":  # that lies in another struct
                    member = self._member(graph.name, _short(tensor), tensor.dtype, tensor.shape)
                    self.staged[graph.name, tensor.name] = member
        numbers: dict[frozenset[str], int] = {}
        self.group_of = {n: numbers.setdefault(by, len(numbers)) for n, by in writers(m).items()}
        if len(numbers) > 32:
            raise ExportError(f"{m.path} writes its state in {len(numbers)} groups; C has 32.")

    def _member(
        self, lead: str, name: str, dtype: str, shape: tuple[int, ...], sides: int = 1
    ) -> Member:
        text = c_identifier(f"{lead}_{name}")
        while text in self._names:
            text += "_"
        self._names.add(text)
        return Member(text, dtype, math.prod(shape), f"{shape}", sides)

    @property
    def all_sides(self) -> int:
        """Return a number in which the bit of each group (tensors written together) is set."""
        return sum({1 << group for group in self.group_of.values()})

    @property
    def regions(self) -> list[Region]:
        """Return all members in their order in memory, as parts of one kind of memory.

        Predictions come first; then the largest elements, so that no part begins with a gap.
        """
        state = self.state.values()
        kinds = {
            "state": [member for member in state if member.sides > 1],
            "rings": [member for member in state if member.sides == 1],
            "rows": [*self.rows.values()],
            "cache": [*self.cache.values()],
            "staged": [*self.staged.values()],
        }
        parts: list[tuple[str, tuple[Member, ...]]] = [
            ("predictions", tuple(self.predictions.values())),
            ("commits", ()),
        ]
        for size in (8, 4, 2, 1):
            for kind, members in kinds.items():
                alike = tuple(m for m in members if np.dtype(m.dtype).itemsize == size)
                parts += [(kind, alike)] * bool(alike)
        regions, place = [], 0
        for kind, alike in parts:
            regions.append(Region(kind, place, alike))
            place += regions[-1].n_bytes
        return regions

    @property
    def text(self) -> str:
        """Return the C lines of all members of the struct; predictions come first."""
        current = "    uint8_t current; /* of the two commits */"
        return "\n".join([*(region.text for region in self.regions), current])

    @property
    def memory_text(self) -> str:
        """Return lines of a C comment: the bytes of each kind of memory, and where it lies."""
        lines = []
        for kind, title in KINDS.items():
            regions = [region for region in self.regions if region.kind == kind]
            if regions:
                n_bytes = sum(region.n_bytes for region in regions)
                places = " and ".join(f"{region.start}" for region in regions)
                lines.append(f" * {n_bytes:>9}  at {places}: {title}")
        return "\n".join(lines)

    @property
    def n_bytes(self) -> int:
        """Return the size of the struct in bytes."""
        last = self.regions[-1]
        return -8 * (-(last.start + last.n_bytes + 1) // 8)

    def arguments(self, graph: Graph) -> list[str]:
        """Return the C arguments of a graph's function.

        now_G and next_G are the numbers of the read and the written copy of tensors of group G;
        others_G is that of the current copy in `other`, the stream that the step `merge` joins.
        """
        texts = []
        for tensors, word in ((graph.inputs, "now"), (graph.outputs, "next")):
            for tensor in tensors:
                member, stream, copy = self._of(graph, tensor), "stream", word
                if tensor.role == "other":
                    stream, copy = "other", "others"
                side = f"[{copy}_{self.group_of[tensor.of]}]" if member.sides > 1 else ""
                texts.append(f"{stream}->{member.name}{side}")
        return [*texts, "shared.arena"]

    def _of(self, graph: Graph, tensor: Tensor) -> Member:
        kinds = {"state": self.state, "other": self.state, "row": self.rows, "cache": self.cache}
        if tensor.role in kinds:
            return kinds[tensor.role][tensor.of]
        return self.staged[graph.name, tensor.name]

    def only(self, graph: Graph, role: str) -> Member | None:
        """Return the member of a graph's only tensor with this role, or None if it has none."""
        members = [self.staged[graph.name, tensor.name] for tensor in graph.with_role(role)]
        return members[0] if members else None

    def given(self, graph: Graph) -> list[Member]:
        """Return the members that hold a graph's scaled predictions, in the manifest's order."""
        members = {t.of: self.staged[graph.name, t.name] for t in graph.with_role("prediction")}
        return [members[tensor.name] for tensor in self.manifest.prediction_tensors]

    def slots_of(self, ring: StateTensor) -> Member:
        """Return the array into which a step writes the index in `ring` of each stream's new row.

        A ring is a state tensor that holds the last rows.
        """
        graph = self.manifest.learns_from[0]
        names = (t.name for t in graph.with_role("slot") if t.of == ring.slot)
        return self.staged[graph.name, next(names)]

    def is_pair(self, name: str) -> bool:
        """Return whether a state tensor has two copies; a ring (of the last rows) has only one."""
        return self.state[name].sides > 1


def _short(tensor: Tensor) -> str:
    """Return a short name for a tensor that the caller of a graph writes or reads."""
    words = {"points.x": "x", "points.y": "y", "targets.x": "x", "finite": "finite"}
    words |= {"points.mask": "mask", "targets.mask": "mask"}
    return words.get(tensor.role, tensor.of)
