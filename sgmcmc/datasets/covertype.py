"""Forest cover type, in the binary form of LIBSVM data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sgmcmc.datasets import fetch, libsvm, parsed

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Spec:
    """What the file has to hold: no official sum of its content is known.

    Attributes:
        source: The file.
        rows: Number of lines.
        positives: Number of lines with label 2, lodgepole pine.
        features: Largest index.
    """

    source: fetch.Source
    rows: int
    positives: int
    features: int


_NAME = "covtype.libsvm.binary.scale.bz2"
SPEC = Spec(
    fetch.Source(
        _NAME, (f"https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/{_NAME}",)
    ),
    rows=581012,
    positives=283301,
    features=54,
)


def load(verbose: bool = True) -> Array:
    """Load the data set.

    Args:
        verbose: Show progress of a download.

    Returns:
        float32 array (581012, 55), label 0 or 1 first; see `sgmcmc.datasets.get_dataset`.
    """
    return load_spec(SPEC, verbose)


def load_spec(spec: Spec, verbose: bool) -> Array:
    """Load a file of this format.

    Args:
        spec: What the file has to hold.
        verbose: Show progress of a download.

    Returns:
        float32 array (rows, 1 + features), label first.
    """
    shape = (spec.rows, 1 + spec.features)

    def read(path: Path) -> Array:
        return parsed.load_or_parse(path, spec.source.filename, shape, partial(parse, spec=spec))

    return fetch.load(spec.source, read, verbose)


def parse(path: Path, spec: Spec) -> Array:
    """Parse and check the file.

    Args:
        path: The file.
        spec: What it has to hold.

    Returns:
        float32 array (rows, 1 + features), label first.

    Raises:
        ValueError: The content is not what it has to be.
    """
    data = libsvm.parse(path, spec.rows, spec.features)
    positives = int(np.count_nonzero(data[:, 0]))
    if positives != spec.positives:
        raise ValueError(f"{positives} lines have the label 2 instead of {spec.positives}")
    return data
