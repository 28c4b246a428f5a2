"""Pass what happens in the loop's thread on to the page's thread, in memory of a fixed size."""

from __future__ import annotations

from collections import deque
from typing import Any

MOST_EVENTS = 4096


class EventRing:
    """Holds the newest events that were not taken yet; an older one gives way to a new one.

    One thread appends and another one takes, without a lock: neither ever waits for the other.

    Args:
        most: The number of events that it holds at most.

    Attributes:
        n_dropped: Number of events that gave way before they were taken.
    """

    def __init__(self, most: int = MOST_EVENTS):
        self._events: deque[tuple[int, Any]] = deque(maxlen=most)
        self._n_appended = self._n_passed = 0
        self.n_dropped = 0

    def append(self, event: Any) -> None:
        """Add an event; only the loop's thread calls this."""
        self._n_appended = n = self._n_appended + 1
        self._events.append((n, event))

    def take(self) -> list[Any]:
        """Remove and return all events in their order; only the page's thread calls this."""
        taken = []
        for _ in range(self._events.maxlen or 0):  # a fast loop may append for ever
            try:
                number, event = self._events.popleft()
            except IndexError:
                break
            self.n_dropped += number - self._n_passed - 1
            self._n_passed = number
            taken.append(event)
        return taken
