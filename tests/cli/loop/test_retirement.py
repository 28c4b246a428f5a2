"""A loop that is retired waits until its broker has nothing left."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from edgefold.cli.loop.retirement import QUIET_S, Retirement


def test_only_silence_of_a_connected_broker_ends_a_loop() -> None:
    now = SimpleNamespace(s=0.0)
    source = SimpleNamespace(away_since=1.0, n_received=0)
    retirement = Retirement(lambda: False, 1.0, lambda: cast("float", now.s))
    retirement.attach(cast("Any", source))

    def wait(n: int, step_s: float = 0.2) -> bool:
        for _ in range(n):
            now.s += step_s
            retirement.idle()
        return retirement()

    n_quiet = int((QUIET_S + 1.0) / 0.2) + 2
    assert not wait(3 * n_quiet)  # the broker is away
    source.away_since = None
    assert not wait(n_quiet - 5)
    source.n_received += 1  # one that gives no row
    assert not wait(n_quiet - 5)
    now.s += 1.0
    retirement.line()
    assert not wait(n_quiet - 5)
    assert not wait(1, step_s=3600.0)  # the process was stopped
    assert wait(8)


def test_a_signal_ends_a_loop_that_is_not_done() -> None:
    retirement = Retirement(lambda: True, 1.0)
    assert retirement() and not retirement.is_done
