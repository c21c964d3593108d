"""Cache of arrays that take long to parse: a .npy file with a seal at its end.

The seal ties the array to the source it was made from. Being in the same file, the two are
written at once, so that no other process ever sees one without the other.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from sgmcmc.atomic_files import replacement
from sgmcmc.datasets import folders

# To be raised whenever a parser changes what it gives for the same source.
_MAGIC = b"sgmcmc-1"
Array = NDArray[np.float32]


def load_or_parse(
    path: Path, filename: str, shape: tuple[int, ...], parse: Callable[[Path], Array]
) -> Array:
    """Return the parsed content of a file, a new array, from the cache if it was parsed before.

    ``filename`` is its proper name; ``path`` may be a temporary one.
    """
    name = f"{filename}.sgmcmc.npy"
    source_sum = _sum_of(path)
    for folder in folders.candidates():
        array = _read(folder / name, shape, source_sum)
        if array is not None:
            return array
    array = parse(path)
    writable = folders.writable()
    if writable is not None:
        _write(writable / name, array, source_sum)
    return array


def _sum_of(path: Path) -> bytes:
    # A sum and not size and time: it takes 20 ms for 8 MB, and a copied file keeps its cache.
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.digest()


def _header(shape: tuple[int, ...]) -> bytes:
    header = io.BytesIO()
    fields = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, fields)
    return header.getvalue()


def _seal(array: Array, source_sum: bytes) -> bytes:
    return _MAGIC + source_sum + zlib.crc32(array.data.cast("B")).to_bytes(4, "little")


def _read(path: Path, shape: tuple[int, ...], source_sum: bytes) -> Array | None:
    """Read the cache if it is whole, as expected and of this source; None otherwise."""
    with contextlib.suppress(OSError, ValueError, EOFError, MemoryError), open(path, "rb") as file:
        if not _fits(file, shape, source_sum):
            return None
        array: Array = np.load(file, allow_pickle=False)
        if file.read() == _seal(array, source_sum):
            return array.astype(np.float32, copy=False)
    return None


def _fits(file: IO[bytes], shape: tuple[int, ...], source_sum: bytes) -> bool:
    """Look at both ends only, so that a stale file costs no time. Rewinds the file."""
    header, tail = _header(shape), _MAGIC + source_sum
    body = 4 * int(np.prod(shape))
    if file.read(len(header)) != header:
        return False
    file.seek(body, os.SEEK_CUR)
    rest = file.read()
    file.seek(0)
    return len(rest) == len(tail) + 4 and rest.startswith(tail)


def _write(path: Path, array: Array, source_sum: bytes) -> None:
    """Write the cache; if that fails, there is none."""
    little = array.astype("<f4", order="C", copy=False)
    with contextlib.suppress(OSError), replacement(path) as part, open(part, "wb") as file:
        np.save(file, little, allow_pickle=False)
        file.write(_seal(little, source_sum))
