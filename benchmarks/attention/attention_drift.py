"""Does continual attention stay exact on a stream that never ends, and does the published form?

Each core of attention is exported, and 10,000,000 tokens pass through `Stream.step`, consolidation
included: what is measured is what runs on a device. The slow forms that keep all rows of the window
take fewer. Every head has the standard deviation of its case for queries and keys:

    heads    0 to 2   3 to 5   6 to 8   9 to 11   12 to 15
    case     0.5      1        3        4         4, with outliers: one key in 1,000 times 100

    tokens   0 ──── 200 ── 1e3 ──── 1e4 ──── 1e5 ──── 1e6 ──── 1e7
    checked      last 50    last 1,000 answers before each of these moments

Tokens are drawn from a seeded pool of some thousand, in a new order each time it is used up, so
that the window of any moment can be drawn again. Fixed landmarks are clusters of the pool.

    error        largest difference of an answer from attention over the last n tokens alone in
                 float64; nan where an answer is not finite
    batch        that of the same batch form in float32: what rounding scores costs without a stream

A leg that was interrupted goes on from its last moment (--fresh starts over); each finished leg is
kept in runs/attention_drift. Draws docs/img/attention_drift.png.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.attention.attention_cores import Landmarks, SelfConsolidating, our_core, rows_of
from benchmarks.attention.attention_windows import (
    CASES,
    POOL,
    SHAPE,
    Leg,
    Tokens,
    exact,
    oldest_first,
)
from benchmarks.attention.published_batch import PublishedCore
from benchmarks.attention.published_cores import PUBLISHED, CoNyReFix, CoNySiFix
from benchmarks.record import (
    IMAGES,
    ROOT,
    Requirement,
    arguments,
    at_most,
    conditions,
    finish,
    progress,
    write_record,
)
from benchmarks.tables import as_text
from edgefold.export.bundle import ExportConfig, export_bundle
from edgefold.runtime import Stream
from edgefold.runtime.errors import SnapshotError
from edgefold.train.contract import Prediction, State, StreamingModel

QUESTION = "Does continual attention stay exact on a stream that never ends?"
FIRST, FIRST_CHECKED, CHECKED = 200, 50, 1000
BOUND = 1e-5
LOST = 1e30
"""Stands for an answer that is not finite, or beyond any use."""


LEGS = (
    *(Leg("single"), Leg("nystrom fixed"), Leg("hopping"), Leg("CoNySiFix")),
    *(Leg("CoSi", 1_000_000), Leg("CoRe", 100_000, 20), Leg("nystrom means", 1_000_000)),
    *(Leg("CoNySiCont", 100_000), Leg("retroactive", 100_000, 20)),
    *(Leg("nystrom fixed retroactive", 100_000, 20), Leg("CoNyReFix", 100_000, 20)),
    *(Leg("nystrom means retroactive", 100_000, 20), Leg("CoNyReCont", 100_000, 20)),
)
"""The most telling ones first. A longer leg goes on from where a shorter one ended."""


# A leg --------------------------------------------------------------------------------------------


def write(leg: Leg, landmarks: Landmarks, folder: Path) -> None:
    """Export a leg's core."""
    if leg.is_ours:
        model: StreamingModel = SelfConsolidating(our_core(leg.name, SHAPE, landmarks, True))
    elif leg.name.endswith("Fix"):
        model = Told((CoNySiFix if leg.name == "CoNySiFix" else CoNyReFix)(SHAPE, landmarks))
    else:
        model = Told(PUBLISHED[leg.name](SHAPE))
    config = ExportConfig(parity_steps=160, force=True)
    export_bundle(model.eval(), {"name": "attention"}, folder, config)


class Told(StreamingModel):
    """A published core whose answers go on where they are not finite: the runtime refuses such."""

    def __init__(self, core: PublishedCore):
        super().__init__()
        self.core, self.name, self.prediction = core, core.name, core.prediction
        self.n_inputs, self.n_outputs = core.n_inputs, 0
        self.input_range = (-0.5, 0.5)  # beyond, an export refuses these forms for their error

    def initial_state(self, n_streams: int = 1) -> State:
        return self.core.initial_state(n_streams)

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        written, told = self.core.step(state, x)
        return written, {
            name: torch.where(answer.abs() < LOST, answer, LOST) for name, answer in told.items()
        }


def moments(n_steps: int) -> list[int]:
    """200, then powers of ten, and the end."""
    powers = (10**k for k in range(3, math.ceil(math.log10(n_steps))))
    return sorted({FIRST, *powers, n_steps})


def run_leg(leg: Leg, folder: Path, shown: Callable[[str], None]) -> dict[str, Any]:
    """Run a leg, or go on with it; what is known after each moment is written."""
    tokens = Tokens()
    landmarks = tokens.landmarks()
    own = folder / leg.folder
    own.mkdir(parents=True, exist_ok=True)
    result, snapshot = own / "result.json", own / "state.npz"
    if not (own / "bundle").exists():
        write(leg, landmarks, own / "bundle")
    found: dict[str, Any] = {"leg": leg.name, "n_steps": leg.n_steps, "rows": [], "duration_s": 0.0}
    kind = leg.name if leg.is_ours else "single"  # published forms take tokens as they are
    pool = rows_of(kind, tokens.q, tokens.k, tokens.v)
    with Stream.open(own / "bundle") as stream:
        if result.exists():
            found = json.loads(result.read_text())
            if found["rows"] and found["rows"][-1]["n_tokens"] < leg.n_steps:
                if snapshot.exists():
                    stream.restore(snapshot)
                else:
                    found |= {"rows": [], "duration_s": 0.0}
        found["state_bytes"] = sum(array.nbytes for array in stream.state().values())
        for moment in moments(leg.n_steps):
            done = found["rows"][-1]["n_tokens"] if found["rows"] else 0
            if moment <= done:
                continue
            start_s = time.perf_counter()
            n, answers = advanced(leg, stream, tokens, pool, done, moment, shown)
            found["duration_s"] += time.perf_counter() - start_s
            found["rows"].append({"n_tokens": moment, **errors(leg, tokens, landmarks, n, answers)})
            write_record(result, found)
            try:
                stream.save(snapshot)
            except SnapshotError:  # a state that is not finite; an interrupted leg starts over
                snapshot.unlink(missing_ok=True)
            last = found["rows"][-1]["error"]
            shown(f"{leg.name}: {moment:,} tokens, errors {last}")
    return found


