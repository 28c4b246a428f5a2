"""The feed of a JetStream log ends when it is closed, whatever its thread does then."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest

from edgefold.runtime.sources.jetstream_feed import JetStreamFeed

pytest.importorskip("nats", reason="nats-py is not installed")

from edgefold.runtime.brokers.nats_connection import nats_address

LIMIT_S = 60.0


def test_a_cancellation_that_is_lost_does_not_keep_the_feed_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python 3.10 and 3.11 lose one that comes in the same moment as a message."""
    feed, waits = JetStreamFeed(nats_address("nats://h/a"), print), threading.Event()

    async def receive() -> None:
        waits.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(10 * LIMIT_S)
        await asyncio.sleep(10 * LIMIT_S)

    monkeypatch.setattr(feed, "_receive", receive)
    feed.open({})
    assert waits.wait(LIMIT_S)
    closing = threading.Thread(target=feed.close, daemon=True)
    closing.start()
    closing.join(LIMIT_S)
    assert not closing.is_alive()
