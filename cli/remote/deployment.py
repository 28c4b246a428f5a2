"""Deploy to one board: look, install, copy, check there, and only then switch to what is new.

look ──> room? ──> environment ──> bundle to .NAME.new ──> library ──> check ──> switch
                                                                         │
                                        a failure up to here leaves what was there in use
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.remote.board import SeenBoard, look_at, require_python, require_room
from edgefold.cli.remote.bundle import BundleToUse
from edgefold.cli.remote.command import run_edgefold
from edgefold.cli.remote.connection import IN_FOLDER, Connection
from edgefold.cli.remote.copy import (
    EXECUTABLE,
    FileToCopy,
    file_to_copy,
    is_same_there,
    remove,
    send,
    total_bytes,
)
from edgefold.cli.remote.install import (
    Installation,
    install,
    is_installed,
    launcher,
    remove_unused,
)
from edgefold.cli.remote.program import processors_of
from edgefold.cli.remote.units import Service, commands_of, place_of, units_for
from edgefold.cli.remote.versions import INCOMING, go_back, new_place, switch_bundle, switch_file
from edgefold.cli.remote.wheels import Wheel, choose_wheels
from edgefold.cli.text.numbers import format_bytes
from edgefold.runtime.errors import BoardError, BoardFailedError

LIBRARY = ".library"
SMALLEST = "gp-tiny"
"""Shipped bundle by which an edgefold is checked that is deployed without a bundle."""
WHO = f"""{IN_FOLDER}
id -un && echo "$HOME"
[ -x "$dir/bin/edgefold" ] && echo yes
exit 0
"""
START = f"""{IN_FOLDER}
exec "$dir/$1" --version
"""
Rows = dict[str, str]


@dataclass(frozen=True, slots=True)
class Order:
    """Describes what is deployed to each board.

    Attributes:
        folder: The board's folder, as the user named it.
        python: Name or path of the board's Python.
        bundle: Bundle; None for none.
        wheels: Wheels of this machine, of which each board gets those that fit; empty for none.
        extras, is_offline, sees_system: As in `Installation`.
        library: Compiled library of the bundle for the boards' processor; None for none.
        program: Static program; None for none.
        expect_hash: Hash that the bundle must have there; None for any.
        dry_run: Whether boards are only looked at.
        service: Service whose units are written for systemd; None for none.
    """

    folder: str
    python: str
    bundle: BundleToUse | None = None
    wheels: tuple[Wheel, ...] = ()
    extras: tuple[str, ...] = ()
    is_offline: bool = False
    sees_system: bool = False
    library: Path | None = None
    program: Path | None = None
    expect_hash: str | None = None
    dry_run: bool = False
    service: Service | None = None


class Deployment:
    """Carries out an order on one board.

    Args:
        connection: Open connection.
        order: What is deployed.
        rows: Gets what was found and done, by label; it holds what came before an error too.
        show: Gets each line of progress.
        say: Gets each message for the user.
    """

    def __init__(
        self,
        connection: Connection,
        order: Order,
        rows: Rows,
        show: Callable[[str], None],
        say: Callable[[str], None],
    ):
        self._connection, self._order, self._rows = connection, order, rows
        self._show, self._say = show, say
        self._name = connection.address.text

    def deploy(self) -> ExitCode:
        """Do what was ordered and return DONE, or the code of a check that failed.

        Raises:
            BoardError, BoardFailedError: The board cannot have it; what was there is in use.
        """
        order = self._order
        board = self._look()
        installation = self._installation(board)
        self._require_processor(board)
        name = installation.name(installation.files()) if installation else ""
        is_there = bool(name) and is_installed(self._connection, board.folder, name)
        is_same = self._is_same(board)
        parts = [0 if is_there or installation is None else installation.n_bytes]
        parts += [0 if is_same or order.bundle is None else total_bytes(order.bundle.files)]
        parts += [path.stat().st_size for path in (order.library, order.program) if path]
        self._describe(board, installation, is_there, is_same)
        require_room(self._name, board, sum(parts))
        if order.dry_run:
            return ExitCode.DONE
        program = board.path
        if installation:
            environment = install(self._connection, board, installation, self._show)
            script = launcher(environment)
            send(self._connection, board.folder, INCOMING, [script], self._show)
            program = f"{board.folder}/{INCOMING}/{script.name}"
            state = "was there" if is_there else "installed"
            self._rows["edgefold"] = f"{installation.version}, {state}"
        to_check = bool(program) and (order.bundle is not None or installation is not None)
        if to_check and (code := self._bring(board, program, is_same)):
            return code
        if installation:
            self._switch_edgefold(board, script)
        if order.program:
            self._bring_program(board, order.program)
        if order.service:
            self._bring_units(board, order.service)
        return ExitCode.DONE

    def go_back(self) -> ExitCode:
        """Exchange the bundle, the program or edgefold itself with the previous one, and check.

        Raises:
            BoardError: There is no previous one.
        """
        order, board = self._order, self._look()
        if order.program:
            name = order.program.name
            go_back(self._connection, board.folder, "bin", name)
            self._rows["program"] = f"{name}, {self._start(board, f'bin/{name}')}"
        if order.bundle:
            go_back(self._connection, board.folder, "bundles", order.bundle.name)
            self._rows["bundle"] = f"{order.bundle.name}, went back to the previous one"
            place = f"{board.folder}/{order.bundle.place}"
            return self._check(board, "", place)
        if not order.program:
            go_back(self._connection, board.folder, "bin", "edgefold")
            now = look_at(self._connection, order.folder, order.python)
            self._rows["edgefold"] = f"{now.edgefold}, went back from {board.edgefold}"
        return ExitCode.DONE

    def _look(self) -> SeenBoard:
        self._show("is looked at")
        board = look_at(self._connection, self._order.folder, self._order.python)
        python = ".".join(map(str, board.python)) if board.python else "none"
        self._rows |= {
            "processor": board.processor + (", Python of 32 bits" if board.bits == 32 else ""),
            "C library": board.libc or "not shown",
            "Python": python,
            "free": "not shown" if board.free_bytes is None else format_bytes(board.free_bytes),
            "folder": board.folder,
            "edgefold": board.edgefold or "none",
        }
        return board

    def _installation(self, board: SeenBoard) -> Installation | None:
        order = self._order
        if not order.wheels:
            if order.bundle and not board.path:
                raise BoardFailedError(
                    f"{self._name} was given a bundle, and no edgefold is there to run it; "
                    "install it with --wheel WHEEL."
                )
            return None
        require_python(self._name, board, order.python)
        chosen = choose_wheels(order.wheels, board, self._name)
        return Installation(
            tuple(chosen), order.extras, order.is_offline, order.sees_system, order.python
        )

    def _require_processor(self, board: SeenBoard) -> None:
        """Refuse a program for another processor."""
        if self._order.program:
            kind, names = processors_of(self._order.program)
            if board.processor not in names:
                raise BoardError(
                    f"{self._name} has the processor {board.processor}, and {self._order.program} "
                    f"is for {kind}; build it with --target for this board."
                )

    def _is_same(self, board: SeenBoard) -> bool:
        bundle = self._order.bundle
        if bundle is None or bundle.word:
            return True
        return is_same_there(self._connection, board.folder, bundle.place, bundle.files)

    def _describe(
        self, board: SeenBoard, installation: Installation | None, is_there: bool, is_same: bool
    ) -> None:
        """Write down what is going to be done, which is all that a dry run does."""
        order, before = self._order, board.edgefold or "none"
        if installation:
            wheel = installation.wheels[0].path.name
            does = "is there" if is_there else f"would be installed from {wheel}"
            self._rows["edgefold"] = f"{before}; {installation.version} {does}"
        if bundle := order.bundle:
            size = format_bytes(total_bytes(bundle.files))
            same = "shipped with edgefold" if bundle.word else "unchanged"
            self._rows["bundle"] = f"{bundle.name}, {same if is_same else f'would copy {size}'}"
        if order.library:
            self._rows["library"] = f"{order.library.name}, would be proved"
        if order.service:
            self._rows["service"] = f"{order.service}, would be written"
        if order.program:
            size = format_bytes(order.program.stat().st_size)
            self._rows["program"] = f"{order.program.name}, would copy {size}"

    def _bring(self, board: SeenBoard, program: str, is_same: bool) -> ExitCode:
        """Copy the bundle, prove its library, check it there, and switch to it."""
        bundle, folder = self._order.bundle, board.folder
        if bundle is None or bundle.word:
            word = SMALLEST if bundle is None else str(bundle.word)
            return self._prove(board, program, word) or self._check(board, program, word)
        place = bundle.place if is_same else new_place(bundle.name)
        if not is_same:
            send(self._connection, folder, place, bundle.files, self._show)
        path = f"{folder}/{place}"
        code = self._prove(board, program, path) or self._check(board, program, path)
        if is_same:
            return code
        if code:
            with suppress(BoardError):
                remove(self._connection, folder, place)
            self._rows["bundle"] = f"{bundle.name}, not deployed; the former one stays"
            return code
        switch_bundle(self._connection, folder, bundle.name)
        size = format_bytes(total_bytes(bundle.files))
        self._rows["bundle"] = f"{bundle.name}, {size} copied"
        return code

    def _prove(self, board: SeenBoard, program: str, bundle: str) -> ExitCode:
        """Let the board prove and keep the compiled library of the bundle."""
        library = self._order.library
        if library is None:
            return ExitCode.DONE
        send(
            self._connection, board.folder, LIBRARY, [file_to_copy(library, mode=0o700)], self._show
        )
        self._show("proves the library")
        words = ["build", bundle, "--library", f"{board.folder}/{LIBRARY}/{library.name}"]
        try:
            ended = run_edgefold(
                self._connection, board.folder, words, self._show, self._say, program
            )
        finally:
            with suppress(BoardError):
                remove(self._connection, board.folder, LIBRARY)
        self._rows["library"] = f"{library.name}, {'FAILED' if ended.code else 'proved and kept'}"
        if ended.code:
            self._say(f"edgefold: error: {self._name}: {ended.error}")
        return ended.code

    def _check(self, board: SeenBoard, program: str, bundle: str) -> ExitCode:
        """Let the board check the bundle, and write down the outcome."""
        self._show("checks the bundle")
        hash_words = [f"--expect-hash={self._order.expect_hash}"] * bool(self._order.expect_hash)
        words = ["check", bundle, *hash_words, "--json", "-"]
        ended = run_edgefold(self._connection, board.folder, words, self._show, self._say, program)
        with suppress(ValueError, KeyError, TypeError):
            record = json.loads(ended.output)
            worst = "not a number" if record["worst"] is None else f"{record['worst']:.1e}"
            self._rows["backend"] = f"{record['backend']['name']} {record['backend']['version']}"
            verdict = "passed" if record["passed"] else "FAILED"
            self._rows["check"] = f"{verdict}, error {worst} of {record['tolerance']:.0e}"
        if ended.code:
            self._rows.setdefault("check", "FAILED")
            reason = ended.error or f"edgefold check ended there with exit code {ended.code.value}"
            if ended.code is ExitCode.WRONG_RESULT:
                reason = "the check failed there, its predictions are not those of the bundle"
            elif ended.code is ExitCode.MACHINE and self._order.wheels:
                reason = f"{reason.rstrip('.')}; give --extra cpu, or --library FILE"
            self._say(f"edgefold: error: {self._name}: {reason}")
        return ended.code

    def _switch_edgefold(self, board: SeenBoard, script: FileToCopy) -> None:
        """Let `bin/edgefold` start the new environment."""
        if is_same_there(self._connection, board.folder, "bin", [script]):
            remove(self._connection, board.folder, INCOMING)
        else:
            switch_file(self._connection, board.folder, script.name)
        remove_unused(self._connection, board.folder)

    def _bring_program(self, board: SeenBoard, path: Path) -> None:
        """Copy a program, start it once, and switch to it."""
        file, connection = file_to_copy(path, mode=EXECUTABLE), self._connection
        if is_same_there(connection, board.folder, "bin", [file]):
            self._rows["program"] = (
                f"{file.name}, unchanged, {self._start(board, f'bin/{file.name}')}"
            )
            return
        send(connection, board.folder, INCOMING, [file], self._show)
        version = self._start(board, f"{INCOMING}/{file.name}")
        switch_file(connection, board.folder, file.name)
        self._rows["program"] = f"{file.name}, {format_bytes(file.n_bytes)} copied, {version}"

    def _bring_units(self, board: SeenBoard, service: Service) -> None:
        """Write the units of a service for this board, and say how systemd gets them."""
        answer = self._connection.ask(WHO, board.folder, doing="asking for the user")
        user, home, *has_edgefold = answer.strip().splitlines()
        if not has_edgefold:
            raise BoardFailedError(
                f"{self._name} has no {board.folder}/bin/edgefold, which the service starts; "
                "install it with --wheel WHEEL."
            )
        files = units_for(service, board.folder, user, home)
        send(self._connection, board.folder, place_of(service), files, self._show)
        self._rows["service"] = f"{service}, written for the user {user}"
        lines = [f"{self._name}: type there, so that {service} runs from each boot on:"]
        lines += [f"    {command}" for command in commands_of(service, files, board.folder, user)]
        self._say("\n".join(lines))

    def _start(self, board: SeenBoard, place: str) -> str:
        """Start a program for its version, which shows that this board can run it."""
        text = self._connection.ask(START, board.folder, place, doing=f"starting {place}")
        return "starts: " + text.strip().partition(",")[0]