def advanced(
    leg: Leg,
    stream: Stream,
    tokens: Tokens,
    pool: Any,
    done: int,
    moment: int,
    shown: Callable[[str], None],
) -> tuple[NDArray[np.int64], Any]:
    """Take tokens up to a moment: which of the last ones are checked, and their answers."""
    checked = FIRST_CHECKED if moment == FIRST else min(CHECKED, moment - done)
    step, n, answers = stream.step, [], []
    for at, place in stretch(tokens, done, moment):
        told = step(pool[place])
        if at >= moment - checked and (moment - at) % leg.every == 0:
            n.append(at)
            (found,) = told.tensors.values()
            answers.append(found[0].copy())
        if at % 200_000 == 0 and at > done:
            shown(f"{leg.name}: {at:,} of {leg.n_steps:,} tokens")
    numbers = np.array(n)
    stacked = np.stack(answers)
    if not leg.has_all_rows:
        return numbers, stacked[:, :, None]
    return numbers, oldest_first(stacked, numbers) if leg.is_ours else stacked


def stretch(tokens: Tokens, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Numbers of tokens and their places in the pool."""
    for begin in range(first, last, POOL):
        end = min(begin + POOL, last)
        yield from zip(range(begin, end), tokens.places(begin, end).tolist(), strict=True)


def errors(
    leg: Leg, tokens: Tokens, landmarks: Landmarks, n: NDArray[np.int64], answers: Any
) -> dict[str, dict[str, float | None]]:
    """By case, the largest error of the answers (C, H, rows, d), and of the float32 batch form.

    None stands for nan, which JSON has not.
    """
    ours: dict[str, list[float]] = {case: [] for case in CASES}
    batch: dict[str, list[float]] = {case: [] for case in CASES}
    share = 50 if not leg.has_all_rows else 10
    for begin in range(0, len(n), share):
        part = n[begin : begin + share]
        truth = exact(leg, tokens, landmarks, part, torch.float64).numpy()
        narrow = exact(leg, tokens, landmarks, part, torch.float32).numpy()
        for case, (_, heads) in CASES.items():
            for told, found in ((ours, answers[begin : begin + share]), (batch, narrow)):
                told[case].append(float(np.abs(found[:, heads] - truth[:, heads]).max()))
    return {
        name: {case: largest(values) for case, values in told.items()}
        for name, told in (("error", ours), ("batch", batch))
    }


def largest(values: list[float]) -> float | None:
    """The largest, or None where an answer was lost."""
    return max(values) if max(values) < LOST / 2 else None


def requirements(legs: list[dict[str, Any]]) -> list[Requirement]:
    """The bound of 1e-5 on ours at deviation 4 and with outliers, along the whole stream."""
    found = []
    for leg in legs:
        if leg["leg"] in PUBLISHED:
            continue
        for case in ("4", "4, outliers"):
            values = [row["error"][case] for row in leg["rows"]]
            worst = max(math.inf if value is None else value for value in values)
            what = f"{leg['leg']}, deviation {case}, {leg['rows'][-1]['n_tokens']:,} tokens"
            found.append(at_most(what, worst, BOUND, ""))
    return found


def chosen_legs(args: argparse.Namespace) -> list[Leg]:
    """Return the legs that the options name, in the order of their importance."""
    legs = [leg for leg in LEGS if not args.legs or leg.name in args.legs]
    if args.quick:
        return [Leg(leg.name, 2_000, 50) for leg in legs[:4]]
    return legs


def main() -> None:
    """Run the legs that are not finished, draw and record."""
    parser = arguments(__doc__ or "", "attention_drift")
    names = [leg.name for leg in LEGS]
    parser.add_argument("--legs", nargs="+", choices=names, help="default: all")
    parser.add_argument("--fresh", action="store_true", help="start over what is kept")
    parser.add_argument("--only-kept", action="store_true", help="run nothing; record what is kept")
    args = parser.parse_args()
    before = conditions()
    torch.set_num_threads(1)
    folder = ROOT / "runs" / ("attention_drift_quick" if args.quick else "attention_drift")
    legs = []
    for leg in chosen_legs(args):
        result = folder / leg.folder / "result.json"
        if args.only_kept:
            legs += [json.loads(result.read_text())] if result.exists() else []
            continue
        if args.fresh or args.quick:
            result.unlink(missing_ok=True)
            (result.parent / "state.npz").unlink(missing_ok=True)
        legs.append(run_leg(leg, folder, progress))
    data = {"cases": list(CASES), "bound": BOUND, "checked": CHECKED, "legs": legs}
    if not args.quick:
        from benchmarks.attention.attention_plots import draw_drift

        draw_drift(data, IMAGES / "attention_drift.png")
    finish(args, "attention_drift", QUESTION, before, data, requirements(legs), as_text)


if __name__ == "__main__":
    main()
