"""A checkpoint of the general model of sensors whose memory is never read.

    checkpoint ──> the head's weights of what the memory says are 0 ──> checkpoint, exported as any

An empty memory says zeros to the head. So this checkpoint forecasts as the trained one whose state
of the network is reset before each row, while experts, mixture and portfolio keep theirs:

    python -m benchmarks sensors_forgetful checkpoints/sensors /tmp/forgetful
    edgefold export /tmp/forgetful --out R
    python -m benchmarks sensors --bundle B --reset-bundle R --series FOLDER
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

WEIGHTS = "model.safetensors"
HEAD = "network.head.0.weight"
"""(width, width + what is read): what is read stands last, see `Network.normals`."""


def forget(checkpoint: Path, out: Path) -> None:
    """Write the checkpoint that reads nothing."""
    from edgefold.train.checkpoints import load_tensors, save_tensors

    shutil.copytree(checkpoint, out, dirs_exist_ok=True)
    tensors, metadata = load_tensors(checkpoint / WEIGHTS)
    head = tensors[HEAD].clone()
    head[:, len(head) :] = 0.0
    kept = {key: text for key, text in metadata.items() if key != "sha256"}
    save_tensors(out / WEIGHTS, {**tensors, HEAD: head}, kept)


def main() -> None:
    """Write it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks sensors_forgetful",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    forget(args.checkpoint, args.out)


if __name__ == "__main__":
    main()
