"""`edgefold profile`: latency, memory and energy of each step on this machine.

Arguments, the terminal's table and the files; measuring is `edgefold.cli.measure`, the HTML page
`edgefold.cli.report`.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

from edgefold.cli.counts import positive
from edgefold.cli.output_file import require_kept, require_writable, write_output
from edgefold.cli.stream_options import add_stream_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_stream_arguments(parser)
    parser.add_argument(
        "--updates", type=positive, default=10_000, metavar="N", help="updates (default 10000)"
    )
    parser.add_argument(
        "--queries", type=positive, default=1_000, metavar="N", help="queries (default 1000)"
    )
    parser.add_argument(
        "--rate",
        type=float,
        default=50.0,
        metavar="HZ",
        help="arrivals a second; a step longer than 1/HZ missed its deadline (default 50)",
    )
    parser.add_argument(
        "--energy-error",
        type=float,
        default=0.05,
        metavar="SHARE",
        help="measure energy until its standard error is below this share (default 0.05)",
    )
    parser.add_argument(
        "--energy-seconds",
        type=float,
        default=120.0,
        metavar="S",
        help="stop measuring energy after this long, whatever was reached (default 120)",
    )
    parser.add_argument(
        "--power-replay",
        type=Path,
        metavar="FILE",
        help="take power from a recording (CSV with time_s,power_w) in a sensor's place, to show "
        "the path on a machine that has none; the record says that it is no measurement",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the record here")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write a report here (needs the report extra)"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    for option in ("rate", "energy_error", "energy_seconds"):
        value = getattr(args, option)
        if not (value > 0 and math.isfinite(value)):
            name = option.replace("_", "-")
            args.usage_error(f"argument --{name}: {value} is not a positive number")
    require_writable(args, "json", "html")
    if args.html:
        _require_matplotlib()
    if args.power_replay:
        from edgefold.devices.power.replay import load_recording

        load_recording(args.power_replay)  # refused here, not after minutes of measuring
        require_kept(args, args.power_replay, "json", "html")
    from edgefold.cli.measure import Measurement, ProfileOptions

    options = ProfileOptions(
        n_updates=args.updates,
        n_queries=args.queries,
        rate_hz=args.rate,
        backend=args.backend,
        threads=args.threads,
        memory_limit=args.memory_limit,
        engine_cache=str(args.engine_cache) if args.engine_cache else None,
        cuda_graphs=not args.no_cuda_graphs,
        energy_error=args.energy_error,
        energy_limit_s=args.energy_seconds,
        power_replay=str(args.power_replay) if args.power_replay else None,
    )
    record = Measurement(args.bundle, options, _progress).run()
    _progress("")
    if args.json:
        import json

        write_output(args.json, json.dumps(record, indent=1) + "\n")
    try:
        if args.html:
            from edgefold.cli.report import render

            write_output(args.html, render(record))
    finally:  # neither a page that fails nor a terminal that is gone costs the other
        print(table(record))
    for path in (args.json, args.html):
        if path:
            print(f"written  {path}")
    return 0


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def _require_matplotlib() -> None:
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise ModuleNotFoundError("matplotlib is needed for --html", name="matplotlib")


def table(record: dict[str, Any]) -> str:
    """The record for a terminal."""
    bundle, memory, conditions = record["bundle"], record["memory"], record["conditions"]
    options = record["options"]
    lines = [
        f"{bundle['path']}   {describe_model(bundle)}",
        f"{conditions['cpu_model'] or conditions['architecture']}, {conditions['n_cores']} cores, "
        f"load {conditions['load_average'][0]:.2f}",
        f"backend  {describe_backend(record)}",
        "",
        f"{'latency':<48}{'p50':>10}{'p90':>10}{'p99':>10}{'p99.9':>10}{'max':>10}"
        f"   late at {options['rate_hz']:g} Hz",
    ]
    for step in record["latency"]:
        times = (step[f"{q}_s"] for q in ("p50", "p90", "p99", "p999", "max"))
        lines.append(
            f"  {step['what']:<46}"
            + "".join(f"{format_time(t):>10}" for t in times)
            + f"   {step['n_missed']:,} of {step['n']:,}"
        )
    plan = memory["plan"]
    lines += [
        "",
        "memory",
        f"  planned for the bundle      {format_bytes(plan['total_bytes'])}",
        f"  peak of the process         {format_bytes(memory['peak_run_bytes'])}"
        f"  (VmHWM, {memory['peak_note']};"
        f" {format_bytes(memory['peak_open_bytes'])} while opening)",
        f"  PSS, USS                    {format_bytes(memory['pss_bytes'])}, "
        f"{format_bytes(memory['uss_bytes'])}",
        f"  growth over the updates     {format_bytes(memory['growth_bytes'])}",
        *(f"  {what:<28}{figure}" for what, figure in survey_figures(memory["survey"])),
        "",
        "energy",
    ]
    lines += [f"  {line}" for line in energy_lines(record["energy"])]
    return "\n".join(lines) + "\n"


def survey_figures(survey: dict[str, Any]) -> list[tuple[str, str]]:
    """What the process's own memory does not show: on boards whose GPU shares the memory, both."""
    return [
        (
            what,
            f"unavailable: {survey[key]['reason']}"
            if survey[key]["memory_bytes"] is None
            else f"{format_bytes(survey[key]['memory_bytes'])}  ({survey[key]['source']})",
        )
        for key, what in (("gpu", "GPU memory"), ("available_drop", "less available memory"))
    ]


