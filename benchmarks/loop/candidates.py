"""How often is a worse candidate promoted, and how soon one that is better by 0.02 nats?

    stream of a known law ──> old model, candidate ──> log scores ──> evidence ──> promoted?
                       └────> expected difference of each row, given the past

    python -m benchmarks candidates [--pairs N] [--streams N]

The models are the shipped bundle `gp_tiny` with different assumptions on the scale of the values,
so that a pair differs by much or by next to nothing; in a quarter of the pairs by half a percent.
The law of a value is known, so the expected difference of a row's two log scores, cut as the test
cuts it, is computed by Gauss-Hermite quadrature. A promotion is wrong if the mean of the expected
differences up to it is not above 0. In the second part the old model is the candidate with wider
bands, by the factor at which the candidate is better by 0.02 nats a row over the whole stream.

How many rows that takes depends on how much the differences of the rows spread. Where the candidate
knows the noise of the values (`KNOWN`), they spread by 0.2 nats. Where it is too sure of itself
(`UNKNOWN`), single rows differ by many nats, the spread is some 0.4 to 1 nats, and 0.02 nats are
one or two standard errors of 5,000 rows: no valid test can tell it then. Both are counted, and the
demand is on the first.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import (
    Requirement,
    arguments,
    at_least,
    at_most,
    conditions,
    finish,
    progress,
)
from benchmarks.tables import as_text
from edgefold.runtime import Stream
from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.bundle.manifest_file import with_checksum
from edgefold.runtime.shipped_bundles import gp_tiny
from edgefold.runtime.trial.evidence import BOUND_NATS, Evidence

QUESTION = "How often is a worse candidate promoted, and how soon a better one?"
RISK, BETTER_NATS, WITHIN = 0.05, 0.02, 5000
N_PAIRS, N_ROWS, N_STREAMS = 200, 2000, 100
KNOWN, UNKNOWN = (0.8, 2.0), (0.1, 1.0)
"""The noise of a stream and the model's scale of values: one pair where the model knows the noise
of what it sees, and one where it does not."""
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
WIDER = np.exp(np.linspace(0.0, 4.0, 801))
"""Factors of a band's width that are tried."""
Bands = tuple[FloatArray, FloatArray]
"""Means and standard deviations of the rows of a stream."""


@dataclass(frozen=True, slots=True)
class Law:
    """A stream whose values have a known law: y = sum of sines of x + noise."""

    x: FloatArray
    means: FloatArray
    y: FloatArray
    noise: float


def law(seed: int, n_rows: int, noise: float | None = None) -> Law:
    """Draw a stream."""
    chance = np.random.default_rng([seed, 20_263])
    size = math.exp(chance.uniform(math.log(0.05), math.log(0.5))) if noise is None else noise
    x = chance.uniform(-2, 2, n_rows)
    rates, phases, heights = chance.uniform(1, 5, 3), chance.uniform(0, 6, 3), chance.normal(size=3)
    means = np.sin(np.outer(x, rates) + phases) @ heights / math.sqrt(3)
    return Law(x, means, means + size * chance.normal(size=n_rows), size)


class Models:
    """Opens `gp_tiny` with a scale of the values, and predicts a stream row by row."""

    def __init__(self, folder: Path):
        self._folder = folder

    def predictions(self, scale: float, stream: Law) -> Bands:
        """Return the means and deviations that were predicted before each value was learned."""
        place = self._folder / f"{scale!r}"
        if not place.exists():
            shipped = Path(next(iter(gp_tiny.__path__)))
            shutil.copytree(shipped, place, ignore=shutil.ignore_patterns("__pycache__"))
            manifest = json.loads((place / "manifest.json").read_text())
            manifest["points"]["y"]["scale"] = [scale]
            (place / "manifest.json").write_text(json.dumps(with_checksum(manifest)))
        found = np.empty((2, len(stream.x)))
        with Stream.open(place) as model:
            for row, (x, y) in enumerate(zip(stream.x, stream.y, strict=True)):
                point = np.array([[x]])
                prediction = model.query(point)
                found[:, row] = prediction.mean.item(), prediction.std.item()
                model.update(point, np.array([[y]]))
        return found[0], found[1]


def log_score(y: FloatArray, mean: FloatArray, std: FloatArray) -> FloatArray:
    """Return the log density of values under normal predictions, in nats."""
    scores: FloatArray = -0.5 * ((y - mean) / std) ** 2 - np.log(std) - 0.5 * math.log(2 * math.pi)
    return scores


def expected_gain(mine: Bands, theirs: Bands, stream: Law) -> FloatArray:
    """Return what the cut difference of each row's log scores is on average, given the past."""
    drawn = stream.means[:, None] + stream.noise * NODES
    own, other = (log_score(drawn, *(part[:, None] for part in one)) for one in (mine, theirs))
    gains: FloatArray = np.clip(other - own, -BOUND_NATS, BOUND_NATS) @ WEIGHTS / WEIGHTS.sum()
    return gains


