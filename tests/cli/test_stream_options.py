from __future__ import annotations

from edgefold.cli.options import backend_lines

REPORT = {"name": "onnxruntime", "version": "1.23", "device": "cpu"}


def test_a_refusal_is_one_clause_on_the_terminal() -> None:
    refused = {
        "tensorrt": "TensorRT is not installed for this Python. On a Jetson: apt install it."
    }
    assert backend_lines({**REPORT, "refused": refused}) == [
        "backend   onnxruntime 1.23 on cpu",
        "refused   tensorrt: TensorRT is not installed for this Python (see `edgefold doctor`)",
    ]


def test_without_a_refusal_one_line_is_enough() -> None:
    assert backend_lines({**REPORT, "refused": {}}) == ["backend   onnxruntime 1.23 on cpu"]
