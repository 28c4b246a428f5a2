"""The tables of `sensors`: each series, all together, the peers, and horizons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.record import Record
from benchmarks.sensors.sensors_scores import geometric_mean, ratio
from benchmarks.table import Table

NOTE = (
    "MAE and CRPS beside persistence's, whose density is normal with a running spread; the CRPS is "
    "twice the mean pinball loss of 7 quantiles. Nats a row, no row below -30. Rows that warm up, "
    "the most of 30 %, two seasons and 85, are not scored. base+ is the experts' mixture alone."
)
PEERS_NOTE = (
    "Each peer on the last rows of each series (500; fracast and ets 200) and our model on the "
    "same rows. Ratios are ours beside the peer's: below 1 ours is better; nats are ours over the "
    "peer's, mass is the same where values are steps of a quantum. River gives points: its CRPS "
    "is its absolute error."
)
AHEAD_NOTE = (
    "CRPS beside persistence's of the same horizon; geometric means over the series that have the "
    "horizon. season ago: CRPS beside that of the value one season before."
)


def sensors(data: Record) -> list[Table]:
    """All tables of a record."""
    tables = [over_all(data), each(data["series"]), ahead(data)]
    if "peers" in data:
        tables.append(peers(data["peers"]))
    return tables


def over_all(data: Record) -> Table:
    """Over all series."""
    told = data["over_all"]
    header = [f"over {told['n_series']} series", "MAE", "CRPS", "nats over persistence, mean"]
    header += ["median", "50 % holds", "90 % holds", "within 3 points", "at 1e-2", "at 1e-3"]
    rows = [
        [
            *(name, _ratio(one["mae"]), _ratio(one["crps"])),
            *(_nats(one["gain_mean"]), _nats(one["gain_median"])),
            *(_percent(one["holds_50"]), _percent(one["holds_90"]), str(one["near_90"])),
            *(f"{one['rate_1e-2']:.2e}", f"{one['rate_1e-3']:.2e}"),
        ]
        for name, one in (("base+", told["base"]), ("shipped", told["shipped"]))
    ]
    over = told["over_base"]
    note = (
        f"Shipped over base+: {_nats(over['mean'])} nats in the mean ({_nats(over['low'])} to "
        f"{_nats(over['high'])} over blocks of 50 rows), {_nats(over['median'])} in the median "
        f"({_nats(over['median_low'])} to {_nats(over['median_high'])}), better on {over['wins']} "
        f"of {over['n']}, worst {_nats(over['worst'])}; CRPS {_ratio(told['crps_beside_base'])}, "
        f"MAE {_ratio(told['mae_beside_base'])} of base+'s."
    )
    if steps := told.get("mass_over_base"):
        note += (
            f" A density that stands on a sensor's steps has no bound. With the mass of the step "
            f"in its place on the {steps['n']} series in steps: {_nats(steps['mean'])} in the mean "
            f"over all, {_nats(steps['median'])} in the median."
        )
    if "kept_over_reset" in data:
        kept = data["kept_over_reset"]
        note += (
            f" State kept over state reset: {_nats(kept['mean'])} in the mean "
            f"({_nats(kept['low'])} to {_nats(kept['high'])}), {_nats(kept['median'])} in the "
            f"median, better on {kept['wins']}."
        )
    return Table(header, rows, note)


def each(series: Mapping[str, Any]) -> Table:
    """A row for each series, by what the network gains."""
    header = ["series", "rows", "season", "MAE base+", "MAE", "CRPS", "nats over persistence"]
    header += ["over base+", "90 % base+", "90 %", "at 1e-3", "alarms"]

    def gain(name: str) -> float:
        return float(series[name]["shipped"]["nats"] - series[name]["base"]["nats"])

    rows = []
    for name in sorted(series, key=gain, reverse=True):
        one = series[name]
        shipped, base = one["shipped"], one["base"]
        rows.append(
            [
                *(name, f"{one['n_rows']:,}", str(one["season"] or "")),
                _ratio(ratio(base["mae"], base["mae_beside"])),
                _ratio(ratio(shipped["mae"], shipped["mae_beside"])),
                _ratio(ratio(shipped["crps"], shipped["crps_beside"])),
                *(_nats(shipped["gain"]), _nats(gain(name))),
                *(_percent(base["holds_90"]), _percent(shipped["holds_90"])),
                *(f"{shipped['rate_1e-3']:.1e}", str(one["alarms"])),
            ]
        )
    return Table(header, rows, NOTE)


def ahead(data: Record) -> Table:
    """Horizons, in the geometric mean over series."""
    found: dict[str, list[tuple[str, Mapping[str, float]]]] = {}
    for name, one in data["series"].items():
        for horizon, told in one["ahead"].items():
            for kind in _kinds(horizon, one["season"]):
                found.setdefault(kind, []).append((name, told))
    header = ["slots ahead", "series", "beside persistence", "beside season ago"]
    header += [f"beside {peer}" for peer in _AHEAD_PEERS]
    rows = []
    for kind in (k for k in (*RUNGS, "season") if k in found):
        cells = [told for _, told in found[kind]]
        ago = [ratio(t["crps"], t["season_ago"]) for t in cells if "season_ago" in t]
        row = [kind, str(len(cells))]
        row.append(_ratio(geometric_mean([ratio(t["crps"], t["persistence"]) for t in cells])))
        row.append(_ratio(geometric_mean(ago)))
        row += [_ratio(ahead_ratio(data, peer, kind)) for peer in _AHEAD_PEERS]
        rows.append(row)
    return Table(header, rows, AHEAD_NOTE)


_AHEAD_PEERS = ("ets", "fracast")
RUNGS = ("2", "4", "8", "16", "32", "48")


def _kinds(horizon: str, season: int) -> list[str]:
    """Return the lines of the table in which a forecast of a series with this season stands."""
    return [
        *([horizon] if horizon in RUNGS else []),
        *(["season"] if horizon == str(season) else []),
    ]


def ahead_ratio(data: Mapping[str, Any], peer: str, kind: str) -> float:
    """Our CRPS beside a peer's, each beside persistence on its own rows."""
    ratios = []
    for name, pair in data.get("peers", {}).get(peer, {}).items():
        for horizon, mine in pair["ours"]["ahead"].items():
            theirs = pair["peer"]["ahead"].get(horizon)
            if theirs and kind in _kinds(horizon, data["series"][name]["season"]):
                ours = ratio(mine["crps"], mine["persistence"])
                ratios.append(ratio(ours, ratio(theirs["crps"], theirs["crps_beside"])))
    return geometric_mean(ratios)


