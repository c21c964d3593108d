"""Handwritten digits: four files in IDX format, big-endian sizes and then bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sgmcmc.datasets import fetch

Array = NDArray[np.float32]
_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)


# Validation images, which the R package leaves out of the training set
_SET_ASIDE = 5000


def _source(name: str, sha256: str) -> fetch.Source:
    return fetch.Source(name, tuple(mirror + name for mirror in _MIRRORS), sha256)


SOURCES: Mapping[str, tuple[fetch.Source, fetch.Source]] = {
    "train": (
        _source(
            "train-images-idx3-ubyte.gz",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        _source(
            "train-labels-idx1-ubyte.gz",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
    ),
    "test": (
        _source(
            "t10k-images-idx3-ubyte.gz",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        _source(
            "t10k-labels-idx1-ubyte.gz",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
}


def load(verbose: bool = True) -> dict[str, dict[str, Array]]:
    """Load images and one-hot labels for training and test; see `sgmcmc.datasets.get_dataset`."""
    return {
        "train": load_pair(*SOURCES["train"], skip=_SET_ASIDE, verbose=verbose),
        "test": load_pair(*SOURCES["test"], skip=0, verbose=verbose),
    }


def load_pair(
    images: fetch.Source, labels: fetch.Source, skip: int, verbose: bool
) -> dict[str, Array]:
    """Load ``images`` (N, 784) in [0, 1] and one-hot ``labels`` (N, 10), both float32.

    The files hold images of 28 by 28 bytes, and labels 0 to 9; the first ``skip`` are left out.
    """
    classes = 10
    read_images = partial(parse, sizes=(28, 28), sha256=images.sha256)
    read_labels = partial(parse, sizes=(), sha256=labels.sha256, largest=classes - 1)
    pixels = fetch.load(images, read_images, verbose)[skip:]
    digits = fetch.load(labels, read_labels, verbose)[skip:]
    if len(pixels) != len(digits):
        raise fetch.DamagedFileError(
            f"{images.filename} and {labels.filename} do not belong together: "
            f"{len(pixels) + skip} images, {len(digits) + skip} labels"
        )
    scaled = pixels.reshape(len(pixels), -1).astype(np.float32)
    scaled /= 255
    return {"images": scaled, "labels": np.eye(classes, dtype=np.float32)[digits]}


def parse(
    path: Path, sizes: tuple[int, ...], sha256: str | None, largest: int = 255
) -> NDArray[np.uint8]:
    """Return the checked bytes of an IDX file, compressed or not: uint8 (N, *sizes), read-only.

    No byte may be above ``largest``.
    """
    with fetch.open_decompressed(path) as file:
        content = file.read()
    start = 4 + 4 * (1 + len(sizes))
    # Two zero bytes, the type (8 is unsigned byte), the number of dimensions, their sizes.
    if len(content) < start or content[:4] != bytes([0, 0, 8, 1 + len(sizes)]):
        raise ValueError(f"not an IDX file of bytes in {1 + len(sizes)} dimension(s)")
    count, *item_sizes = (int(size) for size in np.frombuffer(content[4:start], ">u4"))
    if tuple(item_sizes) != sizes:
        raise ValueError(f"items are of size {tuple(item_sizes)} instead of {sizes}")
    expected = start + count * math.prod(sizes)
    if len(content) != expected:
        raise ValueError(f"{len(content)} bytes decompressed instead of {expected}")
    fetch.need_sum(content, sha256)
    data = np.frombuffer(content, np.uint8, offset=start).reshape(count, *sizes)
    if data.size and data.max() > largest:
        raise ValueError(f"holds {data.max()}, and the largest allowed is {largest}")
    return data
