"""Does the state stay exact on a stream that never ends?

A stream of 100,000,000 points passes through a bundle's graphs, and its state is compared with the
exact one. The points come from two sets of 64, so that the exact state is known in closed form
(`benchmarks.accuracy.closed_form`); the change of set shows a state that has stopped growing.

    points   0 ──────────── 3e6 ─────────────────────────────────────────────> 1e8
    stream   set A, in turn │ set B, in turn
    compared   1e4  ...  1e6  ...  at four moments a decade, with float64

    folded     the shipped graphs, 32 points a fold          to 1e8
    single     the shipped graphs, one point an update       to 1e6 (native: 1e7)
    plain      the same graphs, consolidation never run      to 4e6, one point an update
    paper      the paper's log-count recurrence in float32   to 4e6, one point an update

Error of the state: of all attended vectors by their norm, and of the worst latent's alone. It is
told against float64 throughout (error), against exact sums of the leg's own float32 scores and
values, which is what the stream's length alone adds (drift), and for those exact sums against
float64, which is the rounding of one look at each point, whatever is done with it (scoring).
The four legs are no timing, so two processes share them. Draws docs/img/drift.png. With
`--backend native` the first two legs run as C that this machine's compiler builds, without picture.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import (
    IMAGES,
    ROOT,
    Requirement,
    arguments,
    at_most,
    conditions,
    finish,
)
from benchmarks.subjects import Subject, points, trained, untrained
from benchmarks.tables import as_text
from edgefold.runtime.backends.base import EngineOptions

SET = 64
CHANGE = 3_000_000  # a multiple of SET
BOUND = 1e-5
QUESTION = "Does the state stay exact on a stream that never ends?"
CANDIDATES = ("checkpoints/gp", "checkpoints/gp-small", "runs/gp-small")


@dataclass(frozen=True, slots=True)
class Job:
    """One leg: which form, of which subject, how far, and on which backend."""

    leg: str
    subject: Subject
    n_points: int
    change: int
    backend: str

    @property
    def engine(self) -> EngineOptions:
        """Folder in which the backend finds its library."""
        return EngineOptions(cache=library_folder(self.subject))


def library_folder(subject: Subject) -> Path:
    """Return the folder where a subject's compiled library lies as long as the subject does."""
    return subject.bundle.parent / "libraries"


def moments(n_points: int) -> list[int]:
    """Four a decade from 1e4, whole rounds of a set, and the end."""
    steps = range(4 * math.ceil(math.log10(n_points)) + 1)
    rising = {math.ceil(10 ** (k / 4) / SET) * SET for k in steps if k >= 16}
    return sorted({n for n in rising if n < n_points} | {n_points})


def counts_after(n_points: int, change: int) -> NDArray[np.int64]:
    """Return how often each point of A and then of B came: (2 * SET,)."""

    def in_turn(n: int) -> NDArray[np.int64]:
        return n // SET + (np.arange(SET) < n % SET)

    return np.concatenate([in_turn(min(n_points, change)), in_turn(max(n_points - change, 0))])


