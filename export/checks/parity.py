"""Record the golden stream (points and predictions), and compare a bundle with PyTorch along it.

Three forms of one model see the same points: PyTorch in float64 (the reference), PyTorch in float32
in its own recurrent form, and the bundle's graphs. Agreement on a single call would prove little:
errors of a recurrent state show along the stream.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from edgefold.export.bundle_files import ExportSubject
from edgefold.runtime.bundle.manifest import n_that_fit
from edgefold.runtime.checking.golden import Golden, distances, query_groups, replay
from edgefold.runtime.predictions import Categorical
from edgefold.runtime.stream.stream import Stream
from edgefold.train.contract import StreamingModel, advance, is_filter, room_of

TOLERANCE = 1e-4
"""Largest accepted error of a float32 bundle, in scaled units of y. float32 through 6 blocks stays
below 2e-5; a wrong graph does not."""

GOLDEN_POINTS = 1000
"""Number of points of a golden stream that a bundle keeps: ten thousand would take more bytes than
int8 weights, and a board would replay them for a minute."""

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class ParityRow:
    """Holds the largest errors of the predictions after `n_points` points, in scaled units of y.

    Attributes:
        n_points: Number of points that were learned before.
        graphs_to_float32: Error of the bundle's graphs, compared with the model in float32.
        graphs_to_float64: Error of the bundle's graphs, compared with the model in float64.
        torch_to_float64: Error of the model in float32, compared with itself in float64.
    """

    n_points: int
    graphs_to_float32: float
    graphs_to_float64: float
    torch_to_float64: float


@dataclass(frozen=True, slots=True)
class DrawnStream:
    """Holds a golden stream without predictions, in scaled units.

    Attributes:
        x, y: Inputs and outputs of the points, (B, n, columns), float64.
        targets: Inputs at which is predicted, (B, M, columns), float64.
        n_condition: Number of points after which single updates follow; 0 for a filter.
        moments: Numbers of points after which predictions are recorded.
    """

    x: torch.Tensor
    y: torch.Tensor
    targets: torch.Tensor
    n_condition: int
    moments: list[int]


@dataclass(frozen=True, slots=True)
class GoldenRecording:
    """Holds the predictions of a model along a golden stream, with which bundles are compared.

    Attributes:
        golden: The stream, with the most exact predictions that the model can give.
        float32: Predictions of the model in float32, in raw units, by tensor.
    """

    golden: Golden
    float32: Mapping[str, Array]

    def compare(self, bundle: Path) -> tuple[ParityRow, ...]:
        """Return the errors of a bundle's graphs and of the model at each moment of the stream.

        Graphs run on onnxruntime, not on engines of a GPU, so that all exports are compared alike.
        """
        rows = []
        with Stream.open(bundle, backend="onnxruntime") as stream:
            for index, (n, graphs) in enumerate(replay(stream, self.golden)):
                source = {name: array[index] for name, array in self.float32.items()}
                exact = {name: array[index] for name, array in self.golden.predictions.items()}
                pairs = ((graphs, source), (graphs, exact), (source, exact))
                distances_by_pair = [distances(stream.manifest, *pair).values() for pair in pairs]
                rows.append(
                    ParityRow(n, *(float(np.max(list(errors))) for errors in distances_by_pair))
                )
        return tuple(rows)


def draw_stream(
    model: StreamingModel, n_streams: int, n_steps: int, chunk: int, seed: int = 7
) -> DrawnStream:
    """Draw n_steps points of a smooth function with noise, and 24 targets, over the model's range.

    The inputs are those that the model makes plausible (`plausible_inputs`).
    Three points are for single updates, then follow three chunks of `chunk` points, of which the
    last lacks one (so that padding is tested), then single updates. For a model that refuses points
    beyond its capacity, fewer than n_steps are drawn: as many as fit.
    """
    n_steps = n_that_fit(room_of(model), n_steps)
    low, high = model.input_range
    generator = torch.Generator().manual_seed(seed)

    def uniform(n: int) -> torch.Tensor:
        unit = torch.rand(n_streams, n, model.n_inputs, generator=generator, dtype=torch.float64)
        drawn = low + (high - low) * unit
        return torch.from_numpy(model.plausible_inputs(drawn.numpy()))

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x = uniform(n_steps)
    along = x if model.n_inputs else torch.arange(n_steps)[None, :, None] * 0.05
    direction = normal(n_streams, max(model.n_inputs, 1), model.n_outputs)
    y = torch.sin(2 * along.double() @ direction)
    y = y + 0.1 * normal(n_streams, n_steps, model.n_outputs)
    if isinstance(model.prediction, Categorical):  # y is the number of a class
        y = torch.remainder((100 * y).round(), model.prediction.n_classes)
    first = 3  # single updates before conditioning
    n_condition = min(first + 3 * chunk - 1, n_steps)
    rising = np.geomspace(n_condition + 1, n_steps, 10).round().astype(int).tolist()
    moments = sorted({0, 1, first, n_condition, *rising})
    targets = uniform(24 if model.n_inputs else 1)
    if is_filter(model):
        return DrawnStream(x, y[..., :0], targets[..., :0], 0, [m for m in moments if m])
    return DrawnStream(x, y, targets, n_condition, [m for m in moments if m <= n_steps])


@torch.inference_mode()
def predictions(
    model: StreamingModel, stream: DrawnStream, dtype: torch.dtype, width: int
) -> dict[str, Array]:
    """Return a model's scaled predictions at the J moments of a stream, each (J, B, M, *shape).

    The model's own step functions run in PyTorch, in `dtype`. Where targets are predicted jointly,
    a query takes `width` of them, as in a bundle.
    """
    x, y, targets = (t.to(dtype) for t in (stream.x, stream.y, stream.targets))
    n = targets.shape[1]
    groups = query_groups(n, width) if model.prediction.joint else [slice(n)]
    state = {
        name: tensor.to(dtype) if tensor.is_floating_point() else tensor
        for name, tensor in model.initial_state(x.shape[0]).items()
    }
    answers: dict[str, list[Array]] = {}
    done = 0
    for moment in stream.moments:
        if done < stream.n_condition <= moment:
            rows = slice(done, stream.n_condition)
            state = advance(model, state, model.condition(state, x[:, rows], y[:, rows]))
            done = stream.n_condition
        for row in range(done, moment):
            if is_filter(model):
                written, answer = model.step(state, x[:, row])
                prediction = {name: tensor[:, None] for name, tensor in answer.items()}
            else:
                written = model.update(state, x[:, row], y[:, row])
            state = advance(model, state, written)
        done = moment
        if not is_filter(model):
            cache = model.refresh(state)
            parts = [model.query(cache, targets[:, group]) for group in groups]
            prediction = {name: torch.cat([part[name] for part in parts], 1) for name in parts[0]}
        for name, tensor in prediction.items():
            exact = tensor.double() if tensor.is_floating_point() else tensor
            answers.setdefault(name, []).append(exact.numpy())
    return {name: np.stack(arrays) for name, arrays in answers.items()}


def in_float64(model: StreamingModel, stream: DrawnStream, width: int) -> dict[str, Array]:
    """Return the predictions of the model in double precision, as `predictions` does."""
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)  # for tensors that the model makes on the way
        return predictions(copy.deepcopy(model).double(), stream, torch.float64, width)
    finally:
        torch.set_default_dtype(default)


def record(
    model: StreamingModel,
    subject: ExportSubject,
    stream: DrawnStream,
    width: int,
    progress: Callable[[str], None] = lambda line: None,
) -> GoldenRecording:
    """Record PyTorch's predictions along a drawn stream, in float64 and in float32.

    One query of the bundle takes `width` targets. If a model cannot run in float64, for example
    because it makes float32 tensors itself, its float32 predictions are the reference, and
    `progress` is called with a line that says so.
    """
    float32 = predictions(model, stream, torch.float32, width)
    try:
        float64 = in_float64(model, stream, width)
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        progress(f"float32 is its own reference: the model does not run in float64 ({reason})")
        float64 = float32
    kinds = {t.name: t.unscale for t in subject.prediction.tensors(model.n_outputs)}
    of_torch, exact = (
        {name: subject.scaling_y.to_raw(array, kinds[name]) for name, array in answers.items()}
        for answers in (float32, float64)
    )
    golden = Golden(
        x=subject.scaling_x.to_raw(stream.x.numpy()),
        y=subject.scaling_y.to_raw(stream.y.numpy()),
        targets=subject.scaling_x.to_raw(stream.targets.numpy()),
        n_condition=stream.n_condition,
        moments=np.array(stream.moments),
        predictions=exact,
        tolerance=TOLERANCE,
    )
    return GoldenRecording(golden, of_torch)


def shortened(golden: Golden, tolerance: float) -> Golden:
    """Return the part of a golden stream that a bundle keeps: its first `GOLDEN_POINTS` points.

    Where its chunks for `condition` hold more points than that, all of these are kept. `tolerance`
    is stored for the check of the bundle.
    """
    n_kept = max(GOLDEN_POINTS, golden.n_condition)  # a check must meet every step
    early = golden.moments <= n_kept
    answers: Mapping[str, Array] = {n: array[early] for n, array in golden.predictions.items()}
    return replace(
        golden,
        x=golden.x[:, :n_kept],
        y=golden.y[:, :n_kept],
        moments=golden.moments[early],
        predictions=answers,
        tolerance=tolerance,
    )
