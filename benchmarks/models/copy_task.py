"""Which models solve the copy task, and how many tokens does an answer read?

Each run of the task `copy` is asked for the second half of 3,200 palindromes, as the paper does
(Feng et al. 2024, tree cross attention, section 4.1). The run is also exported, and the bundle
answers some of the same kind through `Stream`: how many of its answers are those of PyTorch, and
how long a refresh and a query take.

    python -m benchmarks copy_task runs/copy-a runs/copy-b

All runs of the table are given at once.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import (
    Requirement,
    arguments,
    at_least,
    at_most,
    conditions,
    finish,
    progress,
    spread,
)
from benchmarks.tables import as_text
from edgefold.export.bundle import ExportConfig, export_bundle
from edgefold.runtime import Stream
from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.errors import ExportError

QUESTION = "Which models solve the copy task, and how many tokens does an answer read?"
N_BATCHES, N_STREAMED = 100, 50
"""Batches of 32 sequences for PyTorch, and sequences for the bundle."""
SOLVED_PERCENT, MOST_READ_PERCENT = 99.0, 7.0
"""Accuracy that tree cross attention must reach, and the share of tokens it may read."""


def measure(run: Path, n_batches: int, n_streamed: int) -> dict[str, Any]:
    """Scores in PyTorch, and what the bundle does."""
    import torch

    from edgefold.train.checkpoints import load_model
    from edgefold.train.tasks.copy import CopyTask

    torch.set_num_threads(1)
    model, config = load_model(run)
    task = CopyTask(config["task"]["length"])
    scores, text = task.evaluate(model, n_batches, 0, (run.name, model.summary))
    progress(text)
    found: dict[str, Any] = {
        "model": config["model"],
        "training": config["training"],
        "n_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "length": task.length,
        "scores": scores["copy"],
    }
    batch = task.evaluation_batch(n_streamed, torch.Generator().manual_seed(1))
    with torch.inference_mode():
        told = model(batch.x_context, batch.y_context, batch.x_target)["scores"].argmax(-1)
    with tempfile.TemporaryDirectory(prefix="edgefold-") as folder:
        bundle = Path(folder) / run.name
        try:
            export_bundle(model, config["task"], bundle, ExportConfig(targets=task.length // 2))
        except ExportError as refused:
            return {**found, "not_exported": str(refused)}
        with Stream.open(bundle, "onnxruntime") as stream:
            rows = (batch.x_context.numpy(), batch.y_context.numpy(), batch.x_target.numpy())
            answers, times = answered(stream, *rows)
    return {**found, "same_answers": float((answers == told.numpy()).mean()), "times": times}


def answered(
    stream: Stream, x: FloatArray, y: FloatArray, targets: FloatArray
) -> tuple[NDArray[np.integer], dict[str, Any]]:
    """The classes (S, M) that a bundle gives for S sequences, and the times of its calls."""
    found = []
    refreshed, queried = [], []
    for sequence in range(len(x)):
        stream.reset()
        stream.condition(x[sequence], y[sequence])
        start = time.perf_counter_ns()
        stream.refresh()
        middle = time.perf_counter_ns()
        prediction = stream.query(targets[sequence])
        queried.append(time.perf_counter_ns() - middle)
        refreshed.append(middle - start)
        found.append(prediction.scores.argmax(-1))
    return np.stack(found), {"refresh": spread(refreshed), "query": spread(queried)}


def requirements(runs: dict[str, Any]) -> list[Requirement]:
    """The project's bounds for tree cross attention, and that bundles answer like PyTorch."""
    found = []
    for name, own in runs.items():
        scores = own["scores"]
        if own["model"]["kind"] == "retreever" and not own["model"]["full"]:
            right, read = 100 * scores["accuracy"], 100 * scores["share_read"]
            found.append(at_least(f"{name}: right answers", right, SOLVED_PERCENT, "%"))
            found.append(at_most(f"{name}: tokens read", read, MOST_READ_PERCENT, "%"))
        if "same_answers" in own:
            same = 100 * own["same_answers"]
            found.append(at_least(f"{name}: answers as PyTorch's", same, SOLVED_PERCENT, "%"))
    return found


def main() -> None:
    """Ask and record."""
    parser = arguments(__doc__ or "", "copy_task")
    parser.add_argument("runs", type=Path, nargs="+", help="runs of the task copy")
    args = parser.parse_args()
    n_batches, n_streamed = (1, 2) if args.quick else (N_BATCHES, N_STREAMED)
    before = conditions()
    runs = {run.name: measure(run, n_batches, n_streamed) for run in args.runs}
    data = {"n_streamed": n_streamed, "runs": runs}
    finish(args, "copy_task", QUESTION, before, data, requirements(runs), as_text)


if __name__ == "__main__":
    main()
