"""Write the record of `edgefold profile` as text."""

from __future__ import annotations

from typing import Any

from edgefold.cli.records.figures import OF_THE_PROCESS, figure_of_the_process
from edgefold.cli.text.figures import show
from edgefold.cli.text.numbers import format_bytes, format_energy, format_share, format_time
from edgefold.cli.text.paced import paced_lines
from edgefold.cli.text.validity import validity_lines

DETAILED = ("needed", "to_run_well", "growth", "resident_peak", "gpu_memory")
"""Names of the figures of memory that have a line of their own with an explanation."""


def table(record: dict[str, Any]) -> str:
    """Return the record of a profile as text for a terminal."""
    bundle, memory, conditions = record["bundle"], record["memory"], record["conditions"]
    options = record["options"]
    lines = [
        f"{bundle['path']}   {describe_model(bundle)}",
        *_keeps(bundle),
        f"{conditions['cpu_model'] or conditions['architecture']}, {conditions['n_cores']} cores, "
        f"load {conditions['load_average'][0]:.2f}",
        f"backend  {describe_backend(record)}",
        "",
        "validity",
        *(f"  {line}" for line in validity_lines(record["validity"])),
        "",
        f"{'latency':<52}{'p50':>10}{'p90':>10}{'p99':>10}{'p99.9':>10}{'max':>10}"
        f"   late at {options['rate_hz']:g} Hz",
    ]
    for step in record["latency"]:
        times = (step[f"{q}_s"] for q in ("p50", "p90", "p99", "p999", "max"))
        lines.append(
            f"  {step['what']:<50}"
            + "".join(f"{format_time(t):>10}" for t in times)
            + f"   {step['n_late']:,} of {step['n']:,}"
        )
    lines += [
        "",
        "memory",
        f"  {'planned for the bundle':<28}{format_bytes(memory['plan']['total_bytes'])}",
        *(f"  {what:<28}{figure}" for what, figure in memory_figures(memory)),
        "",
        "energy",
    ]
    lines += [f"  {line}" for line in energy_lines(record["energy"])]
    if "paced" in record:
        lines += ["", *paced_lines(record["paced"])]
    return "\n".join(lines) + "\n"


def memory_figures(memory: dict[str, Any]) -> list[tuple[str, str]]:
    """Return pairs of a name and a text: each figure of memory with its explanation."""
    files, since = memory["files"], memory["window_note"]
    needed, growth, peak, opening = (
        format_bytes(memory[f"{name}_bytes"])
        for name in ("needed", "needed_growth", "resident_peak", "resident_peak_open")
    )
    highest = format_bytes(memory["needed_bytes"] + files["mapped_bytes"])
    lines = [
        (
            "needed",
            f"{needed}  (the most of {memory['n_readings']} readings; with less it is killed)",
        ),
        ("to run well", _to_run_well(memory["to_run_well"])),
        (
            "looks like",
            f"{peak}  (VmHWM, {since}; {opening} while opening; at most {highest} with every page "
            "of the mapped files)",
        ),
        ("growth over the updates", f"{growth} needed"),
        ("predicted by a budget", _predicted(memory["predicted"])),
        ("GPU memory", _surveyed(memory["survey"]["gpu"])),
        ("less available memory", _surveyed(memory["survey"]["available_drop"])),
    ]
    for name, (path, _) in OF_THE_PROCESS.items():
        if path[0] == "memory" and name not in DETAILED:
            figure = figure_of_the_process({"memory": memory}, name)
            lines.append((name.replace("_", " "), show(figure)))
    return lines


def _surveyed(reading: dict[str, Any]) -> str:
    if reading["memory_bytes"] is None:
        return f"unavailable: {reading['reason']}"
    return f"{format_bytes(reading['memory_bytes'])}  ({reading['source']})"


