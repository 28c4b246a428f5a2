"""Graphs written in the ONNX checker's own notation, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser

from edgefold.export.graphs.rewriting import EditableGraph


def parsed(
    text: str, constants: Mapping[str, np.ndarray[Any, Any]], opset: int = 18
) -> onnx.ModelProto:
    """Parse a graph and give it constants by name; those that it does not read are left out."""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in constants.items())
    return EditableGraph.of(model).checked()
