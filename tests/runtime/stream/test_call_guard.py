"""Whether a call still runs: by the stack of its thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from edgefold.runtime.errors import BusyError
from edgefold.runtime.stream.call_guard import OneCaller, one_call


class Counter(OneCaller):
    def __init__(self) -> None:
        super().__init__()
        self.begun, self.end, self.n = threading.Event(), threading.Event(), 0

    @one_call
    def count(self) -> None:
        self.n += 1

    @one_call
    def wait(self) -> None:
        self.begun.set()
        assert self.end.wait(60)

    @one_call
    def nested(self) -> None:
        self.count()

    def leave_a_mark(self) -> None:
        """As a call that Ctrl-C ends before its first line."""
        self._inside[0] = (threading.get_ident(),)


def require_refused_while(counter: Counter, act: Callable[[], None], waiting: Counter) -> None:
    """Run `act` in a thread until `waiting` waits; meanwhile a call is refused, and then taken."""
    thread = threading.Thread(target=act)
    thread.start()
    assert waiting.begun.wait(60)
    with pytest.raises(BusyError):
        counter.count()
    waiting.end.set()
    thread.join()
    counter.count()
    assert counter.n == 1


def test_a_call_of_another_thread_is_refused_until_it_ends() -> None:
    counter = Counter()
    require_refused_while(counter, counter.wait, counter)


def test_a_call_inside_a_call_is_refused() -> None:
    counter = Counter()
    with pytest.raises(BusyError):
        counter.nested()
    counter.count()
    assert counter.n == 1


def test_the_mark_of_an_interrupted_call_does_not_stop_its_thread() -> None:
    counter = Counter()
    counter.leave_a_mark()
    counter.count()
    assert counter.n == 1


def test_the_mark_of_a_thread_that_is_gone_stops_nobody() -> None:
    counter = Counter()
    thread = threading.Thread(target=counter.leave_a_mark)
    thread.start()
    thread.join()
    counter.count()
    assert counter.n == 1


def test_the_mark_of_a_thread_that_is_in_another_call_stops_others_until_that_call_ends() -> None:
    """Nobody can read whose mark it is while that thread runs."""
    counter, other = Counter(), Counter()

    def interrupted_and_on() -> None:
        counter.leave_a_mark()
        other.wait()

    require_refused_while(counter, interrupted_and_on, other)
