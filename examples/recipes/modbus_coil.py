"""Set a coil of a Modbus TCP device when an alarm comes; for `edgefold run --on-alarm`.

    edgefold run ... --on-alarm "python modbus_coil.py 192.168.1.20 7"

The coil stays set until the device's own program, or a person at its panel, resets it. The alarm is
on standard input as JSON; only its name is printed here.
"""

import argparse
import json
import sys

from pymodbus.client import ModbusTcpClient


def main() -> int:
    """Set the coil; return 1 if the device does not take it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("address", metavar="HOST[:PORT]")
    parser.add_argument("coil", type=int, help="address of the coil, from 0")
    parser.add_argument("--device", type=int, default=1, help="unit behind a gateway (default 1)")
    args = parser.parse_args()
    alarm = json.load(sys.stdin)
    host, _, port = args.address.partition(":")
    with ModbusTcpClient(host, port=int(port or 502), timeout=5) as client:
        if not client.connected:
            return 1
        answer = client.write_coil(args.coil, True, device_id=args.device)
    print(f"modbus_coil: {alarm['series']}: {answer}", file=sys.stderr)
    return int(answer.isError())


if __name__ == "__main__":
    sys.exit(main())
