"""How well does the general model of sensors forecast series that it has never seen?

    CSV files ──> feed ──> bundle, row by row ──> scores beside persistence
                        ├> an untrained bundle: the experts' mixture alone, "base+"
                        └> peers, in an interpreter of their own ──> records/sensors/peers.json

    edgefold export checkpoints/sensors --out B
    python -m benchmarks sensors --bundle B --series FOLDER [--base B0] [--peers]

Any folder of files `time,value` is scored by the bundle as it is shipped. The protocol: every row
is scored before it is learned; the first rows, the most of 30 %, two seasons and 85, are not
scored; the first 100 rows are told apart ("cold"). Of each series: MAE and CRPS beside persistence,
whose density is normal with a running spread; the log density, no row below -30 nats; what the
bands of 50 and 90 % hold; how often p-values are below 1e-2 and 1e-3. Over series: geometric means
of ratios, mean and median of nats, wins, the worst, and a bootstrap over blocks of 50 rows. The
CRPS is that of 7 quantiles (`benchmarks.sensors.sensors_scores`), for all alike.

"shipped" is what the bundle tells, "base+" the experts' mixture below it (the answer's `floor`).
Its quantiles, and so its CRPS, are those of an untrained bundle of the same commit, --base:
`edgefold export sensors --out B0`. With --reset-bundle, a bundle whose memory is never read, the
gain of the kept state is told too (`sensors_forgetful`). With --checkpoint the mass of
the quantum is told where values are steps (`sensors_mass`), to set beside the peers'.

--peers takes what is recorded of peers, and runs what is not; --peers-only does so without a
bundle. Peers are recorded once for each file of a folder. What a peer needs and lacks is told.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import (
    RECORDS,
    ROOT,
    Record,
    Requirement,
    arguments,
    at_least,
    at_most,
    conditions,
    finish,
    progress,
    record_name,
    write_record,
)
from benchmarks.sensors.sensors_peers import N_ROWS, PEERS
from benchmarks.sensors.sensors_run import (
    Followed,
    SensorFile,
    Taken,
    follow,
    read_sensors,
    taken,
    targets,
)
from benchmarks.sensors.sensors_scores import (
    BLOCK,
    crps,
    floored,
    gains,
    geometric_mean,
    normal_around,
    persistence,
    ratio,
    scores_of,
)
from benchmarks.sensors.sensors_table import ahead_ratio
from benchmarks.tables import as_text
from edgefold.runtime import Stream
from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.predictions import SensorForecast
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle

QUESTION = "How well does the general model forecast sensors that it has never seen?"
N_COLD = 100
CHILD_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def run_bundle(bundle: Path, files: Sequence[SensorFile]) -> dict[str, Followed]:
    """Each series through a bundle, by name."""
    found = {}
    with Stream.open(bundle) as stream:
        for at, series in enumerate(files):
            progress(f"{bundle.name}: {series.name}, {at + 1} of {len(files)}")
            found[series.name] = follow(stream, series)
    return found


def series_record(series: SensorFile, ours: Followed, base: Followed | None) -> dict[str, Any]:
    """All scores of one series."""
    rows, floor = slice(ours.first, None), ours.floor
    if base is not None:
        floor = replace(floor, quantiles=base.told.quantiles)
    values, beside = ours.values[rows], persistence(ours.values).of(rows)
    found: dict[str, Any] = {
        "digest": series.digest,
        "n_rows": len(ours.values),
        "n_refused": ours.n_refused,
        "season": ours.season,
        "shipped": scores_of(values, ours.told.of(rows), beside),
        "base": scores_of(values, floor.of(rows), beside),
        "ahead": all_ahead(ours, ours.first),
        "cold": cold_scores(ours),
        "alarms": int(ours.alarms[rows].sum()),
    }
    return found


def all_ahead(ours: Followed, first: int) -> dict[str, Any]:
    """The scores of each horizon, by its slots."""
    found = [ahead_scores(ours, at, first) for at in range(len(ours.horizons) + 1)]
    return {str(told["horizon"]): told for told in found if told}


def cold_scores(ours: Followed) -> dict[str, float]:
    """The first rows of a series, which no score of it counts."""
    rows = slice(N_COLD // 5, N_COLD)
    return scores_of(ours.values[rows], ours.told.of(rows), persistence(ours.values).of(rows))


def ahead_scores(ours: Followed, at: int, first: int) -> dict[str, Any]:
    """CRPS of the forecasts of one horizon, beside persistence and season ago; {} where none."""
    season = ours.season
    horizon = (*ours.horizons, season)[at]
    if horizon <= 1 or horizon in ours.horizons[:at]:
        return {}
    target = targets(ours.slots, horizon)
    told = target >= 0
    if at == len(ours.horizons):
        told &= ours.seasons == season  # else it was told of another slot
    origins = np.flatnonzero(told)
    origins = origins[origins >= first - 1]  # a row is told of by the one before it
    if len(origins) < BLOCK:
        return {}
    later = target[origins]
    values = ours.values[later]
    found = {
        "horizon": horizon,
        "n": len(origins),
        "crps": float(crps(values, ours.ahead[origins, at].astype(np.float64)).mean()),
        "persistence": float(
            crps(values, persistence(ours.values, horizon).quantiles[later]).mean()
        ),
    }
    if season > 1:
        turns = -(-horizon // season) * season
        ago = np.full(len(ours.values), np.nan)
        ago[turns:] = ours.values[:-turns]
        quantiles = normal_around(ago, ours.values, horizon).quantiles[later]
        if np.isfinite(quantiles).all():
            found["season_ago"] = float(crps(values, quantiles).mean())
    return found


def summary(found: Mapping[str, Any], nats: Mapping[str, FloatArray]) -> dict[str, Any]:
    """Over all series: shipped and base+ beside persistence, and shipped beside base+."""

    def over(model: str, of: str, beside: str) -> float:
        pairs = [one[model] for one in found.values() if of in one[model]]
        return geometric_mean([ratio(one[of], one[beside]) for one in pairs])

    def rate(model: str, name: str) -> float:
        total = sum(one[model]["n"] for one in found.values())
        return float(sum(one[model][name] * one[model]["n"] for one in found.values()) / total)

    def near(model: str) -> int:
        return sum(abs(one[model]["holds_90"] - 0.9) <= 0.03 for one in found.values())

    told: dict[str, Any] = {
        model: {
            "mae": over(model, "mae", "mae_beside"),
            "crps": over(model, "crps", "crps_beside"),
            "gain_mean": float(np.mean([one[model]["gain"] for one in found.values()])),
            "gain_median": float(np.median([one[model]["gain"] for one in found.values()])),
            "holds_90": rate(model, "holds_90"),
            "holds_50": rate(model, "holds_50"),
            "near_90": near(model),
            "rate_1e-2": rate(model, "rate_1e-2"),
            "rate_1e-3": rate(model, "rate_1e-3"),
        }
        for model in ("shipped", "base")
    }
    told["n_series"] = len(found)
    told["over_base"] = asdict(gains(nats))
    in_steps = [one["shipped"]["mass"] - one["base"]["mass"] for one in found.values()
                if "mass" in one["base"]]  # fmt: skip
    if in_steps:
        others = [one["shipped"]["nats"] - one["base"]["nats"] for one in found.values()
                  if "mass" not in one["base"]]  # fmt: skip
        told["mass_over_base"] = {
            "n": len(in_steps),
            "mean": float(np.mean(in_steps + others)),
            "median": float(np.median(in_steps + others)),
        }
    with_both = [one for one in found.values() if "crps" in one["base"]]
    told["crps_beside_base"] = geometric_mean(
        [ratio(one["shipped"]["crps"], one["base"]["crps"]) for one in with_both]
    )
    told["mae_beside_base"] = geometric_mean(
        [ratio(one["shipped"]["mae"], one["base"]["mae"]) for one in found.values()]
    )
    return told


def requirements(data: Mapping[str, Any]) -> list[Requirement]:
    """Return the project's demands on the model, over the open series."""
    told = data["over_all"]
    n, over, shipped, base = (told[k] for k in ("n_series", "over_base", "shipped", "base"))
    most = max(n - 2, 1)
    found = [
        at_most("base+: MAE beside persistence", base["mae"], 0.76, ""),
        at_least("base+: series within 3 points of 90 %", base["near_90"], most, "series"),
        at_least("base+: observed at 1e-3", base["rate_1e-3"], 0.5e-3, ""),
        at_most("base+: observed at 1e-3, at most", base["rate_1e-3"], 2e-3, ""),
        at_least("shipped over base+, mean", over["mean"], 0.25, "nats"),
        at_least("shipped over base+, median", over["median"], 0.10, "nats"),
        at_least("shipped over base+, wins", over["wins"], max(n - 1, 1), "series"),
        at_least("shipped over base+, worst", over["worst"], -0.01, "nats"),
        at_most("shipped: CRPS beside base+", told["crps_beside_base"], 0.93, ""),
        at_least("shipped: 90 % band holds", shipped["holds_90"], 0.88, ""),
        at_most("shipped: 90 % band holds, at most", shipped["holds_90"], 0.92, ""),
    ]
    if kept := data.get("kept_over_reset"):
        found.append(at_least("state kept over reset, mean", kept["mean"], 0.03, "nats"))
        found.append(at_least("state kept over reset, median", kept["median"], 0.015, "nats"))
    beside = ahead_ratio(data, "ets", "16")
    if beside == beside:
        found.append(at_most("16 slots ahead: CRPS beside ETS", beside, 0.9, ""))
    return found


