"""Read the images to complete: those that come with Edgefold, or EMNIST or CelebA from a folder.

    source        training                            held out
    digits        8x8, the first 1,437                the last 360
    photographs   32x32 crops of 4, colours permuted  crops of 2 others
    emnist        28x28, digits of the training part  digits of the test part, letters of it
    celeba        32, 64 or 128 a side, parts 0, 1    part 2, as the data set itself is split

Nothing is downloaded. A file that is missing is an error that says where it is found, what it
weighs and where it goes. `data/README.md` has the sources and licences of what comes with Edgefold.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from itertools import permutations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgefold.runtime.errors import DataError

Images = NDArray[np.uint8]
"""Images as bytes, of shape (n, height, width, channels)."""


@dataclass(frozen=True, slots=True)
class ImageSet:
    """Holds images of one size.

    Attributes:
        training: Images from which training batches are drawn.
        held_out: Images that training never sees, by the name of their part.
        brightest: Largest value that a pixel can have.
    """

    training: Images
    held_out: Mapping[str, Images]
    brightest: int = 255


def load_images(source: str, size: int, folder: Path | None) -> ImageSet:
    """Load the images of a source.

    Args:
        source: "digits", "photographs", "emnist" or "celeba".
        size: Pixels a side, one of the sizes that the source has.
        folder: Folder in which the files of emnist or celeba lie; None for the other sources.

    Raises:
        DataError: A file is missing or has another content, or there is no folder.
    """
    if source == "digits":
        return _digits()
    if source == "photographs":
        return _photographs(size)
    if folder is None:
        raise DataError(f"--source {source} reads local files; give --folder. {DOWNLOADS[source]}")
    return _emnist(folder) if source == "emnist" else _celeba(folder, size)


SIZES = {"digits": (8,), "photographs": (32,), "emnist": (28,), "celeba": (32, 64, 128)}
"""Pixels a side that each source has; the first is the default."""
DOWNLOADS = {
    "emnist": (
        "Download gzip.zip (562 MB) from https://www.nist.gov/itl/products-and-services/"
        "emnist-dataset and unpack it: --folder is the folder that then holds "
        "emnist-balanced-train-images-idx3-ubyte.gz. It is a work of the US government; NIST asks "
        "for a citation of Cohen et al. 2017."
    ),
    "celeba": (
        "Download img_align_celeba.zip (1.4 GB) and list_eval_partition.txt (3 MB) from "
        "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html and unpack the first: --folder is the "
        "folder that then holds list_eval_partition.txt and the folder img_align_celeba. The data "
        "set is for non-commercial research alone."
    ),
}

# What comes with Edgefold -------------------------------------------------------------------------

BUILT_IN = "built_in_images.npz"
HELD_OUT_DIGITS = 360
TRAINING_PHOTOGRAPHS = "astronaut", "coffee", "hubble_deep_field", "retina"
HELD_OUT_PHOTOGRAPHS = "chelsea", "rocket"
STRIDE = 8
"""Distance in pixels between neighbouring training crops; held-out crops do not overlap."""


def built_in(*names: str) -> list[Images]:
    """Return the arrays with these names in the file that comes with Edgefold.

    "digits" is (1797, 8, 8), with values from 0 to 16. The other names are those of photographs,
    such as "coffee": (height, width, 3), uint8.
    """
    with as_file(files("edgefold.train.tasks.images") / BUILT_IN) as path, np.load(path) as arrays:
        return [arrays[name] for name in names]


def _digits() -> ImageSet:
    (digits,) = (images[..., None] for images in built_in("digits"))
    return ImageSet(digits[:-HELD_OUT_DIGITS], {"held out": digits[-HELD_OUT_DIGITS:]}, 16)


def _photographs(size: int) -> ImageSet:
    """Cut crops of the photographs; training crops come in every order of the three colours.

    With one order a model would learn only the colours of four photographs.
    """
    training = [
        crops(image[..., order], size, STRIDE)
        for image in built_in(*TRAINING_PHOTOGRAPHS)
        for order in permutations(range(3))
    ]
    held_out = [crops(image, size, size) for image in built_in(*HELD_OUT_PHOTOGRAPHS)]
    return ImageSet(np.concatenate(training), {"held out": np.concatenate(held_out)})


def crops(image: Images, size: int, stride: int) -> Images:
    """Cut squares (n, size, size, C), `stride` pixels apart, out of an image (height, width, C)."""
    windows = np.lib.stride_tricks.sliding_window_view(image, (size, size), axis=(0, 1))
    patches = windows[::stride, ::stride].transpose(0, 1, 3, 4, 2)
    return np.ascontiguousarray(patches.reshape(-1, size, size, image.shape[-1]))


# EMNIST -------------------------------------------------------------------------------------------

N_TRAINING_CLASSES = 10
"""Number of classes, of the balanced split's 47, that are learned: digits, and no letters."""


def _emnist(folder: Path) -> ImageSet:
    training, labels = _emnist_part(folder, "train")
    held_out, held_out_labels = _emnist_part(folder, "test")
    seen = held_out_labels < N_TRAINING_CLASSES
    return ImageSet(
        training[labels < N_TRAINING_CLASSES],
        {"seen classes (0-9)": held_out[seen], "unseen (10-46)": held_out[~seen]},
    )


