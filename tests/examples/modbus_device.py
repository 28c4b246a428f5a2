"""A Modbus TCP device on loopback: pymodbus's own server, in a thread with its own event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from pymodbus.client import ModbusTcpClient
from pymodbus.server import ModbusTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

from tests.brokers import LIMIT_S

HOLDING, INPUT, COIL = 3, 4, 1
"""Codes of the functions that read each table."""


class ModbusDevice:
    """A device whose tables have 64 entries each, from address 0."""

    def __init__(self, port: int):
        self.port = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.start()

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT_S)

    def start(self) -> None:
        self._wait(self._start())

    async def _start(self) -> None:
        bits, words = (
            [SimData(0, count=n, values=0, datatype=kind)]
            for n, kind in ((4, DataType.BITS), (64, DataType.REGISTERS))
        )
        device = SimDevice(1, (bits, bits, words, words))
        self._server = ModbusTcpServer(device, address=("127.0.0.1", self.port))
        await self._server.serve_forever(background=True)

    def stop(self) -> None:
        """Close the server and its connections."""
        self._wait(self._server.shutdown())  # type: ignore[no-untyped-call]

    def end(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT_S)
        self._loop.close()

    def set(self, table: int, address: int, number: float, kind: str, words: str = "big") -> None:
        """Write a number as registers, as a device's program does."""
        assert words in ("big", "little")
        types = ModbusTcpClient.DATATYPE
        registers = ModbusTcpClient.convert_to_registers(number, types[kind], word_order=words)  # type: ignore[arg-type]
        self._wait(self._server.async_setValues(1, table, address, registers))

    def reset(self, address: int) -> None:
        """Open a coil again."""
        self._wait(self._server.async_setValues(1, COIL, address, [False]))

    def coil(self, address: int) -> bool:
        return bool(self._wait(self._server.async_getValues(1, COIL, address, 1))[0])


@contextmanager
def modbus_device(port: int) -> Iterator[ModbusDevice]:
    device = ModbusDevice(port)
    try:
        yield device
    finally:
        device.end()
