"""`edgefold sign`: make a key, sign a bundle with it, or verify a signature."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.options.bundle_options import add_trust_arguments

EXAMPLES = (
    "edgefold sign --new-key factory",
    "edgefold sign bundles/sensor --key factory",
    "edgefold sign bundles/sensor --verify --trusted-key factory.pub",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `edgefold sign`."""
    parser.add_argument(
        "bundle", metavar="BUNDLE", nargs="?", help="folder written by `edgefold export`"
    )
    actions = parser.add_mutually_exclusive_group(required=True)
    actions.add_argument(
        "--key",
        type=Path,
        metavar="FILE",
        help="sign with this private key; the signatures of other keys are kept",
    )
    actions.add_argument(
        "--new-key",
        type=Path,
        metavar="FILE",
        help="make a pair of keys: FILE is the private one, which signs and stays with you; "
        "FILE.pub is the public one, which boards get. No file is replaced",
    )
    actions.add_argument(
        "--verify", action="store_true", help="say which --trusted-key has signed the bundle"
    )
    add_trust_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Make a key, sign a bundle, or verify that a trusted key has signed it; return DONE."""
    if (args.bundle is None) != (args.new_key is not None):
        args.usage_error("give a BUNDLE with --key and --verify, and none with --new-key")
    if (args.trusted_key is not None) != args.verify:
        args.usage_error("--verify and --trusted-key go together")
    if args.new_key is not None:
        if args.expect_hash:
            args.usage_error("--expect-hash belongs to a BUNDLE")
        return _make(args.new_key)
    return _verify(args) if args.verify else _sign(args)


def _make(path: Path) -> int:
    from edgefold.runtime.bundle.signing import new_key

    public = new_key(path)
    print(f"private   {path}: it signs. Keep a copy, and copy it to no board")
    print(f"public    {path}.pub: boards get this one, for --trusted-key")
    print(f"id        {public.id}")
    return ExitCode.DONE


def _sign(args: argparse.Namespace) -> int:
    from edgefold.runtime.bundle.signature import FILE_NAME
    from edgefold.runtime.bundle.signing import sign_bundle

    bundle_hash, public = sign_bundle(args.bundle, args.key, args.expect_hash)
    print(f"bundle    {args.bundle}, every file as its manifest says")
    print(f"hash      {bundle_hash}")
    print(f"signed    by the key {public.id}, in {Path(args.bundle) / FILE_NAME}")
    return ExitCode.DONE


def _verify(args: argparse.Namespace) -> int:
    from edgefold.runtime.bundle.signature import load_expected, signer_of

    bundle_hash, public = signer_of(args.bundle, args.trusted_key)
    load_expected(args.bundle, args.expect_hash or bundle_hash)
    print(f"bundle    {args.bundle}, every file as its manifest says")
    print(f"hash      {bundle_hash}")
    print(f"signed    by the key {public.id}")
    return ExitCode.DONE
