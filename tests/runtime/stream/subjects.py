"""A bundle's stream as the contract suite drives it."""

from __future__ import annotations

from edgefold.export.checks import subjects as contract_subjects
from edgefold.runtime import Stream
from tests.contract import Array, draw


class StreamSubject(contract_subjects.StreamSubject):
    """The tests' bundles hold a CMANP, to which the order of points is nothing."""

    def __init__(self, stream: Stream):
        super().__init__(stream, ordered=False)


def points(stream: Stream, n: int) -> tuple[Array, Array]:
    """n points of the first stream, raw units."""
    subject = StreamSubject(stream)
    x, y = draw(subject, n)
    scaling_x, scaling_y = stream.manifest.scaling_x, stream.manifest.scaling_y
    return x[0] * scaling_x.scale + scaling_x.shift, y[0] * scaling_y.scale + scaling_y.shift
