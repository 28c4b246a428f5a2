"""Makes the CSV files in this folder from the copies that statsmodels carries.

    pip install statsmodels && python data/extract.py

Nothing else in the project needs statsmodels. README.md beside this file gives sources and licence.
"""

from __future__ import annotations

import csv
from datetime import date, timedelta
from pathlib import Path

import numpy as np
from statsmodels.datasets import co2, elnino, sunspots

HERE = Path(__file__).parent


def write(name: str, rows: list[tuple[str, str]]) -> None:
    """Write time,value rows and say how many."""
    with (HERE / name).open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["time", "value"])
        writer.writerows(rows)
    print(f"{name}: {len(rows)} rows, {rows[0][0]} to {rows[-1][0]}")


def weekly_co2() -> None:
    """Weeks without a measurement are interpolated linearly; their dates are printed."""
    data = co2.load_pandas().data["co2"]
    values = data.to_numpy(dtype=float)
    days = [date(1958, 3, 29) + timedelta(weeks=week) for week in range(len(values))]
    assert days[-1] == data.index[-1].date()
    measured = np.isfinite(values)
    weeks = np.arange(len(values))
    filled = np.interp(weeks, weeks[measured], values[measured])
    texts = [f"{v:.1f}" if known else f"{v:.3f}" for v, known in zip(filled, measured, strict=True)]
    write("co2_weekly.csv", [(d.isoformat(), t) for d, t in zip(days, texts, strict=True)])
    missing = [d.isoformat() for d, known in zip(days, measured, strict=True) if not known]
    print(f"  {len(missing)} weeks interpolated: {' '.join(missing)}")


def monthly_sea_surface() -> None:
    """One table row a year, one column a month."""
    table = elnino.load_pandas().data
    rows = [
        (f"{int(line[0])}-{month:02d}-01", f"{line[month]:.2f}")
        for line in table.to_numpy(dtype=float)
        for month in range(1, 13)
    ]
    write("sea_surface_monthly.csv", rows)


def yearly_sunspots() -> None:
    """Years are plain numbers: a series without dates and without a season."""
    table = sunspots.load_pandas().data.to_numpy(dtype=float)
    write("sunspots_yearly.csv", [(f"{int(year)}", f"{number:.1f}") for year, number in table])


if __name__ == "__main__":
    weekly_co2()
    monthly_sea_surface()
    yearly_sunspots()
