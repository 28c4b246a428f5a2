"""Draw the loss of a training run as a picture."""

from __future__ import annotations

import json
from pathlib import Path


def draw_curve(run: Path) -> Path:
    """Draw the losses in history.jsonl of a run folder into its curve.png; return that path."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    rows = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    steps, losses = [r["step"] for r in rows], [r["loss"] for r in rows]
    axes.plot(steps, losses, color="0.75", linewidth=0.8, label="logged mean")
    width = max(1, len(losses) // 40)
    smooth = [
        sum(losses[max(0, i - width) : i + 1]) / len(losses[max(0, i - width) : i + 1])
        for i in range(len(losses))
    ]
    axes.plot(steps, smooth, color="C0", label=f"mean of {width + 1}")
    axes.set(xlabel="step", ylabel="negative log-likelihood of a target, nats", title=run.name)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    path = run / "curve.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
