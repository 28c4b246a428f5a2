"""Fit a unit of systemd to the folder and the user of a board, for `edgefold deploy --service`.

    deploy/edgefold-mqtt@.service   /opt/edgefold, user edgefold
              └──> FOLDER/units/edgefold-mqtt/   the board's folder, and the user who deploys

Only root may give a unit to systemd, and nothing here needs root: the commands are printed.
"""

from __future__ import annotations

import re
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from edgefold.cli.remote.copy import FileToCopy, text_to_copy
from edgefold.runtime.errors import BoardError

OPT = "/opt/edgefold"
USER = "edgefold"
INSTANCE = re.compile(r"[A-Za-z0-9_.:-]+")
ADD_USER = (
    f"id {USER} >/dev/null 2>&1 || useradd --system --home-dir /var/lib/{USER} "
    f"--shell /usr/sbin/nologin {USER}"
)


@dataclass(frozen=True, slots=True)
class Service:
    """Names a service: the kind of unit, such as "edgefold-mqtt", and the instance."""

    kind: str
    instance: str

    def __str__(self) -> str:
        return f"{self.kind}@{self.instance}"


def units_folder() -> Path:
    """Return the folder of the units: that of the repository, or of this installation."""
    own = Path(__file__).resolve().parents[2] / "deploy"
    installed = Path(sysconfig.get_path("data")) / "share" / "edgefold" / "deploy"
    return own if own.is_dir() else installed


def service_of(text: str) -> Service:
    """Read the name of a service, KIND@INSTANCE.

    Raises:
        ValueError: There is no such unit, or the instance's name cannot stand in one.
    """
    kind, _, instance = text.removesuffix(".service").partition("@")
    kinds = sorted(path.name.partition("@")[0] for path in units_folder().glob("*@.service"))
    kinds = [name for name in kinds if not name.endswith("-engine")]
    if kind not in kinds or not INSTANCE.fullmatch(instance):
        raise ValueError(f"{text!r} is no service; write it as {'@NAME, '.join(kinds)}@NAME")
    return Service(kind, instance)


def units_for(service: Service, folder: str, user: str, home: str) -> list[FileToCopy]:
    """Return the files of a service for a board.

    Args:
        service: The service.
        folder: The board's folder of edgefold, an absolute path.
        user: Who deploys, and whom the loop runs as; for root it runs as the user edgefold.
        home: The home of that user.

    Raises:
        BoardError: The service could not read the folder.
    """
    if re.search(r"[\s%\"'\\$]", folder):
        raise BoardError(f"{folder} cannot stand in a unit of systemd; choose another --board-dir.")
    is_in_home = f"{folder}/".startswith(f"{home.rstrip('/')}/")
    if user == "root" and is_in_home:
        raise BoardError(
            f"the user {USER}, whom the service runs as, cannot read root's folder {folder}; "
            f"deploy with --board-dir {OPT}, or as another user than root."
        )
    names = [f"{service.kind}@.service", f"{service.kind}@.socket"]
    names += [f"{service.kind}-engine@.service"]
    paths = [path for name in names if (path := units_folder() / name).exists()]
    return [
        text_to_copy(_fitted(path.read_text(), folder, user, home), path.name) for path in paths
    ]


def _fitted(text: str, folder: str, user: str, home: str) -> str:
    """Return a unit with the board's folder and user."""
    text = text.replace(OPT, folder)
    if user != "root":
        text = re.sub(rf"^(User|SocketUser|SocketGroup)={USER}$", rf"\1={user}", text, flags=re.M)
        # What `--library` and `edgefold build` have kept is in the user's own cache.
        text = text.replace(
            f"EDGEFOLD_CACHE=/var/cache/{USER}", f"EDGEFOLD_CACHE={home}/.cache/{USER}"
        )
        text = re.sub(r"^ProtectHome=yes$", "ProtectHome=read-only", text, flags=re.M)
    return text


def commands_of(service: Service, files: list[FileToCopy], folder: str, user: str) -> list[str]:
    """Return the commands that give the service to systemd, for a person to type on the board."""
    sudo = "" if user == "root" else "sudo "
    own = [f.name for f in files if f.name.startswith(f"{service.kind}@")]
    units = " ".join(f"{service.kind}@{service.instance}.{name.rpartition('.')[2]}" for name in own)
    return [
        *([ADD_USER] if user == "root" else []),
        f"{sudo}cp {folder}/{place_of(service)}/* /etc/systemd/system/",
        f"{sudo}systemctl daemon-reload",
        f"{sudo}systemctl enable --now {units}",
    ]


def place_of(service: Service) -> str:
    """Return the place of a service's units in the board's folder."""
    return f"units/{service.kind}"
