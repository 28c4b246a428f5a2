"""Serve a page on a running loop: put the parts together and run the page's thread.

    loop's thread ──> EventRing ──> page's thread ──> PageBoard ──> a thread for each browser
                                    5 times a second with a browser, once a second without

Nothing is written to the disk: the history that the page shows is in memory and begins with the
run.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefold.cli.page.access import PageAccess, PageAddress
from edgefold.cli.page.event_ring import EventRing
from edgefold.cli.page.page_board import PageBoard
from edgefold.cli.page.page_server import PageServer, close, listen
from edgefold.cli.page.page_watcher import PageWatcher
from edgefold.cli.page.process_figures import read_figures
from edgefold.runtime.errors import DataError

if TYPE_CHECKING:
    from edgefold.runtime.loop.loop import PredictionLoop
    from edgefold.runtime.sources.row_source import RowSource

TURN_S, LONE_TURN_S = 0.2, 1.0
"""Time between two looks at the ring, with a browser and without."""
END_S = 1.0
"""The end of the loop waits at most so many seconds for the browsers to hear of it."""
RATE_S = 10.0
"""The rate of rows is a mean over about so many seconds."""


class LoopPage:
    """Serves the page of one loop; use it as a context manager around the loop.

    Args:
        address: Where to listen; port 0 takes a free one.
        token: The token that opens the page; "" for none, on loopback.
        about: What the page says of the run, as a JSON object: input, bundle, snapshot, version.

    Attributes:
        watcher: The watcher to add to the loop's, before the progress.
        address: Where the page is served, once the block has begun.
    """

    def __init__(self, address: PageAddress, token: str, about: dict[str, Any]):
        self.address, self._access = address, PageAccess(token, address.host)
        self._about = about
        self._ring, self._board = EventRing(), PageBoard()
        self.watcher = PageWatcher(self._ring)
        self._run = secrets.token_hex(8)
        self._started_at, self._start_s = time.time(), time.monotonic()
        self._written_bytes = read_figures().written_bytes
        self._rate = 0.0
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._server: PageServer | None = None

    def __enter__(self) -> LoopPage:
        try:
            self._server = PageServer(
                self.address, self._access, self._board, self._run, self._hello, self._status
            )
        except OSError as error:
            raise DataError(
                f"cannot serve the page at {self.address.url} ({error.strerror or error}); give "
                "--page another port, or an address of this machine."
            ) from None
        self.address = self.address._replace(port=self._server.port)
        work = threading.Thread(target=self._work, name="page", daemon=True)
        work.start()
        self._threads = [work, listen(self._server)]
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._closing.set()
        self._threads[0].join(END_S)
        close(self._server)
        end_s = time.monotonic() + END_S
        while self._server.n_browsers and time.monotonic() < end_s:
            time.sleep(0.01)

    @property
    def url(self) -> str:
        """Return the address for a browser, with the token."""
        return self._access.url(self.address)

    def attach(self, loop: PredictionLoop, source: RowSource) -> None:
        """Show this loop; call it before the loop runs."""
        self._board.make_room(len(loop.sensors.all))
        self.watcher.attach(loop, source)

    # In the page's thread -------------------------------------------------------------------------

    def _work(self) -> None:
        """Move events from the ring to the board until the loop ends."""
        server, last_s, is_last = self._server, time.monotonic(), False
        assert server is not None
        while not is_last:
            is_last = self._closing.wait(TURN_S if server.n_browsers else LONE_TURN_S)
            events, told = self._ring.take(), self.watcher.take_told()
            n_rows = self._board.n_rows
            if events or told:
                self._board.take(events, told, time.time(), self._ring.n_dropped)
            now_s = time.monotonic()
            step_s, last_s = now_s - last_s, now_s
            rate = (self._board.n_rows - n_rows) / max(step_s, 1e-3)
            self._rate += (1 - math.exp(-step_s / RATE_S)) * (rate - self._rate)
            names = {self._board.name_of(view.chosen) for view in [*server.views.values()]}
            chosen = frozenset(name for name in names if name is not None)
            wanted = chosen if server.n_browsers else None
            if wanted != self.watcher.wanted:  # the same object shows that nothing has changed
                self.watcher.wanted = wanted

    # In the browsers' threads ---------------------------------------------------------------------

    def _hello(self) -> dict[str, Any]:
        return {
            **self._about,
            "run": self._run,
            "started": round(self._started_at, 1),
            "now": round(time.time(), 1),
            "kept": self._board.most_rows,
        }

    def _status(self, name: str | None) -> dict[str, Any]:
        """Return the figures that change with time; those of a sensor too, if one is named."""
        watcher, now_s, figures = self.watcher, time.monotonic(), read_figures()
        facts, waits, saved = watcher.facts, watcher.waits_since_s, watcher.saved_at
        sensor = facts.sensors.get(name) if facts is not None and name is not None else None
        written = None
        if figures.written_bytes is not None and self._written_bytes is not None:
            written = figures.written_bytes - self._written_bytes
        return {
            "now": round(time.time(), 1),
            "uptime_s": round(now_s - self._start_s, 1),
            "resident_bytes": figures.resident_bytes,
            "written_bytes": written,
            "a_day_bytes": watcher.writes.a_day,
            "latency": latency_of(watcher.latencies()),
            "rate": round(self._rate, 3),
            "rows": self._board.n_rows,
            "dropped": self._ring.n_dropped,
            "alive_s": round(now_s - watcher.alive_s, 1),
            "waits_s": None if waits is None else round(now_s - waits, 1),
            "snapshot_s": None if saved is None else round(time.time() - saved, 1),
            "loop": None if facts is None else facts.loop._asdict(),
            "sensor": None if sensor is None else {"name": name, **sensor._asdict()},
        }


def latency_of(seconds: Sequence[float]) -> dict[str, float] | None:
    """Return the median, the 99 % quantile and the largest of latencies as a JSON object."""
    if not seconds:
        return None
    p50, p99, most = np.quantile(seconds, (0.5, 0.99, 1.0)).tolist()
    return {"p50_s": p50, "p99_s": p99, "max_s": most, "n": len(seconds)}
