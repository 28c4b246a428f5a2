from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import threading
from pathlib import Path

import pytest

from edgefold.runtime.backends.code_cache import default_folder
from edgefold.runtime.backends.tensorrt.engine_cache import (
    MAGIC,
    EngineCache,
    EngineKey,
    TimingKey,
)

KEY = EngineKey("a" * 64, "b" * 64, "tensorrt", "10.3.0.26", "Orin", "8.7", "float32")
TIMING = TimingKey("tensorrt", "10.3", "Orin")
PLAN = bytes(range(256)) * 40


@pytest.fixture
def cache(tmp_path: Path) -> EngineCache:
    return EngineCache(tmp_path / "cache")


def stored(cache: EngineCache, key: EngineKey = KEY) -> Path:
    assert cache.store(key, PLAN) is None
    path = cache.path(key)
    assert path is not None
    return path


def test_a_stored_engine_comes_back_and_a_newer_one_replaces_it(cache: EngineCache) -> None:
    assert cache.load(KEY) is None
    assert cache.store(KEY, PLAN) is None
    assert cache.load(KEY) == PLAN
    assert cache.store(KEY, PLAN[::-1]) is None
    assert cache.load(KEY) == PLAN[::-1]


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(EngineKey)])
def test_an_engine_of_anything_else_is_not_found(cache: EngineCache, field: str) -> None:
    stored(cache)
    assert cache.load(dataclasses.replace(KEY, **{field: "other"})) is None


def test_nothing_is_written_before_the_first_store_and_then_for_this_user_alone(
    cache: EngineCache,
) -> None:
    folder = cache.folder
    assert folder is not None
    cache.load(KEY)
    cache.load(TIMING)
    assert list(cache.entries()) == [] and not folder.exists()
    path = stored(cache)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(folder.iterdir()) == [path]


@pytest.mark.parametrize("cut", [0, 5, len(MAGIC), len(MAGIC) + 20, 2000, -1])
def test_a_truncated_engine_counts_as_absent_and_is_replaced(cache: EngineCache, cut: int) -> None:
    path = stored(cache)
    path.write_bytes(path.read_bytes()[:cut])
    assert cache.load(KEY) is None
    stored(cache)
    assert cache.load(KEY) == PLAN


def test_no_flipped_bit_is_trusted(cache: EngineCache) -> None:
    path = stored(cache)
    sound = path.read_bytes()
    first_of_plan = len(sound) - len(PLAN)
    for place in (*range(first_of_plan + 1), len(sound) - 1):
        damaged = bytearray(sound)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        assert cache.load(KEY) is None
    path.write_bytes(sound + b"more")
    assert cache.load(KEY) is None


def test_an_engine_under_another_ones_name_is_not_trusted(cache: EngineCache) -> None:
    other = dataclasses.replace(KEY, graph_sha256="c" * 64)
    place = cache.path(other)
    assert place is not None
    stored(cache).rename(place)
    assert cache.load(other) is None
    (entry,) = cache.entries()
    assert entry.reason == "it lies under another key's name"


@pytest.mark.parametrize("header", ["", "[]", "{}", '{"key": 3}', "[" * 9999, '{"key": {}} x'])
def test_a_header_that_is_none_counts_as_absent(cache: EngineCache, header: str) -> None:
    path = stored(cache)
    path.write_bytes(MAGIC + header.encode() + b"\n" + PLAN)
    assert cache.load(KEY) is None
    assert list(cache.entries()) == []


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_an_engine_that_others_may_write_is_not_trusted(cache: EngineCache, mode: int) -> None:
    path = stored(cache)
    path.chmod(mode)
    assert cache.load(KEY) is None
    (entry,) = cache.entries()
    assert "others may write it" in entry.reason
    assert stored(cache).stat().st_mode & 0o777 == 0o600
    assert cache.load(KEY) == PLAN


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_folder_that_others_may_write_is_not_used(cache: EngineCache, mode: int) -> None:
    stored(cache)
    assert cache.folder is not None and cache.explain_unwritable() is None
    cache.folder.chmod(mode)
    assert cache.load(KEY) is None
    assert "chmod 700" in (cache.store(KEY, PLAN) or "")
    assert "chmod 700" in (cache.explain_unwritable() or "")
    assert ["chmod 700" in entry.reason for entry in cache.entries()] == [True]
    cache.folder.chmod(0o755)
    assert cache.load(KEY) == PLAN


