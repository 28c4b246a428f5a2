"""Keep libraries on disk that `edgefold build` compiled and checked, by the rules of `CodeCache`.

    <folder>/<digest of the key>.native     the record, a line of JSON
    <folder>/<SHA-256 of the library>.so    the library

A record is written only after its library has replayed the bundle's golden stream on the processor
that the key names. A library is loaded only if it has the hash in the record, and the processor
still has all abilities that the record lists. A library's file is named after its hash, so a file
that a process uses never changes: a new library has another name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from edgefold.runtime.backends.code_cache import NO_HOME, CodeCache, facts_of, open_code
from edgefold.runtime.backends.kept_times import KeptTimes
from edgefold.runtime.backends.native.processor import Processor
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.bundle.manifest_file import PARSE_ERRORS
from edgefold.runtime.errors import BackendError, OutputError, Remedy
from edgefold.runtime.hashing import sha256
from edgefold.runtime.sensors.shipped_bundle import word_of


@dataclass(frozen=True, slots=True)
class LibraryKey:
    """Names the bundle and the processor for which a library was built and checked.

    Attributes:
        bundle_sha256: The bundle's hash, 64 hexadecimal digits.
        architecture, model: The processor's architecture and name; see `Processor`.
    """

    bundle_sha256: str
    architecture: str
    model: str
    suffix: ClassVar[str] = "native"


@dataclass(frozen=True, slots=True)
class Library:
    """Describes a library in the store.

    Attributes:
        path: The library's file.
        key: The bundle and the processor for which it was built.
        facts: "library" (SHA-256), "n_bytes", "features" of the processor, and the builder's
            "generator", "compiler", "flags", "proof" (worst error and tolerance of the check) and
            "step_s" (seconds of each step).
        reason: The reason why the library is not used; "" if it is used.
    """

    path: Path
    key: LibraryKey
    facts: dict[str, Any]
    reason: str


class LibraryStore(CodeCache):
    """Keeps compiled and checked libraries, in the same folder as TensorRT's engines."""

    magic = b"edgefold native 1\n"

    def find_library(self, manifest: Manifest, processor: Processor) -> Library:
        """Return the library that was built from a bundle for a processor.

        Raises:
            BackendError: No library can be trusted; the message says why.
        """
        build = f"edgefold build {word_of(str(manifest.path))}"
        remedy = Remedy("the bundle's steps as C, compiled for this processor", build)
        if self.folder is None:
            raise BackendError(f"not built: {NO_HOME}.", remedy)
        path = self.path(_key_of(manifest.bundle_hash, processor))
        assert path is not None
        try:
            library = self._entry(path, processor)
        except FileNotFoundError:
            raise BackendError(
                f"not built: run `{build}`{self._describe_others(manifest)}.", remedy
            ) from None
        except (OSError, *PARSE_ERRORS) as error:
            raise BackendError(
                f"not used: {path} cannot be read ({error}); run `{build}` again.", remedy
            ) from error
        if library.reason:
            raise BackendError(f"not used: {library.reason}; run `{build}` again.", remedy)
        return library

    def keep(
        self, manifest: Manifest, processor: Processor, library: Path, facts: dict[str, Any]
    ) -> Library:
        """Copy a library into the store; it replaces an older one of the same bundle and processor.

        Args:
            manifest: The bundle's manifest.
            processor: The processor on which the library was checked.
            library: The library's file.
            facts: The builder's facts; see `Library`. Hash, size and features are added.

        Raises:
            OSError: The library cannot be read.
            OutputError: The folder cannot be written or trusted.
        """
        key, content = _key_of(manifest.bundle_hash, processor), library.read_bytes()
        digest = sha256(content).hexdigest()
        facts = {
            **facts,
            "library": digest,
            "n_bytes": len(content),
            "features": sorted(processor.features),
        }
        assert self.folder is not None
        place, record = self.folder / f"{digest}.so", self.path(key)
        assert record is not None
        before = self._library_of(record)
        reason = self.write(place, content) or self.store(key, b"", facts)
        if reason:
            raise OutputError(f"the library was built but cannot be kept ({reason}).")
        if before not in {self._library_of(path) for path in self.files(LibraryKey.suffix)}:
            (self.folder / f"{before}.so").unlink(missing_ok=True)  # where mapped, it lives on
        if step_s := facts.get("step_s"):
            KeptTimes(self.folder).keep(manifest, processor, "native", step_s)
        return Library(place, key, facts, "")

    def libraries(self, processor: Processor) -> Iterator[Library]:
        """Yield every library whose record (file of its key and facts) can be read, sorted by path.

        A library is yielded also if it cannot be used here; `Library.reason` then says why.

        Raises:
            OSError: The folder is there and cannot be read.
        """
        for path in self.files(LibraryKey.suffix):
            try:
                yield self._entry(path, processor)
            except (OSError, *PARSE_ERRORS):
                continue

    def _entry(self, path: Path, processor: Processor) -> Library:
        """Read a record (the file of a library's key and facts), and check the library.

        `Library.reason` says why it cannot be trusted, or not be used on the processor.

        Raises:
            OSError: The record cannot be read.
            What `PARSE_ERRORS` lists: The record is damaged.
        """
        header, _, reason = self.read(path)
        identity, facts = header["key"], facts_of(header)
        key = LibraryKey(**{field.name: identity[field.name] for field in fields(LibraryKey)})
        digest, features = facts["library"], facts["features"]
        if not all(isinstance(word, str) for word in (*asdict(key).values(), digest, *features)):
            raise ValueError("its record is not as edgefold writes it")
        if self.path(key) != path:
            reason = reason or "its record lies under another's name"
        place = path.parent / f"{digest}.so"
        reason = reason or _explain_unusable(place, digest)
        lost = sorted(set(features) - processor.features)
        here = (key.architecture, key.model) == (processor.architecture, processor.model)
        if not here:
            reason = reason or f"it was built for {key.model} ({key.architecture})"
        elif lost:
            reason = reason or f"it was built where the processor had also {' '.join(lost[:5])}"
        return Library(place, key, facts, reason)

    def _describe_others(self, manifest: Manifest) -> str:
        """Return words that name the processors for which the bundle was built, or "" for none."""
        processors = set()
        with suppress(OSError):  # a folder that may not be listed
            for path in self.files(LibraryKey.suffix):
                with suppress(OSError, *PARSE_ERRORS):
                    key = self.read(path)[0]["key"]
                    if key["bundle_sha256"] == manifest.bundle_hash:
                        processors.add(f"{key['model']} ({key['architecture']})")
        return f" (it was built for {', '.join(sorted(processors))} alone)" if processors else ""

    def _library_of(self, record: Path) -> str | None:
        with suppress(OSError, *PARSE_ERRORS):
            return str(facts_of(self.read(record)[0])["library"])
        return None


def _key_of(bundle_hash: str, processor: Processor) -> LibraryKey:
    return LibraryKey(bundle_hash, processor.architecture, processor.model)


def _explain_unusable(path: Path, digest: str) -> str:
    """Return why a library's file cannot be trusted, or "" if it can.

    Args:
        path: The library's file.
        digest: The SHA-256 that the file must have.
    """
    hashed = sha256()
    try:
        with open_code(path) as (file, reason):
            while block := file.read(1 << 16):
                hashed.update(block)
    except (OSError, ValueError) as error:
        return f"{path} cannot be read ({getattr(error, 'strerror', None) or error})"
    if not reason and hashed.hexdigest() != digest:
        reason = "its content was changed"
    return f"{path}: {reason}" if reason else ""
