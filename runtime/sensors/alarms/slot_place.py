"""Say where a row stands in its sensor's season and in the day, as the alarms need it."""

from __future__ import annotations

from typing import NamedTuple


class SlotPlace(NamedTuple):
    """Holds the position of a row's slot; a slot is one place in the even sequence of times.

    Attributes:
        season: The season's length in slots; 0 if none is known.
        cycle: The length in slots of what recurs: a day if times are dates and a day has at least
            4 slots, else the season; 0 if neither is known.
        slot: The number of the slot, counted so that `slot % cycle` is its phase in the cycle.
    """

    season: int = 0
    cycle: int = 0
    slot: int = 0


NOWHERE = SlotPlace()