def both_sets(n_inputs: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """A, then B: x (128, X), y (128, 1)."""
    (xa, ya), (xb, yb) = (points(SET, n_inputs, seed=seed) for seed in (0, 1))
    return np.concatenate([xa, xb]), np.concatenate([ya, yb])


def run_leg(job: Job) -> dict[str, Any]:
    """Run a leg and compare at its moments."""
    import torch

    from benchmarks.accuracy import closed_form
    from edgefold.train.checkpoints import load_model
    from edgefold.train.models.constant_memory.cmanp import Cmanp

    torch.set_num_threads(1)
    model, _ = load_model(job.subject.run)
    assert isinstance(model, Cmanp), "the closed form is that of CMANP's running attention"
    x, y = both_sets(model.n_inputs)
    exact = closed_form.exact_form(model, x, y)
    if job.leg == "paper":
        own = closed_form.ClosedForm(*closed_form.scores_values(model, x, y))
    else:
        step = "condition" if job.leg == "folded" else "update"
        bundle, engine = job.subject.bundle, job.engine
        own = closed_form.graph_form(bundle, step, x, y, job.backend, engine)
    targets, _ = points(16, model.n_inputs, seed=2)
    rows = []
    start_s = time.perf_counter()
    stream = _paper if job.leg == "paper" else _graphs
    for n, state, prediction in stream(job, model, x, y, targets):
        counts = counts_after(n, job.change)
        reference = exact.after(counts)
        error = closed_form.relative_errors(state, reference)
        drift = closed_form.relative_errors(state, own.after(counts))
        scoring = closed_form.relative_errors(own.after(counts), reference)
        row = {"n_points": n, "error": error, "drift": drift, "scoring": scoring}
        if prediction is not None:
            expected = closed_form.exact_predictions(model, reference, targets)
            gaps = (np.abs(a - b).max() for a, b in zip(prediction, expected, strict=True))
            row["prediction_error"] = float(max(gaps))
        rows.append(row)
        kinds = {"error": error["norm"], "worst": error["attended"], "drift": drift["attended"]}
        cells = "".join(f"  {kind} {value:.1e}" for kind, value in kinds.items())
        took_s = time.perf_counter() - start_s
        print(f"{job.leg:<7}{n:>12,} points{cells}{took_s:7.0f} s", file=sys.stderr, flush=True)
    return {"leg": job.leg, "duration_s": time.perf_counter() - start_s, "rows": rows}


def _graphs(
    job: Job, model: Any, x: NDArray[Any], y: NDArray[Any], targets: NDArray[Any]
) -> Iterator[tuple[int, Any, Any]]:
    """Stream through a bundle; yields points, state and prediction at each moment."""
    from benchmarks.accuracy.closed_form import of_graph
    from edgefold.runtime import Stream

    bundle = job.subject.bundle
    with tempfile.TemporaryDirectory() as folder:
        if job.leg == "plain":
            bundle = without_consolidation(bundle, Path(folder) / "plain")
        with Stream.open(bundle, backend=job.backend, engine=job.engine) as stream:
            assert stream.manifest.scaling_x.is_identity and stream.manifest.scaling_y.is_identity
            width = stream.manifest.chunk if job.leg == "folded" else 1
            assert SET % width == 0
            folds = [(x[i : i + width], y[i : i + width]) for i in range(0, 2 * SET, width)]
            per_set = SET // width
            update, done = stream.update, 0
            for moment in moments(job.n_points):
                for part, stop in ((0, min(moment, job.change)), (1, moment)):
                    of_set = folds[part * per_set : (part + 1) * per_set]
                    seen = part * job.change
                    for index in range((done - seen) // width, (stop - seen) // width):
                        update(*of_set[index % per_set])
                    done = max(done, stop)
                assert stream.n_points == moment
                state = of_graph(stream.state())
                prediction = stream.query(targets)
                yield moment, state, (prediction.mean, prediction.std)


def _paper(
    job: Job, model: Any, x: NDArray[Any], y: NDArray[Any], targets: NDArray[Any]
) -> Iterator[tuple[int, Any, Any]]:
    from benchmarks.accuracy.closed_form import PaperForm

    form = PaperForm(model, x, y)
    fold, done = form.fold, 0
    for moment in moments(job.n_points):
        for index in range(done, moment):
            fold(index % SET if index < job.change else SET + (index - job.change) % SET)
        done = moment
        yield moment, form.state(), None


def without_consolidation(bundle: Path, out: Path) -> Path:
    """A copy of a bundle whose manifest says that the recent sums never move to the base."""
    from edgefold.runtime.bundle.manifest_file import with_checksum

    shutil.copytree(bundle, out)
    path = out / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(with_checksum({**manifest, "consolidate_every": 0})))
    return out


def measure(subject: Subject, args: argparse.Namespace, change: int) -> list[dict[str, Any]]:
    """All legs of a backend, the longest on a process of its own."""
    sizes = {"folded": args.points, "single": 1_000_000, "plain": 4_000_000, "paper": 4_000_000}
    if args.backend == "native":
        sizes = {"folded": args.points, "single": 10_000_000}
        command = [sys.executable, "-m", "edgefold.cli.main", "build", str(subject.bundle)]
        library_folder(subject).mkdir()
        subprocess.run([*command, "--cache", str(library_folder(subject))], cwd=ROOT, check=True)
    if args.quick:
        sizes = {leg: 40_000 for leg in sizes}
    jobs = [Job(leg, subject, n, change, args.backend) for leg, n in sizes.items()]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        return list(pool.map(run_leg, jobs))


def draw(legs: list[dict[str, Any]], change: int, out: Path) -> None:
    """Error of the state against points, both logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"font.size": 11, "font.family": "DejaVu Sans"})
    figure, axes = plt.subplots(figsize=(8.8, 4.6), dpi=160)
    by_leg = {leg["leg"]: leg["rows"] for leg in legs}
    # Leg, kind, colour, width, dashes, label, and where the label stands: at the end or the start.
    for leg, kind, color, width, dash, label, at, shift in (
        ("paper", "error", "#b3541e", 1.8, "-", "the paper's log-count form", -1, (7, 0)),
        ("plain", "error", "#7d838c", 1.8, "-", "plain float32 sums", -1, (7, 0)),
        ("folded", "error", "#1565c0", 2.4, "-", "Edgefold, 32 points a fold", -1, (0, -14)),
        ("single", "error", "#6aa5e0", 2.4, "-", "Edgefold, point by point", 0, (0, -13)),
        (
            "folded",
            "drift",
            "#1565c0",
            1.2,
            (0, (2, 2)),
            "of it, what the length adds",
            0,
            (0, -12),
        ),
    ):
        n = [row["n_points"] for row in by_leg[leg]]
        errors = [row[kind]["norm"] for row in by_leg[leg]]
        axes.loglog(n, errors, color=color, linewidth=width, linestyle=dash)
        axes.annotate(
            label,
            (n[at], errors[at]),
            shift,
            textcoords="offset points",
            color=color,
            ha="right" if at and not shift[0] else "left",
            va="center",
        )
    axes.axhline(BOUND, color="#444", linewidth=0.9, linestyle=(0, (5, 4)))
    axes.text(1.4e8, BOUND * 1.2, "required: below 1e-5", color="#444", fontsize=9.5, ha="right")
    axes.axvline(change, color="#bbb", linewidth=0.9)
    axes.text(change * 1.08, 2, "other points\nfrom here on", color="#888", fontsize=9.5, va="top")
    axes.set_xlim(8e3, 1.6e8)
    axes.set_ylim(1e-8, 3)
    axes.set_xlabel("points in the stream")
    axes.set_ylabel("relative error of the state")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, which="major", color="#eee", linewidth=0.8)
    axes.minorticks_off()
    figure.tight_layout()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)


def requirements(legs: list[dict[str, Any]]) -> list[Requirement]:
    """The bound on the shipped graphs' legs, at every moment that was compared."""
    found = []
    for leg in legs:
        if leg["leg"] not in ("folded", "single"):
            continue
        rows = leg["rows"]
        where = f"{rows[-1]['n_points']:,} points, {leg['leg']}"
        for what, kind, part in (
            ("error of the state", "error", "norm"),
            ("drift of the worst latent", "drift", "attended"),
            ("drift of the sums of weights", "drift", "count"),
        ):
            worst = max(row[kind][part] for row in rows)
            found.append(at_most(f"{what}, {where}", worst, BOUND, ""))
    return found


def main() -> None:
    """Measure, draw and record."""
    parser = arguments(__doc__ or "", "drift")
    parser.add_argument("--run", type=Path, help="the trained run; default: the shipped gp run")
    parser.add_argument("--points", type=int, default=100_000_000, help="length of the long leg")
    parser.add_argument(
        "--backend", choices=["onnxruntime", "native"], default="onnxruntime", help="of the graphs"
    )
    args = parser.parse_args()
    before = conditions()
    change = 24_000 // SET * SET if args.quick else CHANGE
    found = [ROOT / name for name in CANDIDATES if (ROOT / name / "model.safetensors").exists()]
    run: Path | None = args.run or (found[0] if found else None)
    with trained(run) if run else untrained("small") as subject:
        config = json.loads((subject.run / "config.json").read_text())
        legs = measure(subject, args, change)
    data = {
        "run": run.name if run else "untrained, small",
        "steps_done": config["training"].get("steps_done"),
        "model": config["model"],
        "change": change,
        "backend": args.backend,
        "legs": legs,
    }
    variant = "native" if args.backend == "native" else ""
    if not (args.quick or variant):
        draw(legs, change, IMAGES / "drift.png")
    question = f"{QUESTION[:-1]}, as C?" if variant else QUESTION
    finish(args, "drift", question, before, data, requirements(legs), as_text, variant)


if __name__ == "__main__":
    main()
