"""Turn a manifest's JSON into a `Manifest`, whatever it holds; the rules come after.

Nothing is judged here but what the conversion itself needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgefold.runtime.bundle.manifest import (
    ROLES,
    Graph,
    Manifest,
    Scaling,
    StateTensor,
    Tensor,
    WeightPlace,
)
from edgefold.runtime.predictions import KINDS, PredictionTensor


def parse(form: dict[str, Any], folder: Path, bundle_hash: str) -> Manifest:
    """A manifest of schema 2; damaged JSON raises anything of `PARSE_ERRORS`."""

    def tensor(entry: dict[str, Any]) -> Tensor:
        if entry["role"] not in ROLES:
            raise ValueError(f"unknown role {entry['role']!r} of {entry['name']}")
        shape = tuple(entry["shape"])
        return Tensor(entry["name"], entry["role"], entry["of"], shape, entry["dtype"])

    def graph(name: str, entry: dict[str, Any]) -> Graph:
        inputs, outputs = (tuple(map(tensor, entry[side])) for side in ("inputs", "outputs"))
        step, width, file = entry["step"], entry["width"], entry["file"]
        return Graph(name, step, width, file, entry["sha256"], inputs, outputs, entry["precision"])

    def kept(entry: dict[str, Any]) -> StateTensor:
        initial = entry.get("initial")
        initial = WeightPlace(**initial) if isinstance(initial, dict) else initial
        shape = tuple(entry["shape"])
        ring, slot = entry.get("ring"), entry.get("slot")
        return StateTensor(entry["name"], shape, entry["dtype"], initial, ring, slot)

    def scaling(entry: dict[str, Any]) -> Scaling:
        shift, scale = (tuple(float(v) for v in entry[key]) for key in ("shift", "scale"))
        return Scaling(shift, scale)

    prediction = form["prediction"]
    return Manifest(
        path=folder,
        bundle_hash=bundle_hash,
        model=form["model"],
        task=form["task"],
        n_streams=form["n_streams"],
        scaling_x=scaling(form["points"]["x"]),
        scaling_y=scaling(form["points"]["y"]),
        prediction=KINDS[prediction["kind"]](**prediction["settings"]),
        prediction_tensors=tuple(
            PredictionTensor(t["name"], tuple(t["shape"]), t["unscale"], t["dtype"])
            for t in prediction["tensors"]
        ),
        consolidate_every=form["consolidate_every"],
        capacity=form.get("capacity", 0),
        when_full=form.get("when_full", "refuse"),
        state=tuple(kept(entry) for entry in form["state"]),
        cache=tuple(kept(entry) for entry in form["cache"]),
        graphs={name: graph(name, entry) for name, entry in form["graphs"].items()},
        weights=form["weights"],
        golden=form["golden"],
        memory_plan=form["memory_plan"],
        precision=form["precision"],
        versions=form["versions"],
    )
