"""Child of `process`: from Python's start to a prediction and on, with Edgefold alone.

Usage: python benchmarks/memory/first_edgefold.py BUNDLE

The first line printed is the first prediction; the last one names what was imported that a board
must not need. It imports nothing else, because it is what is measured.
"""

import sys

from edgefold.runtime import Stream


def main() -> None:
    """Learn two points, predict, then run every step of the bundle."""
    with Stream.open(sys.argv[1]) as stream:
        for x, y in ((-0.5, 0.3), (0.5, 0.7)):
            stream.update([[x]], [[y]])
        print("prediction", stream.query([[0.1]]).mean[0, 0], flush=True)
        history = [[i / 16 - 2] for i in range(64)]
        stream.condition(history, history)
        for i in range(300):  # consolidates as well
            stream.update([[i / 150 - 1]], [[0.5]])
        stream.query(history[:16])
    found = {"torch", "onnx", "matplotlib", "safetensors"} & set(sys.modules)
    print("imported", *sorted(found))


if __name__ == "__main__":
    main()
