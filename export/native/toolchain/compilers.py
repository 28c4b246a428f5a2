"""Find a C compiler, and compile generated files with it.

    files ──-c──> objects ──-shared──> edgefold_NAME.so     what the runtime loads
                          ──ar───────> libedgefold_NAME.a   for a microcontroller's project
                          ──-static──> a program

Constants are compiled without optimisation: there is nothing to improve, and megabytes of numbers
would take the optimiser minutes.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgefold.export.native.toolchain import zig
from edgefold.export.native.toolchain.targets import Target
from edgefold.runtime.errors import BackendError, Remedy

FLAGS = ("-std=c99", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")
"""Flags of every build. -ffast-math breaks sums that carry their rounding errors along, so the
generated file refuses it."""
LEVELS = {"gcc": ("-O2", "-ftree-vectorize"), "clang": ("-O3",), "zig": ("-O3",)}
"""Flags of optimisation by kind of compiler; zig's C compiler is a clang. gcc 12's -O3 takes twice
as long and its code is slower: it unrolls the products' loops, which are blocked for the registers
already."""
OWN = {  # which flags let a compiler use all that this machine's processor has
    **dict.fromkeys(("x86_64", "i686"), ("-march=native", "-mprefer-vector-width=512")),
    **dict.fromkeys(("aarch64", "armv7l", "ppc64le"), ("-mcpu=native",)),
}
LARGE = ("-D_FILE_OFFSET_BITS=64", "-D_TIME_BITS=64")
"""Flags of a program. They allow files beyond 2 GiB and dates beyond 2038 on processors of 32 bits,
where the C library offers a choice."""
CANDIDATES = ("cc", "gcc", "clang")
PACKAGES = "gcc libc6-dev"
MATHEMATICS = "-lm"
DATA = "_data.c"
"""End of the names of files that hold only constants."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """Describes a compiler that was found and answered `--version`.

    Attributes:
        command: The program and its first arguments.
        title: Name and version of the compiler.
        flags: Flags for every file that it compiles.
        target: Kind of processor that it compiles for; None for this machine's own.
        static_flags: Flags that follow all others when a static program is compiled.
    """

    command: tuple[str, ...]
    title: str
    flags: tuple[str, ...]
    target: Target | None = None
    static_flags: tuple[str, ...] = ()

    @property
    def archiver(self) -> tuple[str, ...]:
        """Return the command that makes a static library; it comes with the compiler."""
        if _is_zig(self.command):
            return (*self.command[:-1], "ar")
        program = [word for word in self.command if not word.startswith("-")][-1]
        folder, name = os.path.split(program)
        return (os.path.join(folder, re.sub(r"(gcc|clang|cc)(-[\d.]+)?$", "", name) + "ar"),)


def _is_zig(command: Sequence[str]) -> bool:
    """Return whether a command is `zig cc` or `python -m ziglang cc`, without further words."""
    program = os.path.basename(command[-2]) if len(command) > 1 else ""
    return command[-1] == "cc" and program in ("zig", zig.PACKAGE)


def find_compiler(
    asked: str | None = None,
    target: Target | None = None,
    extra: Sequence[str] = (),
    environment: Mapping[str, str] = os.environ,
) -> Compiler:
    """Find the compiler that was asked for, or $CC, or the first that is there.

    For this machine these are the `CANDIDATES` and zig's; for a target its own compiler and, if it
    runs Linux, zig's.

    Args:
        asked: A program, perhaps with arguments, as "ccache gcc-13".
        target: Kind of processor to compile for; None for this machine's own.
        extra: Flags that follow all others.
        environment: Variables of the environment, of which CC and PATH are read.

    Raises:
        BackendError: No compiler is found, or it does not answer; the remedy says how to install
            one.
    """
    own = target is None or target.is_native
    named = asked or (environment.get("CC") if own else None)
    if named:
        commands = [tuple(shlex.split(named))]
    elif own:
        commands = [*((name,) for name in CANDIDATES), *zig.zig_commands()]
    else:
        assert target is not None
        commands = [(target.compiler,), *(zig.zig_commands() if target.is_linux else ())]
    for command in commands:
        program = command and shutil.which(command[0], path=environment.get("PATH"))
        if program:
            return _answering(command, program, target, extra)
    raise _missing([" ".join(command) for command in commands], target, own)


def _answering(
    command: tuple[str, ...], program: str, target: Target | None, extra: Sequence[str]
) -> Compiler:
    """Return a compiler that was found, with its title and flags; raises BackendError.

    `program` is the file that was found, perhaps by another PATH than this process has.
    """
    kind, title = _identify(command, program)
    flags = OWN.get(os.uname().machine, ()) if target is None else target.flags
    static: tuple[str, ...] = ()
    if kind == "zig":
        if target and target.is_linux:
            flags = (*zig.target_flags(target.architecture, target.zig_processor), *target.wide)
        static = zig.static_flags(target.architecture if target else None)
    across = _triple(kind, (*command, *extra), target)
    return Compiler(
        command, title, (*FLAGS, *LEVELS[kind], *across, *flags, *extra), target, static
    )


def _missing(tried: Sequence[str], target: Target | None, own: bool) -> BackendError:
    """Return the error that no compiler was found; its remedy says how to install one."""
    packages = PACKAGES if target is None or own else target.packages
    apt = f"sudo apt install {packages}"
    by_pip = own or (target is not None and target.is_linux)
    installs = [f"`{zig.INSTALL}` installs one here"] if by_pip else []
    installs.append(f"`{apt}` installs one on Debian and Ubuntu")
    purpose = f"for {target.name}" if target else "for this machine"
    return BackendError(
        f"no C compiler {purpose} is found (tried {', '.join(tried)}); {', '.join(installs)}, or "
        "name another with --compiler.",
        Remedy(f"a C compiler {purpose}", zig.INSTALL if target is None else apt),
    )


def _triple(kind: str, words: Sequence[str], target: Target | None) -> tuple[str, ...]:
    """Return clang's flag `--target=...`; empty if the compiler is not clang or needs none.

    Without it clang ignores the flags of a Cortex-M and compiles for this machine. For a
    microcontroller clang also needs the headers of a C library, which the user names.
    `kind` is "gcc" or "clang"; `words` are the compiler's command and flags, in which such a flag
    may stand already.
    """
    has_one = any(word.startswith(("--target", "-target")) for word in words)
    if kind != "clang" or has_one or not target or target.is_native:
        return ()
    return (f"--target={target.triple}",)


def _identify(command: Sequence[str], program: str) -> tuple[str, str]:
    """Return the kind of a compiler (a key of `LEVELS`; gcc where it is not clear) and its title.

    `program` is the file that was found, perhaps by another PATH than this process has.
    """
    answer = run_compiler([program, *command[1:], "--version"])
    first, name = answer.partition("\n")[0], os.path.basename(command[-1])
    version = re.search(r"(?:version |\) )(\d[\w.]*)", first)
    if _is_zig(command):
        return "zig", f"zig's clang {version[1]}" if version else first
    kind = "clang" if "clang" in first else "gcc"
    if name == "cc" and (kind == "clang" or "Free Software" in answer):
        name = kind
    return kind, f"{name} {version[1]}" if version else first


def compile_library(files: Mapping[str, str], compiler: Compiler, folder: Path) -> Path:
    """Compile a shared library that the runtime loads.

    Args:
        files: The generated files, by name.
        compiler: A compiler for this machine or for a Linux target.
        folder: Where the files, the objects and the library are written.

    Returns:
        The library's file.

    Raises:
        BackendError: The compiler failed; the message has its first error.
        OSError: The folder cannot be written.
    """
    objects = compile_objects(files, compiler, folder, ("-fPIC", "-DEDGEFOLD_LIBRARY"))
    out = folder / f"{_name(files)}.so"
    # -z,defs: a missing function is an error here, not only when a board loads the library. A
    # program that is linked with the library looks for its soname, not for the path of this folder.
    link = ["-shared", "-Wl,-z,defs", "-Wl,-z,noexecstack", f"-Wl,-soname,{out.name}"]
    link += [*map(str, objects), MATHEMATICS, "-o", str(out)]
    run_compiler([*compiler.command, *compiler.flags, *link])
    return out


def compile_archive(files: Mapping[str, str], compiler: Compiler, folder: Path) -> Path:
    """Compile a static library and return its file; see `compile_library`."""
    objects = compile_objects(files, compiler, folder, ())
    out = folder / f"lib{_name(files)}.a"
    out.unlink(missing_ok=True)  # else members of an older one would stay
    run_compiler([*compiler.archiver, "rcsD", str(out), *map(str, objects)])
    return out


def compile_program(files: Mapping[str, str], compiler: Compiler, folder: Path) -> Path:
    """Compile a static program for Linux and return its file; see `compile_library`."""
    objects = compile_objects(files, compiler, folder, (*compiler.static_flags, *LARGE))
    out = folder / _program_name(files)
    link = [
        *compiler.static_flags,
        "-static",
        "-s",
        "-Wl,-z,noexecstack",
        *map(str, objects),
        MATHEMATICS,
        "-o",
        str(out),
    ]
    run_compiler([*compiler.command, *compiler.flags, *link])
    return out


def source_command(files: Iterable[str], program: bool) -> str:
    """Return the command by which a user compiles written files, in the folder of the files.

    Args:
        files: Names of the files.
        program: Whether the files are those of a program; if not, the command makes objects only.
    """
    sources = [name for name in files if name.endswith(".c")]
    words = ["cc", *FLAGS, *LEVELS["gcc"], *(LARGE if program else ["-c"]), *sources]
    if program:
        words += ["-static", MATHEMATICS, "-o", _program_name(sources)]
    return shlex.join(words)


def _program_name(files: Iterable[str]) -> str:
    return f"{_name(files).replace('_', '-')}-run"


def _name(files: Iterable[str]) -> str:
    return next(Path(name).stem for name in files if name.endswith(".c"))


def compile_objects(
    files: Mapping[str, str], compiler: Compiler, folder: Path, more: Sequence[str]
) -> list[Path]:
    """Write files into a folder, compile each `.c` with the flags `more`; return the objects."""
    for name, text in files.items():
        (folder / name).write_text(text)
    objects = []
    for name in files:
        if name.endswith(".c"):
            objects.append((folder / name).with_suffix(".o"))
            level = ["-O0"] if name.endswith(DATA) else []
            flags = [*compiler.flags, *more, *level, "-c", name, "-o", str(objects[-1])]
            run_compiler([*compiler.command, *flags], folder)
    return objects


def run_compiler(command: Sequence[str], folder: Path | None = None) -> str:
    """Run a program and return what it prints; raises BackendError with its first error."""
    environment = {**os.environ, "LC_ALL": "C"}  # so that "error" is the word for it
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise BackendError(f"{command[0]} does not start: {error.strerror}.") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        first = next((line for line in lines if "error" in line), lines[-1] if lines else "")
        raise BackendError(f"{command[0]} ended with code {done.returncode}: {first.strip()}")
    return done.stdout