def describe_model(bundle: dict[str, Any]) -> str:
    """The model in a few words."""
    model = bundle["model"]
    words = [str(model.get("kind", "model")).upper()]
    for key, name in (("n_blocks", "blocks"), ("width", "wide"), ("n_latents", "latents")):
        if key in model:
            words.append(f"{model[key]} {name}")
    if "n_parameters" in model:
        words.append(f"{model['n_parameters']:,} parameters")
    words.append(str(bundle["precision"]))
    if bundle["n_streams"] > 1:
        words.append(f"{bundle['n_streams']} streams")
    return ", ".join(words)


def describe_backend(record: dict[str, Any]) -> str:
    """Which backend ran on what, and which ones `auto` tried before it."""
    backend = record["conditions"]["backend"]
    refused = [f"{name} refused: {reason}" for name, reason in backend.get("refused", {}).items()]
    asked = f" ({'; '.join([backend['asked'], *refused])})" if refused else ""
    return (
        f"{backend['name']} {backend['version']} on {backend['device']}, "
        f"{record['options']['threads']} thread(s){asked}"
    )


def energy_lines(energy: dict[str, Any]) -> list[str]:
    """Energy per step with its uncertainty, or why there is none; most important first."""
    lines = []
    if energy["replay"]:
        lines.append(f"REPLAY of {energy['replay']}: not a measurement of this machine")
    if energy["reason"]:
        reasons = [f"{c['kind']:<12}{c['reason']}" for c in energy["candidates"] if c["reason"]]
        without = energy["sensor"] is None and len(reasons) > 1
        lines += ["unavailable: no sensor", *reasons] if without else []
        lines += [] if without else [f"unavailable: {energy['reason']}"]
    figures = [(name, energy[name]) for name in ("update", "query") if energy[name]]
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
            f"{'step' if first['sensor_step_told'] else 'smallest difference seen'} "
            f"{first['sensor_step']:.2g} {first['sensor_step_unit']}; other processes count too",
        ]
    for name, figure in figures:
        lines += [f"{'unresolved':<12}{name}: {sentence}" for sentence in figure["unresolved"]]
    return lines


def format_energy(energy_j: float, half_width_j: float | None = None) -> str:
    """A figure, with its interval where one is given, in one unit."""
    size = max(abs(energy_j), half_width_j or 0.0)
    for unit, scale in (("J", 1.0), ("mJ", 1e-3), ("µJ", 1e-6)):
        if size >= scale or unit == "µJ":
            break
    if half_width_j is None:
        return f"{energy_j / scale:.2g} {unit}"
    digits = 1 if half_width_j <= 0 else max(0, 1 - math.floor(math.log10(half_width_j / scale)))
    return f"{energy_j / scale:,.{digits}f} ± {half_width_j / scale:,.{digits}f} {unit}"


def format_share(share: float | None) -> str:
    """A share in percent; None is a share of nothing."""
    return "beyond all measure" if share is None else f"{share * 100:.1f} %"


def format_time(seconds: float | None) -> str:
    """Three digits and a unit."""
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= 0.9995 * scale:  # 999.6 µs is 1 ms, not 1e+03 µs
            return f"{seconds / scale:.3g} {unit}" if seconds < 1000 * scale else f"{seconds:.0f} s"
    return f"{seconds * 1e9:.0f} ns"


def format_bytes(n_bytes: float) -> str:
    """In GB (1e9 bytes), MB or kB."""
    if abs(n_bytes) >= 1e9:
        return f"{n_bytes / 1e9:.1f} GB"
    if abs(n_bytes) >= 1e6:
        return f"{n_bytes / 1e6:.1f} MB"
    return f"{n_bytes / 1e3:.1f} kB" if n_bytes else "0 kB"
