"""Print the JSON Schema of a record: `python -m edgefold.cli.schemas profile`."""

import argparse
import json

from edgefold.cli.schemas.registry import NAMES, whole_schema


def main() -> None:
    """Print the schema of the record named on the command line, with all parts in it."""
    parser = argparse.ArgumentParser(
        prog="python -m edgefold.cli.schemas",
        description="Print the JSON Schema of a record that a command writes with --json.",
    )
    parser.add_argument("record", choices=NAMES, help="which record")
    print(json.dumps(whole_schema(parser.parse_args().record), indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
