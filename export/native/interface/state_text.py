"""Write the C of the state: its first values, the places of rows in rings, a snapshot's list.

A ring is a state tensor that holds the last rows of a stream.
"""

from __future__ import annotations

import math
import textwrap
from typing import Any

import numpy as np

from edgefold.export.native.interface.stream_struct import StreamStruct
from edgefold.export.native.program.c_words import C_TYPES
from edgefold.export.native.program.constants import number_text
from edgefold.export.native.sensors.sensor_bundle import is_of_sensors
from edgefold.runtime.arrays import Array
from edgefold.runtime.bundle.manifest import SEED, StateTensor, WeightPlace
from edgefold.runtime.stream.state_buffers import initial_value

ALIGNMENT = 64


def state_words(struct: StreamStruct) -> dict[str, Any]:
    """Return the C texts of the state, by the word that each replaces in a template of C."""
    m = struct.manifest
    constants, initial = _initial(struct)
    return {
        "state_constants": constants,
        "initial": initial,
        "rows": "\n".join(_written_row(struct, t) for t in m.state if t.ring is not None),
        "n_state": len(m.state),
        "all_sides": f"{struct.all_sides}u",
        **_listed(struct),
    }


def ring_places(struct: StreamStruct) -> dict[str, tuple[int, int]]:
    """Return the first byte, and the byte after the last, of each ring in the arena, by its name.

    The arena is work memory, where the loading of a snapshot keeps rings until all is checked. A
    sensor forgets everything before a load, so its rings are loaded where they are.
    """
    places: dict[str, tuple[int, int]] = {}
    end, waits = 0, not is_of_sensors(struct.manifest)
    for tensor in struct.manifest.state:
        if tensor.ring is not None and waits:
            start = -ALIGNMENT * (-end // ALIGNMENT)
            end = start + struct.state[tensor.name].n_bytes
            places[tensor.name] = start, end
    return places


def array_text(name: str, dtype: str, values: Array) -> str:
    """Return the C text of a constant array."""
    numbers = ", ".join(number_text(value, dtype) for value in values.reshape(-1))
    text = f"static const {C_TYPES[dtype]} {name}[{values.size}] = {{{numbers}}};"
    return textwrap.fill(text, 100, subsequent_indent="    ") + "\n"


def _initial(struct: StreamStruct) -> tuple[str, str]:
    """Return C arrays of the state's first values, and C statements that write these to the struct.

    Values that are 0 need neither, because the struct is filled with 0 before.
    """
    arrays: dict[WeightPlace, str] = {}
    texts, lines = [], []
    for tensor in struct.manifest.state:
        member, value = struct.state[tensor.name], initial_value(struct.manifest, tensor)
        place = f"stream->{member.name}" + "[0]" * (member.sides > 1)
        dtype = tensor.dtype
        if dtype == "float16":  # its bits, as C holds them
            dtype, value = "uint16", value.view(np.uint16)
        if isinstance(tensor.initial, WeightPlace):
            if tensor.initial not in arrays:
                arrays[tensor.initial] = name = f"initial_{member.name.removeprefix('state_')}"
                texts.append(array_text(name, dtype, value))
            name = arrays[tensor.initial]
            lines.append(f"    memcpy({place}, {name}, sizeof {name});")
        elif value.any():
            number = number_text(value.item(), dtype)
            turns = f"for (size_t i = 0; i < {member.size}; i++)"
            lines.append(f"    {turns} {place}[i] = {number};")
        if tensor.name == SEED and struct.manifest.takes_seed:
            lines.append(f"    if (seeds) memcpy({place}, seeds, {member.size} * sizeof *seeds);")
    return "\n".join(texts), "\n".join(lines)


def _written_row(struct: StreamStruct, ring: StateTensor) -> str:
    """Return the C statement that writes a ring's new row to its place among the last rows."""
    m, axis = struct.manifest, ring.ring
    assert axis is not None
    length, n_blocks = ring.shape[axis], math.prod(ring.shape[:axis])
    n_bytes = math.prod(ring.shape[axis + 1 :]) * np.dtype(ring.dtype).itemsize
    what = f"stream->{struct.state[ring.name].name}, stream->{struct.rows[ring.name].name}"
    if ring.slot is None:
        slot = f"(size_t)((at.n_points - 1) % {length})"
        return f"    write_row({what}, 0, {n_blocks}, {length}, {n_bytes},\n              {slot});"
    slots = f"stream->{struct.slots_of(ring).name}"
    each = n_blocks // m.n_streams
    return (
        f"    for (size_t i = 0; i < {m.n_streams}; i++) {{\n"
        f"        write_row({what}, i * {each}, {each},\n"
        f"                  {length}, {n_bytes}, (size_t){slots}[i]);\n    }}"
    )


def _listed(struct: StreamStruct) -> dict[str, str]:
    """Return C statements for snapshots, by the word that each replaces in a template of C.

    They list the state's tensors (`list`), check that these are finite (`judged`), and copy loaded
    rings from the arena to the struct (`take_rings`).
    """
    m, places = struct.manifest, ring_places(struct)
    listed, judged, taken = [], [], []
    for i, tensor in enumerate(sorted(m.state, key=lambda t: t.name)):
        member, numpy_type = struct.state[tensor.name], np.dtype(tensor.dtype)
        n_bytes = member.size * numpy_type.itemsize
        if tensor.name in places:
            at = f"shared.arena + {places[tensor.name][0]}"
            data = f"is_load ? (void *)({at}) : stream->{member.name}"
            taken.append(f"    memcpy(stream->{member.name}, {at}, {n_bytes});")
        elif tensor.ring is not None:
            data = f"stream->{member.name}"
        else:
            data = f"stream->{member.name}[sides >> {struct.group_of[tensor.name]} & 1u]"
        form = f'{c_string(tensor.name)}, "{numpy_type.str}", "{tensor.shape}"'
        listed.append(f"    state[{i}] = (struct edgefold_array){{{form},")
        listed.append(f"        {data}, {n_bytes}, 0}};")
        finite = np.isfinite(initial_value(m, tensor)).all()
        if numpy_type.kind == "f" and finite:
            judged.append(f"snapshot_is_finite(state + {i})")
    text = "\n".join(listed)
    idle = [f"    (void){word};" for word in ("sides", "is_load") if f"{word} " not in text]
    return {
        "unused_list": "\n".join(idle),
        "list": text,
        "judged": " &&\n           ".join(judged) or "state != NULL",
        "take_rings": "\n".join(taken),
    }


def c_string(text: str) -> str:
    """Return a text as a C string literal, in UTF-8."""
    plain = (chr(b) if 32 <= b < 127 and b not in b'"\\?' else f"\\{b:03o}" for b in text.encode())
    return '"' + "".join(plain) + '"'