# Peers --------------------------------------------------------------------------------------------


def run_peers(files: Sequence[SensorFile], longest_season: int, python: str, path: Path) -> Record:
    """Peers' scores by series and peer, from the record where it has them of the same file."""
    digests = {series.name: series.digest for series in files}
    known = json.loads(path.read_text())["data"] if path.exists() else {}
    for name, digest in digests.items():
        if known.get(name, {}).get("digest") != digest:
            known[name] = {"digest": digest, "peers": {}}
    lacking = _lacking(python)
    given = {series.name: taken(series, longest_season) for series in files}
    work = [
        (peer, name)
        for peer in PEERS
        for name in digests
        if peer not in known[name]["peers"] and peer not in lacking
    ]
    for peer in lacking:
        package = PEERS[peer]
        print(f"{peer} is left out: {python} has no {package}; pip install it", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        for at, (peer, name) in enumerate(work):
            progress(f"{peer} on {name}, {at + 1} of {len(work)}")
            scores = _peer(peer, name, given[name], python, Path(folder))
            if "failed" in scores:  # the next run tries again
                print(f"{peer} fails on {name}: {scores['failed']}", file=sys.stderr)
                continue
            known[name]["peers"][peer] = scores
            write_record(path, {"schema": 1, "name": path.stem, "data": known})
    return {name: known[name] for name in digests}


def peer_start(peer: str, given: Taken) -> int:
    """The first row that a peer forecasts."""
    return max(given.first, len(given.values) - N_ROWS[peer])


def _peer(peer: str, name: str, given: Taken, python: str, folder: Path) -> dict[str, Any]:
    """A peer's scores of one series, or why there are none."""
    path, start = folder / "series.npz", peer_start(peer, given)
    np.savez(path, values=given.values, season_start=np.array([given.season, start]))
    command = [python, "-m", "benchmarks.sensors.sensors_peers", str(path), peer]
    done = subprocess.run(
        command, cwd=ROOT, env=_environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1]}
    scores: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**scores, "start": start}


