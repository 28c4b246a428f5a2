"""How much does one more point cost as the stream grows, next to attention over all points?

    Edgefold   folds the point into its state                          Stream.update
    PyTorch    the same model conditioned anew on all points so far    condition on all

The paper's size, untrained, float32, one thread, without the refresh that both need before a query.
Each contender runs in a process of its own. At 10, 32, 100, ... points an update is timed several
times; meanwhile this process reads what the contender needs, every 3 ms. Draws docs/img/flat.png.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.memory.process import needed, watched
from benchmarks.record import IMAGES, arguments, conditions, finish, progress, spread
from benchmarks.subjects import Subject, untrained
from benchmarks.tables import as_text
from edgefold.cli.text.numbers import format_bytes, format_time

QUESTION = "What does one more point cost as the stream grows?"
COLORS = {"pytorch": "#b3541e", "edgefold": "#1565c0"}


def contend(contender: str, subject: Subject, last: int) -> list[dict[str, Any]]:
    """Run a contender in a process of its own and collect its samples."""
    script = Path(__file__).with_name("growth_contender.py")
    command = [sys.executable, str(script), contender, str(subject.run.parent), str(last)]
    rows = []
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with child, watched(child, needed) as readings:
        assert child.stdout is not None
        for line in child.stdout:
            n_points, resident, *taken_ns = (int(word) for word in line.split())
            readings.append(needed(Path(f"/proc/{child.pid}")))
            memory = {"needed_bytes": max(readings), "resident_peak_bytes": resident}
            readings.clear()
            rows.append({"n_points": n_points, **spread(taken_ns), **memory})
            progress(f"{contender}: {n_points:,} points")
    if child.returncode:
        raise RuntimeError(f"{contender} ended with exit code {child.returncode}; see above.")
    progress(f"{contender}: done", last=True)
    return rows


def draw(data: dict[str, Any], out: Path) -> None:
    """Two panels: time and memory of an update against the points so far."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FuncFormatter

    plt.rcParams.update({"font.size": 11, "font.family": "DejaVu Sans"})
    figure, panels = plt.subplots(1, 2, figsize=(10, 3.9), dpi=160)
    parts = (
        ("median_s", "time of one update", format_time),
        ("needed_bytes", "memory that the process needs", format_bytes),
    )
    for axes, (key, title, shown) in zip(panels, parts, strict=True):
        for contender, color in COLORS.items():
            n = [row["n_points"] for row in data[contender]]
            values = [row[key] for row in data[contender]]
            axes.loglog(n, values, color=color, linewidth=2.6, solid_capstyle="round")
            axes.plot(n[-1], values[-1], "o", color=color, markersize=5.5)
            note = {"textcoords": "offset points", "color": color, "va": "center"}
            end = (n[-1], values[-1])
            axes.annotate(shown(values[-1]), end, (9, 0), fontweight="bold", **note)
        ours, theirs = data["edgefold"], data["pytorch"]
        axes.set_ylim(ours[0][key] / 6, theirs[-1][key] * 5)
        axes.set_title(title, loc="left", fontsize=12, fontweight="bold", pad=10)
        axes.set_xlabel("points in the stream so far")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(True, which="major", color="#ececec", linewidth=0.8)
        axes.minorticks_off()
        axes.set_xlim(8, ours[-1]["n_points"] * 1.2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _, shown=shown: shown(v)))
        below = (ours[0]["n_points"], ours[0][key])
        axes.annotate(
            "Edgefold: folds each point into its state",
            below,
            (0, -15),
            textcoords="offset points",
            color=COLORS["edgefold"],
        )
        axes.text(
            0.02,
            0.97,
            "PyTorch: the same model, conditioned\nanew on all points at each update",
            transform=axes.transAxes,
            va="top",
            color=COLORS["pytorch"],
        )
    figure.tight_layout(w_pad=3)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)


def main() -> None:
    """Measure, draw and record."""
    parser = arguments(__doc__ or "", "growth")
    parser.add_argument("--points", type=int, default=100_000, help="default 100,000")
    args = parser.parse_args()
    before = conditions()
    last = 1000 if args.quick else args.points
    with untrained("paper") as subject:
        data = {name: contend(name, subject, last) for name in ("edgefold", "pytorch")}
    if not args.quick:
        draw(data, IMAGES / "flat.png")
    finish(args, "growth", QUESTION, before, data, [], as_text)


if __name__ == "__main__":
    main()
