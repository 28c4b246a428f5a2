"""How does the general model of sensors score on the Numenta Anomaly Benchmark?

    58 files ──> Sensors.step ──> p-value ──> -log10 ──> the best of all thresholds ──> 0 to 100
                      └──> alarm, at the stated rate; no threshold is sought ─────────> 0 to 100

    git clone https://github.com/numenta/NAB
    python -m benchmarks sensor_nab --nab NAB [--bundle B]

The bundle runs as it is shipped: nothing in it, and nothing here, was chosen by this benchmark's
scores. The anomaly score of a row is the plain surprise of its p-value. Only the order of anomaly
scores counts, so -log10 p, 1 - p and any other falling function of p score the same; there is no
smoothing, because a smoothing has a length that someone must choose. A row that has no p-value, or
is refused, has no surprise. The second detector is the alarm that a user gets at the default rate.

The score is that of `nab_score`. The checkout also holds the anomaly scores of other
detectors with their published figures; they are scored here likewise, which checks the scorer.

The general model was trained on values, without labels, of `TRAINED`, so the score over the other
files stands beside that over all.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.native.native_subjects import native_stream
from benchmarks.numenta.nab_files import NabFile, published, read_corpus, stated_thresholds, stored
from benchmarks.numenta.nab_score import OUTSIDE, PROFILES, Labelled, best_score, score_at, together
from benchmarks.record import Requirement, arguments, at_most, conditions, finish
from benchmarks.tables import as_text
from edgefold.export.native.toolchain.compilers import find_compiler
from edgefold.runtime import Sensors
from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.errors import DataError
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle

QUESTION = "How does the general model of sensors score on the Numenta Anomaly Benchmark?"
RATE = 1e-4
LEAST_P = 1e-45
"""The smallest number above 0 in float32, in which the model computes p-values."""
TRAINED = (
    "realAWSCloudwatch/ec2_cpu_utilization_825cc2.csv",
    "realAWSCloudwatch/ec2_network_in_257a54.csv",
    "realKnownCause/cpu_utilization_asg_misconfiguration.csv",
    "realKnownCause/ec2_request_latency_system_failure.csv",
    "realTraffic/speed_7578.csv",
    "realTweets/Twitter_volume_GOOG.csv",
)
"""Files whose values are among the training streams; see data/extract_sensors.py."""
QUICK = ("artificialWithAnomaly/art_daily_jumpsup.csv", "realTraffic/speed_7578.csv")


@contextmanager
def opened(bundle: Path, backend: str) -> Iterator[Sensors]:
    """The bundle, compiled here or as an installation without a compiler runs it."""
    if backend != "native":
        with Sensors.open(bundle, backend, RATE) as sensors:
            yield sensors
        return
    with tempfile.TemporaryDirectory() as folder:
        compiled = native_stream(bundle, find_compiler(None), Path(folder) / "native")
        with compiled as stream:
            yield Sensors(stream, RATE)


def follow(sensors: Sensors, file: NabFile) -> dict[str, Any]:
    """Stream a file: the surprise of each row, (n,), whether it was alarmed, and refused rows."""
    surprise, alarmed = np.zeros(len(file.times)), np.zeros(len(file.times))
    n_refused = 0
    for row, (moment, value) in enumerate(zip(file.times, file.values, strict=True)):
        try:
            forecast = sensors.step(moment, value, file.name)
        except DataError:
            n_refused += 1
            continue
        surprise[row] = -math.log10(max(forecast.p_value, LEAST_P))
        alarmed[row] = forecast.alarm
    return {"surprise": surprise, "alarm": alarmed, "n_refused": n_refused}


def scored(file: Labelled, scores: FloatArray) -> FloatArray:
    """Anomaly scores of a file's rows after its probation."""
    return scores[len(scores) - len(file.worth) :]


