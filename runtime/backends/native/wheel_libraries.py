"""Find the library of a shipped bundle that the installed wheel holds, and prove it once.

A wheel for a platform holds compiled libraries of the shipped bundles, so that a board needs no
compiler:

    shipped_libraries/libraries.json     for each library: bundle, processor, SHA-256 and more
    shipped_libraries/*.so               the libraries, as scripts/build_wheels.py made them

They were compiled on another machine. Before the first stream of a bundle opens, a child process
replays the bundle's golden stream on the library, and a record of success is kept in the folder of
built code; where it cannot be kept, each start proves the library again. A file whose hash is not
the index's is never loaded. Owner and mode are not asked: whoever may write these files may write
the package's Python code, too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.backends.code_cache import CodeCache
from edgefold.runtime.backends.native.processor import Processor
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.bundle.manifest_file import PARSE_ERRORS
from edgefold.runtime.child_process import child_process
from edgefold.runtime.errors import BackendError
from edgefold.runtime.hashing import sha256

FOLDER = Path(__file__).parents[2] / "shipped_libraries"
INDEX = "libraries.json"
PROOF = "edgefold.runtime.checking.library_proof"
"""Module that the child runs. It opens a stream, so this one cannot import it."""


@dataclass(frozen=True, slots=True)
class WheelLibrary:
    """Describes a library of the installed wheel.

    Attributes:
        file: Name of its file in `FOLDER`.
        bundle_sha256: Hash of the bundle from which it was made.
        level: Name of the processors for which it was compiled, such as "x86-64-v3".
        architectures: Names of the processor's architecture, as `platform.machine()` returns them.
        needs: Abilities that the processor must have. "a|b" asks for one of two, because kernels
            of 32 and 64 bits name NEON differently.
        sha256: Hash of the file.
        facts: "generator", "compiler" and "flags" of the build.
    """

    file: str
    bundle_sha256: str
    level: str
    architectures: tuple[str, ...]
    needs: tuple[str, ...]
    sha256: str
    facts: dict[str, Any]

    @property
    def path(self) -> Path:
        """Return the library's file."""
        return FOLDER / self.file

    @property
    def origin(self) -> str:
        """Return words that name the library in reports."""
        return f"library of the wheel, {self.level}"

    def missing(self, processor: Processor) -> list[str]:
        """Return the abilities that a processor lacks for this library."""
        return [need for need in self.needs if not processor.features & set(need.split("|"))]


@dataclass(frozen=True, slots=True)
class ProofKey:
    """Names a library of a wheel and the processor on which it replayed the golden stream."""

    bundle_sha256: str
    library_sha256: str
    architecture: str
    model: str
    suffix: ClassVar[str] = "proved"


class ProofStore(CodeCache):
    """Keeps the records of libraries of the wheel that were proved on a processor."""

    magic = b"edgefold proof 1\n"


def libraries_of_wheel() -> list[WheelLibrary]:
    """Return what the wheel's index lists, the best library of each bundle first.

    Returns an empty list for an installation without libraries, as from a clone.

    Raises:
        BackendError: The index is damaged.
    """
    path = FOLDER / INDEX
    try:
        entries = json.loads(path.read_bytes())["libraries"]
        return [
            WheelLibrary(
                **{**entry, "architectures": tuple(entry["architectures"])}
                | {"needs": tuple(entry["needs"])}
            )
            for entry in entries
        ]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, *PARSE_ERRORS) as error:
        raise BackendError(
            f"the wheel's libraries are not used: {path} cannot be read ({error}); install "
            "edgefold again."
        ) from error


def choose_library(
    manifest: Manifest, processor: Processor, libraries: list[WheelLibrary]
) -> WheelLibrary | None:
    """Return the wheel's best library of a bundle that a processor can run.

    Returns None if the wheel holds no library of the bundle.

    Raises:
        BackendError: It holds some, and the processor can run none of them.
    """
    own = [each for each in libraries if each.bundle_sha256 == manifest.bundle_hash]
    here = [each for each in own if processor.architecture in each.architectures]
    for library in here:
        if not library.missing(processor):
            return library
    if here:
        lacks = " ".join(here[-1].missing(processor))
        raise BackendError(
            f"the wheel's libraries are not used: {processor} has not all that the simplest of "
            f"them, {here[-1].level}, needs ({lacks})."
        )
    if own:
        raise BackendError(
            f"the wheel's libraries are not used: they are for {own[0].level}, this processor is "
            f"{processor}."
        )
    return None


def prove_once(
    library: WheelLibrary, manifest: Manifest, processor: Processor, engine: EngineOptions
) -> dict[str, Any]:
    """Return the facts of a library that replayed the bundle's golden stream on this processor.

    The replay runs in a child process, unless a record says that it was done.

    Args:
        library: A library of the bundle that the processor can run.
        manifest: The bundle's manifest.
        processor: This machine's processor.
        engine: The folder of built code, and `progress`, which is called before a replay.

    Returns:
        The library's facts and "proof", the worst error and the tolerance.

    Raises:
        BackendError: The file was changed, does not load here, or computes something else.
    """
    _require_unchanged(library)
    store = ProofStore(engine.cache)
    key = ProofKey(manifest.bundle_hash, library.sha256, processor.architecture, processor.model)
    found = store.find(key)
    if found:
        return {**library.facts, "proof": found[1].get("proof")}
    if engine.progress:
        engine.progress(f"proving the {library.origin} on this processor, once")
    result = _replay(library, manifest)
    if not result["passed"]:
        raise BackendError(
            f"the {library.origin} is not used: along the bundle's golden stream its largest error "
            f"is {result['proof']['worst']}, the tolerance {result['proof']['tolerance']}."
        )
    store.store(key, b"", {"proof": result["proof"]})  # where that fails, the next start proves it
    return {**library.facts, "proof": result["proof"]}


def _require_unchanged(library: WheelLibrary) -> None:
    try:
        digest = sha256(library.path.read_bytes()).hexdigest()
    except OSError as error:
        raise BackendError(
            f"the {library.origin} is not used: {library.path} cannot be read ({error.strerror}); "
            "install edgefold again."
        ) from error
    if digest != library.sha256:
        raise BackendError(
            f"the {library.origin} is not used: {library.path} was changed since the wheel was "
            "built; install edgefold again."
        )


def _replay(library: WheelLibrary, manifest: Manifest) -> dict[str, Any]:
    """Replay the golden stream on a library in a child process; return what `prove_library` does.

    Raises:
        BackendError: The child ended without an answer, or the library does not load.
    """
    request = {
        "bundle": str(manifest.path),
        "expect_hash": manifest.bundle_hash,
        "library": str(library.path),
    }
    try:
        with child_process(PROOF, request) as child:
            answer = child.answer.read()
            ending = child.wait()
    except OSError as error:
        raise BackendError(
            f"the {library.origin} is not used: the process that proves it does not start "
            f"({error.strerror})."
        ) from error
    if not answer:
        raise BackendError(
            f"the {library.origin} is not used: the process that proved it {ending.describe()}."
        )
    result: dict[str, Any] = json.loads(answer)
    if "error" in result:
        raise BackendError(f"the {library.origin} is not used: {result['error']}")
    return result
