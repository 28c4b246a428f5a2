"""Define the fields of the record of `edgefold check`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from edgefold.runtime.record_fields import (
    MISSING,
    BackendReport,
    Count,
    SchemaVersion,
    Sha256,
    unit,
)


@dataclass(frozen=True, slots=True)
class CheckedMoment:
    """Holds the errors of the predictions at one moment of the recorded stream."""

    n_points: Annotated[Count, "Points before it."]
    errors: Annotated[
        dict[str, Annotated[float | None, "Largest error.", unit("scaled output")]],
        "By tensor of the prediction; null is not a number.",
    ]


@dataclass(frozen=True, kw_only=True)
class CheckRecord:
    """Holds the errors along a bundle's recorded stream on this machine, and the verdict."""

    schema: SchemaVersion = field(default=1, init=False)
    bundle: Annotated[str, "Folder of the bundle."]
    bundle_hash: Annotated[
        Sha256,
        "SHA-256 of its manifest, which holds the hash of every other file; older records lack it.",
    ] = MISSING
    backend: BackendReport
    tolerance: Annotated[
        float, "Largest error that passes, in units of the scaled output.", unit("scaled output")
    ]
    worst: Annotated[
        float | None, "Largest error; null if it is not a number.", unit("scaled output")
    ]
    passed: Annotated[bool, "Whether every error is within the tolerance."]
    rows: Annotated[list[CheckedMoment], "Errors after some points."]
