"""`edgefold build`: turn a bundle into C, and compile it.

    bundle ──generate──> C ──compiler──> library ──golden stream──> kept: the backend `native`
                          │─ --source ──> files for a project of yours
                          │─ --package ─> the same as a library of Arduino, Zephyr, CMake ..,
                          │               or as an aggregate of PostgreSQL
                          │─ --program ─> a static program: rows in, predictions out
                          │─ --target ──> the same for another processor
                          └─ --page, --target wasm32 ──> forecasts in a browser

A library is code, so it is kept under the rules of engines (docs/trust.md). It is kept only after
it has replayed the bundle's golden stream on this very processor, in a process of its own.
"""

from __future__ import annotations

import argparse
import shlex
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefold.cli.bundle_process import TIME_LIMIT_MINUTES, in_child
from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.options.bundle_options import (
    add_bundle_argument,
    add_trust_arguments,
    require_trusted,
)
from edgefold.cli.options.season_options import add_longest_season, named, with_shorter_seasons
from edgefold.cli.terminal import say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edgefold.export.native.generator import NativeSource
    from edgefold.export.native.toolchain.compilers import Compiler
    from edgefold.runtime.backends.native.library_store import LibraryStore
    from edgefold.runtime.bundle.manifest import Manifest

EXAMPLES = (
    "edgefold build bundles/sensor",
    "edgefold build bundles/sensor --source --out firmware/model",
    "edgefold build bundles/sensor --target cortex-m4 --out firmware/model",
    "edgefold build bundles/sensor --package arduino --out edgefold_sensor",
    "edgefold build bundles/sensor --package postgres --name site_model --out extension",
    "edgefold build bundles/sensor --program --target aarch64-linux-gnu --out dist",
    "edgefold build bundles/sensor --target aarch64-linux-gnu --name sensor --out dist",
    "edgefold build bundles/sensor --library dist/edgefold_sensor.so",
    "edgefold build bundles/sensor --list",
    "edgefold build bundles/sensor --memory-map memory.svg",
    "edgefold build sensors --longest-season 24 --source --out firmware/model",
    "edgefold build sensors --page --out sensors.html",
    "edgefold build sensors --target wasm32 --out edgefold-sensors",
)

