"""Write a profile as one HTML page without scripts or requests, for screens and for paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from edgefold.cli.plots import paced as paced_plots
from edgefold.cli.plots import profile as plots
from edgefold.cli.text.numbers import format_bytes, format_energy, format_share, format_time
from edgefold.cli.text.paced import (
    crossing_lines,
    disturbance_lines,
    format_rate,
    governor_line,
    notes,
    sensor_line,
)
from edgefold.cli.text.profile import describe_backend, describe_model, energy_lines, memory_figures
from edgefold.cli.text.validity import validity_lines

CSS = """
:root { color-scheme: light dark; --ink: #1d2330; --soft: #5b6472; --line: #d9dde3;
  --page: #ffffff; --tile: #f4f6f8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #9aa4b2; --line: #343b46;
  --page: #14181f; --tile: #1c222b; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 "Helvetica Neue", Arial, "Liberation Sans", sans-serif; }
main { max-width: 1160px; margin: 0 auto; padding: 28px 28px 40px; }
h1 { font-size: 26px; line-height: 1.2; margin: 0 0 4px; font-weight: 650; }
h2 { font-size: 16px; margin: 0 0 2px; font-weight: 650; }
p { margin: 0; color: var(--soft); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(165px, 1fr)); gap: 12px;
  margin: 22px 0 26px; }
.tile { background: var(--tile); border-radius: 8px; padding: 12px 14px; }
.tile b { display: block; font-size: 24px; line-height: 1.25; font-weight: 650;
  font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: 13px; line-height: 1.35; display: block; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr));
  gap: 28px 32px; margin-top: 30px; }
