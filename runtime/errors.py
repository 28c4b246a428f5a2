"""Define every error that Edgefold raises on purpose, as one tree of classes.

    EdgefoldError
    ├── BundleError          a bundle that is missing, damaged, changed or of another schema
    ├── KeyFileError         a key that is missing, of another kind, or would be replaced
    ├── MemoryLimitError     a bundle that would not fit the memory it was given
    ├── BackendError         a backend that does not open, or a step that failed while running
    ├── ShapeError           an array of another shape than the bundle was exported for
    ├── ValueRefusedError    NaN or infinite points, or a seed where none is taken
    ├── StepRefusedError     a step whose arithmetic was not finite; the state is as before
    ├── CapacityError        more points than the state has room for; nothing was learned
    ├── SnapshotError        a snapshot that is missing, damaged, or of another bundle
    │   └── OverlapError     states that have rows in common, or may have: they would count twice
    ├── ClosedError          a stream used after close(), or by a fork of its process
    ├── BusyError            a stream called while another call of it is running
    ├── DataError            input rows that cannot be read
    │   └── PaceError        rows at another pace than the model was trained for
    ├── OutputError          predictions that cannot be written, or would overwrite a file
    ├── MeterError           a sensor or counter that is absent, unreadable or too coarse
    ├── BoardError           a board that is unknown or not reached, or a profile that is not valid
    │   └── BoardFailedError a board that was reached and failed: its disk, a program, the line
    ├── ModelError           a model or task that cannot be loaded, or breaks the contract
    ├── ExportError          a model that cannot be exported
    ├── CheckpointError      a training run that cannot be read or written
    ├── TrainingError        training that cannot continue
    └── WorkError            work on many processes that died of it again and again

A message says what was asked, what was found and what to do, in one line. An error may carry
remedies: commands of which each removes a cause.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated


def install_extra(extra: str) -> str:
    """Return the command that installs an extra; it works for a wheel and for a clone.

    Edgefold is installed where an error is read, so pip installs only what the extra adds to it.
    """
    return f"pip install 'edgefold[{extra}]'"


@dataclass(frozen=True, slots=True)
class Remedy:
    """Describes what a user can do about an error's cause: a text and, if one helps, a command."""

    what: Annotated[str, "What the user gains or must know."]
    command: Annotated[str | None, "What the user types; null where no command helps."] = None


class EdgefoldError(Exception):
    """Is the base class of all errors here: catch it to catch everything that Edgefold refuses."""

    def __init__(self, message: str = "", *remedies: Remedy | None):
        super().__init__(" ".join(message.splitlines()))  # other libraries' reasons have several
        self.remedies = tuple(remedy for remedy in remedies if remedy)

    @property
    def remedy(self) -> Remedy | None:
        """Return the first of the error's remedies, or None if it has none.

        There are several remedies only if several backends were tried.
        """
        return self.remedies[0] if self.remedies else None


class BundleError(EdgefoldError):
    """The bundle is missing, damaged, changed or of another schema."""


class KeyFileError(EdgefoldError):
    """A key for signatures cannot be read, is of another kind, or would be replaced."""


class MemoryLimitError(EdgefoldError):
    """A bundle is predicted to need more memory than the caller allows; nothing was opened."""


class BackendError(EdgefoldError):
    """A backend does not open, or a step failed while running."""


class ShapeError(EdgefoldError):
    """An array has another shape than the bundle was exported for."""


class ValueRefusedError(EdgefoldError):
    """Points hold NaN or infinity, or a seed is given where none is taken; nothing changed."""


class StepRefusedError(EdgefoldError):
    """A step's arithmetic was not finite; the state is as before."""


class CapacityError(EdgefoldError):
    """The state has no room for so many points, and refuses more; nothing was learned."""


class SnapshotError(EdgefoldError):
    """A snapshot is missing, damaged, or of another bundle."""


class OverlapError(SnapshotError):
    """Two states have rows in common, or may have, which a merge would count twice."""


class ClosedError(EdgefoldError):
    """The stream was closed, or was opened by the process from which this one was forked."""


class BusyError(EdgefoldError):
    """Another call of the same stream is running; the state is as before."""


class DataError(EdgefoldError):
    """Input rows cannot be read."""


class PaceError(DataError):
    """The rows of a series come at another pace than the model was trained for."""


class OutputError(EdgefoldError):
    """Predictions cannot be written, or would overwrite a file."""


class MeterError(EdgefoldError):
    """A sensor or counter is absent, unreadable, or too coarse for the wanted measurement."""


class BoardError(EdgefoldError):
    """A board is unknown, is not reached or not trusted, or its profile is not valid."""


class BoardFailedError(BoardError):
    """A board at a distance failed: a full disk, a missing program, an old Python, a lost line."""


class ModelError(EdgefoldError):
    """A model or task cannot be loaded, or breaks the rules that `edgefold verify` tests."""


class ExportError(EdgefoldError):
    """The bundle cannot be written, or its graphs do not compute what the model does."""


class CheckpointError(EdgefoldError):
    """A run folder cannot be read or written."""


class TrainingError(EdgefoldError):
    """Training cannot continue; the last checkpoint is intact."""


class WorkError(EdgefoldError):
    """A unit of work cannot be finished: its processes died again and again."""


def missing_build_extra(error: ModuleNotFoundError) -> BackendError:
    """Return the error that a package of the build extra is missing, with what installs it."""
    install = install_extra("build")
    return BackendError(
        f"{error.name} is not installed, without which no C is written; {install} brings it and "
        "ziglang, which is a C compiler.",
        Remedy("what `edgefold build` needs", install),
    )
