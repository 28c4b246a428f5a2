"""Write the scores of forecasts as text, and name the best forecast."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.series.scores import Scores, SeriesForecast, score

SETTLED = 2.0
"""Number of standard errors from which on one forecast counts as better than another."""
BAND_SHARE = 0.9
BY_CHANCE = 0.01
"""Probability below which chance does not explain the number of rows in a band."""


def table(
    y: NDArray[np.floating[Any]], forecasts: Mapping[str, SeriesForecast], unit: str = ""
) -> str:
    """Return the scores of several forecasts as a table, best RMSE first; y is (n,) or (n, 1)."""
    scored = sorted(
        ((name, score(y, forecast)) for name, forecast in forecasts.items()),
        key=lambda pair: pair[1].rmse,
    )
    width = max(len(name) for name, _ in scored)
    head = f"{'':<{width}}  {'RMSE':>8}  {'MAE':>8}  {'90 % band':>9}  {'log-lik.':>8}  {unit}"
    lines = [
        f"{name:<{width}}  {s.rmse:8.4f}  {s.mae:8.4f}  {100 * s.coverage_90:7.1f} %  "
        f"{s.log_likelihood:8.3f}"
        for name, s in scored
    ]
    return "\n".join([head.rstrip(), *lines])


def verdict(came: FloatArray, forecasts: dict[str, SeriesForecast]) -> list[str]:
    """Return lines on the lowest error and the best likelihood, and how certain the leads are.

    Args:
        came: Values that were to be forecast, (n,).
        forecasts: Forecasts of these values by each forecaster's name, at least two.
    """
    squared = {name: (came - f.mean) ** 2 for name, f in forecasts.items()}
    surprise = {
        name: 0.5 * squared[name] / f.std**2 + np.log(f.std) for name, f in forecasts.items()
    }
    lines = []
    for what, losses in (("lowest RMSE", squared), ("highest log-likelihood", surprise)):
        best, second = sorted(losses, key=lambda name: float(losses[name].mean()))[:2]
        lead = losses[second] - losses[best]
        if not lead.any():  # two perfect forecasts of a constant series
            lines.append(f"{what}: {best} and {second} alike")
            continue
        if losses is squared:
            ratio = math.sqrt(float(losses[best].mean() / losses[second].mean()))
            margin = f"{100 * (1 - ratio):.1f} % below {second}"
        else:
            margin = f"{lead.mean():.3f} nats a row above {second}"
        lines.append(f"{what}: {best}, {margin} ({_certainty(lead)})")
    return lines


def band_line(scores: Scores) -> str | None:
    """Return a line if a 90 % band holds more or fewer rows than chance explains, else None."""
    n_inside = round(scores.coverage_90 * scores.n)
    if binomial_p(n_inside, scores.n, BAND_SHARE) >= BY_CHANCE:
        return None
    so = (
        "wider than it should be, so that small anomalies pass unseen"
        if n_inside > BAND_SHARE * scores.n
        else "narrower than it should be, so that more than 1 row in 10 lies outside"
    )
    return f"the 90 % band holds {100 * scores.coverage_90:.1f} % of {scores.n:,} rows: it is {so}"


def binomial_p(k: int, n: int, share: float) -> float:
    """Return the p-value of k hits in n draws with chance `share`, by the exact two-sided test."""
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    counts = np.arange(n + 1)
    log_p = (
        log_factorial[n]
        - log_factorial
        - log_factorial[::-1]
        + counts * math.log(share)
        + (n - counts) * math.log1p(-share)
    )
    return float(np.exp(log_p[log_p <= log_p[k] + 1e-9]).sum())  # counts as likely as k count


def beside_error(scores: Mapping[str, Scores], model: str) -> str | None:
    """Return a line that compares the log-likelihoods of the model and of the best other forecast.

    Returns None if the model's RMSE is the lowest.
    """
    if min(scores, key=lambda name: scores[name].rmse) == model:
        return None
    best = max((name for name in scores if name != model), key=lambda n: scores[n].log_likelihood)
    figures = ", ".join(f"{name} {scores[name].log_likelihood:.3f}" for name in (model, best))
    return (
        "RMSE judges the prediction alone; the log-likelihood judges it together with its band: "
        f"{figures}, higher is better (docs/faq.md)"
    )


def _certainty(lead: FloatArray) -> str:
    """Return a text on how certain a lead is; `lead` is the difference of losses by row, (n,)."""
    n = len(lead)
    if n == 1:
        return "one row does not settle it"
    error = float(lead.std()) / math.sqrt(n)
    if not error:
        return "the same in every row"
    distance = float(lead.mean()) / error
    settled = "" if distance >= SETTLED else f"; {n} rows do not settle it"
    return f"{distance:.1f} standard errors{settled}"
