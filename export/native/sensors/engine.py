"""Write the sensors' engine as C: the rules made of Python, and the functions around them.

A bundle of the general model forecasts slots; the engine gives it the rows (time, value) of a
sensor, as `edgefold.runtime.sensors` does. Its rules are typed Python, of which
`edgefold.export.typed_python` makes C; what joins them to the model is the template
`c/sensor_engine.c`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, get_args

from edgefold.export.native.interface.stream_struct import StreamStruct
from edgefold.export.native.interface.template import filled, fixed
from edgefold.export.typed_python.program import C_FILES, RulesProgram
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.predictions.sensor_forecast import SENSOR_LEVELS, SensorForecast
from edgefold.runtime.sensors.alarms.verdict import Event
from edgefold.runtime.sensors.clock import season_arrays
from edgefold.runtime.sensors.clock.row_slots import Refusal, RowSlots
from edgefold.runtime.sensors.clock.season_search import TURNS, SeasonSearch
from edgefold.runtime.sensors.clock.seasons import LEAST_VALUES, Seasons
from edgefold.runtime.sensors.clock.slot_clock import SlotClock
from edgefold.runtime.sensors.joined_path import AheadCounts, JoinedPath
from edgefold.runtime.sensors.sensor_rules import SensorRules

ENTRIES = (
    (SensorRules.begin, SensorRules),
    (SensorRules.score, SensorRules),
    (RowSlots.accept, RowSlots),
    (RowSlots.phase_of, RowSlots),
    (Seasons.write, Seasons),
    (SlotClock.shown_pace, SlotClock),
    (AheadCounts.see, AheadCounts),
    (AheadCounts.is_known, AheadCounts),
    (JoinedPath.join, JoinedPath),
    (JoinedPath.forecast_at, JoinedPath),
)
"""The functions of the rules that the template calls."""

SCRATCH = """\
    edgefold_real search[EDGEFOLD_SEARCH_NUMBERS]; /* for a season */
    struct edgefold_joined_path path; /* of forecasts */"""
"""Further members of the block that steps share."""


def is_of_sensors(manifest: Manifest) -> bool:
    """Return whether a bundle is one of the general model of sensors, for one stream."""
    kind = manifest.prediction
    state = {tensor.name for tensor in manifest.state}
    return (
        isinstance(kind, SensorForecast)
        and kind.levels == SENSOR_LEVELS
        and manifest.is_filter
        and manifest.n_streams == 1
        and {"values", "further_shape", "limits_bounds", "limits_without"} <= state
    )


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


def scratch_numbers(longest: int) -> int:
    """Return how many numbers a search for seasons works with, in the block that steps share."""
    words = scratch_words(longest)
    return words["n_waves"] + words["n_ring"] + 2 * words["n_lags"]


def engine_of(struct: StreamStruct, words: Mapping[str, Any]) -> tuple[str, str]:
    """Return the engine's part of the header, and its part of the source.

    Args:
        struct: The struct of the model's stream.
        words: The words of the templates around the model.
    """
    kind = struct.manifest.prediction
    assert isinstance(kind, SensorForecast)
    refusals = [word for word in get_args(Refusal) if word]
    program = RulesProgram(
        [*get_args(Event), *refusals],
        written=[season_arrays, Seasons.show, SeasonSearch.release],
    )
    rules = program.text(ENTRIES)
    places = {
        word: min(range(len(kind.levels)), key=lambda at: abs(kind.levels[at] - level))
        for word, level in (("at_low", 0.05), ("at_middle", 0.5), ("at_high", 0.95))
    }
    group = struct.group_of["further_shape"]
    values = next(tensor for tensor in struct.manifest.state if tensor.name == "values")
    listed = ", ".join(f'"{word}"' for word in program.words)
    all_words = {
        **words,
        **scratch_words(kind.longest_season),
        **places,
        "longest": kind.longest_season,
        "scratch_numbers": scratch_numbers(kind.longest_season),
        "n_horizons": len(kind.horizons),
        "horizons": ", ".join(map(str, kind.horizons)),
        "n_levels": len(kind.levels),
        "levels": ", ".join(f"{100 * level:g} %" for level in kind.levels),
        "words": rules.words,
        "names": listed,
        "structs": rules.structs,
        "functions": rules.functions,
        "scalars": "\n".join(path.read_text() for path in C_FILES),
        "season_arrays": fixed("season_arrays.c"),
        "usual": "model->prediction_usual[0]" if kind.tells_usual else "NAN",
        "group": group,
        "n_values": values.shape[1],
        "refusals": "\n".join(f" *     {program.word(word):<30} {word}" for word in refusals),
    }
    return filled("sensor_engine.h", all_words), filled("sensor_engine.c", all_words)
