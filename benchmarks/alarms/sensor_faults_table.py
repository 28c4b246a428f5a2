"""The tables of `benchmarks.alarms.sensor_faults`: faults, rates of alarms, hostile rows."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import Table


def sensor_faults(data: Record) -> list[Table]:
    """Faults, rates, hostile rows."""
    header = ["fault", "rows", "steady sensors", "found", "all sensors", "found", "median", "named"]
    rows = []
    for kind, within in data["within"].items():
        steady, every = data["steady"][kind], data["all"][kind]
        median = "" if steady["median_rows"] is None else f"{steady['median_rows']:.0f}"
        names = ", ".join(f"{name} {n}" for name, n in steady["names"].items())
        rows.append(
            [
                *(kind, str(within), f"{steady['n']}", f"{100 * steady['share']:.1f} %"),
                *(f"{every['n']}", f"{100 * every['share']:.1f} %", median, names),
            ]
        )
    rates = [
        [f"{rate:g}", *(f"{data[of][str(rate)] / rate:.2f}" for of in ("rates", "steady_rates"))]
        + ([f"{data['real_rates'][str(rate)] / rate:.2f}"] if "real_rates" in data else [""])
        for rate in map(float, data["rates"])
    ]
    first, steady_first = data["first"], data["steady_first"]
    told = [
        Table(header, rows, "At a stated rate of 1e-4; median: rows until found, 1 for at once."),
        Table(["stated rate", "clean sensors", "steady ones", "real series, as they are"], rates,
              "Alarms a row, beside the stated rate, after a sensor's first 300 rows. In these it "
              f"has {first:.2f} alarms at 1e-4 in the mean, a steady one {steady_first:.2f}."),
    ]  # fmt: skip
    if "hostile" in data:
        head = ["rows", "hostile", "refused", "MAE before", "MAE after 200 clean rows", "state"]
        cells = [
            [
                *(f"{one['n_rows']:,}", f"{one['share']:.0%}", f"{one['n_refused']:,}"),
                *(f"{one['mae_before']:.3f}", f"{one['mae_after']:.3f}"),
                "finite" if one["finite"] else "not finite",
            ]
            for one in data["hostile"]
        ]
        told.append(Table(head, cells))
    return told