def test_an_engine_of_another_user_is_not_trusted_and_one_of_root_is(
    cache: EngineCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stored(cache)
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert cache.load(KEY) == (PLAN if owner == 0 else None)
    real = os.fstat
    foreign = {"st_uid": owner + 2}

    def fstat(handle: int) -> os.stat_result:
        found = list(real(handle))
        found[4] = foreign["st_uid"]
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", fstat)
    assert cache.load(KEY) is None
    foreign["st_uid"] = 0
    assert cache.load(KEY) == PLAN


def test_links_pipes_and_folders_in_an_engines_place_are_neither_followed_nor_waited_for(
    cache: EngineCache, tmp_path: Path
) -> None:
    path = stored(cache)
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert cache.load(KEY) is None
    assert cache.store(KEY, PLAN) is None  # the link is replaced, not written through
    assert not path.is_symlink() and cache.load(KEY) == PLAN
    path.unlink()
    os.mkfifo(path)
    assert cache.load(KEY) is None
    path.unlink()
    path.mkdir()
    assert cache.load(KEY) is None
    reason = cache.store(KEY, PLAN)
    assert reason is not None and "directory" in reason


def test_a_cache_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = EngineCache(tmp_path / "file" / "cache")
    assert cache.load(KEY) is None
    reason = cache.store(KEY, PLAN)
    assert reason is not None and str(tmp_path / "file") in reason


def test_a_full_disk_leaves_the_older_engine_and_no_rest(
    cache: EngineCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stored(cache)

    def refuse(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    reason = cache.store(KEY, b"newer")
    assert reason is not None and "No space left" in reason
    assert cache.load(KEY) == PLAN
    assert list(path.parent.iterdir()) == [path]


def test_two_writers_of_one_engine_leave_a_whole_one(
    cache: EngineCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = EngineCache(cache.folder)
    real = os.fsync

    def meanwhile(handle: int) -> None:
        monkeypatch.setattr(os, "fsync", real)
        monkeypatch.setattr(threading, "get_ident", lambda: 1)
        assert other.store(KEY, PLAN) is None
        real(handle)

    monkeypatch.setattr(os, "fsync", meanwhile)
    assert cache.store(KEY, PLAN) is None
    assert cache.load(KEY) == PLAN
    assert cache.folder is not None and len(list(cache.folder.iterdir())) == 1


def test_timing_caches_are_kept_per_version_and_device(cache: EngineCache) -> None:
    assert cache.load(TIMING) is None
    assert cache.store(TIMING, b"times") is None
    assert cache.load(TIMING) == b"times"
    assert cache.load(dataclasses.replace(TIMING, device="Thor")) is None
    assert list(cache.entries()) == []


def test_the_folder_follows_the_environment(tmp_path: Path) -> None:
    own, shared = str(tmp_path / "own"), str(tmp_path / "shared")
    assert default_folder({"EDGEFOLD_CACHE": own, "XDG_CACHE_HOME": shared}) == Path(own)
    assert default_folder({"XDG_CACHE_HOME": shared}) == Path(shared) / "edgefold"
    home = Path.home() / ".cache" / "edgefold"
    assert default_folder({"EDGEFOLD_CACHE": "", "XDG_CACHE_HOME": "relative"}) == home
    assert default_folder({"EDGEFOLD_CACHE": "engines"}) == Path.cwd() / "engines"


def test_a_user_without_a_home_has_no_cache_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.delenv("EDGEFOLD_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    cache = EngineCache()
    assert cache.folder is None and cache.path(KEY) is None
    assert cache.load(KEY) is None
    assert "EDGEFOLD_CACHE" in (cache.store(KEY, PLAN) or "")
    assert list(cache.entries()) == []


def test_entries_are_listed_with_what_is_wrong_with_them(cache: EngineCache) -> None:
    path = stored(cache)
    half = stored(cache, dataclasses.replace(KEY, precision="float16"))
    half.write_bytes(half.read_bytes()[:-1])
    entries = {entry.path: entry for entry in cache.entries()}
    assert entries[path].key == KEY and entries[path].n_bytes == len(PLAN)
    assert entries[path].reason == ""
    assert f"of {len(PLAN)}" in entries[half].reason
    entries[path].path.unlink()
    assert [entry.path for entry in cache.entries()] == [half]


def test_an_engine_whose_key_is_no_text_is_not_listed(cache: EngineCache) -> None:
    path = stored(cache)
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"a' + b"a" * 63 + b'"', b'["' + b"a" * 62 + b'"]'))
    assert path.read_bytes() != content
    assert list(cache.entries()) == []


def test_a_folder_that_cannot_be_listed_is_no_empty_one(
    cache: EngineCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(self: Path) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    stored(cache)
    monkeypatch.setattr(Path, "iterdir", closed)  # root may list any
    with pytest.raises(PermissionError):
        list(cache.entries())


def test_whether_an_engine_can_be_kept_is_told_without_one(
    cache: EngineCache, tmp_path: Path
) -> None:
    assert cache.explain_unwritable() is None
    assert cache.folder is not None and list(cache.folder.iterdir()) == []
    (tmp_path / "file").write_text("in the way")
    reason = EngineCache(tmp_path / "file" / "cache").explain_unwritable()
    assert reason is not None and "Not a directory" in reason


def test_what_the_builder_told_is_kept_with_an_engine(cache: EngineCache) -> None:
    facts = {"seconds": 2.5, "kernels": [{"name": "a" * 100}] * 1000, "conditions": {}}
    assert cache.store(KEY, PLAN, facts) is None
    assert cache.find(KEY) == (PLAN, facts)
    assert cache.load(KEY) == PLAN
    (entry,) = cache.entries()
    assert entry.facts == facts and entry.key == KEY and not entry.reason


def test_an_engine_of_an_older_edgefold_is_used_and_tells_nothing(cache: EngineCache) -> None:
    path = stored(cache)
    header = {"key": dataclasses.asdict(KEY), "n_bytes": len(PLAN)}
    header["sha256"] = hashlib.sha256(PLAN).hexdigest()
    path.write_bytes(MAGIC + json.dumps(header).encode() + b"\n" + PLAN)
    assert cache.find(KEY) == (PLAN, {})
    (entry,) = cache.entries()
    assert entry.facts == {} and not entry.reason


def test_facts_that_were_changed_are_not_trusted(cache: EngineCache) -> None:
    assert cache.store(KEY, PLAN, {"seconds": 2.5}) is None
    path = cache.path(KEY)
    assert path is not None
    sound = path.read_bytes()
    for damaged in (b'"seconds": 3.5', b'"faults": {"seconds": 2.5'):
        path.write_bytes(sound.replace(b'"facts": {"seconds": 2.5', damaged))
        assert path.read_bytes() != sound
        assert cache.find(KEY) is None


def test_the_header_tells_a_person_what_the_file_is(cache: EngineCache) -> None:
    words, header, _ = stored(cache).read_bytes().split(b"\n", 2)
    assert words + b"\n" == MAGIC
    assert json.loads(header)["key"]["device"] == "Orin"
