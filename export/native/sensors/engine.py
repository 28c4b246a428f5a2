"""Write the sensors' engine as C: the rules made of Python, and the functions around them.

A bundle of the general model forecasts slots; the engine gives it the rows (time, value) of a
sensor, as `edgefold.runtime.sensors` does. Its rules are typed Python, of which
`edgefold.export.typed_python` makes C; what joins them to the model is the template
`c/sensor_engine.c`. A library for Python's runtime also has the functions of `c/sensor_library.c`;
wheels, whose libraries have no C library, leave all of them out with EDGEFOLD_WITHOUT_SENSORS.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

import numpy as np

from edgefold.export.native.c_pieces import needed
from edgefold.export.native.interface.snapshot_size import array_bytes
from edgefold.export.native.interface.state_text import array_text
from edgefold.export.native.interface.stream_struct import StreamStruct
from edgefold.export.native.interface.template import filled
from edgefold.export.native.sensors.sensor_bundle import is_of_sensors
from edgefold.export.typed_python.kinds import struct_bytes, struct_name
from edgefold.export.typed_python.program import C_FILES, RulesProgram, kept_size
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.predictions.sensor_forecast import (
    NO_SEASON,
    SensorForecast,
    place_of_level,
)
from edgefold.runtime.sensors.alarms.alarms import Watch
from edgefold.runtime.sensors.alarms.lasting import Lasting
from edgefold.runtime.sensors.alarms.recurring import Recurring
from edgefold.runtime.sensors.alarms.resting_values import Habits
from edgefold.runtime.sensors.alarms.run_lengths import Runs
from edgefold.runtime.sensors.alarms.tail_probability import Tail
from edgefold.runtime.sensors.alarms.verdict import Event
from edgefold.runtime.sensors.clock import season_arrays
from edgefold.runtime.sensors.clock.row_slots import RowSlots
from edgefold.runtime.sensors.clock.season_search import TURNS, SeasonSearch
from edgefold.runtime.sensors.clock.seasons import LEAST_VALUES, Seasons
from edgefold.runtime.sensors.clock.slot_clock import Refusal, SlotClock
from edgefold.runtime.sensors.joined_path import AheadCounts, JoinedPath
from edgefold.runtime.sensors.score_counts import ScoreCounts
from edgefold.runtime.sensors.sensor_scores import SensorScores, has_forecast

ENTRIES = (
    (SensorScores.begin, SensorScores),
    (SensorScores.score, SensorScores),
    (has_forecast, None),
    (RowSlots.begin, RowSlots),
    (RowSlots.accept, RowSlots),
    (RowSlots.phase_of, RowSlots),
    (RowSlots.learn, RowSlots),
    (Seasons.write, Seasons),
    (SlotClock.shown_pace, SlotClock),
    (AheadCounts.see, AheadCounts),
    (AheadCounts.is_known, AheadCounts),
    (JoinedPath.join, JoinedPath),
    (JoinedPath.forecast_at, JoinedPath),
)
"""The functions of the rules that the template calls."""

KEPT = (
    ("clock", "sensor->slots.clock", (SlotClock,)),
    ("tally", "sensor->scores.counts", (ScoreCounts,)),
    ("watch_tails", "watch->", (Tail,) * 3),
    ("watch_habits", "watch->habits", (Habits,)),
    ("watch_gaps", "watch->gaps", (Runs,)),
    ("watch_lasting", "watch->lasting", (Lasting,)),
    ("watch_recurring", "watch->recurring", (Recurring,)),
    ("watch_watch", "watch", (Watch,)),
)
"""Lists arrays of a snapshot with the rules whose numbers they keep, and their places in C."""
TAILS = ("error", "surprise", "side")


def scratch_words(longest: int) -> dict[str, int]:
    """Return how many numbers each array of a search for seasons up to a length has, by its word.

    `edgefold.runtime.sensors.clock.season_search` describes the arrays.
    """
    n_ring = max(math.ceil(TURNS * longest) + 1, LEAST_VALUES)
    n_lags = int(n_ring / TURNS) + 1
    return {
        "n_ring": n_ring,
        "n_lags": n_lags,
        "n_waves": 1 << (n_ring + 2 * n_lags).bit_length(),
    }


def engine_bytes(manifest: Manifest) -> tuple[int, int]:
    """Return the bytes that the engine adds to a stream on a microcontroller, and of a search.

    A search works in the block in which steps compute. Both are 0 for other bundles.
    """
    kind = manifest.prediction
    if not is_of_sensors(manifest):
        return 0, 0
    assert isinstance(kind, SensorForecast)
    words = scratch_words(kind.longest_season)
    rules = sum(map(struct_bytes, (RowSlots, SensorScores, AheadCounts)))
    ahead = (len(kind.horizons) + 1) * (1 + len(kind.levels))
    search = 4 * (words["n_waves"] + 2 * words["n_lags"]) + 2 * words["n_ring"]
    engine = rules + 4 * (words["n_ring"] + ahead)
    return -(-engine // 8) * 8, -(-search // 4) * 4  # structs of doubles, and of floats


class EngineText(NamedTuple):
    """Holds the engine's parts of the C of a bundle; all are empty for other bundles.

    Attributes:
        header: Its part of the header.
        source: Its part of the source.
        scratch: Members of the block in which steps compute, of which a search for seasons, a path
            and a snapshot take parts.
    """

    header: str = ""
    source: str = ""
    scratch: str = ""


def engine_of(struct: StreamStruct, words: Mapping[str, Any]) -> EngineText:
    """Return the engine's parts of the C of a bundle.

    Args:
        struct: The struct of the model's stream.
        words: The words of the templates around the model.
    """
    kind = struct.manifest.prediction
    if not is_of_sensors(struct.manifest):
        return EngineText()
    assert isinstance(kind, SensorForecast)
    refusals = [word for word in get_args(Refusal) if word]
    program = RulesProgram(
        [*get_args(Event), *refusals],
        written=[season_arrays, Seasons.show, SeasonSearch.release],
    )
    rules = program.text(ENTRIES, {of: None for _, _, each in KEPT for of in each})
    places = {
        word: place_of_level(kind.levels, level)
        for word, level in (("at_low", 0.05), ("at_middle", 0.5), ("at_high", 0.95))
    }
    group = struct.group_of["further_shape"]
    values = next(tensor for tensor in struct.manifest.state if tensor.name == "values")
    listed = ", ".join(f'"{word}"' for word in program.words)
    engine, search = engine_bytes(struct.manifest)
    arrays = filled("season_arrays.c", _wave_words(scratch_words(kind.longest_season)["n_waves"]))
    all_words = {
        **words,
        **scratch_words(kind.longest_season),
        **places,
        "longest": kind.longest_season,
        "sensor_bytes": struct.n_bytes + engine,
        "shared_bytes": max(words["load_bytes"], search),
        "n_horizons": len(kind.horizons),
        "horizons": ", ".join(map(str, kind.horizons)),
        "no_season": NO_SEASON,
        "n_levels": len(kind.levels),
        "levels": ", ".join(f"{100 * level:g} %" for level in kind.levels),
        "words": rules.words,
        "names": listed,
        "structs": rules.structs,
        "functions": rules.functions,
        "keeping": rules.keeping,
        "scalars": needed([path.read_text() for path in C_FILES], f"{arrays}\n{rules.functions}"),
        "season_arrays": arrays,
        "usual": "model->prediction_usual[0]" if kind.tells_usual else "NAN",
        "group": group,
        "n_values": values.shape[1],
        **_kept_words(kind),
        "refusals": "\n".join(f" *     {program.word(word):<30} {word}" for word in refusals),
    }
    return EngineText(
        filled("sensor_engine.h", all_words),
        "#ifndef EDGEFOLD_WITHOUT_SENSORS\n"
        f"{filled('sensor_engine.c', all_words)}{filled('sensor_library.c', all_words)}#endif\n",
        f"    struct {struct.c_name}_search search;\n"
        "    struct edgefold_joined_path path;\n"
        f"    struct {struct.c_name}_kept kept;",
    )


def _wave_words(n_waves: int) -> dict[str, object]:
    """Return a quarter of a wave as C, by its words, for Fourier transforms of n_waves numbers."""
    n = n_waves // 4
    wave = np.sin(np.pi / 2 * np.arange(n + 1) / n).astype(np.float32)
    return {"n_quarter": n, "quarter_wave": array_text("edgefold_quarter_wave", "float32", wave)}


def _kept_words(kind: SensorForecast) -> dict[str, Any]:
    """Return the C of what a snapshot keeps beside the model's state, by its words."""
    n_ahead, n_levels = len(kind.horizons) + 1, len(kind.levels)
    shapes: dict[str, tuple[int, ...]] = {name: (sum(map(kept_size, of)),) for name, _, of in KEPT}
    shapes |= {
        "watch_tails": (len(TAILS), kept_size(Tail)),
        "season": (8,),
        "told_pace": (1,),
        "ahead_means": (n_ahead,),
        "ahead_quantiles": (n_ahead, n_levels),
        "ahead_numbers": (3,),
    }
    types = {name: ("int64_t", "<i8") if name == "ahead_numbers" else ("double", "<f8")
             for name in shapes}  # fmt: skip
    write, read = [], []
    for name, place, of in KEPT:
        places = [f"{place}{tail}" for tail in TAILS] if len(of) > 1 else [place]
        for at, one in enumerate(places):
            pointer = one if one == "watch" else f"&{one}"
            numbers = f"kept->{name}" + (f" + {at * kept_size(of[0])}" if at else "")
            write.append(f"    {struct_name(of[0])}_numbers({pointer}, {numbers});")
            read.append(f"    {struct_name(of[0])}_take({pointer}, {numbers});")
    ring = ("season_values", "<f4", f"({scratch_words(kind.longest_season)['n_ring']},)")
    n_bytes = 4 * scratch_words(kind.longest_season)["n_ring"]
    return {
        "kept_struct": "\n".join(
            f"    {types[name][0]} {name}[{math.prod(shape)}];" for name, shape in shapes.items()
        ),
        "kept_arrays": "\n".join(
            f'        {{"{name}", "{types[name][1]}", "{shape}", kept->{name}, '
            f"sizeof kept->{name}, 0}},"
            for name, shape in shapes.items()
        ),
        "n_kept_arrays": len(shapes) + 1,
        "kept_bytes": array_bytes(f"extra.{ring[0]}", *ring[1:], n_bytes)
        + sum(
            array_bytes(f"extra.{name}", types[name][1], str(shape), 8 * math.prod(shape))
            for name, shape in shapes.items()
        ),
        "write_kept": "\n".join(write),
        "read_kept": "\n".join(read),
    }
