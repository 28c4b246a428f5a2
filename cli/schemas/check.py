"""Fields of the record of `edgefold check`."""

from __future__ import annotations

from typing import Annotated, Literal

from edgefold.cli.schemas.parts import Backend
from edgefold.cli.schemas.schema import MISSING, Count, Sha256, record, unit


@record()
class Row:
    """One moment."""

    n_points: Annotated[Count, "Points before it."]
    errors: Annotated[
        dict[str, Annotated[float | None, "Largest error.", unit("scaled output")]],
        "By tensor of the prediction; null is not a number.",
    ]


@record(name="check", title="The record of `edgefold check`")
class CheckRecord:
    """Errors along a bundle's recorded stream on this machine."""

    schema: Annotated[Literal[1], "Version of this record's fields.", unit("count")]
    bundle: Annotated[str, "Folder of the bundle."]
    bundle_hash: Annotated[
        Sha256,
        "SHA-256 of its manifest, which holds the hash of every other file; older records lack it.",
    ] = MISSING
    backend: Backend
    tolerance: Annotated[
        float, "Largest error that passes, in units of the scaled output.", unit("scaled output")
    ]
    worst: Annotated[
        float | None, "Largest error; null if it is not a number.", unit("scaled output")
    ]
    passed: Annotated[bool, "Whether every error is within the tolerance."]
    rows: Annotated[list[Row], "Errors after some points."]
