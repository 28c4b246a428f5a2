"""Ten real sensors with their pictures and scores: docs/sensor-gallery.md.

    series ──> edgefold forecast ──┬──> FILE.png ──> docs/img/sensors, smaller
                                   └──> FILE.csv ──> alarms ──┐
    record of benchmarks.sensors.sensors ──> scores ──────────────────┴──> the page's table

    python -m benchmarks sensor_gallery --series FOLDER --record FILE [--forecasts FOLDER]

Forecasts that lie in --forecasts already are not made again. The table stands between
<!-- sensor_gallery:start --> and <!-- sensor_gallery:end -->; the sentences of the page are written
by hand, and no score is computed here. Pictures need Pillow, which comes with matplotlib.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.record import IMAGES, RECORDS, ROOT, Record
from benchmarks.sensors.sensors_scores import ratio
from benchmarks.table import Table, describe
from benchmarks.tables import with_block

PAGE = ROOT / "docs" / "sensor-gallery.md"
PICTURES = IMAGES / "sensors"
NAMES = {
    "pedestrians_southern": "pedestrians",
    "nab_nyc_taxi": "taxi",
    "nyc_jfk_temp": "air temperature",
    "uk_meter_hourly": "electricity meter",
    "pv_serf_east_15min": "PV plant",
    "accel_ankle_vert": "accelerometer",
    "sunspots_monthly": "sunspots",
    "nab_machine_temperature": "machine temperature",
    "irradiance_1min": "irradiance",
    "co2_weekly": "CO2",
}
"""Files, and what the page calls them, in its order."""
MARKS = "<!-- sensor_gallery:start -->", "<!-- sensor_gallery:end -->"
NOTE = (
    "Scores of rows after the first 30 %, each forecast one row before it came. MAE and CRPS "
    "beside persistence's: below 1 the model is better. Nats a row over persistence, and over the "
    "experts without the network. 90 % and 50 %: values inside these bands. At 1e-3: p-values "
    "below it; 1.0e-03 is right. Season: its rows, as known where scoring begins, and the CRPS so "
    "far ahead beside that of the value a season before. Alarms: of all rows, at one false alarm "
    "in 10,000 rows."
)
README_SOURCE = ROOT / "data" / "air_temperature_hourly.csv"
README_PICTURE = IMAGES / "sensor-forecast.png"
MOST_BYTES, README_BYTES = 60_000, 90_000
SIZES = ((1400, 128), (1400, 64), (1200, 128), (1200, 64), (1000, 64), (1000, 32), (800, 32))
"""Width in pixels and number of colours, from the best."""


def table(series: Mapping[str, Any], alarms: Mapping[str, int]) -> Table:
    """Scores of the sensors, in the page's order.

    Args:
        series: Of a record of `benchmarks.sensors.sensors`, by file.
        alarms: Of all rows, by file.
    """
    header = ["sensor", "rows", "MAE", "CRPS", "nats", "over experts", "90 %", "50 %", "at 1e-3"]
    header += ["season", "season ahead", "alarms"]
    rows = []
    for file, name in NAMES.items():
        one = series[file]
        told, season = one["shipped"], one["ahead"].get(str(one["season"]), {})
        ago = ratio(season["crps"], season["season_ago"]) if "season_ago" in season else None
        rows.append(
            [
                *(name, f"{one['n_rows']:,}"),
                f"{ratio(told['mae'], told['mae_beside']):.3f}",
                f"{ratio(told['crps'], told['crps_beside']):.3f}",
                f"{told['gain']:+.2f}",
                f"{told['nats'] - one['base']['nats']:+.3f}",
                f"{100 * told['holds_90']:.1f} %",
                f"{100 * told['holds_50']:.1f} %",
                f"{told['rate_1e-3']:.1e}",
                str(one["season"] or ""),
                "" if ago is None else f"{ago:.2f}",
                str(alarms[file]),
            ]
        )
    return Table(header, rows, NOTE)


def block(record: Record, alarms: Mapping[str, int]) -> str:
    """Return the text between the page's markers."""
    command = "`python -m benchmarks sensor_gallery`, scores of `python -m benchmarks sensors`"
    scores = table(record["data"]["series"], alarms)
    return "\n\n".join([command, describe(record), scores.markdown()])


def forecast(source: Path, folder: Path) -> Path:
    """Run `edgefold forecast` unless its files are there; returns the file of forecasts."""
    written = folder / f"{source.stem}.csv"
    if not (written.exists() and written.with_suffix(".png").exists()):
        command = [sys.executable, "-m", "edgefold.cli.main", "forecast", str(source)]
        subprocess.run([*command, "--out", str(written), "--force"], check=True)
    return written


def n_alarms(written: Path) -> int:
    """Alarms in a file of forecasts."""
    with written.open(newline="") as file:
        return sum(row["alarm"] == "1" for row in csv.DictReader(file))


def smaller(picture: bytes, most_bytes: int) -> bytes:
    """The same picture as PNG with fewer pixels and colours.

    Raises:
        ValueError: No size of `SIZES` is small enough.
    """
    from PIL import Image

    whole = Image.open(io.BytesIO(picture)).convert("RGB")
    for width, colours in SIZES:
        if width > whole.width:
            continue
        size = (width, round(width * whole.height / whole.width))
        scaled = whole.resize(size, Image.Resampling.LANCZOS)
        found = io.BytesIO()
        # Median cut would give no colour to the few red pixels of alarms.
        method = Image.Quantize.MAXCOVERAGE
        flat = scaled.quantize(colours, method=method, dither=Image.Dither.NONE)
        flat.save(found, format="png", optimize=True)
        if len(found.getvalue()) <= most_bytes:
            return found.getvalue()
    raise ValueError(f"no size of SIZES takes at most {most_bytes:,} bytes; add a smaller one")


def main() -> None:
    """Make the pictures, and write the page's table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--series", type=Path, required=True, help="folder of the ten files")
    parser.add_argument("--record", type=Path, default=RECORDS / "sensors.json")
    parser.add_argument("--forecasts", type=Path, help="folder of forecasts (default: not kept)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.forecasts or Path(scratch)
        folder.mkdir(exist_ok=True, parents=True)
        PICTURES.mkdir(exist_ok=True, parents=True)
        alarms = {}
        for name in NAMES:
            written = forecast(args.series / f"{name}.csv", folder)
            alarms[name] = n_alarms(written)
            picture = smaller(written.with_suffix(".png").read_bytes(), MOST_BYTES)
            (PICTURES / f"{name}.png").write_bytes(picture)
        shown = forecast(README_SOURCE, folder).with_suffix(".png").read_bytes()
        README_PICTURE.write_bytes(smaller(shown, README_BYTES))
    record = json.loads(args.record.read_text())
    PAGE.write_text(with_block(PAGE.read_text(), block(record, alarms), MARKS))


if __name__ == "__main__":
    main()
