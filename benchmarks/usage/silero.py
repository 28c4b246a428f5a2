"""How much does a bundle gain over an ONNX file that is run by hand? Silero VAD, imported.

The file is that of the installed package `silero-vad`. By hand: onnxruntime on the file with state
and overlap in a loop of the user's own, as the package does it (`silero_child.ByHand`). Three
questions, on two bundles (see `ImportConfig.reorder_sums`):

    probabilities   ten minutes of made-up speech through each form
    times           a block of steps of each in turn, the order changing; ratios within a round
                    round   1                     2                  ...
                            │ by hand │ bundle ... │ bundle ... │ by hand │
    memory          processes of their own, in turns: anonymous memory after 500 steps, and the peak
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import ROOT, Requirement, arguments, at_most, conditions, finish, progress
from benchmarks.record import spread as spread_of
from benchmarks.rounds import block_medians
from benchmarks.tables import as_text
from benchmarks.usage.silero_child import SAMPLES, ByHand
from edgefold.export.importing.imported_bundle import import_bundle
from edgefold.runtime import Stream
from examples.silero_vad import CONFIG, RATE, SPEECH, installed_model, made_up_speech

QUESTION = "What does a bundle gain over an ONNX file that is run by hand?"
BUNDLE, REORDERED = "bundle", "bundle, sums reordered"


def compare(streams: dict[str, Stream], by_hand: ByHand, minutes: float) -> dict[str, Any]:
    """Probabilities along a stream of speech."""
    audio, _ = made_up_speech(60 * minutes)
    rows = audio[: len(audio) // SAMPLES * SAMPLES].reshape(-1, 1, SAMPLES)
    exact = np.array([by_hand.step(row).item() for row in rows])
    found = {}
    for name, stream in streams.items():
        stream.reset()
        own = np.array([stream.step(row).output.item() for row in rows])
        found[name] = {
            "largest_difference": float(np.abs(own - exact).max()),
            "decisions_that_differ": int(((own >= SPEECH) != (exact >= SPEECH)).sum()),
        }
    share = float((exact >= SPEECH).mean())
    return {
        "seconds": len(audio) / RATE, "n_steps": len(rows), "share_of_speech": share, "forms": found
    }  # fmt: skip


def time_steps(
    streams: dict[str, Stream], by_hand: ByHand, n_rounds: int
) -> dict[str, dict[str, float]]:
    """Blocks in turns; the ratio of each round's medians to the one by hand."""
    audio, _ = made_up_speech(10)
    row = audio[RATE * 2 :][:SAMPLES][None]
    calls: dict[str, Callable[[], Any]] = {"by hand": partial(by_hand.step, row)}
    for name, stream in streams.items():
        calls[name] = partial(stream.step, row)
        calls[f"{name}: graph alone"] = partial(stream.run_step, "step")
    medians = block_medians(calls, n_rounds)
    first = np.array(medians["by hand"])
    return {
        name: {**spread_of(own), "ratio": float(np.median(np.array(own) / first))}
        for name, own in medians.items()
    }


def weigh(file: Path, bundles: dict[str, Path], n_repeats: int) -> dict[str, Any]:
    """Memory of processes that run one form each."""
    child = str(ROOT / "benchmarks" / "silero_child.py")
    commands = {"by hand": ["file", str(file)]}
    commands |= {name: ["bundle", str(bundle)] for name, bundle in bundles.items()}
    found: dict[str, list[list[int]]] = {name: [] for name in commands}
    for repeat in range(n_repeats):
        for name, command in commands.items():
            done = subprocess.run(
                [sys.executable, child, *command],
                cwd=ROOT,
                env={**os.environ, "ORT_DISABLE_TELEMETRY": "1"},  # its thread has a heap
                capture_output=True,
                text=True,
                check=True,
            )
            found[name].append([int(line) for line in done.stdout.split()])
        progress(f"memory: {repeat + 1} of {n_repeats}", repeat + 1 == n_repeats)
    return {
        name: {
            "n": n_repeats,
            "anonymous_bytes": statistics.median(run[0] for run in runs),
            "peak_bytes": statistics.median(run[1] for run in runs),
        }
        for name, runs in found.items()
    }


def requirements(data: dict[str, Any]) -> list[Requirement]:
    """The bounds of the project, for what an import makes unless told otherwise."""
    memory = {name: own["anonymous_bytes"] for name, own in data["memory"].items()}
    own = data["probabilities"]["forms"][BUNDLE]
    share = memory[BUNDLE] / memory["by hand"]
    return [
        at_most("difference of the probability", own["largest_difference"], 1e-6, ""),
        at_most("step beside the one by hand", data["times"][BUNDLE]["ratio"], 1, "x"),
        at_most("anonymous memory beside the one by hand", share, 1, "x"),
    ]


def main() -> None:
    """Measure and write the record."""
    args = arguments(__doc__, "silero").parse_args()
    before = conditions()
    file = installed_model()
    configs = {BUNDLE: CONFIG, REORDERED: replace(CONFIG, reorder_sums=True)}
    with tempfile.TemporaryDirectory(prefix="edgefold-") as folder, ExitStack() as stack:
        bundles = {name: Path(folder) / str(index) for index, name in enumerate(configs)}
        streams = {}
        for name, bundle in bundles.items():
            import_bundle(file, bundle, configs[name])
            streams[name] = stack.enter_context(Stream.open(bundle, backend="onnxruntime"))
        by_hand = ByHand(str(file))
        measured = {
            "probabilities": compare(streams, by_hand, 0.5 if args.quick else 10),
            "times": time_steps(streams, by_hand, 30 if args.quick else 600),
            "memory": weigh(file, bundles, 1 if args.quick else 7),
        }
    data = {"silero_vad": version("silero-vad"), "threshold": SPEECH, **measured}
    finish(args, "silero", QUESTION, before, data, requirements(data), as_text)


if __name__ == "__main__":
    main()
