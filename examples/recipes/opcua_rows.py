"""Subscribe to variables of an OPC UA server, and print a line of JSON for each change.

    server ──> opcua_rows.py ──> edgefold run sensors --input - --stream series

The time of a row is the server's source timestamp: when the value was measured, not when it came. A
server that goes away is connected to again for ever, at most every 30 seconds. Then it sends the
present value of each variable once more; what is not newer than the last one is left out.
"""

import argparse
import asyncio
import json
import logging
import sys
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

from asyncua import Client, ua

MOST_WAIT_S = 30.0
QUEUE = 1000
"""So many changes of a variable between two messages of the server are kept."""


def say(sentence: str) -> None:
    """Print a sentence for the user."""
    print(f"opcua_rows: {sentence}", file=sys.stderr, flush=True)


class Changes:
    """Prints each change of a variable that is newer than the one before.

    Attributes:
        end: Set once the connection is lost, or the reader of the lines went away.
        has_reader: Whether the reader of the lines is there.
    """

    def __init__(self) -> None:
        self._newest: dict[str, datetime] = {}
        self.end, self.has_reader = asyncio.Event(), True

    def datachange_notification(self, node: Any, value: Any, data: Any) -> None:
        """Print a change; asyncua calls this."""
        changed = data.monitored_item.Value
        time = (changed.SourceTimestamp or changed.ServerTimestamp).replace(tzinfo=timezone.utc)
        name = node.nodeid.to_string()
        if name in self._newest and time <= self._newest[name]:
            return
        self._newest[name] = time
        is_number = isinstance(value, (bool, int, float)) and changed.StatusCode.is_good()
        row = {"series": name, "time": time.isoformat(), "value": value + 0 if is_number else None}
        try:
            print(json.dumps(row), flush=True)
        except BrokenPipeError:
            self.has_reader = False
            self.end.set()

    async def lost(self, error: Exception) -> None:
        """Remember that the connection is lost; asyncua calls this."""
        self.end.set()


async def follow(url: str, nodes: list[str], period_ms: float, changes: Changes) -> None:
    """Print changes until the connection is lost or the reader of the lines goes away.

    Raises:
        OSError, asyncio.TimeoutError, ua.UaError: The server is not there, or refuses.
    """
    client = Client(url)
    client.connection_lost_callback = changes.lost
    async with client:
        subscription = await client.create_subscription(period_ms, changes)
        variables = [client.get_node(node) for node in nodes]
        answers = await subscription.subscribe_data_change(variables, queuesize=QUEUE)
        for node, answer in zip(nodes, answers, strict=True):
            if isinstance(answer, ua.StatusCode):
                say(f"the server refuses {node}: {answer.name}")
        say(f"{url} is connected")
        await changes.end.wait()


async def main() -> None:
    """Follow the server until the reader of the lines goes away."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("url", metavar="opc.tcp://HOST:PORT")
    parser.add_argument("nodes", nargs="+", metavar="NODE", help="such as 'ns=2;s=Boiler.Flow'")
    parser.add_argument("--period", type=float, default=500, metavar="MS", help="default 500")
    args = parser.parse_args()
    logging.getLogger("asyncua").setLevel(logging.CRITICAL)  # this script says it once
    changes, wait_s = Changes(), 1.0
    while changes.has_reader:
        changes.end.clear()
        reason = "the connection was lost"
        try:
            await follow(args.url, args.nodes, args.period, changes)
            wait_s = 1.0
        except (OSError, asyncio.TimeoutError, ua.UaError) as error:
            reason = str(error) or type(error).__name__
        if changes.has_reader:
            if wait_s == 1.0:
                say(f"{args.url} is away ({reason}); it is connected to again")
            await asyncio.sleep(wait_s)
            wait_s = min(MOST_WAIT_S, 2 * wait_s)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
    sys.stderr.close()  # the interpreter would complain about the closed pipe
