from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgefold.runtime import BundleError, KeyFileError, Stream
from edgefold.runtime.backends.onnxruntime_session import onnxruntime
from edgefold.runtime.bundle.manifest_file import load_manifest, with_checksum
from edgefold.runtime.bundle.signature import MAX_BYTES, load_expected, read_public_keys, signer_of
from edgefold.runtime.bundle.signing import new_key, sign_bundle
from edgefold.runtime.hashing import sha256_of

RSA = b"""-----BEGIN PUBLIC KEY-----
MFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAMvLNP7T9jS7HsIlRFVNR7bA8zjjPGyl
PEnYb5hFNvAPaJJh1Ip6pyBRDFVxBqlQMvSDBqHh63yp57zL2SPxcs0CAwEAAQ==
-----END PUBLIC KEY-----
"""


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A folder with the key pairs own and other."""
    for name in ("own", "other"):
        new_key(tmp_path / name)
    return tmp_path


@pytest.fixture
def signed(tiny_bundle: Path, keys: Path) -> Path:
    """A bundle that own has signed."""
    copy = Path(shutil.copytree(tiny_bundle, keys / "signed"))
    sign_bundle(copy, keys / "own")
    return copy


@pytest.fixture
def opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes it an error to open a graph."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a graph was opened")

    monkeypatch.setattr(onnxruntime, "InferenceSession", refuse)


def rewrite(signed: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the signature file, as whoever holds the bundle can."""
    path = signed / "signature.json"
    form = json.loads(path.read_text())
    change(form)
    path.write_text(json.dumps(form))


def reseal(signed: Path) -> None:
    """Change the manifest and compute its hashes again, as whoever holds the bundle can."""
    path = signed / "manifest.json"
    form = json.loads(path.read_text())
    form["task"]["note"] = "changed"
    path.write_text(json.dumps(with_checksum(form)))


# What opens ---------------------------------------------------------------------------------------


def test_a_signed_bundle_opens_with_the_key_as_a_file_and_as_bytes(signed: Path) -> None:
    public = signed.parent / "own.pub"
    for trusted in (public, str(public), public.read_bytes(), [public]):
        with Stream.open(signed, trusted_keys=trusted) as stream:
            assert stream.manifest.bundle_hash == sha256_of(signed / "manifest.json")


def test_one_trusted_key_of_several_is_enough(signed: Path, keys: Path) -> None:
    both = [keys / "other.pub", keys / "own.pub"]
    assert signer_of(signed, both)[1] == read_public_keys(keys / "own.pub")[0]
    in_one = b"".join(path.read_bytes() for path in both)
    assert len(read_public_keys(in_one)) == 2
    load_expected(signed, trusted_keys=in_one)


def test_signatures_of_several_keys_stand_side_by_side(signed: Path, keys: Path) -> None:
    sign_bundle(signed, keys / "other")
    sign_bundle(signed, keys / "own")  # again: nothing is doubled
    assert len(json.loads((signed / "signature.json").read_text())["signatures"]) == 2
    for name in ("own.pub", "other.pub"):
        load_expected(signed, trusted_keys=keys / name)


def test_without_a_key_a_signature_is_not_looked_at(signed: Path) -> None:
    (signed / "signature.json").write_text("nonsense")
    load_expected(signed)


def test_a_false_signature_beside_a_true_one_changes_nothing(signed: Path, keys: Path) -> None:
    sign_bundle(signed, keys / "other")
    rewrite(signed, lambda form: form["signatures"][0].update(ed25519="00" * 64))
    load_expected(signed, trusted_keys=[keys / "own.pub", keys / "other.pub"])
    with pytest.raises(BundleError):
        load_expected(signed, trusted_keys=keys / "own.pub")


# What is refused, before any graph is opened ------------------------------------------------------


def copied_from_another(signed: Path) -> None:
    other = signed.parent / "another"
    shutil.copytree(signed, other)
    (other / "signature.json").unlink()
    reseal(other)
    sign_bundle(other, signed.parent / "own")
    shutil.copy(other / "signature.json", signed)


def with_the_hash_of_this_one(signed: Path) -> None:
    bundle_hash = sha256_of(signed / "manifest.json")
    copied_from_another(signed)
    rewrite(signed, lambda form: form.update(bundle_hash=bundle_hash))


def linked(signed: Path) -> None:
    path = signed / "signature.json"
    path.rename(signed.parent / "elsewhere")
    path.symlink_to(signed.parent / "elsewhere")


def piped(signed: Path) -> None:
    (signed / "signature.json").unlink()
    os.mkfifo(signed / "signature.json")


def replaced_by_a_folder(signed: Path) -> None:
    (signed / "signature.json").unlink()
    (signed / "signature.json").mkdir()


def damaged(signed: Path, content: bytes) -> None:
    (signed / "signature.json").write_bytes(content)