def peers(found: Mapping[str, Any]) -> Table:
    """A row for each peer: ours beside it, over series."""
    header = ["peer", "series", "MAE", "CRPS", "nats, mean", "median", "mass, mean", "its 90 %"]
    header += ["better MAE"]
    rows = []
    for peer, by_series in found.items():
        pairs = list(by_series.values())
        mae = [ratio(p["ours"]["mae"], p["peer"]["mae"]) for p in pairs]
        crps = [ratio(p["ours"]["crps"], p["peer"]["crps"]) for p in pairs if "crps" in p["peer"]]
        nats = [p["ours"]["nats"] - p["peer"]["nats"] for p in pairs if "nats" in p["peer"]]
        mass = [p["ours"]["mass"] - p["peer"]["mass"] for p in pairs
                if "mass" in p["peer"] and "mass" in p["ours"]]  # fmt: skip
        holds = [p["peer"]["holds_90"] for p in pairs if "nats" in p["peer"] or peer == "fracast"]
        rows.append(
            [
                *(peer, str(len(pairs)), _ratio(geometric_mean(mae)), _ratio(geometric_mean(crps))),
                *(_mean(nats, np.mean), _mean(nats, np.median), _mean(mass, np.mean)),
                _percent(float(np.mean(holds))) if holds else "",
                f"{sum(r < 1 for r in mae)} of {len(pairs)}",
            ]
        )
    return Table(header, rows, PEERS_NOTE)


def _mean(numbers: list[float], of: Any) -> str:
    return _nats(float(of(numbers))) if numbers else ""


def _ratio(number: float) -> str:
    return "" if number != number else f"{number:.3f}" if number < 100 else f"{number:.2g}"


def _nats(number: float) -> str:
    return f"{number:+.3f}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