def _environment() -> dict[str, str]:
    """Our packages on the path of an interpreter that does not have them."""
    paths = [str(ROOT / "typings"), str(ROOT)]
    return {**os.environ, **CHILD_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(paths)}


def _lacking(python: str) -> list[str]:
    """Peers that an interpreter cannot run."""
    code = "import json, benchmarks.sensors.sensors_peers as p; print(json.dumps(p.missing()))"
    done = subprocess.run(
        [python, "-c", code], cwd=ROOT, env=_environment(), capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    found: list[str] = json.loads(done.stdout)
    return found


def beside_peers(peers: Record, ours: Mapping[str, Followed]) -> dict[str, Any]:
    """Our scores on the rows of each peer, by peer and series."""
    found: dict[str, Any] = {}
    for name, one in peers.items():
        followed = ours[name]
        for peer, scores in one["peers"].items():
            start = scores["start"]
            rows = slice(start, None)
            values, beside = followed.values[rows], persistence(followed.values).of(rows)
            mine: dict[str, Any] = scores_of(values, followed.told.of(rows), beside)
            mine["ahead"] = all_ahead(followed, start)
            found.setdefault(peer, {})[name] = {"ours": mine, "peer": scores}
    return found


# The command --------------------------------------------------------------------------------------


def options() -> argparse.ArgumentParser:
    """Return a parser of this benchmark's options."""
    parser = arguments(__doc__ or "", "sensors")
    parser.add_argument("--bundle", type=Path, help="as exported; default the shipped one")
    parser.add_argument("--series", type=Path, required=True, help="a folder of CSV files")
    parser.add_argument("--base", type=Path, help="a bundle of the untrained model: base+'s CRPS")
    parser.add_argument("--reset-bundle", type=Path, help="a bundle whose memory is not read")
    parser.add_argument("--checkpoint", type=Path, help="of the bundle: the mass of quanta")
    parser.add_argument("--peers", action="store_true", help="run the peers that are not recorded")
    parser.add_argument("--peers-only", action="store_true", help="and score no bundle")
    parser.add_argument("--peers-python", default=sys.executable, help="that has their packages")
    parser.add_argument("--plots", type=Path, help="a folder for pictures of the best and worst")
    parser.add_argument("--variant", default="", help="of the record's name, for another folder")
    return parser


def main() -> None:
    """Score, record, draw."""
    args = options().parse_args()
    before = conditions()
    files = read_sensors(args.series)[: 2 if args.quick else None]
    path = RECORDS / "sensors" / f"{record_name('peers', args.variant)}.json"
    longest = SensorForecast().longest_season
    if args.peers_only:
        run_peers(files, longest, args.peers_python, path)
        return
    ours = run_bundle(args.bundle or shipped_bundle(), files)
    if args.checkpoint:
        from benchmarks.sensors.sensors_mass import log_masses

        for name, mass in log_masses(args.checkpoint, files).items():
            told, floor = ours[name].told, ours[name].floor
            told, floor = replace(told, log_mass=mass[:, 1]), replace(floor, log_mass=mass[:, 0])
            ours[name] = replace(ours[name], told=told, floor=floor)
    base = run_bundle(args.base, files) if args.base else {}
    found = {s.name: series_record(s, ours[s.name], base.get(s.name)) for s in files}
    nats = {
        name: floored(one.told.log_density)[one.first :]
        - floored(one.floor.log_density)[one.first :]
        for name, one in ours.items()
    }
    data: dict[str, Any] = {"series": found, "over_all": summary(found, nats)}
    if args.reset_bundle:
        forgetful = run_bundle(args.reset_bundle, files)
        kept = {
            name: floored(one.told.log_density)[one.first :]
            - floored(forgetful[name].told.log_density)[one.first :]
            for name, one in ours.items()
        }
        data["kept_over_reset"] = asdict(gains(kept))
    if args.peers:
        peers = run_peers(files, longest, args.peers_python, path)
        data["peers"] = beside_peers(peers, ours)
    if args.plots:
        from benchmarks.sensors.sensors_plots import draw

        data["pictures"] = draw(args.plots, files, ours, nats)
    wanted = requirements(data)
    finish(args, "sensors", QUESTION, before, data, wanted, as_text, args.variant)


if __name__ == "__main__":
    main()
