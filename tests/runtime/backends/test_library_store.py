"""The store around libraries that are never loaded: their content is any bytes."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

from edgefold.runtime.backends.native.library_store import LibraryStore
from edgefold.runtime.backends.native.processor import Processor, read_processor
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.errors import BackendError, OutputError
from edgefold.runtime.hashing import sha256

HERE = Processor("x86_64", "Some processor", frozenset({"avx2", "fma"}))
CODE = bytes(range(256)) * 40
FACTS = {"compiler": "gcc 12.2.0", "flags": "-O3", "generator": "1"}


@pytest.fixture
def store(tmp_path: Path) -> LibraryStore:
    return LibraryStore(tmp_path / "cache")


@pytest.fixture
def manifest(tiny_bundle: Path) -> Manifest:
    return load_manifest(tiny_bundle)


def kept(
    store: LibraryStore,
    manifest: Manifest,
    code: bytes = CODE,
    processor: Processor = HERE,
) -> Path:
    """Keep a library; returns its file."""
    assert store.folder is not None
    made = store.folder.parent / "made.so"
    made.write_bytes(code)
    return store.keep(manifest, processor, made, dict(FACTS)).path


def record_of(store: LibraryStore) -> Path:
    (record,) = store.files("native")
    return record


def test_a_kept_library_is_found_with_what_its_builder_told(
    store: LibraryStore, manifest: Manifest
) -> None:
    path = kept(store, manifest)
    found = store.find_library(manifest, HERE)
    assert found.path == path and path.read_bytes() == CODE
    assert found.facts.items() >= FACTS.items()
    assert [(entry.path, entry.reason) for entry in store.libraries(HERE)] == [(path, "")]


def test_only_this_user_has_rights_to_what_is_kept(store: LibraryStore, manifest: Manifest) -> None:
    path = kept(store, manifest)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in path.parent.iterdir())


def test_a_newer_library_replaces_the_older_one_under_another_name(
    store: LibraryStore, manifest: Manifest
) -> None:
    first = kept(store, manifest)
    second = kept(store, manifest, CODE[::-1])
    assert first != second and not first.exists()
    assert store.find_library(manifest, HERE).path == second


def test_a_library_that_another_record_names_is_not_removed(
    store: LibraryStore, manifest: Manifest
) -> None:
    other = dataclasses.replace(HERE, model="Other processor")
    shared = kept(store, manifest, processor=other)
    assert kept(store, manifest) == shared
    kept(store, manifest, CODE[::-1])
    assert store.find_library(manifest, other).path == shared


def test_a_bundle_that_was_not_built_is_refused_with_the_command(
    store: LibraryStore, manifest: Manifest, bundles: Path
) -> None:
    kept(store, load_manifest(bundles / "foreign"))
    with pytest.raises(BackendError, match="not built") as refused:
        store.find_library(manifest, HERE)
    assert refused.value.remedy is not None
    assert refused.value.remedy.command == f"edgefold build {manifest.path}"


def test_a_library_for_another_processor_is_not_found_and_the_message_names_that(
    store: LibraryStore, manifest: Manifest
) -> None:
    kept(store, manifest)
    with pytest.raises(BackendError, match=r"for Some processor \(x86_64\) alone"):
        store.find_library(manifest, dataclasses.replace(HERE, model="Another"))
    (entry,) = store.libraries(dataclasses.replace(HERE, model="Another"))
    assert "it was built for Some processor" in entry.reason


def test_a_processor_that_lost_an_ability_is_refused(
    store: LibraryStore, manifest: Manifest
) -> None:
    """As a virtual machine that moved to another host."""
    kept(store, manifest)
    more = dataclasses.replace(HERE, features=HERE.features | {"amx"})
    assert store.find_library(manifest, more).reason == ""
    with pytest.raises(BackendError, match="had also avx2"):
        store.find_library(manifest, dataclasses.replace(HERE, features=frozenset({"fma"})))


@pytest.mark.parametrize("kind", ["native", "so"])
def test_no_changed_byte_is_trusted(store: LibraryStore, manifest: Manifest, kind: str) -> None:
    kept(store, manifest)
    (path,) = store.files(kind)
    sound = path.read_bytes()
    for place in range(0, len(sound), 97):
        damaged = bytearray(sound)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(BackendError, match=r"not used|not built"):
            store.find_library(manifest, HERE)
    path.write_bytes(sound)
    assert store.find_library(manifest, HERE).reason == ""


@pytest.mark.parametrize("kind", ["native", "so"])
def test_what_others_may_write_is_not_trusted(
    store: LibraryStore, manifest: Manifest, kind: str
) -> None:
    kept(store, manifest)
    (path,) = store.files(kind)
    path.chmod(0o620)
    with pytest.raises(BackendError, match="others may write it"):
        store.find_library(manifest, HERE)


def test_nothing_in_a_folder_that_others_may_write_is_trusted(
    store: LibraryStore, manifest: Manifest
) -> None:
    folder = kept(store, manifest).parent
    folder.chmod(0o770)
    with pytest.raises(BackendError, match="others may write it"):
        store.find_library(manifest, HERE)
    with pytest.raises(OutputError, match="others may write it"):
        kept(store, manifest)


def test_what_belongs_to_another_user_is_not_trusted(
    store: LibraryStore, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = kept(store, manifest).stat().st_uid
    real = os.fstat

    def of_another_user(handle: int) -> os.stat_result:
        about = list(real(handle))
        about[4] = owner + 1
        return os.stat_result(about)

    monkeypatch.setattr(os, "fstat", of_another_user)
    with pytest.raises(BackendError, match="belongs to the user"):
        store.find_library(manifest, HERE)


@pytest.mark.parametrize("kind", ["native", "so"])
def test_a_link_is_not_followed(
    store: LibraryStore, manifest: Manifest, tmp_path: Path, kind: str
) -> None:
    kept(store, manifest)
    (path,) = store.files(kind)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BackendError):
        store.find_library(manifest, HERE)


def test_a_record_under_another_name_is_not_trusted(
    store: LibraryStore, manifest: Manifest, bundles: Path
) -> None:
    foreign = load_manifest(bundles / "foreign")
    kept(store, foreign)
    path = record_of(store)
    kept(store, manifest)
    (own,) = (file for file in store.files("native") if file != path)
    own.write_bytes(path.read_bytes())
    with pytest.raises(BackendError, match="another's name"):
        store.find_library(manifest, HERE)


@pytest.mark.parametrize(
    "change", [{"library": 7}, {"features": "avx2"}, {"features": [None]}, {"library": "../x"}]
)
def test_a_record_of_another_form_is_refused(
    store: LibraryStore, manifest: Manifest, change: dict[str, object]
) -> None:
    kept(store, manifest)
    path = record_of(store)
    _, line = path.read_bytes().splitlines()
    header = json.loads(line)
    header["facts"] |= change
    told = json.dumps(header["facts"], sort_keys=True).encode()
    header["sha256"] = sha256(told).hexdigest()
    path.write_bytes(LibraryStore.magic + json.dumps(header).encode() + b"\n")
    with pytest.raises(BackendError, match="not used"):
        store.find_library(manifest, HERE)


def test_a_user_without_a_home_is_told(manifest: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LibraryStore(Path("unused"))
    store.folder = None
    with pytest.raises(BackendError, match="EDGEFOLD_CACHE"):
        store.find_library(manifest, HERE)


CPUINFO = {
    "x86": (
        "processor\t: 0\nmodel\t\t: 167\nmodel name\t: A Xeon\nflags\t\t: fpu avx2 sse4_1 fma\n\n"
        "processor\t: 1\nmodel name\t: A Xeon\nflags\t\t: fpu\n",
        ("A Xeon", {"fpu", "avx2", "sse4_1", "fma"}),
    ),
    "pi": (
        "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n\n"
        "processor\t: 1\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd05\n\n"
        "Model\t\t: Raspberry Pi 5\n",
        ("Raspberry Pi 5 0x41 0xd05/0xd0b", {"fp", "asimd"}),
    ),
    "riscv": (
        "processor\t: 0\nhart\t\t: 1\nisa\t\t: rv64imac_zicsr\nuarch\t\t: sifive,u74\n",
        ("sifive,u74", {"rv64imac", "zicsr"}),
    ),
    "nothing": ("", ("", set())),
}


@pytest.mark.parametrize("name", CPUINFO)
def test_a_processor_is_known_by_its_model_and_its_abilities(tmp_path: Path, name: str) -> None:
    text, (model, features) = CPUINFO[name]
    (tmp_path / "cpuinfo").write_text(text)
    found = read_processor(tmp_path / "cpuinfo")
    assert (found.architecture, found.model) == (os.uname().machine, model)
    assert found.features == features


def test_a_processor_that_shows_nothing_has_no_name_and_no_abilities(tmp_path: Path) -> None:
    found = read_processor(tmp_path / "missing")
    assert (found.model, found.features) == ("", frozenset())
