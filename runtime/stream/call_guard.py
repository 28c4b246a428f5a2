"""Let one call of a stream run at a time, and only in the process that opened the stream.

    thread A   ──update()───────────>      ──query()──>       one after the other is fine
    thread B          query(): BusyError
    a fork            query(): ClosedError; close() releases nothing

A fork copies memory but neither the threads nor the GPU's contexts of a backend, so that a child
process that used or released one would hang. The child leaves all of them to its parent.

A call marks itself with an object in `OneCaller._inside`. Ctrl-C can end a call between two
bytecodes and leave its mark behind. So a mark of the same thread counts only while the call is on
its stack, as the local variable `mine` of one of the three wrappers below. A mark of another thread
counts while any wrapper is on that thread's stack: to read variables of a thread that runs crashes
the interpreter now and then. Two of the wrappers have fixed arguments: arbitrary ones would cost
0.2 us more, where an update takes only a few.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import wraps
from types import CodeType, FrameType
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar, cast
from weakref import WeakSet

from numpy.typing import ArrayLike

from edgefold.runtime.errors import BusyError, ClosedError

REPAIR_S = 0.1
"""Seconds after which the lock is replaced that guards the removal of an old call's mark.

The removal takes microseconds, so a lock that is held for longer was left by a call that Ctrl-C
ended between two bytecodes.
"""

_WRAPPERS: set[CodeType] = set()
"""The code of the wrappers that let one call run at a time."""
Mark = tuple[int]
"""The thread of a call; each call makes a tuple of its own."""

Caller = TypeVar("Caller", bound="OneCaller")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Method = TypeVar("Method", bound=Callable[..., Any])


class OneCaller:
    """Lets its methods that `one_call` decorates run only one at a time, until it is closed.

    Attributes:
        called: What the object is called in messages.
    """

    called: ClassVar[str] = "stream"

    def __init__(self) -> None:
        self._closed = ""  # the reason why no call is taken any more
        self._inside: dict[int, Mark] = {}  # the mark of the call that runs, if one does
        self._repair = threading.Lock()
        _OPENED.add(self)

    def _require_open(self) -> None:
        if self._closed:
            raise ClosedError(self._closed)

    def _enter(self, mine: Mark, call: str) -> None:
        """Mark this object as busy with a call; replace the mark that an interrupted call left.

        Args:
            mine: The mark of the call, an object that the call keeps in its variable `mine`.
            call: The name of the called method, for messages.

        Raises:
            BusyError: The earlier call still runs.
        """
        while (other := self._inside.setdefault(0, mine)) is not mine:
            if _is_running(other):
                raise BusyError(
                    f"{call}() was called while another call of the same {self.called} was "
                    "running, in another thread or below a signal's handler; let one call end "
                    "before the next begins, or open the bundle once for each thread."
                )
            while not (repair := self._repair).acquire(timeout=REPAIR_S):
                if self._repair is repair:
                    self._repair = threading.Lock()
            try:
                if self._inside.get(0) is other:
                    self._inside.clear()
            finally:
                repair.release()

    def _leave_to_the_parent(self, parent: int) -> None:
        self._inside, self._repair = {}, threading.Lock()
        self._closed = self._closed or (
            f"this {self.called} was opened in another process ({parent}), of which this one "
            f"({os.getpid()}) is a fork; open the bundle again after the fork."
        )
        # What is never released cannot hang at this process's end either.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))


def one_call(
    method: Callable[Concatenate[Caller, Arguments], Result],
) -> Callable[Concatenate[Caller, Arguments], Result]:
    """Let a method of a `OneCaller` run only if the object is open and no other call of it runs.

    Raises:
        BusyError: Another call of the same object is running.
        ClosedError: The object was closed, or opened in another process.
    """

    @wraps(method)
    def guarded(self: Caller, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        mine = (threading.get_ident(),)
        if self._inside.setdefault(0, mine) is not mine:  # the interpreter does this at once
            self._enter(mine, method.__name__)
        try:
            self._require_open()
            return method(self, *args, **kwargs)
        finally:
            self._inside.clear()

    return cast(Callable[Concatenate[Caller, Arguments], Result], _wrapper(guarded))


def one_call_of_x(method: Method) -> Method:
    """Let a method with the one argument x run only if no other call of its object runs.

    Otherwise BusyError is raised. Unlike with `one_call`, the method itself must check whether the
    object is open, and raise ClosedError if not.
    """

    @wraps(method)
    def guarded(self: OneCaller, x: ArrayLike | None = None) -> Any:
        mine = (threading.get_ident(),)
        if self._inside.setdefault(0, mine) is not mine:
            self._enter(mine, method.__name__)
        try:
            return method(self, x)
        finally:
            self._inside.clear()

    return cast(Method, _wrapper(guarded))


def one_call_of_points(method: Method) -> Method:
    """Let a method with the arguments x and y run only if no other call of its object runs.

    Otherwise BusyError is raised. As with `one_call_of_x`, the method itself raises ClosedError.
    """

    @wraps(method)
    def guarded(self: OneCaller, x: ArrayLike | None = None, y: ArrayLike | None = None) -> Any:
        mine = (threading.get_ident(),)
        if self._inside.setdefault(0, mine) is not mine:
            self._enter(mine, method.__name__)
        try:
            return method(self, x, y)
        finally:
            self._inside.clear()

    return cast(Method, _wrapper(guarded))


def _is_running(mark: Mark) -> bool:
    """Return whether the call with this mark runs, or may run in another thread.

    A frame that returns while the stack is read no longer leads to its caller. The stack was whole
    if the same frame is its top afterwards; a thread that moves is taken for one that is in a call.
    """
    (owner,) = mark
    if owner == threading.get_ident():
        return any(frame.f_locals.get("mine") is mark for frame in _stack(sys._getframe()))
    top = sys._current_frames().get(owner)
    is_inside = any(frame.f_code in _WRAPPERS for frame in _stack(top))
    return is_inside or sys._current_frames().get(owner) is not top


def _stack(top: FrameType | None) -> Iterator[FrameType]:
    while top is not None:
        yield top
        top = top.f_back


def _wrapper(function: Callable[..., Any]) -> Any:
    _WRAPPERS.add(function.__code__)
    return function


def _leave_all_to_the_parent() -> None:
    for each in list(_OPENED):
        if not each._closed:
            each._leave_to_the_parent(os.getppid())


# A fork is an event of the whole process, so all streams of the process are listed once.
_OPENED: WeakSet[OneCaller] = WeakSet()
os.register_at_fork(after_in_child=_leave_all_to_the_parent)