def _emnist_part(folder: Path, part: str) -> tuple[Images, NDArray[np.uint8]]:
    """Read the images (n, 28, 28, 1) and labels (n,) of a part of EMNIST, "train" or "test".

    The files hold the images transposed; they are turned back to how people write.
    """
    images = read_idx(_emnist_file(folder, f"emnist-balanced-{part}-images-idx3-ubyte"), 3)
    labels = read_idx(_emnist_file(folder, f"emnist-balanced-{part}-labels-idx1-ubyte"), 1)
    if images.shape[1:] != (28, 28) or len(images) != len(labels):
        raise DataError(
            f"{folder} holds {len(images)} images of {images.shape[1:]} and {len(labels)} labels "
            f"of the {part}ing part; EMNIST has as many images of (28, 28). {DOWNLOADS['emnist']}"
        )
    return np.ascontiguousarray(images.transpose(0, 2, 1)[..., None]), labels


def _emnist_file(folder: Path, name: str) -> Path:
    places = [at / (name + ending) for at in (folder, folder / "gzip") for ending in ("", ".gz")]
    place_of_file = next((place for place in places if place.is_file()), None)
    if place_of_file is None:
        raise DataError(f"{folder} has no {name}, packed (.gz) or not. {DOWNLOADS['emnist']}")
    return place_of_file


def read_idx(path: Path, n_axes: int) -> NDArray[np.uint8]:
    """Read an array of bytes in the idx format of MNIST, packed by gzip if its name ends in .gz.

    The file has four bytes, 0, 0, 8 (for unsigned bytes) and the number of axes; then each axis's
    length as four bytes, the highest first; then the values.

    Raises:
        DataError: The file is of another kind, or its length differs from what its head says.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read()
    except (gzip.BadGzipFile, EOFError) as error:
        raise DataError(f"{path} is damaged ({error}); download it again.") from error
    head = 4 + 4 * n_axes
    shape = np.frombuffer(content[4:head], ">u4").tolist()
    if content[:4] != bytes([0, 0, 8, n_axes]) or len(content) != head + int(np.prod(shape)):
        raise DataError(
            f"{path} is not an idx file of bytes with {n_axes} axes, or is cut short; download it "
            "again."
        )
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)


# CelebA -------------------------------------------------------------------------------------------

CELEBA_SHAPE = (218, 178, 3)
"""Shape of the aligned images, height first."""


def _celeba(folder: Path, size: int) -> ImageSet:
    listed = folder / "list_eval_partition.txt"
    if not listed.is_file():
        raise DataError(f"{folder} has no list_eval_partition.txt. {DOWNLOADS['celeba']}")
    parts = dict(line.split() for line in listed.read_text().splitlines() if line.strip())
    training = [name for name, part in parts.items() if part in ("0", "1")]
    held_out = [name for name, part in parts.items() if part == "2"]
    if not training or not held_out:
        raise DataError(
            f"{listed} names {len(training)} images for training and {len(held_out)} for the test; "
            "each line is a name and 0, 1 or 2. Download it again."
        )
    return ImageSet(
        _resized(folder, training, size, "training"),
        {"held out": _resized(folder, held_out, size, "test")},
    )


def _resized(folder: Path, names: list[str], size: int, part: str) -> Images:
    """Return CelebA images (n, size, size, 3) that are resized without a crop.

    The first call writes them into a file in the folder, because decoding 200,000 images takes some
    ten minutes. At 128 pixels a side the file has 10 GB: it is mapped into memory, and batches read
    only their rows.

    Args:
        folder: Folder of CelebA.
        names: File names of the images.
        size: Pixels a side.
        part: Word for the part in the file's name: "training" or "test".
    """
    from PIL import Image  # comes with matplotlib
    from tqdm import tqdm

    store = folder / f"edgefold-{part}-{size}.npy"
    shape = (len(names), size, size, 3)
    if store.is_file():
        images: Images = np.load(store, mmap_mode="r")
        if images.shape == shape:
            return images
    unfinished = store.with_suffix(".unfinished.npy")
    pixels = np.lib.format.open_memmap(unfinished, "w+", np.uint8, shape)
    for row, name in enumerate(tqdm(names, desc=f"resize celeba, {part}", disable=None)):
        path = folder / "img_align_celeba" / name
        if not path.is_file():
            raise DataError(f"{path} is missing. {DOWNLOADS['celeba']}")
        try:
            with Image.open(path) as image:
                small = image.convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
                shape_read = (image.height, image.width, 3)
        except OSError as error:
            raise DataError(f"{path} cannot be read ({error}); unpack it again.") from error
        if shape_read != CELEBA_SHAPE:
            raise DataError(
                f"{path} is {shape_read[1]} x {shape_read[0]} pixels, and the aligned images are "
                f"178 x 218. {DOWNLOADS['celeba']}"
            )
        pixels[row] = np.asarray(small)
    pixels.flush()
    unfinished.replace(store)
    return np.load(store, mmap_mode="r")
