"""Define the fields of the record of `edgefold evaluate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from edgefold.runtime.record_fields import (
    MISSING,
    BackendReport,
    Count,
    Object,
    SchemaVersion,
    Sha256,
)


@dataclass(frozen=True, kw_only=True)
class EvaluateRecord:
    """Holds the scores of a run or of a bundle, with those of its baselines."""

    schema: SchemaVersion
    bundle_hash: Annotated[Sha256, "Of a bundle: SHA-256 of its manifest."] = MISSING
    backend: Annotated[BackendReport, "Of a bundle: what ran it."] = MISSING
    run: Annotated[Object, "Of a run: its configuration, as config.json has it."] = MISSING
    csv: Annotated[str, "Of a series: name of the file."] = MISSING
    n_training_points: Annotated[Count, "Of a series: points before the held-out part."] = MISSING
    model: Annotated[str, "Of a series: which entry of the scores is the model."] = MISSING
    scores: Annotated[
        Object,
        "Of a series, by forecaster: rmse and mae in units of the value, coverage_90 as "
        "a share, log_likelihood in nats a row, n rows. Of another task, what the "
        "task's own evaluation gives.",
    ]