def followed(mine: Bands, theirs: Bands, stream: Law) -> dict[str, Any]:
    """Follow an old model and a candidate until it is promoted, or to the end of the stream."""
    differences = log_score(stream.y, *theirs) - log_score(stream.y, *mine)
    expected = expected_gain(mine, theirs, stream)
    evidence, promoted = Evidence(), 0
    for difference in differences.tolist():
        evidence.add(difference)
        if evidence.log_e >= -math.log(RISK):
            promoted = evidence.n
            break
    until = promoted or len(expected)
    return {
        "promoted_after": promoted,
        "expected_until": float(expected[:until].mean()),
        "expected": float(expected.mean()),
        "spread": float(np.clip(differences, -BOUND_NATS, BOUND_NATS).std()),
    }


def pair(seed: int) -> tuple[float, float]:
    """Draw the scales of a pair; every fourth differs by half a percent."""
    chance = np.random.default_rng([seed, 20_264])
    old, new = np.exp(chance.uniform(math.log(0.5), math.log(2), 2)).round(4)
    if seed % 4 == 0:
        new = round(old * chance.choice((0.995, 1.005)), 6)
    return float(old), float(new)


def wider(theirs: Bands, stream: Law) -> Bands:
    """Return the candidate's predictions with bands so wide that it is better by `BETTER_NATS`."""
    mean, std = theirs
    for factor in WIDER:
        mine = mean, factor * std
        if expected_gain(mine, theirs, stream).mean() >= BETTER_NATS:
            return mine
    raise AssertionError("bands fifty times as wide are not worse")


def close_pairs(
    models: Models, n_streams: int, n_rows: int, setting: tuple[float, float], name: str
) -> dict[str, Any]:
    """Follow candidates that are better by `BETTER_NATS`, each on a stream of its own."""
    noise, scale = setting
    found = []
    for seed in range(n_streams):
        progress(f"streams, {name}: {seed} of {n_streams}")
        stream = law(seed + 10_000, n_rows, noise)
        theirs = models.predictions(scale, stream)
        found.append(followed(wider(theirs, stream), theirs, stream))
    soon = sorted(one["promoted_after"] for one in found if one["promoted_after"])
    return {
        "n_streams": n_streams,
        "n_rows": n_rows,
        "gain_nats": float(np.mean([one["expected"] for one in found])),
        "spread_nats": float(np.mean([one["spread"] for one in found])),
        "n_soon": len(soon),
        "median_rows": soon[len(soon) // 2] if soon else None,
        "slowest_rows": soon[-1] if soon else None,
    }


def requirements(data: Mapping[str, Any]) -> list[Requirement]:
    """Return the project's demands."""
    n_wrong, n_pairs = data["n_wrong"], data["n_pairs"]
    known = data["noise_known"]
    share = 100 * known["n_soon"] / max(known["n_streams"], 1)
    return [
        at_most("wrong promotions of all pairs", 100 * n_wrong / n_pairs, 100 * RISK, "%"),
        at_least(f"better by {BETTER_NATS} nats: promoted in {WITHIN:,} rows", share, 95, "%"),
    ]


def main() -> None:
    """Follow the pairs, then one pair over many streams, and record."""
    parser = arguments(__doc__ or "", "candidates")
    parser.add_argument("--pairs", type=int, default=N_PAIRS, help=f"default {N_PAIRS}")
    parser.add_argument("--streams", type=int, default=N_STREAMS, help=f"default {N_STREAMS}")
    args = parser.parse_args()
    before = conditions()
    n_pairs, n_streams = (min(4, n) if args.quick else n for n in (args.pairs, args.streams))
    n_rows = 300 if args.quick else N_ROWS
    n_long = 600 if args.quick else WITHIN
    with tempfile.TemporaryDirectory() as folder:
        models = Models(Path(folder))
        pairs = []
        for seed in range(n_pairs):
            progress(f"pairs: {seed} of {n_pairs}")
            stream = law(seed, n_rows)
            mine, theirs = (models.predictions(scale, stream) for scale in pair(seed))
            pairs.append(followed(mine, theirs, stream))
        known = close_pairs(models, n_streams, n_long, KNOWN, "noise known")
        unknown = close_pairs(models, n_streams, n_long, UNKNOWN, "noise unknown")
    promoted = [one for one in pairs if one["promoted_after"]]
    better = [one for one in pairs if one["expected"] > 0]
    data = {
        "risk": RISK,
        "n_pairs": n_pairs,
        "n_rows": n_rows,
        "n_better": len(better),
        "n_promoted": len(promoted),
        "n_wrong": sum(one["expected_until"] <= 0 for one in promoted),
        "n_better_promoted": sum(one["promoted_after"] > 0 for one in better),
        "noise_known": known,
        "noise_unknown": unknown,
    }
    finish(args, "candidates", QUESTION, before, data, requirements(data), as_text)


if __name__ == "__main__":
    main()
