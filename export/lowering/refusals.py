"""Explain why a model cannot become a graph: the line of its file, and what to write instead."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType, TracebackType

import onnxscript
import torch

from edgefold.runtime.errors import ExportError

OURS = tuple(
    str(Path(file).parent) for file in (__file__, torch.__file__, onnxscript.__file__) if file
)
"""Folders of code that is not a model's: this exporter, torch and onnxscript."""

CAUSES = (
    (
        r"data.dependent|GuardOnDataDependent|Could not (guard|extract)|\.item\(\)|unbacked",
        "the value of a tensor decides what is computed, which a graph cannot follow. Instead of "
        "`if`, write torch.where(condition, a, b) or torch.cond; instead of a number as an index, "
        "a tensor of shape (1,), as in cache[:, slot[:1]]",
    ),
    (
        r"complex|is_complex|ComplexFloat",
        "graphs have no complex numbers. Keep real and imaginary parts as two float tensors",
    ),
    (
        r"cholesky|triangular|linalg|inverse|\bdet\b|_solve|svd|qr\b|eigh",
        "graphs cannot factor or solve matrices. Let the model give out a factor (of a covariance, "
        "say) instead of computing it; where the matrix is a constant, factor it in __init__",
    ),
    (
        r"searchsorted",
        "graphs cannot search. Write torch.bucketize(x, edges), or (x[..., None] > edges).sum(-1)",
    ),
    (
        r"cdist",
        "ONNX has no cdist. Write (a[..., :, None, :] - b[..., None, :, :]).square().sum(-1)",
    ),
    (
        r"FakeTensor|numpy\(\)|data_ptr|tolist",
        "a tensor leaves PyTorch. Compute with torch functions only",
    ),
    (
        r"No ONNX function|Unsupported|not supported|No decomposition",
        "ONNX has no such function. Write it with others, or compute it in __init__ if it is a "
        "constant",
    ),
)
"""Patterns of torch's messages, each with advice for the author; the first match counts."""


def is_users(file: str) -> bool:
    """Return whether a file may hold a model's code, not that of torch or of the exporter."""
    return not file.startswith(("<", *OURS)) and Path(file).name != "contract.py"


def user_line(places: Iterable[tuple[str, int]]) -> str:
    """Return the innermost place in the model's own code, as "file:line"; "" if there is none.

    Args:
        places: Files and line numbers of the calls, the outermost first.
    """
    lines = [f"{file}:{line}" for file, line in places if is_users(file)]
    return lines[-1] if lines else ""


def line_of_call() -> str:
    """Return the line of the model's file that runs now, as "file:line"; "" if there is none."""
    places = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        places.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return user_line(_below_us(list(reversed(places))))


def line_of_error(error: BaseException) -> str:
    """Return the line of the model's file that raised an error, as "file:line"; "" if unknown."""
    places: list[tuple[str, int]] = []
    chain: BaseException | None = error
    while chain is not None:
        here = []
        trace: TracebackType | None = chain.__traceback__
        while trace is not None:
            here.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
            trace = trace.tb_next
        places = _below_us(here) if not user_line(places) else places
        chain = chain.__cause__ or chain.__context__
    return user_line(places) or line_in_text(str(error))


def line_in_text(text: str) -> str:
    """Return the last line of the model's file in a printed stack trace, as "file:line"."""
    places = re.findall(r'File "([^"]+)", line (\d+)', text)
    return user_line((file, int(line)) for file, line in places)


def _below_us(places: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the calls from the exporter's first on, so that its callers do not count as a model.

    `places` are (file, line) of each call, the outermost first; empty if no call is the exporter's.
    """
    ours = [i for i, (file, _) in enumerate(places) if file.startswith(OURS[0])]
    return places[ours[0] :] if ours else []


def refusal(error: BaseException, what: str, failed: bool = False, place: str = "") -> ExportError:
    """Return an ExportError that explains an error of torch and gives advice.

    Args:
        error: The error that torch raised.
        what: Name of the step that failed, as "update()".
        failed: Whether the step also fails in PyTorch, without an exporter.
        place: The line of the model's file if it is known, as "file:line".
    """
    text = f"{type(error).__name__}: {error}"
    place = place or line_of_error(error)
    at = f" ({place})" if place else ""
    if failed:
        return ExportError(f"{what} fails in PyTorch{at}: {_first_line(text)}.")
    advice = next((advice for cause, advice in CAUSES if re.search(cause, text)), "")
    advice = advice or f"PyTorch says: {_first_line(text)}"
    return ExportError(f"{what} cannot become a graph{at}: {advice}.")


def _first_line(text: str) -> str:
    return next((line.strip().rstrip(".") for line in text.splitlines() if line.strip()), "")
