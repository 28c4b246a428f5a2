"""The bundles that are attacked: small models of every shape, each exported once.

    python -m attack.subjects FOLDER [NAME...]

It runs as a process of its own: the fuzzers fork, so they must never have opened a session.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from edgefold.runtime.bundle.manifest_file import with_checksum
from edgefold.runtime.series.spec import SeriesSpec

ROOT = Path(__file__).parents[1]
SCALED = {"x_shift": [10.0], "x_scale": [3.0], "y_shift": [400.0], "y_scale": [20.0]}
EXAMPLES: dict[str, tuple[str, dict[str, Any], dict[str, Any], int]] = {
    "kalman": ("kalman.py:Kalman", {}, {}, 1),
    "rls": ("rls.py:Rls", {"n_inputs": 2}, {}, 1),
    "gru": ("gru.py:Gru", {"width": 4}, SCALED, 1),
    "tcn": ("tcn.py:Tcn", {"width": 4, "dilations": [1, 2]}, {}, 1),
    "ring": (
        "transformer.py:Transformer",
        {"width": 8, "n_heads": 2, "n_layers": 1, "ring": 4},
        {},
        1,
    ),
    "filter": (
        "keyword_spotter.py:KeywordSpotter",
        {"width": 4, "n_layers": 1, "kernel": 3, "n_inputs": 3, "n_classes": 3},
        {},
        1,
    ),
    "streams": ("gru.py:Gru", {"width": 4, "n_outputs": 2}, {}, 3),
}
"""Model, settings, task's scaling and number of streams."""
OTHERS = ("cmanp", "co2")
NAMES = (*EXAMPLES, *OTHERS)
QUICK = ("kalman", "gru", "cmanp")
"""Enough for the quick version: one with only a state, scaled inputs, every kind of step."""


def export_subjects(folder: Path, names: tuple[str, ...] = NAMES) -> None:
    """Export the named bundles into a folder, where they are not there yet."""
    missing = [name for name in names if not (folder / name / "manifest.json").exists()]
    if missing:
        command = [sys.executable, "-m", "attack.subjects", str(folder), *missing]
        subprocess.run(command, check=True, cwd=ROOT)


def _export(folder: Path, name: str) -> None:
    import torch

    from edgefold.export.bundle import ExportConfig, export_bundle
    from edgefold.train.checkpoints import load_model
    from edgefold.train.models.constant_memory.cmanp import Cmanp, CmanpConfig
    from edgefold.train.models.registry import create_model

    torch.manual_seed(0)
    if name == "co2":
        model, config = load_model(ROOT / "checkpoints/series-co2")
        export_bundle(model, config["task"], folder / name, ExportConfig(parity_steps=150))
        return
    if name == "cmanp":
        sizes = CmanpConfig(
            n_inputs=1, n_outputs=1, n_blocks=1, width=8, n_heads=2, n_latents=4, feedforward=8
        )
        spec = SeriesSpec(clock="number", step=1.0, lags=1).to_json()
        task = {"name": "series", "features": spec, "y_shift": [0.0], "y_scale": [2.0]}
        model, streams = Cmanp(sizes).eval(), 1
    else:
        place, settings, scaling, streams = EXAMPLES[name]
        task = {"name": "untrained", **scaling}
        model = create_model(str(ROOT / "examples" / place), settings)
    sizes_ = ExportConfig(chunk=4, targets=2, streams=streams, parity_steps=24)
    export_bundle(model, task, folder / name, sizes_)


def as_series(bundle: Path, clock: str = "number", step: float = 1.0) -> None:
    """Make a bundle of one input one of a series, whose x is the last change."""
    path = bundle / "manifest.json"
    form = json.loads(path.read_text())
    spec = SeriesSpec(clock=clock, step=step, lags=1)  # type: ignore[arg-type]
    form["task"] = {"name": "series", "features": spec.to_json()}
    path.write_text(json.dumps(with_checksum(form)))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    for wanted in sys.argv[2:] or NAMES:
        _export(place, wanted)
