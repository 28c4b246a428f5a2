"""Events pass from the loop's thread to the page's thread, and the oldest ones give way."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from edgefold.cli.page.event_ring import EventRing


@given(st.integers(1, 9), st.lists(st.integers(0, 25), max_size=12))
def test_the_newest_events_are_taken_and_the_others_counted(most: int, bursts: list[int]) -> None:
    ring, n, n_taken = EventRing(most), 0, 0
    for burst in bursts:
        for _ in range(burst):
            n += 1
            ring.append(n)
        taken = ring.take()
        assert taken == list(range(n - min(burst, most) + 1, n + 1))
        n_taken += len(taken)
        assert ring.n_dropped == n - n_taken


def test_two_threads_lose_nothing_that_is_not_counted() -> None:
    ring, n, found = EventRing(64), 20_000, list[int]()

    def append() -> None:
        for number in range(1, n + 1):
            ring.append(number)

    thread = threading.Thread(target=append)
    thread.start()
    while thread.is_alive():
        found += ring.take()
    found += ring.take()
    assert found == sorted(set(found)) and found[-1] == n
    assert len(found) + ring.n_dropped == n
