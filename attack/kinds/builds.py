"""Resealed bundles through the generator of C, some of them through a compiler too.

A bundle becomes C or is refused in a line, and one that becomes C has the tensors that onnxruntime
finds in its graphs. Every tenth one that becomes C is compiled with warnings as errors, where there
is a compiler. Case n draws the bundle that case n of `attack.kinds.bundles` draws.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from attack.changes.graph_changes import CANARY
from attack.kinds.bundles import draw
from attack.outcomes import Outcome
from edgefold.export.native.generator import NativeSource, generate
from edgefold.export.native.toolchain.compilers import Compiler, compile_library, find_compiler
from edgefold.runtime import Stream
from edgefold.runtime.errors import BackendError, BundleError, EdgefoldError

COMPILED = 10
"""One case of so many is compiled."""
FLAGS = ("-O0", "-Wall", "-Wextra", "-Werror")


class Cases:
    """Cases of resealed bundles that are turned into C."""

    def __init__(self, subjects: Path, scratch: Path):
        self._subjects, self._folder = subjects, scratch / "b"
        for folder in (subjects, scratch):
            if not (folder / CANARY).exists():
                (folder / CANARY).write_bytes(bytes(1 << 16))
        self._compiler: Compiler | None = None
        with suppress(BackendError):  # without a compiler the texts are made, and not compiled
            self._compiler = find_compiler(None, extra=FLAGS)

    def describe(self, number: int) -> str:
        """Say what the case changes."""
        return draw(number, self._subjects)[1]

    def play(self, number: int) -> Outcome:
        """Turn a bundle into C, and compare what became of it with onnxruntime."""
        draft, _ = draw(number, self._subjects)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        draft.write(self._folder)
        try:
            source = generate(self._folder)
        except EdgefoldError as error:
            return Outcome("refused", type(error).__name__)
        if reason := self._misfit():
            return Outcome("wrong", f"became C, and onnxruntime finds: {reason}")
        if number % COMPILED == 0 and self._compiler and (line := self._compiled(source)):
            return Outcome("wrong", f"C that does not compile: {line}")
        return Outcome("accepted")

    def _misfit(self) -> str:
        """Return why onnxruntime calls the bundle damaged; "" if it does not."""
        try:
            Stream.open(self._folder, backend="onnxruntime").close()
        except BundleError as error:
            return str(error)
        except EdgefoldError:
            pass  # an operator or a size that onnxruntime does not run
        return ""

    def _compiled(self, source: NativeSource) -> str:
        """Return the compiler's first line of complaint; "" if it has none."""
        assert self._compiler is not None
        with tempfile.TemporaryDirectory(dir=self._folder.parent) as folder:
            try:
                compile_library(source.files, self._compiler, Path(folder))
            except EdgefoldError as error:
                return str(error)[:200]
        return ""