figure { margin: 0; min-width: 0; }
figure svg { width: 100%; height: auto; display: block; margin-top: 6px; }
figcaption p, section > p { font-size: 13.5px; }
section { margin-top: 30px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; margin-top: 8px;
  font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 5px 10px; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
th { color: var(--soft); font-weight: 500; }
.conditions { columns: 2 400px; column-gap: 32px; margin-top: 8px; font-size: 13.5px; }
.conditions div { display: flex; gap: 12px; border-bottom: 1px solid var(--line); padding: 4px 0;
  break-inside: avoid; }
.conditions dt { color: var(--soft); flex: 0 0 132px; }
.conditions dd { margin: 0; overflow-wrap: anywhere; }
dl { margin: 0; }
@media (max-width: 480px) { main { padding: 20px 16px 32px; } }
@media print { main { max-width: none; padding: 0; } }
"""


def render(record: dict[str, Any]) -> str:
    """Return the whole page of a profile's record, as HTML."""
    bundle = record["bundle"]
    name = bundle["path"].rstrip("/").rpartition("/")[2] or bundle["path"]
    grown = format_bytes(record["memory"]["needed_growth_bytes"])
    figures = [
        ("Latency over the stream", _constancy(record), plots.latency_over_stream(record)),
        (
            "Latency distribution",
            "How often a call takes longer than a given time; the dashed line is the deadline.",
            plots.latency_distribution(record),
        ),
        (
            "Memory over the stream",
            f"Memory that the process needs while points arrive; it grew by {grown}. With pages of "
            "files, which are dropped when memory is short, it looks like more.",
            plots.memory_over_stream(record),
        ),
        (
            "Parts of the memory",
            "Memory that the process needs, the bundle's share, and the plan made at export. The "
            "plan counts the bundle's arrays alone; what is measured holds the sessions of "
            "onnxruntime as well.",
            plots.memory_parts(record),
        ),
    ]
    if "samples" in record["energy"]:
        text = "The sensor's readings; between the shaded windows the machine comes to rest."
        figures.append(("Power over time", text, plots.power_over_time(record)))
    if "paced" in record:
        figures += _paced_figures(record["paced"])
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Edgefold profile: {escape(name)}</title>
<style>{CSS}</style>
</head>
<body><main>
<header><h1>{escape(name)}</h1><p>{escape(describe_model(bundle))} · {escape(_where(record))}</p>
</header>
{_tiles(record)}
<section><h2>Validity</h2>
{_lines(validity_lines(record["validity"]))}</section>
{_figures(figures)}
<section><h2>Latency of each step</h2>
<p>Quantiles over n calls; late means longer than
{format_time(1 / record["options"]["rate_hz"])}, the time between two arrivals at
{record["options"]["rate_hz"]:g} a second.</p>
{_latency_table(record)}</section>
<section><h2>Energy above idle</h2>
{_energy(record["energy"])}</section>
{_paced(record["paced"]) if "paced" in record else ""}
<section><h2>Conditions</h2>
{_conditions(record)}</section>
</main></body>
</html>
"""


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _figures(figures: Iterable[tuple[str, str, str]]) -> str:
    """Return HTML that shows figures next to each other: a title, a sentence and the SVG each."""
    body = "\n".join(
        f"<figure><figcaption><h2>{escape(title)}</h2><p>{escape(text)}</p></figcaption>{svg}"
        "</figure>"
        for title, text, svg in figures
    )
    return f'<div class="figures">\n{body}\n</div>'


def _constancy(record: dict[str, Any]) -> str:
    """Return a sentence that compares the medians of the stream's first and last tenth."""
    medians = record["timeline"]["p50_s"]
    tenth = max(1, len(medians) // 10)
    first, last = sorted(medians[:tenth])[tenth // 2], sorted(medians[-tenth:])[tenth // 2]
    return (
        f"A point took {format_time(first)} over the first tenth of the stream and "
        f"{format_time(last)} over the last."
    )


def _where(record: dict[str, Any]) -> str:
    conditions = record["conditions"]
    machine = conditions["board"] or conditions["cpu_model"] or conditions["architecture"]
    return f"{machine}, {conditions['date'][:10]}"


def _tiles(record: dict[str, Any]) -> str:
    memory, options, steps = record["memory"], record["options"], record["latency"]
    first, last = steps[0], steps[-1]  # an arriving point; a whole row, if there is such a call
    row = last if last["name"] == "row" else first
    grown = f"growth of needed memory over {options['n_updates']:,} points"
    tiles = [
        (format_time(first["p50_s"]), f"{first['what']}, median"),
        *((format_time(s["p50_s"]), f"{s['what']}, median") for s in steps if s["name"] == "query"),
        (f"{row['n_late']:,} of {row['n']:,}", f"rows too late at {options['rate_hz']:g} Hz"),
        (
            format_bytes(memory["needed_bytes"]),
            f"memory needed; it looks like {format_bytes(memory['resident_peak_bytes'])}",
        ),
        (format_bytes(memory["needed_growth_bytes"]), grown),
        _energy_tile(record["energy"]),
    ]
    cells = (
        f'<div class="tile"><b>{escape(b)}</b><span>{escape(s)}</span></div>' for b, s in tiles
    )
    return f'<div class="tiles">{"".join(cells)}</div>'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def line(tag: str, cells: Sequence[str]) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"

    body = "".join(line("td", row) for row in rows)
    return (
        f'<div class="scroll"><table><thead>{line("th", head)}</thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _latency_table(record: dict[str, Any]) -> str:
    columns = {"p50": "p50", "p90": "p90", "p99": "p99", "p99.9": "p999", "max": "max"}
    columns["mean"] = "mean"
    rows = (
        (
            step["what"],
            f"{step['n']:,}",
            *(format_time(step[f"{key}_s"]) for key in columns.values()),
            f"{step['n_late']:,}",
        )
        for step in record["latency"]
    )
    return _table(("step", "n", *columns, "late"), rows)


def _energy_tile(energy: dict[str, Any]) -> tuple[str, str]:
    """Return two texts for a box of the page: the energy of an arriving point, and its limits."""
    name = energy["steps"][0]
    figure, what = energy[name], f"energy per {name}"
    if not figure and energy["sensor"] is None:
        return "unavailable", f"{what}: this machine shows no power sensor"
    if not figure:
        return "unavailable", f"{what}: the sensor gave no figure; see the reason below"
    text = format_energy(figure["energy_j"], figure["interval_95_j"])
    if energy["replay"]:
        return text, f"{what} of a REPLAY: not a measurement of this machine"
    missed = "" if figure["target_met"] else "; less certain than was asked"
    return text, f"{what} above idle, 95 %{missed}"


def _energy(energy: dict[str, Any]) -> str:
    """Return HTML with every step's energy, the parts of its error, and notes on its limits."""
    figures = [(name, energy[name]) for name in energy["steps"] if energy[name]]
    lines = _lines(energy_lines(energy))
    if not figures:
        return lines
    parts = list(figures[0][1]["parts_j"])
    columns = ("per", "energy ± 95 %", "standard error", *parts, "calls", "rounds", "work", "idle")
    rows = (
        (
            name,
            format_energy(figure["energy_j"], figure["interval_95_j"]),
            format_share(figure["relative_error"]),
            *(format_energy(figure["parts_j"][part]) for part in parts),
            f"{figure['n_calls']:,}",
            f"{figure['n_rounds']}",
            f"{figure['power_w']:.3f} W",
            f"{figure['idle_power_w']:.3f} W",
            f"{figure['n_samples']:,}",
            f"{figure['n_missed']:,}",
            f"{figure['n_lone_samples']:,}",
        )
        for name, figure in figures
    )
    table = _table((*columns, "samples", "missed", "alone"), rows)
    return f"{lines}{table}<p>The standard error is the root of the sum of its parts' squares.</p>"


def _paced(paced: dict[str, Any]) -> str:
    """Return HTML of a table and notes on the measurement at the stream's own rate."""
    runs = paced["runs"]
    rows = []
    for run in runs:
        latency, energy = run["latency"], run["energy"]
        rows.append(
            (
                f"{run['backend']}, {format_rate(run['rate_hz'])}",
                f"{latency['n']:,}",
                *(format_time(latency["from_due"][f"{q}_s"]) for q in ("p50", "p99", "max")),
                *(format_time(latency["from_wake"][f"{q}_s"]) for q in ("p50", "p99")),
                format_time(latency["timer"]["p99_s"]),
                f"{latency['n_late']:,}",
                f"{latency['n_skipped']:,}",
                "-" if run["cpu_share"] is None else f"{run['cpu_share'] * 100:.1f} %",
                *(_above_idle(energy) if energy else ("-", "-")),
            )
        )
    head = ("at", "n", "p50", "p99", "max", "wake p50", "wake p99", "timer p99", "late", "skipped")
    lines = [*crossing_lines(paced), governor_line(paced["governor"])]
    lines += [*disturbance_lines(paced), *notes(runs)]
    lines += [f"not measured: {label}: {why}" for label, why in paced["refused"].items()]
    lines += [sensor_line(paced)]
    return (
        "<section><h2>At the stream's own rate</h2><p>Predict, then learn, asleep between "
        "arrivals. p50 to max from when the arrival was due, wake from when the process woke, "
        "timer: how late it woke.</p>"
        f"{_table((*head, 'CPU', 'W above idle', 'an arrival'), rows)}"
        f"{_lines(lines)}</section>"
    )


def _paced_figures(paced: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return title, sentence and SVG of each figure of a paced profile (rows at fixed rates)."""
    runs = paced["runs"]
    figures = []
    if runs:  # none where Ctrl-C came before the first arrival
        text = "From the moment an arrival was due to its answer."
        figures.append(("Latency by rate", text, paced_plots.latency_by_rate(paced)))
    if any(run["energy"] for run in runs):
        text = "Above idle, with 95 % intervals; a crossing lies in the shaded rates."
        figures.append(("Power by rate", text, paced_plots.power_by_rate(paced)))
    if any(seen for run in runs for seen in run["clocks"].values()):
        text = "Share of the readings taken after an arrival, about one a second."
        figures.append(("Clocks", text, paced_plots.clocks(paced)))
    return figures


def _above_idle(energy: dict[str, Any]) -> tuple[str, str]:
    return (
        f"{energy['power_above_idle_w']:.3f} ± {energy['power_interval_95_w']:.3f}",
        format_energy(energy["energy_j"], energy["energy_interval_95_j"]),
    )


def _conditions(record: dict[str, Any]) -> str:
    bundle, conditions, memory = record["bundle"], record["conditions"], record["memory"]
    frequency, degrees = conditions["frequency_hz"], conditions["temperature_celsius"]
    rows = {
        "Date": conditions["date"],
        "Machine": conditions["board"] or "board not shown",
        "Processor": f"{conditions['cpu_model'] or 'unknown'}, "
        f"{conditions['n_cores']} cores usable, {conditions['architecture']}",
        "Load at start": ", ".join(f"{load:.2f}" for load in conditions["load_average"]),
        "Clock": (f"{frequency / 1e9:.2f} GHz" if frequency else "not shown")
        + f", governor {conditions['frequency_governor'] or 'not shown'}",
        "Power mode": _power_mode(conditions["power_mode"]),
        "Temperature": "not shown" if degrees is None else f"{degrees:.0f} °C",
        "System": f"Linux {conditions['kernel']}, "
        + (format_bytes(conditions["memory_bytes"]) if conditions["memory_bytes"] else "unknown"),
        "Backend": describe_backend(record),
        "Software": f"edgefold {conditions['edgefold']}, Python {conditions['python']}, "
        f"numpy {conditions['numpy']}",
        "Bundle": f"{bundle['hash'][:16]}…, opened in {format_time(bundle['open_s'])}",
        "Calls": f"{record['options']['n_updates']:,} updates, "
        f"{record['options']['n_queries']:,} queries, after {conditions['n_warm_up']} of warm-up; "
        f"Python's collector {'on' if conditions['gc_enabled'] else 'off'}",
        **{f"{what[0].upper()}{what[1:]}": figure for what, figure in memory_figures(memory)},
        "Energy sensor": record["energy"]["sensor"] or "none",
    }
    return (
        '<dl class="conditions">'
        + "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in rows.items())
        + "</dl>"
    )


def _power_mode(mode: dict[str, Any] | None) -> str:
    return "not shown" if mode is None else f"{mode['mode']}, {mode['name'] or 'without a name'}"
