"""Write what `edgefold run` expects, and its alarms, to variables of an OPC UA server.

    ... | edgefold run sensors --input - --stream series --output - | opcua_results.py URL

Of the sensor `ns=2;s=Boiler.Flow` the variables `ns=2;s=Boiler.Flow.Expected` (Double) and
`ns=2;s=Boiler.Flow.Alarm` (Boolean) are written, if the server has them. While the server is away
rows are dropped, since only the newest count.
"""

import argparse
import asyncio
import csv
import logging
import sys
import time
from contextlib import closing, suppress

from asyncua import ua
from asyncua.sync import Client, ThreadLoop

RETRY_S = 5.0
AWAY = OSError, TimeoutError, asyncio.TimeoutError, ua.UaError


class Results:
    """Writes the results of rows, and connects again where that is needed."""

    def __init__(self, url: str, loop: ThreadLoop):
        self._url, self._loop, self._next_s = url, loop, 0.0
        self._client: Client | None = None
        self._missing: set[str] = set()

    def write(self, row: dict[str, str]) -> None:
        """Write the results of one row; without a connection do nothing."""
        try:
            if self._client is None and not self._connect():
                return
            if row["mean"]:
                self._set(f"{row['series']}.Expected", ua.Variant(float(row["mean"])))
            self._set(f"{row['series']}.Alarm", ua.Variant(row["alarm"] == "1"))
        except AWAY as error:
            say(f"{self._url} is away ({error}); rows are dropped meanwhile")
            self.close()

    def _connect(self) -> bool:
        if time.monotonic() < self._next_s:
            return False
        self._next_s = time.monotonic() + RETRY_S
        client = Client(self._url, tloop=self._loop)
        try:
            client.connect()
        except AWAY:
            return False
        say(f"{self._url} is connected")
        self._client = client
        return True

    def _set(self, node: str, value: ua.Variant) -> None:
        if node in self._missing or self._client is None:
            return
        try:
            self._client.get_node(node).write_value(ua.DataValue(value))
        except (ua.uaerrors.BadNodeIdUnknown, ua.uaerrors.BadTypeMismatch) as error:
            say(f"{node} is not written: {error}")
            self._missing.add(node)

    def close(self) -> None:
        """End the connection."""
        if self._client is not None:
            client, self._client = self._client, None
            with suppress(*AWAY):
                client.disconnect()


def say(sentence: str) -> None:
    """Print a sentence for the user."""
    print(f"opcua_results: {sentence}", file=sys.stderr, flush=True)


def main() -> None:
    """Write the results of all rows on standard input."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("url", metavar="opc.tcp://HOST:PORT")
    url = parser.parse_args().url
    logging.getLogger("asyncua").setLevel(logging.CRITICAL)  # this script says it once
    with ThreadLoop() as loop, closing(Results(url, loop)) as results:
        for row in csv.DictReader(sys.stdin):
            results.write(row)


if __name__ == "__main__":
    main()