def _predicted(estimate: dict[str, Any]) -> str:
    low, high = (f"{n_bytes / 1e6:.0f}" for n_bytes in estimate["looks_like_bytes"])
    needed, well = (format_bytes(estimate[f"{name}_bytes"]) for name in ("needed", "to_run_well"))
    least = "" if estimate["complete"] else "at least "
    return (
        f"{least}{needed} needed, {well} to run well, looks like {low} to {high} MB  (a Python "
        "program; profiling itself needs about 4 MB more)"
    )


def _to_run_well(memory: dict[str, Any]) -> str:
    if memory["range_bytes"] is None:
        return f"unavailable: {memory['reason']}"
    low, high = map(format_bytes, memory["range_bytes"])
    resident = format_bytes(memory["kept_bytes"])
    return f"{low} to {high}  (steps alone; {resident} stay: mapped by others, or not this user's)"


def describe_model(bundle: dict[str, Any]) -> str:
    """Return the model, its parameters and its precision in a few words."""
    model = bundle["model"]
    words = [str(model.get("summary") or model.get("name") or "a model")]
    if "n_parameters" in model:
        words.append(f"{model['n_parameters']:,} parameters")
    words.append(str(bundle["precision"]))
    if bundle["n_streams"] > 1:
        words.append(f"{bundle['n_streams']} streams")
    return ", ".join(words)


def _keeps(bundle: dict[str, Any]) -> list[str]:
    """Return a line on the state's capacity; none without a capacity or in an older record."""
    keeps = bundle.get("keeps", "")
    reset = ": reset here whenever it is full" if keeps.endswith("refuses") else ""
    return [f"state    {keeps}{reset}"] if keeps else []


def describe_backend(record: dict[str, Any]) -> str:
    """Return a text on the backend and its device, and on backends that `auto` tried before."""
    backend = record["conditions"]["backend"]
    refused = [f"{name} refused: {reason}" for name, reason in backend.get("refused", {}).items()]
    asked = f" ({'; '.join([backend['asked'], *refused])})" if refused else ""
    mode = f", engines {backend['mode']}" if backend.get("mode") else ""
    return (
        f"{backend['name']} {backend['version']} on {backend['device']}, "
        f"{record['options']['threads']} thread(s){mode}{asked}"
    )


def energy_lines(energy: dict[str, Any]) -> list[str]:
    """Return lines on each step's energy and its uncertainty, or on why there is none."""
    lines = []
    if energy["replay"]:
        lines.append(f"REPLAY of {energy['replay']}: not a measurement of this machine")
    if energy["reason"]:
        reasons = [f"{c['kind']:<12}{c['reason']}" for c in energy["candidates"] if c["reason"]]
        without = energy["sensor"] is None and len(reasons) > 1
        lines += ["unavailable: no sensor", *reasons] if without else []
        lines += [] if without else [f"unavailable: {energy['reason']}"]
    figures = [(name, energy[name]) for name in energy["steps"] if energy[name]]
    for name, figure in figures:
        lines.append(
            f"{name:<12}{format_energy(figure['energy_j'], figure['interval_95_j'])} above idle "
            f"(95 %), mean of {figure['n_calls']:,} calls in {figure['duration_s']:.1f} s"
        )
        if not figure["target_met"]:
            lines.append(
                f"{'':<12}standard error {format_share(figure['relative_error'])} after "
                f"{figure['measured_for_s']:.0f} s: the target of {energy['target'] * 100:g} % "
                "was NOT reached; allow more with --energy-seconds"
            )
    if figures:
        first, last = figures[0][1], figures[-1][1]
        lines += [
            f"{'sensor':<12}{energy['sensor']}: {energy['scope']}",
            f"{'idle':<12}{first['idle_before_w']:.3f} W before, {last['idle_after_w']:.3f} W "
            f"after; sampled every {first['period_s']:.3g} s, "
            f"{'step' if first['sensor_step_known'] else 'smallest difference seen'} "
            f"{first['sensor_step']:.2g} {first['sensor_step_unit']}; other processes count too",
        ]
    for name, figure in figures:
        lines += [f"{'unresolved':<12}{name}: {sentence}" for sentence in figure["unresolved"]]
    return lines