ATTACKS: dict[str, Callable[[Path], Any]] = {
    "removed": lambda signed: (signed / "signature.json").unlink(),
    "of another bundle": copied_from_another,
    "of another bundle under this hash": with_the_hash_of_this_one,
    "manifest changed and sealed again": reseal,
    "a link": linked,
    "a pipe": piped,
    "a folder": replaced_by_a_folder,
    "empty": lambda signed: damaged(signed, b""),
    "cut": lambda signed: damaged(signed, (signed / "signature.json").read_bytes()[:-40]),
    "garbage": lambda signed: damaged(signed, bytes(range(256)) * 4),
    "huge": lambda signed: damaged(signed, b" " * (MAX_BYTES + 1)),
    "deep": lambda signed: damaged(signed, b"[" * MAX_BYTES),
    "null": lambda signed: damaged(signed, b"null"),
    "no signatures": lambda signed: rewrite(signed, lambda form: form["signatures"].clear()),
    "not a list": lambda signed: rewrite(signed, lambda form: form.update(signatures=7)),
    "another schema": lambda signed: rewrite(signed, lambda form: form.update(schema=2)),
    "key of a number": lambda s: rewrite(s, lambda form: form["signatures"][0].update(key=7)),
    "short": lambda s: rewrite(s, lambda form: form["signatures"][0].update(ed25519="00")),
    "zeros": lambda s: rewrite(s, lambda form: form["signatures"][0].update(ed25519="00" * 64)),
    "no hexadecimal": lambda s: rewrite(s, lambda f: f["signatures"][0].update(ed25519="xyz")),
}


@pytest.mark.usefixtures("opens_nothing")
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_bundle_without_a_true_signature_is_refused(signed: Path, attack: str) -> None:
    ATTACKS[attack](signed)
    with pytest.raises(BundleError):
        Stream.open(signed, trusted_keys=signed.parent / "own.pub")


@pytest.mark.usefixtures("opens_nothing")
def test_a_signature_by_another_key_under_the_trusted_ones_name_is_refused(
    signed: Path, keys: Path
) -> None:
    (signed / "signature.json").unlink()
    sign_bundle(signed, keys / "other")
    own = read_public_keys(keys / "own.pub")[0].id
    rewrite(signed, lambda form: form["signatures"][0].update(key=own))
    with pytest.raises(BundleError):
        Stream.open(signed, trusted_keys=keys / "own.pub")


