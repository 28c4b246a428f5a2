"""Every error that Edgefold raises on a device, in one tree.

    EdgefoldError
    ├── BundleError          a bundle that is missing, damaged, changed or of another schema
    ├── MemoryLimitError     a bundle that would not fit the memory it was given
    ├── BackendError         a backend that does not open, or a step that failed while running
    ├── ShapeError           an array of another shape than the bundle was exported for
    ├── ValueRefusedError    NaN or infinite points, refused before they touch the state
    ├── StepRefusedError     a step whose arithmetic was not finite; the state is as before
    ├── SnapshotError        a snapshot that is missing, damaged, or of another bundle
    ├── ClosedError          a stream used after close()
    ├── DataError            input rows that cannot be read
    └── OutputError          predictions that cannot be written, or would overwrite a file

A message says what was asked, what was found and what to do, in one line.
"""

from __future__ import annotations


class EdgefoldError(Exception):
    """Root of the tree: catch this to catch everything that Edgefold refuses."""


class BundleError(EdgefoldError):
    """The bundle is missing, damaged, changed or of another schema."""


class MemoryLimitError(EdgefoldError):
    """A bundle's predicted memory exceeds the limit it was given; nothing was opened."""


class BackendError(EdgefoldError):
    """A backend does not open, or a step failed while running."""


class ShapeError(EdgefoldError):
    """An array has another shape than the bundle was exported for."""


class ValueRefusedError(EdgefoldError):
    """Points hold NaN or infinity; nothing was folded."""


class StepRefusedError(EdgefoldError):
    """A step's arithmetic was not finite; the state is as before."""


class SnapshotError(EdgefoldError):
    """A snapshot is missing, damaged, or of another bundle."""


class ClosedError(EdgefoldError):
    """The stream was closed."""


class DataError(EdgefoldError):
    """Input rows cannot be read."""


class OutputError(EdgefoldError):
    """Predictions cannot be written, or would overwrite a file."""