MAKERS = "--source, --package, --program, --page and --target"
"""Options by which files are written into --out."""
WASM = "wasm32"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `edgefold build`."""
    from edgefold.export.native.package_kinds import KINDS
    from edgefold.export.native.toolchain.targets import TARGETS

    add_bundle_argument(parser)
    add_trust_arguments(parser)
    what = parser.add_argument_group(
        "what is built",
        "Without an option: a library for this machine's processor, compiled, proved against the "
        "bundle's golden stream, and kept where --backend native and auto find it.",
    ).add_mutually_exclusive_group()
    what.add_argument(
        "--library",
        type=Path,
        metavar="FILE",
        help="prove and keep this library, which --target made on another machine; needs neither "
        "a compiler nor the build extra",
    )
    what.add_argument(
        "--list", action="store_true", help="show the libraries that are kept for this bundle"
    )
    parser.add_argument(
        "--source", action="store_true", help="write the C files into --out and compile nothing"
    )
    parser.add_argument(
        "--package",
        choices=KINDS,
        metavar="KIND",
        help="write the C as a library into --out, with an example, as others of its kind are laid "
        f"out: {', '.join(KINDS)}; postgres is an extension, an aggregate in SQL whose result is a "
        "state; compiles nothing",
    )
    parser.add_argument(
        "--program",
        action="store_true",
        help="the whole loop as a static program of one bundle, as `edgefold run`, without Python",
    )
    parser.add_argument(
        "--page",
        action="store_true",
        help="one page of HTML into --out that forecasts a table dropped on it, without a server; "
        "of the general model of sensors",
    )
    parser.add_argument(
        "--target",
        choices=sorted([*TARGETS, WASM]),
        metavar="T",
        help=f"compile for another processor: {', '.join(sorted(TARGETS))}; a shared library for "
        "Linux, a static one for microcontrollers, each with its header, in --out; "
        "arm-linux-gnueabihf is ARMv7 with NEON, not for Raspberry Pi 1 and Zero. wasm32 makes a "
        "package of npm for node and browsers",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where --source, --package, --program and --target write, or --longest-season its "
        "bundle; with --page, the file",
    )
    parser.add_argument(
        "--memory-map",
        type=Path,
        metavar="FILE.svg",
        help="draw the memory in which steps compute: each buffer, where and for how long; without "
        "--source, --package, --program, --page or --target nothing else is done",
    )
    add_longest_season(parser, "; where no files of C are made, that bundle is written")
    parser.add_argument(
        "--compiler",
        metavar="CC",
        help="the compiler, as clang or 'ccache gcc' (default: $CC, else cc, gcc, clang or zig's, "
        "which `pip install ziglang` installs; with --target, that target's, or zig's for Linux)",
    )
    parser.add_argument(
        "--flags",
        type=shlex.split,
        default=[],
        metavar="FLAGS",
        help="further flags of the compiler, after edgefold's own, as --flags='-O2 -g'",
    )
    parser.add_argument(
        "--name",
        metavar="NAME",
        help="in the names of files and functions (default: the model's, so that two bundles of "
        "one model in one folder or one program need it)",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="where libraries are kept (default $EDGEFOLD_CACHE, else ~/.cache/edgefold)",
    )


def run(args: argparse.Namespace) -> int:
    """Build the C of a bundle, compile it and check its answers; or list kept libraries."""
    _require_sense(args)
    args.expect_hash = require_trusted(args, args.bundle)
    args.title = named(args.bundle, args.longest_season)
    if args.longest_season is None:
        return _build(args)
    from edgefold.cli.text import build as text
    from edgefold.runtime.bundle.manifest_file import load_manifest
    from edgefold.runtime.bundle.signature import load_expected

    whole = load_expected(args.bundle, args.expect_hash)
    place = None if _makes_files(args) else args.out
    with with_shorter_seasons(whole.path, args.longest_season, place) as folder:
        shorter = load_manifest(folder)
        if place:
            print(f"written  {place}")
        print(text.shorter_seasons(whole, shorter))
        args.bundle, args.expect_hash = str(folder), shorter.bundle_hash
        if place:
            args.out = None  # from here on it is as a bundle that was there before
        return _build(args)


def _build(args: argparse.Namespace) -> int:
    """Build the C of the bundle `args.bundle`, or list its libraries; return the exit code."""
    from edgefold.runtime.backends.native.library_store import LibraryStore
    from edgefold.runtime.bundle.signature import load_expected

    manifest, store = load_expected(args.bundle, args.expect_hash), LibraryStore(args.cache)
    if args.list:
        return _list(manifest, store)
    if args.library:
        return _adopt(args, manifest, store)
    if args.memory_map:
        _draw_memory(args)
        if not args.out:
            return ExitCode.DONE
    if args.source:
        return _write_source(args)
    if args.package:
        return _write_package(args, manifest)
    if args.page or args.target == WASM:
        from edgefold.cli.browser_files import write_browser_files

        return write_browser_files(
            args.bundle, args.title, args.out, args.page, args.flags, args.name
        )
    from edgefold.export.native.toolchain.compilers import find_compiler
    from edgefold.export.native.toolchain.targets import TARGETS

    target = TARGETS[args.target] if args.target else None
    compiler = find_compiler(args.compiler, target, args.flags)
    if args.out:
        return _build_files(args, compiler)
    return _build_library(args, manifest, store, compiler)


def _require_sense(args: argparse.Namespace) -> None:
    """Refuse options that do not go together."""
    from edgefold.export.native.toolchain.targets import TARGETS

    alone = "--library" if args.library else "--list" if args.list else None
    others = (args.out, args.compiler, args.flags, args.name, args.longest_season, args.memory_map)
    if alone and (_makes_files(args) or any(others)):
        args.usage_error(f"{alone} goes with --cache alone")
    written = "--source" if args.source else "--package" if args.package else None
    if written and (args.target or args.compiler or args.flags):
        args.usage_error(f"{written} compiles nothing: leave out --target, --compiler and --flags")
    if args.package and (args.source or args.program):
        args.usage_error("--package writes sources as a library: leave out --source and --program")
    if args.page and (args.source or args.package or args.program or args.target):
        args.usage_error("--page goes without --source, --package, --program and --target")
    if (args.page or args.target == WASM) and (args.program or args.compiler):
        args.usage_error("--page and --target wasm32 go without --program; zig compiles them")
    target = TARGETS.get(args.target)
    if args.program and target and not target.is_linux:
        args.usage_error(f"--program needs Linux, {args.target} is a microcontroller")
    if args.longest_season and target and target.is_linux and not args.program:
        args.usage_error(
            "a library runs the bundle that it was built from: write that first, with "
            "--longest-season and --out BUNDLE, then build it for --target"
        )
    _require_places(args)


def _require_places(args: argparse.Namespace) -> None:
    """Refuse --out where nothing is written into it, and its lack where something is."""
    if args.memory_map and args.memory_map.suffix != ".svg":
        args.usage_error("--memory-map takes a name that ends in .svg")
    if _makes_files(args):
        if not args.out:
            args.usage_error(f"{MAKERS} need --out, the folder to write into")
        return
    if args.memory_map:
        if args.out or args.compiler or args.flags:
            args.usage_error(
                f"--memory-map only draws, unless one of {MAKERS} makes files: leave out --out, "
                "--compiler and --flags"
            )
    elif args.longest_season:
        if not args.out:
            args.usage_error("--longest-season needs --out, the folder of the bundle that it makes")
    elif args.out:
        args.usage_error(
            f"a library for this machine is kept in --cache; --out goes with {MAKERS}, or with "
            "--longest-season for the bundle that it makes"
        )


def _makes_files(args: argparse.Namespace) -> bool:
    """Return whether C, a program, a page or what --target makes is written into --out."""
    return bool(args.source or args.package or args.program or args.page or args.target)


def _generate(args: argparse.Namespace) -> NativeSource:
    """Return the C of the bundle.

    Raises:
        ExportError: An operator is not supported; the message names it.
        BackendError: The package that reads the graphs is not installed.
    """
    from edgefold.runtime.errors import missing_build_extra

    try:
        from edgefold.export.native.generator import generate
    except ModuleNotFoundError as error:
        raise missing_build_extra(error) from error
    return generate(Path(args.bundle), args.name)


def _generated_files(args: argparse.Namespace) -> Mapping[str, str]:
    """Return the C files by name, with those of the program if it is asked for; see `_generate`."""
    if not args.program:
        return _generate(args).files
    from edgefold.runtime.errors import missing_build_extra

    try:
        from edgefold.export.native.loop_program import program_sources
    except ModuleNotFoundError as error:
        raise missing_build_extra(error) from error
    return program_sources(Path(args.bundle), args.name)


def _draw_memory(args: argparse.Namespace) -> None:
    """Write the picture of --memory-map."""
    from edgefold.cli.files import require_writable, write_output, written_lines
    from edgefold.cli.plots.memory_map import memory_map

    require_writable(args, "memory_map")
    native = _generate(args)
    picture = memory_map(args.title, native.struct_bytes, native.arenas)
    write_output(args.memory_map, picture)
    print(*written_lines(args.memory_map), sep="\n")


def _write_source(args: argparse.Namespace) -> int:
    """Write the C files into --out, print how to compile them, and return DONE."""
    from edgefold.cli.generated_files import marked, require_own, write_files
    from edgefold.cli.text import build as text

    files = _generated_files(args)
    require_own(args.out, files)
    write_files(args.out, marked(files))
    print(text.source_steps(args.out, files, args.program))
    return ExitCode.DONE


def _write_package(args: argparse.Namespace, manifest: Manifest) -> int:
    """Write the library of --package into --out, and return DONE."""
    from edgefold.cli.generated_files import MARK, marked, require_own, write_files
    from edgefold.cli.text import build as text
    from edgefold.export.native.package_kinds import files_of_kind

    files = files_of_kind(args.package, manifest, _generate(args), MARK)
    require_own(args.out, files)
    write_files(args.out, marked(files))
    print(text.package_steps(args.out))
    return ExitCode.DONE


def _build_files(args: argparse.Namespace, compiler: Compiler) -> int:
    """Compile a program, or a library for another processor, into --out; return DONE."""
    from edgefold.cli.generated_files import marked, require_own, write_files
    from edgefold.cli.text import build as text
    from edgefold.export.native.toolchain import compilers
    from edgefold.export.native.toolchain.elf_sizes import sizes_of

    files = _generated_files(args)
    headers = {} if args.program else {n: files[n] for n in files if n.endswith(".h")}
    require_own(args.out, headers)
    print(text.title(args.title, compiler))
    say(f"compiling with {compiler.title} …")
    is_firmware = bool(compiler.target and not compiler.target.is_linux)
    start_s = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.program:
            product = compilers.compile_program(files, compiler, folder)
        elif is_firmware:
            product = compilers.compile_archive(files, compiler, folder)
        else:
            product = compilers.compile_library(files, compiler, folder)
        compiled_s = time.monotonic() - start_s
        print(text.sizes(files, sizes_of(sorted(folder.glob("*.o"))), compiled_s, is_firmware))
        mode = 0o755 if args.program else 0o644
        write_files(args.out, {product.name: product.read_bytes()}, mode)
    if not args.program:
        write_files(args.out, marked(headers))
        print(text.next_steps(args.bundle, args.out / product.name, compiler))
    return ExitCode.DONE


def _build_library(
    args: argparse.Namespace, manifest: Manifest, store: LibraryStore, compiler: Compiler
) -> int:
    """Compile a library for this processor and keep it if it passes `_prove`; return the code."""
    from edgefold.cli.text import build as text
    from edgefold.export.native.toolchain.compilers import compile_library
    from edgefold.export.native.toolchain.elf_sizes import sizes_of

    folder = _require_writable(store)
    files = _generated_files(args)
    print(text.title(args.title, compiler))
    say(f"compiling with {compiler.title} …")
    start_s = time.monotonic()
    # Beside the libraries: a place from which code may be loaded, on the same disk.
    with tempfile.TemporaryDirectory(dir=folder) as name:
        library = compile_library(files, compiler, Path(name))
        compiled_s = time.monotonic() - start_s
        print(text.sizes(files, sizes_of(sorted(Path(name).glob("*.o"))), compiled_s))
        facts = {"compiler": compiler.title, "flags": shlex.join(compiler.flags)}
        return _prove(args, manifest, store, library, facts)


def _adopt(args: argparse.Namespace, manifest: Manifest, store: LibraryStore) -> int:
    """Keep the library of --library, made elsewhere, if it passes `_prove`; return the code."""
    from edgefold.runtime.backends.code_cache import open_code
    from edgefold.runtime.errors import BackendError

    folder = _require_writable(store)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        copy = Path(name) / "library.so"
        with open_code(args.library) as (file, reason), open("/proc/self/exe", "rb") as python:
            if reason:
                raise BackendError(f"{args.library} is code, and cannot be trusted: {reason}.")
            content = file.read()
            if _machine_of(content) != _machine_of(python.read(20)):
                raise BackendError(
                    f"{args.library} is no library for this processor; make one with --target on "
                    "the machine that has the compiler."
                )
            copy.write_bytes(content)
        facts = {"compiler": "compiled elsewhere", "flags": ""}
        return _prove(args, manifest, store, copy, facts)


def _machine_of(file: bytes) -> tuple[bytes, bytes]:
    """Return the bytes of an ELF file's head that identify its word format and its processor."""
    return file[:6], file[18:20]