@pytest.mark.parametrize("name", ["update.onnx", "weights.bin", "golden.npz"])
def test_a_changed_file_of_a_signed_bundle_is_refused(signed: Path, name: str) -> None:
    raw = bytearray((signed / name).read_bytes())
    raw[len(raw) // 2] ^= 1
    (signed / name).write_bytes(raw)
    with pytest.raises(BundleError, match=name):
        Stream.open(signed, trusted_keys=signed.parent / "own.pub")


def test_a_manifest_is_not_parsed_before_its_signature_is_verified(
    signed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reseal(signed)
    monkeypatch.setattr("edgefold.runtime.bundle.signature.load_manifest", None)  # calling it fails
    with pytest.raises(BundleError):
        Stream.open(signed, trusted_keys=signed.parent / "own.pub")


def test_a_manifest_that_changes_between_signature_and_parsing_is_refused(
    signed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(bundle: Path) -> Any:
        reseal(signed)
        return load_manifest(bundle)

    monkeypatch.setattr("edgefold.runtime.bundle.signature.load_manifest", changed)
    with pytest.raises(BundleError, match="changed while"):
        Stream.open(signed, trusted_keys=signed.parent / "own.pub")


def test_without_the_package_nothing_is_accepted(
    signed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "path" / "cryptography"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('not here')")
    monkeypatch.syspath_prepend(str(package.parent))
    with pytest.raises(BundleError, match=r"edgefold\[sign\]"):
        Stream.open(signed, trusted_keys=tmp_path / "own.pub")


@pytest.mark.parametrize("answer", ["print('nonsense')", "import os; os._exit(3)"])
def test_a_verifier_that_does_not_answer_accepts_nothing(
    signed: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr("edgefold.runtime.child_process.CHILD", answer)
    with pytest.raises(BundleError):
        Stream.open(signed, trusted_keys=signed.parent / "own.pub")


def test_a_loop_that_trusts_a_key_does_not_carry_the_package(signed: Path) -> None:
    code = (
        "import sys\nfrom edgefold.runtime import Stream\n"
        f"Stream.open({str(signed)!r}, trusted_keys={str(signed.parent / 'own.pub')!r}).close()\n"
        "assert not [name for name in sys.modules if 'cryptography' in name]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# The expected hash --------------------------------------------------------------------------------


def test_an_expected_hash_is_taken_in_either_case_and_with_blanks_around(
    tiny_bundle: Path,
) -> None:
    found = sha256_of(tiny_bundle / "manifest.json")
    for text in (found, found.upper(), f"  {found}\n"):
        with Stream.open(tiny_bundle, expect_hash=text):
            pass


@pytest.mark.usefixtures("opens_nothing")
@pytest.mark.parametrize("text", ["0" * 64, "", "0" * 63, "0" * 65, "g" * 64, "sha256:" + "0" * 64])
def test_another_hash_or_none_at_all_is_refused(tiny_bundle: Path, text: str) -> None:
    with pytest.raises(BundleError):
        Stream.open(tiny_bundle, expect_hash=text)


def test_the_beginning_of_a_hash_is_not_enough(tiny_bundle: Path) -> None:
    with pytest.raises(BundleError):
        Stream.open(tiny_bundle, expect_hash=sha256_of(tiny_bundle / "manifest.json")[:32])


def test_a_bundle_without_a_manifest_or_with_a_pipe_for_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError):
        Stream.open(tmp_path, expect_hash="0" * 64)
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(BundleError):
        Stream.open(tmp_path, expect_hash="0" * 64)


# Keys ---------------------------------------------------------------------------------------------


def test_a_new_key_is_private_and_no_file_is_replaced(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        public = new_key(tmp_path / "key")
    finally:
        os.umask(old)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "key.pub").stat().st_mode & 0o777 == 0o644
    assert read_public_keys(tmp_path / "key.pub") == [public]
    content = (tmp_path / "key").read_bytes(), (tmp_path / "key.pub").read_bytes()
    with pytest.raises(KeyFileError):
        new_key(tmp_path / "key")
    (tmp_path / "key.pub").rename(tmp_path / "moved")
    with pytest.raises(KeyFileError):
        new_key(tmp_path / "key")
    assert not (tmp_path / "key.pub").exists()
    assert content == ((tmp_path / "key").read_bytes(), (tmp_path / "moved").read_bytes())


def test_a_link_in_a_new_keys_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "key").symlink_to(tmp_path / "victim")
    with pytest.raises(KeyFileError):
        new_key(tmp_path / "key")
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("trusted", [[], RSA, b"", b"nonsense", b"-----BEGIN PUBLIC KEY-----"])
def test_what_is_no_public_key_is_refused(signed: Path, trusted: Any) -> None:
    with pytest.raises(KeyFileError):
        Stream.open(signed, trusted_keys=trusted)


def test_a_key_file_that_is_missing_a_pipe_or_huge_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "huge").write_bytes(b" " * (MAX_BYTES + 1))
    for name in ("none", "pipe", "huge", "."):
        with pytest.raises(KeyFileError):
            read_public_keys(tmp_path / name)


def test_a_private_key_in_a_public_ones_place_is_refused(keys: Path, signed: Path) -> None:
    with pytest.raises(KeyFileError, match="private"):
        Stream.open(signed, trusted_keys=keys / "own")


def test_a_good_key_does_not_excuse_a_bad_one_beside_it(keys: Path) -> None:
    with pytest.raises(KeyFileError):
        read_public_keys((keys / "own.pub").read_bytes() + RSA)


# Signing ------------------------------------------------------------------------------------------


def test_a_key_that_others_may_read_is_warned_of(keys: Path, tiny_bundle: Path) -> None:
    copy = shutil.copytree(tiny_bundle, keys / "b")
    (keys / "own").chmod(0o644)
    with pytest.warns(UserWarning, match="chmod 600"):
        sign_bundle(copy, keys / "own")


@pytest.mark.parametrize("name", ["own.pub", "none", "rsa", "nonsense", "password"])
def test_what_is_no_private_key_signs_nothing(keys: Path, tiny_bundle: Path, name: str) -> None:
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

    rsa_key = rsa.generate_private_key(65537, 2048)
    plain, pem = form.NoEncryption(), (form.Encoding.PEM, form.PrivateFormat.PKCS8)
    (keys / "rsa").write_bytes(rsa_key.private_bytes(*pem, plain))
    locked = form.BestAvailableEncryption(b"word")
    key = ed25519.Ed25519PrivateKey.generate()
    (keys / "password").write_bytes(key.private_bytes(*pem, locked))
    (keys / "nonsense").write_text("nonsense")
    copy = Path(shutil.copytree(tiny_bundle, keys / "b"))
    with pytest.raises(KeyFileError):
        sign_bundle(copy, keys / name)
    assert not (copy / "signature.json").exists()


def test_a_damaged_bundle_and_an_unexpected_one_are_not_signed(
    keys: Path, tiny_bundle: Path
) -> None:
    copy = Path(shutil.copytree(tiny_bundle, keys / "b"))
    with pytest.raises(BundleError):
        sign_bundle(copy, keys / "own", "0" * 64)
    (copy / "weights.bin").write_bytes(b"other")
    with pytest.raises(BundleError):
        sign_bundle(copy, keys / "own")
    assert not (copy / "signature.json").exists()


def test_a_signature_of_an_older_bundle_is_not_silently_replaced(signed: Path) -> None:
    before = (signed / "signature.json").read_bytes()
    reseal(signed)
    with pytest.raises(BundleError):
        sign_bundle(signed, signed.parent / "own")
    assert (signed / "signature.json").read_bytes() == before
