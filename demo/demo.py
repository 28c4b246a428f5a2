"""A forecast without training, then two models from PyTorch to running bundles: `make demo`.

    a table ──> forecast, with the model that is shipped for any sensor
    checkpoint ──> export ──> check ──> budget ──> evaluate ──> run ──> profile ──> a summary
    examples/gru.py ──> verify ──> export ──> check

Everything is written into demo-output/, which is emptied first. Training is left out: the shipped
checkpoint took nine minutes (checkpoints/README.md).
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUT = Path("demo-output")  # seen from the repository's root
BUNDLE = OUT / "series-co2"
OWN = OUT / "gru"
STAGES = (
    (
        "Forecast a sensor that the shipped general model has never seen: no training, no option.",
        f"forecast data/air_temperature_hourly.csv --out {OUT}/temperature.csv",
    ),
    (
        "Now a model of one series. Export it: one ONNX graph a step, compared with PyTorch.",
        f"export checkpoints/series-co2 --out {BUNDLE}",
    ),
    (
        "Check the bundle: replay its recorded stream on this machine. This needs no torch.",
        f"check {BUNDLE}",
    ),
    (
        "Ask, before any board is bought, which ones it would fit: 96 MiB, 50 rows a second.",
        f"budget --sweep {BUNDLE} --memory 96MiB --rate 50 --plot {OUT}/boards.png",
    ),
    (
        "Score it on the part of the series that training never saw, beside the baselines.",
        f"evaluate {BUNDLE} --csv data/co2_weekly.csv --json {OUT}/scores.json "
        f"--plot {OUT}/forecasts.png",
    ),
    (
        "Run it as a board would, from the first week on: predict each row, then learn from it.\n"
        "Its RMSE counts all 43 years, so it is another one than the held-out part's.",
        f"run {BUNDLE} --input data/co2_weekly.csv --output {OUT}/predictions.csv "
        f"--snapshot {OUT}/state.npz --every 500",
    ),
    (
        "Measure latency, memory and, where a sensor exists, energy of each step.",
        f"profile {BUNDLE} --rate 50 --energy-seconds 30 --json {OUT}/profile.json "
        f"--html {OUT}/profile.html",
    ),
    (
        "Now a model as a user writes it: a file with a GRU. Test it against the contract.",
        "verify examples/gru.py:Gru --set width=32 --steps 300",
    ),
    (
        "Export it by the same command. It is untrained here; --weights would give its weights.",
        f"export examples/gru.py:Gru --set width=32 --out {OWN}",
    ),
    (
        "Check it, as on a board, without torch.",
        f"check {OWN}",
    ),
)


def main() -> int:
    """Run the stages; stops at the first that fails."""
    started_s = time.monotonic()
    os.chdir(ROOT)
    if OUT.exists():
        shutil.rmtree(OUT)
    OUT.mkdir()
    edgefold = Path(sys.executable).with_name("edgefold")
    print("To type a command of these yourself, first activate the environment, in this folder:")
    print(f"$ . {os.path.relpath(edgefold.parent)}/activate", flush=True)
    for number, (what, words) in enumerate(STAGES, 1):
        print(f"\n[{number}/{len(STAGES)}] {what}\n$ edgefold {words}", flush=True)
        stage_s = time.monotonic()
        # In a log, what a command tells on stderr stays in its stage.
        stderr = None if sys.stderr.isatty() else subprocess.STDOUT
        command = [str(edgefold), *shlex.split(words)]
        done = subprocess.run(command, stderr=stderr, check=False)
        if done.returncode:
            print(f"\nthe demo stopped: stage {number} ended with exit code {done.returncode}")
            return done.returncode
        print(f"({time.monotonic() - stage_s:.1f} s)", flush=True)
    print("\nwritten")
    for path, what in (
        (OUT / "temperature.png", "an airport's air temperature: bands, alarms and the next day"),
        (OUT / "temperature.csv", "forecast, band, p-value and alarm of each of its hours"),
        (BUNDLE, "the exported model: graphs, weights, manifest, recorded stream"),
        (OUT / "boards.png", "which boards it fits, by prediction"),
        (OUT / "forecasts.png", "predictions and their 90 % band over the held-out part"),
        (OUT / "scores.json", "the table above"),
        (OUT / "predictions.csv", "prediction, std, error and anomaly flag of each row"),
        (OUT / "state.npz", "the snapshot: the same `edgefold run` resumes from it"),
        (OUT / "profile.html", "the report: open it in a browser"),
        (OUT / "profile.json", "the same as data"),
        (OWN, "the GRU's bundle"),
    ):
        print(f"  {path!s:30} {what}")
    print(f"\n{summary(read('scores.json'), read('profile.json'))}")
    print(f"\ndone in {time.monotonic() - started_s:.0f} s")
    print(
        f"`. {os.path.relpath(edgefold.parent)}/activate` puts `edgefold` on the PATH; "
        "docs/your-own-model.md is next."
    )
    return 0


def read(name: str) -> dict[str, Any]:
    """One of the records."""
    record: dict[str, Any] = json.loads((OUT / name).read_text())
    return record


def summary(scores: dict[str, Any], profile: dict[str, Any]) -> str:
    """Five lines: error, calibration, the two latencies, needed memory."""
    model, persistence = scores["scores"][scores["model"]], scores["scores"]["persistence"]
    steps = {step["name"]: step for step in profile["latency"]}
    gain = 100 * (1 - model["rmse"] / persistence["rmse"])
    rows = [
        (
            "RMSE, held-out part",
            f"{model['rmse']:.3f} ppm; persistence {persistence['rmse']:.3f} ({gain:.0f} % less)",
        ),
        ("90 % band", f"holds {100 * model['coverage_90']:.1f} % of {model['n']} values"),
    ]
    for name, what in (("update", "of one point"), ("query", "of one target, cache fresh")):
        step = steps[name]
        times = f"{1e6 * step['p50_s']:.0f} µs median, {1e6 * step['p99_s']:.0f} µs p99"
        rows.append((f"{name} {what}", times))
    needed = profile["memory"]["needed_bytes"]
    rows.append(("memory needed", f"{needed / 1e6:.1f} MB"))
    return "\n".join(f"{name:36}{value}" for name, value in rows)


if __name__ == "__main__":
    sys.exit(main())