def _require_writable(store: LibraryStore) -> Path:
    from edgefold.runtime.errors import OutputError

    if reason := store.explain_unwritable():
        raise OutputError(
            f"no library can be kept ({reason}); choose a folder that can be written with --cache "
            "or EDGEFOLD_CACHE."
        )
    assert store.folder is not None
    return store.folder


def _prove(
    args: argparse.Namespace,
    manifest: Manifest,
    store: LibraryStore,
    library: Path,
    facts: dict[str, str],
) -> int:
    """Replay the golden stream on a library in a child process; keep the library if that passes.

    Args:
        args: Options of the command.
        manifest: Manifest of the bundle.
        store: Cache of compiled libraries, which receives this one.
        library: File of the library.
        facts: Texts to keep with the library: compiler and flags. The largest error and the time
            of each step in the replay are added.

    Returns:
        DONE if the library passed and is kept, else WRONG_RESULT.
    """
    from edgefold.cli.text import build as text
    from edgefold.runtime.backends.native.processor import read_processor

    args.time_limit, args.proved = TIME_LIMIT_MINUTES, library
    result = in_child(prove, args)
    print(text.proof(result))
    if not result["passed"]:
        print(text.failed(facts))
        return ExitCode.WRONG_RESULT
    facts |= {name: result[name] for name in ("generator", "proof", "step_s")}
    entry = store.keep(manifest, read_processor(), library, facts)
    print(f"kept     {entry.path}")
    return ExitCode.DONE


def prove(args: argparse.Namespace) -> dict[str, Any]:
    """Replay the golden stream on the library `args.proved`; this runs in the child process.

    Returns `generator`, `passed`, `proof` and `step_s`, as `prove_library` explains them.
    """
    from edgefold.runtime.checking.library_proof import prove_library

    return prove_library(args.bundle, args.expect_hash, args.proved, args.watch, args.library)


def _list(manifest: Manifest, store: LibraryStore) -> int:
    from edgefold.cli.text import build as text
    from edgefold.runtime.backends.native.processor import read_processor

    entries = [
        library
        for library in store.libraries(read_processor())
        if library.key.bundle_sha256 == manifest.bundle_hash
    ]
    if entries:
        print(text.listing(entries))
    else:
        print(
            f"{store.folder} holds no library of {manifest.path}; `edgefold build "
            f"{manifest.path}` makes one"
        )
    return ExitCode.DONE
