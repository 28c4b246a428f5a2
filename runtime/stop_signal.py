"""Remember that SIGTERM or Ctrl-C came, so that a loop can end between two pieces of work."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, by KeyboardInterrupt, so that it can clean up.

    Only the main thread can change what a signal does; in others the block runs as it is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


class StopSignal:
    """Remembers whether SIGTERM or Ctrl-C came; calling the object returns the answer.

    A Ctrl-C after the first signal raises KeyboardInterrupt at once. Use the object as a context
    manager: the end of the block restores the signals' former handlers.
    """

    def __init__(self) -> None:
        self._stopped = False

    def __enter__(self) -> StopSignal:
        numbers = (signal.SIGTERM, signal.SIGINT)
        self._previous = {number: signal.signal(number, self._stop) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _stop(self, number: int, _: Any) -> None:
        if self._stopped and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._stopped = True

    def __call__(self) -> bool:
        return self._stopped
