"""Open a backend by its name, or the one that `preference` puts first.

It is apart from the list of names, which loads without numpy.
"""

from __future__ import annotations

import os
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from edgefold.runtime.backends.base import Backend, EngineOptions
from edgefold.runtime.backends.preference import Preference, choose
from edgefold.runtime.backends.registry import AUTO, BACKENDS, info_of
from edgefold.runtime.backends.watched import WatchedBackend
from edgefold.runtime.errors import BackendError, Remedy

if TYPE_CHECKING:
    from edgefold.runtime.bundle.manifest import Manifest


def open_backend(
    name: str, manifest: Manifest, threads: int, engine: EngineOptions
) -> tuple[Backend, dict[str, Any]]:
    """Open a backend by name, or with "auto" the first that opens in the order of `choose`.

    Args:
        name: The backend's name, or "auto".
        manifest: The bundle's manifest.
        threads: Number of CPU threads for one step.
        engine: Settings of engines, and the folder of built code.

    Returns:
        The backend, and a report of JSON values: "asked" (the name), the backend's own report,
        "refused" (for each backend that was not tried or did not open, the reason), and with "auto"
        "chosen" (why this backend was opened) and "row_s" (the kept seconds of a row that decided
        it, by backend; empty where none did).

    Raises:
        BackendError: The backend does not open, or with "auto" none does; the error carries the
            remedies of all backends that were tried.
    """
    chosen = info_of(name)
    n_processors = os.cpu_count() or 1
    if type(threads) is not int or not 1 <= threads <= n_processors:
        raise BackendError(
            f"threads is {threads!r}; give 1 to {n_processors}, this machine's processors."
        )
    choice = Preference((chosen,), {}, {})
    if name == "auto":
        choice = choose([BACKENDS[n] for n in AUTO], manifest, engine.cache)
        engine = replace(engine, may_build=False)
    refused = dict(choice.left_out)
    remedies: list[Remedy] = []
    for info in choice.candidates:
        module, _, kind = info.place.partition(":")
        if engine.watch:
            engine.watch("load", info.name)
        try:
            opener: type[Backend] = getattr(import_module(f"{__package__}.{module}"), kind)
            backend = opener.open(info, manifest, threads, engine)
        except BackendError as error:
            refused[info.name] = str(error)
            remedies += error.remedies
            continue
        if engine.watch:
            backend = cast(Backend, WatchedBackend(backend, engine.watch))
        report = {"asked": name, **backend.report(), "refused": refused}
        if name == "auto":
            report |= {"chosen": choice.explain(info.name), "row_s": dict(choice.row_s)}
        return backend, report
    tried = [info.name for info in choice.candidates]
    reasons = "; ".join(f"{candidate}: {refused[candidate]}" for candidate in tried)
    raise BackendError(f"no backend opened {manifest.path}: {reasons}", *remedies)
