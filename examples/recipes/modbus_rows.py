"""Read registers of a Modbus TCP device, and print a line of JSON for each reading.

    device ──> modbus_rows.py ──> edgefold run sensors --input -

The registers stand in a CSV file, a line for each:

    name      the sensor's name
    table     holding or input
    address   the first register, from 0 (a manual's 40001 is holding 0, its 30001 is input 0)
    type      int16, uint16, int32, uint32, float32, int64, uint64 or float64
    words     of two or four registers, big: the high word comes first; little: the low word
    scale     what the number is multiplied by

A device that does not answer is asked again for ever, at most every 30 seconds. A register that the
device refuses gives no value, and the others do.
"""

import argparse
import csv
import json
import logging
import sys
import time
from datetime import datetime, timezone

from pymodbus.client import ModbusTcpClient
from pymodbus.exceptions import ModbusException

MOST_WAIT_S = 30.0


class Register:
    """Reads one number of a device."""

    def __init__(self, line: dict[str, str]):
        self.name, self.words = line["name"], line["words"] or "big"
        self.address, self.scale = int(line["address"]), float(line["scale"] or 1)
        self.type = ModbusTcpClient.DATATYPE[line["type"].upper()]
        self.reads = {
            "holding": ModbusTcpClient.read_holding_registers,
            "input": ModbusTcpClient.read_input_registers,
        }[line["table"]]
        self.is_refused = False

    def read(self, client: ModbusTcpClient, device: int) -> float | None:
        """Return the number in its unit; None if the device refuses the register.

        Raises:
            ModbusException: The device does not answer.
        """
        n_registers = self.type.value[1]
        answer = self.reads(client, self.address, count=n_registers, device_id=device)
        if answer.isError():
            if not self.is_refused:
                say(f"the device refuses {self.name}, address {self.address}: {answer}")
            self.is_refused = True
            return None
        self.is_refused = False
        number = client.convert_from_registers(answer.registers, self.type, self.words)
        return round(number * self.scale, 9)


def say(sentence: str) -> None:
    """Print a sentence for the user."""
    print(f"modbus_rows: {sentence}", file=sys.stderr, flush=True)


def read_all(client: ModbusTcpClient, registers: list[Register], device: int) -> dict[str, object]:
    """Return one row: the time, and the numbers by their names.

    Raises:
        ModbusException: The device does not answer.
    """
    if not client.connect():
        raise ModbusException("no connection")
    row: dict[str, object] = {"time": datetime.now(timezone.utc).isoformat()}
    return row | {register.name: register.read(client, device) for register in registers}


def main() -> None:
    """Read until the reader of the lines goes away."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("address", metavar="HOST[:PORT]")
    parser.add_argument("registers", type=argparse.FileType(), metavar="CSV")
    parser.add_argument("--device", type=int, default=1, help="unit behind a gateway (default 1)")
    parser.add_argument("--every", type=float, default=1.0, metavar="S", help="default 1 second")
    args = parser.parse_args()
    host, _, port = args.address.partition(":")
    registers = [Register(line) for line in csv.DictReader(args.registers)]
    logging.getLogger("pymodbus").setLevel(logging.CRITICAL)  # this script says it once
    client = ModbusTcpClient(host, port=int(port or 502), timeout=2, retries=1)
    next_s, wait_s = time.monotonic(), 0.0
    while True:
        try:
            row = read_all(client, registers, args.device)
        except ModbusException as error:
            client.close()
            if not wait_s:
                say(f"{args.address} does not answer ({error}); it is asked again")
            wait_s = min(MOST_WAIT_S, 2 * wait_s or 1.0)
            time.sleep(wait_s)
            next_s = time.monotonic()
            continue
        if wait_s:
            say(f"{args.address} answers again")
        wait_s = 0.0
        print(json.dumps(row), flush=True)
        next_s += args.every
        time.sleep(max(0.0, next_s - time.monotonic()))


if __name__ == "__main__":
    try:
        main()
    except (BrokenPipeError, KeyboardInterrupt):
        sys.stderr.close()  # the interpreter would complain about the closed pipe