def scores_of(files: Sequence[Labelled], followed: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Both detectors by every profile, over the rows of some files as `follow` has told them."""
    rows, both = together(files), list(zip(files, followed, strict=True))
    surprises, alarms = (
        np.concatenate([scored(file, told[kind]) for file, told in both])
        for kind in ("surprise", "alarm")
    )
    outside = rows.window == OUTSIDE
    return {
        "n_files": len(files),
        "n_rows": len(rows.worth),
        "n_outside": int(outside.sum()),
        "n_windows": rows.n_windows,
        "surprise": {
            name: asdict(best_score(rows, surprises, profile)) for name, profile in PROFILES.items()
        },
        "alarm": {
            name: asdict(score_at(rows, alarms, 1.0, profile)) for name, profile in PROFILES.items()
        },
    }


def score_others(nab: Path, corpus: Sequence[NabFile]) -> dict[str, Any]:
    """The stored anomaly scores of other detectors: as published, and as scored here.

    `stated` is at the threshold that the repository states, `best` at the best one.
    """
    files = [file.labelled for file in corpus]
    rows, found = together(files), {}
    for name, figures in published(nab).items():
        kept = stored(nab, name, corpus)
        thresholds = stated_thresholds(nab, name, PROFILES)
        if kept is None or thresholds is None:
            continue
        scores = np.concatenate([scored(*one) for one in zip(files, kept, strict=True)])
        found[name] = {
            "published": {profile: figures[profile] for profile in PROFILES},
            "stated": {
                key: score_at(rows, scores, thresholds[key], profile).score
                for key, profile in PROFILES.items()
            },
            "best": {
                key: best_score(rows, scores, profile).score for key, profile in PROFILES.items()
            },
        }
    return found


def measure(corpus: Sequence[NabFile], bundle: Path, backend: str) -> dict[str, Any]:
    """Stream all files, one after the other, and score them."""
    from tqdm import tqdm

    files = [file.labelled for file in corpus]
    followed, began = [], time.monotonic()
    with (
        opened(bundle, backend) as sensors,
        tqdm(total=sum(len(file.times) for file in corpus), unit="row", disable=None) as bar,
    ):
        for file in corpus:
            bar.set_description(file.name.split("/")[1])
            followed.append(follow(sensors, file))
            bar.update(len(file.times))
    took_s = time.monotonic() - began
    unread = [at for at, file in enumerate(corpus) if file.name not in TRAINED]
    return {
        "backend": backend,
        "took_s": took_s,
        "n_refused": sum(one["n_refused"] for one in followed),
        "rate": RATE,
        "all": scores_of(files, followed),
        "unread": scores_of([files[at] for at in unread], [followed[at] for at in unread]),
        "files": {
            file.name: {
                "n_rows": len(file.times),
                "n_windows": len(file.windows),
                "n_alarms": int(scored(rows, one["alarm"]).sum()),
                "n_refused": one["n_refused"],
            }
            for file, rows, one in zip(corpus, files, followed, strict=True)
        },
    }


def requirements(data: Mapping[str, Any]) -> list[Requirement]:
    """Return demands on the scorer only: nothing is demanded of the score."""
    apart = [
        abs(one["stated"][profile] - figure)
        for one in data["others"].values()
        for profile, figure in one["published"].items()
    ]
    what = f"this scorer beside {len(apart)} published figures, at their thresholds, largest error"
    return [at_most(what, max(apart), 0.1, "points")] if apart else []


def options() -> argparse.ArgumentParser:
    """Return a parser of this benchmark's options."""
    parser = arguments(__doc__ or "", "sensor_nab")
    parser.add_argument("--nab", type=Path, required=True, help="a checkout of numenta/NAB")
    parser.add_argument("--bundle", type=Path, help="as exported; default the shipped one")
    parser.add_argument(
        "--backend",
        default="native",
        help="native, compiled here for this run, which needs a C compiler (default); or one of "
        "`edgefold run`, such as onnxruntime, which takes longer",
    )
    return parser


def main() -> None:
    """Stream, score, record."""
    args = options().parse_args()
    before = conditions()
    corpus = read_corpus(args.nab)
    if args.quick:
        corpus = [file for file in corpus if file.name in QUICK]
    data = measure(corpus, args.bundle or shipped_bundle(), args.backend)
    data["others"] = {} if args.quick else score_others(args.nab, corpus)
    finish(args, "sensor_nab", QUESTION, before, data, requirements(data), as_text)


if __name__ == "__main__":
    main()
