"""The table of `benchmarks.sensors.sensor_covariates`: losses with covariates beside without."""

from __future__ import annotations

from typing import Any

from benchmarks.record import Record
from benchmarks.table import Table


def sensor_covariates(data: Record) -> list[Table]:
    """Ratios of losses of rows, and of later rows whose covariates are known or not."""
    ahead = data["rows_ahead"]
    header = [
        *("sensors", "number", "a row", "worst"),
        *(f"known, {n} ahead" for n in ahead),
        *(f"unknown, {n} ahead" for n in ahead),
        *(f"80 % holds at {n}" for n in (ahead[0], ahead[-1])),
    ]
    rows = [_row(name, of, ahead) for part in ("made", "real") for name, of in data[part].items()]
    text = (
        "Quantile losses with covariates over those without, geometric means over sensors. Known: "
        "the covariates of the rows ahead are given. The bands are those with known covariates."
    )
    return [Table(header, rows, text)]


def _row(name: str, of: dict[str, Any], ahead: list[int]) -> list[str]:
    ratios, holds = of["ratios"], of["holds"]
    return [
        *(name, str(of["n"]), f"{ratios['row'][0]:.3f}", f"{of['worst_row']:.3f}"),
        *(f"{ratios[kind][n - 1]:.3f}" for kind in ("known", "unknown") for n in ahead),
        *(f"{100 * holds[n - 1]:.0f} %" for n in (ahead[0], ahead[-1])),
    ]
