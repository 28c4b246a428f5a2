"""One call at a time, and only in the process that opened: everything else is an error.

    thread A   ──update()───────────>      ──query()──>       taking turns is fine
    thread B          query(): BusyError
    a fork            query(): ClosedError; close() releases nothing

A fork copies memory but neither the threads nor the GPU's contexts of a backend, so that a child
which used or released one would hang. It leaves all to its parent instead.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from functools import wraps
from types import FrameType
from typing import Concatenate, ParamSpec, TypeVar, cast
from weakref import WeakSet

from edgefold.runtime.errors import BusyError, ClosedError

Called = TypeVar("Called", bound="OneCaller")
Given = ParamSpec("Given")
Result = TypeVar("Result")


class OneCaller:
    """An object whose methods with `one_call` run one at a time, until it is closed."""

    def __init__(self) -> None:
        self._closed = ""  # why it takes no call any more
        self._inside: dict[int, object] = {}  # the mark of the call that runs, if one does
        self._repair = threading.Lock()
        _OPENED.add(self)

    def _require_open(self) -> None:
        if self._closed:
            raise ClosedError(self._closed)

    def _enter(self, mine: object, call: str) -> None:
        """Enter though a mark is there: an interrupted call may have left it behind.

        Raises:
            BusyError: The call of that mark still runs.
        """
        while (other := self._inside.setdefault(0, mine)) is not mine:
            if _is_running(other):
                raise BusyError(
                    f"{call}() was called while another call of the same stream was running, in "
                    "another thread or below a signal's handler; let one call end before the next "
                    "begins, or open the bundle once for each thread."
                )
            with self._repair:
                if self._inside.get(0) is other:
                    self._inside.clear()

    def _leave_to_the_parent(self, parent: int) -> None:
        self._inside, self._repair = {}, threading.Lock()
        self._closed = self._closed or (
            f"this stream was opened in another process ({parent}), of which this one "
            f"({os.getpid()}) is a fork; open the bundle again after the fork."
        )
        # What is never released cannot hang at this process's end either.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))


def one_call(
    method: Callable[Concatenate[Called, Given], Result],
) -> Callable[Concatenate[Called, Given], Result]:
    """Let a method of a `OneCaller` run alone, and only while it is open.

    Where 0.2 us matter a method does the same in its own lines, with a mark of the same name.

    Raises:
        BusyError: Another call of the same object is running.
        ClosedError: It was closed, or opened in another process.
    """

    @wraps(method)
    def alone(self: Called, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        mine = object()
        if self._inside.setdefault(0, mine) is not mine:  # the interpreter does this at once
            self._enter(mine, method.__name__)
        try:
            if self._closed:
                raise ClosedError(self._closed)
            return method(self, *args, **kwargs)
        finally:
            self._inside.clear()

    return cast(Callable[Concatenate[Called, Given], Result], alone)


def _is_running(mark: object) -> bool:
    """Whether a call with this mark is on the stack of any thread."""
    for top in sys._current_frames().values():
        at: FrameType | None = top
        while at is not None:
            if at.f_locals.get("mine") is mark:
                return True
            at = at.f_back
    return False


def _leave_all_to_the_parent() -> None:
    for each in list(_OPENED):
        if not each._closed:
            each._leave_to_the_parent(os.getppid())


# A fork is an event of the whole process, so what it concerns is listed once for the process.
_OPENED: WeakSet[OneCaller] = WeakSet()
os.register_at_fork(after_in_child=_leave_all_to_the_parent)
