"""Score a general model of sensors on held-out streams, and its experts (simple predictors).

The experts are inside the model and learn online; a network corrects the mixture of their
predictions. The gain of the model is how much larger its log density is than theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.train.contract import StreamingModel, follow
from edgefold.train.models.sensors.expert_weights import Portfolio, first_weights, following
from edgefold.train.models.sensors.model import Sensors
from edgefold.train.models.sensors.network import Normals
from edgefold.train.tasks.sensors.sensor_prior import DrawnSensor

SIDE_BY_SIDE = 256
BAND, RARE = 0.1, 1e-3
"""p-values below the first lie outside the 90 % band; p-values below the second count as rare."""
COLD = 100
"""Number of first rows of a stream whose gain is also reported on its own."""


@dataclass(frozen=True, slots=True)
class SensorScore:
    """Holds the scores of a model on some streams, each stream with the same weight.

    Attributes:
        n_streams: Number of streams.
        n_rows: Number of scored rows: measured ones, with enough rows before them for a forecast.
        experts: Mean log density of a row under the experts' mixture, nats.
        gain: Mean log density of a row under the model minus that under the experts, nats.
        median, worst: Median and smallest of the streams' gains, nats a row.
        better: Share of streams in which the gain is positive.
        error: Standard error of `gain`, from its scatter over streams.
        cold: Mean gain in the first `COLD` rows of all streams, nats a row.
        band_experts, band: Share of rows within the 90 % band of the experts, and of the model.
        rare_experts, rare: Share of p-values below 1e-3 of the experts, and of the model.
    """

    n_streams: int
    n_rows: int
    experts: float
    gain: float
    median: float
    worst: float
    better: float
    error: float
    cold: float
    band_experts: float
    band: float
    rare_experts: float
    rare: float


@torch.inference_mode()
def answers_of(
    model: StreamingModel, streams: list[DrawnSensor], said: Callable[[int], None]
) -> FloatArray:
    """Score every row of S streams of the same length T; return an array (S, T, 4).

    Its columns are log density (nats) and p-value under the experts, then both under the model; NaN
    where nothing was measured or too few rows came before. The streams run in groups; `said` is
    called with the size of each finished group.
    """
    answers = []
    for first in range(0, len(streams), SIDE_BY_SIDE):
        part = streams[first : first + SIDE_BY_SIDE]
        rows = torch.from_numpy(np.stack([stream.rows for stream in part]))
        answer = one_ahead(model, rows) if isinstance(model, Sensors) else by_steps(model, rows)
        answers.append(answer.double().numpy())
        said(len(part))
    return np.concatenate(answers)


def by_steps(model: StreamingModel, rows: Tensor) -> Tensor:
    """Score streams by the steps of any model; return an array (B, T, 4).

    `rows` (B, T, 4) are those of `DrawnSensor`. The result's columns are log density (nats) and
    p-value under the experts, then both under the model. Only forecasts of the next row are scored.
    """
    answers = follow(model, model.initial_state(len(rows)), rows)[1]
    parts = [answers["floor"][..., 1:], answers["log_density"], answers["p_value"]]
    scores = torch.cat(parts, -1)
    counts = (rows[..., 1:2] > 0) & (scores[..., :1] != 0)
    return torch.where(counts, scores, torch.nan)


def one_ahead(model: Sensors, rows: Tensor) -> Tensor:
    """Score streams as `by_steps` does, but in a fifteenth of the time: only for the general model.

    `rows` and the result (B, T, 4) have the columns of `by_steps`. Only the next row is predicted,
    at no other horizon. After gaps the results differ: in a gap the steps continue a stream by the
    experts' mean, and the network's memory forgets (`Network.follow`).
    """
    seen = model.watched(rows.transpose(0, 1))
    normals = model.network.follow(seen.features, seen.z, seen.counts, torch.ones(len(rows), 1))
    packed, log_weight, answers = normals.packed(), first_weights(len(rows)), []
    for row in range(rows.shape[1]):
        z, counts = seen.z[row, :, None], seen.counts[row, :, None]
        portfolio = Portfolio.of(log_weight, Normals.unpacked(packed[row]))
        below, above = torch.special.ndtr(z), torch.special.ndtr(-z)
        of_experts, gains = seen.log_density[row, :, None], portfolio.gains(z)
        lower, upper = portfolio.tails(below, above)
        columns = [
            *(of_experts, 2 * torch.minimum(below, above)),
            *(of_experts + portfolio.gain(gains), 2 * torch.minimum(lower, upper)),
        ]
        answers.append(torch.where(counts > 0, torch.cat(columns, 1), torch.nan))
        log_weight = following(log_weight, gains, counts)
    return torch.stack(answers, 1)


def score_of(answers: FloatArray) -> SensorScore:
    """Sum up the scores (S, T, 4) of `answers_of`: log density and p-value of experts, of model.

    Streams without a scored row (all NaN) are left out.
    """
    answers = answers[np.isfinite(answers[..., 0]).any(1)]
    gains = answers[..., 2] - answers[..., 0]
    each = np.nanmean(gains, 1)
    early = gains[:, :COLD][np.isfinite(gains[:, :COLD])]
    counts = np.isfinite(answers[..., 0]).sum(1)

    def share(column: int, below: float) -> float:
        return float(((answers[..., column] < below).sum(1) / counts).mean())

    return SensorScore(
        n_streams=len(answers),
        n_rows=int(counts.sum()),
        experts=float(np.nanmean(answers[..., 0], 1).mean()),
        gain=float(each.mean()),
        median=float(np.median(each)),
        worst=float(each.min()),
        better=float((each > 0).mean()),
        error=float(each.std() / np.sqrt(max(len(each) - 1, 1))),
        cold=float(early.mean()) if len(early) else 0.0,
        band_experts=1 - share(1, BAND),
        band=1 - share(3, BAND),
        rare_experts=share(1, RARE),
        rare=share(3, RARE),
    )


def table(scores: Mapping[str, SensorScore], run: str) -> str:
    """Return the scores as text, with one line for each kind of streams; `run` names the model."""
    width = max(map(len, scores))
    head = (
        f"{'':{width}}  streams   gain, nats   median    worst  better    band: experts, model"
        "   p < 1e-3: experts, model"
    )
    lines = [
        f"{run}: log density above that of the experts alone, nats a row, on streams never trained "
        "on",
        head,
    ]
    for name, of in scores.items():
        lines.append(
            f"{name:{width}}  {of.n_streams:7,}  {of.gain:+.3f} ± {of.error:.3f}"
            f"  {of.median:+7.3f}  {of.worst:+7.3f}  {100 * of.better:4.0f} %"
            f"    {100 * of.band_experts:11.1f} %, {100 * of.band:.1f} %"
            f"   {1e3 * of.rare_experts:13.2f}e-3, {1e3 * of.rare:.2f}e-3"
        )
    whole = next(iter(scores.values()))
    lines.append(
        f"{whole.n_rows:,} rows; in the first {COLD} rows of a stream the gain is "
        f"{whole.cold:+.3f}; the band is the 90 % band"
    )
    return "\n".join(lines)


def scores_by_family(answers: FloatArray, families: Array) -> dict[str, SensorScore]:
    """Return the scores of all streams, then of each family in falling order of the gain.

    Args:
        answers: Scores of the rows of S streams, (S, T, 4), from `answers_of`.
        families: Name of the kind of process of each stream, (S,).
    """
    names = sorted(set(families.tolist()))
    scores = {
        name: score_of(answers[families == name])
        for name in names
        if _counts(answers, families, name)
    }
    ordered = sorted(scores, key=lambda name: -scores[name].gain)
    return {"all": score_of(answers), **{name: scores[name] for name in ordered}}


def _counts(answers: FloatArray, families: Array, name: str) -> bool:
    return bool(np.isfinite(answers[families == name][..., 0]).any())


def as_json(scores: Mapping[str, SensorScore]) -> dict[str, Any]:
    """Return the scores as dictionaries of plain numbers, by the kind of streams."""
    return {name: asdict(of) for name, of in scores.items()}
