"""ONNX files that were sound once, through the importer.

A file is refused in a line, or becomes a bundle that passes its own check. Nothing but that bundle
is left behind. Bytes, nodes, attributes, types, shapes and the places of constants are changed by
the very functions that change the graphs of bundles (`attack.changes.graph_changes`).
"""

from __future__ import annotations

import shutil
from pathlib import Path

from onnx import parser

from attack.changes.drafts import Draft
from attack.changes.graph_changes import CANARY, graph_bytes, graph_nodes
from attack.outcomes import Outcome, random_of
from edgefold.export.importing.imported_bundle import import_bundle
from edgefold.export.importing.onnx_interface import ImportConfig
from edgefold.runtime.checking.golden import check_bundle
from edgefold.runtime.errors import EdgefoldError

SOUND = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1, 3] x, float[1, 3] h) => (float[1, 1] y, float[1, 3] hn)
<float[3, 3] w = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}, float[3] b = {0.1, 0.0, -0.1}>
{
    keep = Constant <value_float=0.9> ()
    kept = Mul (h, keep)
    mixed = Gemm <alpha=0.5> (x, w, b)
    bounded = Tanh (mixed)
    hn = Add (kept, bounded)
    y = ReduceMax <axes=[1], keepdims=1> (hn)
}"""
STEPS = 24
"""Length of the recorded stream, which the bundle's check replays."""


class Cases:
    """Cases of changed ONNX files."""

    def __init__(self, subjects: Path, scratch: Path):
        self._subject, self._folder = subjects / "kalman", scratch / "import"
        self._content = parser.parse_model(SOUND).SerializeToString()

    def _draw(self, number: int) -> tuple[bytes, str]:
        """Return a case's file, and what was changed in it."""
        random = random_of("imports", number)
        draft = Draft.of(self._subject)
        draft.changed = dict.fromkeys(draft.graphs, self._content)
        change = graph_bytes if random.random() < 0.25 else graph_nodes
        what = change(random, draft)
        return draft.changed[what.partition(":")[0]], what.partition(": ")[2]

    def describe(self, number: int) -> str:
        """Say what the case changes."""
        return self._draw(number)[1]

    def play(self, number: int) -> Outcome:
        """Import a file, and check what became of it."""
        content, _ = self._draw(number)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        source, out = self._folder / "model.onnx", self._folder / "out"
        source.write_bytes(content)
        (self._folder / CANARY).write_bytes(bytes(1 << 16))
        refusal = ""
        try:
            import_bundle(source, out, ImportConfig(), STEPS)
        except EdgefoldError as error:
            refusal = type(error).__name__
            if "\n" in str(error).strip():
                return Outcome("message", f"{refusal} of several lines")
        left = {path.name for path in self._folder.iterdir()} - {source.name, CANARY}
        if left != (set() if refusal else {out.name}):
            return Outcome("wrong", f"{sorted(left)} is left behind")
        if source.read_bytes() != content:
            return Outcome("wrong", "the file that was imported is another one now")
        if refusal:
            return Outcome("refused", refusal)
        if not check_bundle(out, "onnxruntime").passed:
            return Outcome("wrong", "a bundle was written that fails its own check")
        return Outcome("accepted")
