"""Compute the answers of `edgefold budget` for many bundles on many boards (--sweep).

A sweep shows which bundles fit which boards, as a table, a file and a picture. Without bundles, the
presets are exported untrained into a temporary folder, in every precision: weights do not change
what a size costs.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from edgefold.cli.files import write_output, write_record
from edgefold.cli.terminal import say
from edgefold.cli.text.budget import EXIT_CODES, asked, sweep_table
from edgefold.devices.boards.board import (
    Board,
    Microcontroller,
    board_names,
    load_profile,
    microcontroller_names,
)
from edgefold.devices.budget.budget import judge
from edgefold.devices.budget.checks import Demand, worst
from edgefold.devices.budget.microcontroller import CSizes, NoCSizes
from edgefold.runtime.backends.native.wheel_libraries import libraries_of_wheel
from edgefold.runtime.backends.registry import info_of
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.errors import ExportError
from edgefold.runtime.record_fields import as_json

if TYPE_CHECKING:
    from edgefold.cli.text.budget import Answers

PRESETS = ("small", "paper")
PRECISIONS = ("float32", "float16", "int8")
PARITY_STEPS = 128  # the least for a chunk of 32: nobody will run these bundles


def depends_on_c(manifest: Manifest, board: Board | Microcontroller, demand: Demand) -> bool:
    """Return whether the answer depends on whether the bundle becomes C.

    It does for firmware, and for a backend that runs the bundle as C, except that a wheel may hold
    it as a library already.
    """
    if isinstance(board, Microcontroller):
        return True
    compiled = {library.bundle_sha256 for library in libraries_of_wheel()}
    return info_of(demand.backend).runs_c and manifest.bundle_hash not in compiled


def sizes_as_c(bundle: Path) -> CSizes | NoCSizes:
    """Return the bytes of RAM and of constants that the bundle takes as generated C.

    Where `edgefold build` refuses the bundle, or is not installed, the reason is returned.
    """
    try:
        from edgefold.export.native.generator import generate

        native = generate(bundle)
    except ImportError:
        reason = "whether it becomes C is not known here, because the build extra is missing"
        return NoCSizes(reason, "pip install 'edgefold[build]'", is_refused=False)
    except ExportError as error:
        reason, _, change = str(error).partition(". ")
        return NoCSizes(reason, change, is_refused=True)
    arena_bytes = native.loading_bytes  # the C is compiled with snapshots if nothing is said
    return CSizes(native.struct_bytes + arena_bytes, arena_bytes, native.flash_bytes)


def run_sweep(args: argparse.Namespace, demand: Demand) -> int:
    """Judge every bundle on every board; print the table and write the files that were asked for.

    Returns:
        With --device, which names one board, the exit code of the worst verdict; else 0.
    """
    if args.plot:
        if args.plot.suffix not in (".png", ".svg", ".pdf"):
            args.usage_error("--plot takes a name that ends in .png, .svg or .pdf")
        import matplotlib  # noqa: F401  # that it is missing is said before minutes of exporting
    names = [args.device] if args.device else [*board_names(), *microcontroller_names()]
    boards = [load_profile(name) for name in names]
    with _bundles(args.bundles) as bundles:
        answers: Answers = {board.name: {} for board in boards}
        for name, path in bundles.items():
            manifest = load_manifest(path)
            on_c = {b.name for b in boards if depends_on_c(manifest, b, demand)}
            sizes = sizes_as_c(path) if on_c else None
            for board in boards:
                of_board = sizes if board.name in on_c else None
                answers[board.name][name] = judge(manifest, board, demand, of_board)
    try:
        _write(args, answers, demand)
    finally:  # a full disk and a closed terminal do not affect each other
        print(sweep_table(answers, demand))
    if args.plot:
        print(f"written  {args.plot}")
    verdicts = [budget.verdict for row in answers.values() for budget in row.values()]
    return EXIT_CODES[worst(verdicts)] if args.device else 0


def _write(args: argparse.Namespace, answers: Answers, demand: Demand) -> None:
    """Write the record and the picture to the files that `--json` and `--plot` name."""
    write_record(args.json, as_json(answers))
    if args.plot:
        from edgefold.cli.plots.boards import draw_sweep

        write_output(args.plot, draw_sweep(args.plot.suffix[1:], answers, asked(demand)))


@contextmanager
def _bundles(folders: list[Path]) -> Iterator[dict[str, Path]]:
    """Yield the folders of the bundles to judge by name: those in `folders`, which are kept.

    Without any, bundles of untrained model presets are exported, and deleted after the block.
    """
    if folders:
        yield {str(path): path for path in folders}
        return
    with tempfile.TemporaryDirectory(prefix="edgefold-") as folder:
        yield _export_presets(Path(folder))


def _export_presets(folder: Path) -> dict[str, Path]:
    import torch

    from edgefold.export.bundle import ExportConfig, export_bundle
    from edgefold.train.models.registry import DEFAULT, create_model

    torch.set_num_threads(1)
    bundles = {}
    for preset in PRESETS:
        torch.manual_seed(0)
        model = create_model(DEFAULT, preset=preset)
        for precision in PRECISIONS:
            say(f"exporting {preset}, {precision} …")
            place = folder / f"{preset}-{precision}"
            config = ExportConfig(parity_steps=PARITY_STEPS, precision=precision, accept_loss=True)
            export_bundle(model, {"name": "untrained"}, place, config)
            bundles[f"{preset} {precision}"] = place
    return bundles
