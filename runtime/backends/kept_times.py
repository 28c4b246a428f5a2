"""Keep on disk how long a bundle's steps took on each backend of this machine, for `auto`.

    <folder>/<digest of the key>.times     the key and the times, a line of JSON

The files lie beside engines and libraries, by the rules of `CodeCache`. They hold no code: a wrong
time can make `auto` choose a slower backend, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from edgefold.runtime.backends.code_cache import CodeCache
from edgefold.runtime.backends.native.processor import Processor
from edgefold.runtime.bundle.manifest import Manifest

OF_A_ROW = ("update", "refresh", "query", "step")
"""Names the steps that a row pays; the narrowest graph of each serves one row."""


@dataclass(frozen=True, slots=True)
class TimesKey:
    """Names the bundle, the processor and the backend whose steps were timed.

    Attributes:
        bundle_sha256: The bundle's hash, 64 hexadecimal digits.
        architecture, model: The processor's architecture and name; see `Processor`.
        backend: The backend's name.
    """

    bundle_sha256: str
    architecture: str
    model: str
    backend: str
    suffix: ClassVar[str] = "times"


class KeptTimes(CodeCache):
    """Keeps the times of steps in the folder of engines and libraries."""

    magic = b"edgefold times 1\n"

    def keep(
        self, manifest: Manifest, processor: Processor, backend: str, step_s: Mapping[str, float]
    ) -> str | None:
        """Keep the seconds of each graph of a bundle on one thread of a backend.

        Returns the reason why they could not be kept, or None.
        """
        key = _key_of(manifest, processor, backend)
        return self.store(key, b"", {"step_s": dict(step_s)})

    def row_s(self, manifest: Manifest, processor: Processor, backend: str) -> float | None:
        """Return the seconds of one call of each step that a row pays; None if none are kept."""
        found = self.find(_key_of(manifest, processor, backend))
        step_s = found[1].get("step_s") if found else None
        if not isinstance(step_s, dict):
            return None
        names = [graphs[0].name for step in OF_A_ROW if (graphs := manifest.of_step(step))]
        times = [step_s.get(name) for name in names]
        sound = [time for time in times if isinstance(time, float) and time > 0]
        return sum(sound) if sound and len(sound) == len(times) else None


def _key_of(manifest: Manifest, processor: Processor, backend: str) -> TimesKey:
    return TimesKey(manifest.bundle_hash, processor.architecture, processor.model, backend)
