"""Import pyarrow where a command needs it, with an error that names the extra."""

from __future__ import annotations

from types import ModuleType
from typing import Any, TypeAlias

from edgefold.runtime.errors import BackendError, Remedy, install_extra

ArrowArray: TypeAlias = Any
"""Stands for `pyarrow.Array`, which declares no types and is imported only where it is used."""


def require_pyarrow() -> ModuleType:
    """Return pyarrow.

    Raises:
        BackendError: It is not installed.
    """
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        install = install_extra("parquet")
        raise BackendError(
            f"pyarrow is not installed, without which no Parquet is read; {install} brings it.",
            Remedy("what reads Parquet", install),
        ) from error
    module: ModuleType = pyarrow
    return module


def require_compute() -> ModuleType:
    """Return `pyarrow.compute`; raises BackendError as `require_pyarrow` does."""
    require_pyarrow()
    import pyarrow.compute

    module: ModuleType = pyarrow.compute
    return module
