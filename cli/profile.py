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

from edgefold.cli.output_file import require_writable, write_output
from edgefold.cli.run import add_backend_arguments, positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_backend_arguments(parser)
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
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the record here")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write a report here (needs the report extra)"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if not (args.rate > 0 and math.isfinite(args.rate)):
        args.usage_error(f"argument --rate: {args.rate} is not a positive number")
    require_writable(args, "json", "html")
    if args.html:
        _require_matplotlib()
    from edgefold.cli.measure import Measurement, ProfileOptions

    options = ProfileOptions(args.updates, args.queries, args.rate, args.backend, args.threads)
    record = Measurement(args.bundle, options, _progress).run()
    _progress("")
    if args.json:
        import json

        write_output(args.json, json.dumps(record, indent=1) + "\n")
    print(table(record))
    if args.html:
        from edgefold.cli.report import render

        write_output(args.html, render(record))
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
    backend, options = conditions["backend"], record["options"]
    lines = [
        f"{bundle['path']}   {describe_model(bundle)}",
        f"{conditions['cpu_model'] or conditions['architecture']}, {conditions['n_cores']} cores, "
        f"load {conditions['load_average'][0]:.2f}   {backend['name']} {backend['version']} on "
        f"{backend['device']}, {record['options']['threads']} thread(s)",
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
        "",
        "energy",
    ]
    lines += [f"  {line}" for line in energy_lines(record["energy"])]
    return "\n".join(lines) + "\n"


def describe_model(bundle: dict[str, Any]) -> str:
    """The model in a few words."""
    model = bundle["model"]
    words = [str(model.get("kind", "model")).upper()]
    for key, name in (("n_blocks", "blocks"), ("width", "wide"), ("n_latents", "latents")):
        if key in model:
            words.append(f"{model[key]} {name}")
    if "n_parameters" in model:
        words.append(f"{model['n_parameters']:,} parameters")
    return ", ".join(words)


def energy_lines(energy: dict[str, Any]) -> list[str]:
    """Energy per step, or why there is none."""
    if energy["reason"]:
        return [f"unavailable: {energy['reason']}"]
    return [
        *(
            f"{name:<28}{energy[name]['energy_j'] * 1e6:,.1f} uJ above idle, "
            f"mean of {energy[name]['n']:,}"
            for name in ("update", "query")
        ),
        f"{energy['sensor']}, idle at {energy['idle_power_w']:.2f} W; other processes count too",
    ]


def format_time(seconds: float | None) -> str:
    """Three digits and a unit."""
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}" if seconds < 1000 * scale else f"{seconds:.0f} s"
    return f"{seconds * 1e9:.0f} ns"


def format_bytes(n_bytes: float) -> str:
    """In GB (1e9 bytes), MB or kB."""
    if abs(n_bytes) >= 1e9:
        return f"{n_bytes / 1e9:.1f} GB"
    if abs(n_bytes) >= 1e6:
        return f"{n_bytes / 1e6:.1f} MB"
    return f"{n_bytes / 1e3:.1f} kB" if n_bytes else "0 kB"
