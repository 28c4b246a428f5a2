"""Draw events: each gap (time since the last event) in its predicted band, and its likelihood."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Protocol

import numpy as np
import torch
from matplotlib.figure import Figure

from edgefold.train.models.events.event_model import EventModel
from edgefold.train.tasks.events.event_scores import HeldOutEvents, answers_along

N_SHOWN = 100
"""Number of events that a picture shows at most: the last ones that count."""
N_COLOURS = 9
"""Number of marks that get a colour of their own; all others share grey."""


class DrawnEvents(Protocol):
    """Names the attributes of an `EventTask` that a picture needs."""

    time_scale: float
    marks: tuple[str, ...]

    def references(self) -> Mapping[str, EventModel]: ...


@torch.inference_mode()
def draw_events(
    task: DrawnEvents, model: EventModel, part: HeldOutEvents, format: str, title: str
) -> bytes:
    """Draw the first sequence of a held-out part; return the content of the picture file.

    Args:
        task: The task of the model.
        model: The model, in evaluation mode.
        part: Held-out sequences.
        format: File format: png, svg or pdf.
        title: Title of the picture.
    """
    n = int(part.scored[0].nonzero().max()) + 1
    events, first = part.events[:1, :n], max(1, n - N_SHOWN)
    answers = answers_along(model, events)
    gaps = torch.stack([a["gap_quantiles"][0, :, 0] for a in answers])[first - 1 : -1]  # (n, Q)
    shown = slice(first, None)
    number, unit = np.arange(first, n), task.time_scale
    gap, mark, _ = model.read(events[0, shown])
    figure = Figure(figsize=(10, 6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    levels = model.levels
    upper.fill_between(
        number,
        unit * gaps[:, 0],
        unit * gaps[:, -1],
        step="mid",
        color="tab:blue",
        alpha=0.2,
        label=f"predicted, {100 * levels[0]:g} to {100 * levels[-1]:g} %",
    )
    middle = min(range(len(levels)), key=lambda i: abs(levels[i] - 0.5))
    upper.step(number, unit * gaps[:, middle], where="mid", color="tab:blue", label="its median")
    for which, name in enumerate(task.marks[:N_COLOURS]):
        of_mark = mark.numpy() == which
        upper.plot(number[of_mark], unit * gap[of_mark], ".", color=f"C{which + 1}", label=name)
    others = mark.numpy() >= N_COLOURS
    if others.any():
        upper.plot(number[others], unit * gap[others], ".", color="grey", label="other marks")
    upper.set_yscale("symlog", linthresh=float(unit * gaps[:, 0].min().clamp(min=1e-6)))
    upper.set_ylabel("gap before the event")
    upper.legend(fontsize="small", ncols=3)
    for name, one in {"the model": model, **task.references()}.items():
        likelihoods = one.event_log_likelihood(events)[0, shown]
        lower.plot(
            number, likelihoods, label=f"{name}: {likelihoods.mean():.3f} nats on average", lw=1
        )
    lower.set_xlabel("event")
    lower.set_ylabel("log-likelihood")
    lower.legend(fontsize="small")
    figure.suptitle(title)
    file = io.BytesIO()
    figure.savefig(file, format=format, dpi=120)
    return file.getvalue()
