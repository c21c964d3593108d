"""Forest cover type, in the binary form of LIBSVM data.

The file has `label index:value index:value ...` on each line, parsed by arrays: only what is needed
here, the labels 1 and 2, and at most 99 features with values in [0, 1].
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sgmcmc.atomic_files import replacement
from sgmcmc.datasets import fetch

# To be raised whenever a parser changes what it gives for the same source.
_MAGIC = b"sgmcmc-1"

Array = NDArray[np.float32]
Codes = NDArray[np.uint8]
Mask = NDArray[np.bool_]
Places = NDArray[np.intp]

_CHUNK = 1 << 22  # bytes of text at once: bounds the memory that the parser needs
_NUMBER = rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
_LINE = re.compile(rb"\s*N(\s+\d+:\s*N)*\s*".replace(b"N", _NUMBER))


def load_or_parse(
    path: Path, filename: str, shape: tuple[int, ...], parse: Callable[[Path], Array]
) -> Array:
    """Return the parsed content of a file, a new array, from the cache if it was parsed before.

    The cache is a .npy file with a seal at its end, which ties the array to the source it was made
    from. Being in one file, the two are written at once, so that no other process ever sees one
    without the other. ``filename`` is its proper name; ``path`` may be a temporary one.
    """
    name = f"{filename}.sgmcmc.npy"
    # A sum and not size and time: it takes 20 ms for 8 MB, and a copied file keeps its cache.
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    source_sum = digest.digest()
    for folder in fetch.known_folders():
        array = _read(folder / name, shape, source_sum)
        if array is not None:
            return array
    array = parse(path)
    writable = fetch.writable_folder()
    if writable is not None:
        _write(writable / name, array, source_sum)
    return array


def _seal(array: Array, source_sum: bytes) -> bytes:
    return _MAGIC + source_sum + zlib.crc32(array.data.cast("B")).to_bytes(4, "little")


def _read(path: Path, shape: tuple[int, ...], source_sum: bytes) -> Array | None:
    """Read the cache if it is whole, as expected and of this source; None otherwise."""
    with (
        contextlib.suppress(OSError, ValueError, EOFError, MemoryError),
        open(path, "rb") as file,
    ):
        # Both ends first, so that a stale file costs no time.
        header = io.BytesIO()
        fields = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(header, fields)
        if file.read(len(header.getvalue())) != header.getvalue():
            return None
        file.seek(4 * int(np.prod(shape)), os.SEEK_CUR)
        tail, ending = _MAGIC + source_sum, file.read()
        if len(ending) != len(tail) + 4 or not ending.startswith(tail):
            return None
        file.seek(0)
        array: Array = np.load(file, allow_pickle=False)
        if file.read() == _seal(array, source_sum):
            return array.astype(np.float32, copy=False)
    return None


def _write(path: Path, array: Array, source_sum: bytes) -> None:
    """Write the cache; if that fails, there is none."""
    little = array.astype("<f4", order="C", copy=False)
    with (
        contextlib.suppress(OSError),
        replacement(path) as draft,
        open(draft, "wb") as file,
    ):
        np.save(file, little, allow_pickle=False)
        file.write(_seal(little, source_sum))


@dataclass(frozen=True)
class CovertypeSpec:
    """Expected content of the file: no official sum of its content is known.

    Attributes:
        source: File.
        rows: Number of lines.
        positives: Number of lines with label 2, lodgepole pine.
        features: Largest index.
    """

    source: fetch.Source
    rows: int
    positives: int
    features: int


_NAME = "covtype.libsvm.binary.scale.bz2"
SPEC = CovertypeSpec(
    fetch.Source(
        _NAME,
        (f"https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/{_NAME}",),
    ),
    rows=581012,
    positives=283301,
    features=54,
)


def load(verbose: bool = True) -> Array:
    """Load float32 (581012, 55), label 0 or 1 first; see `sgmcmc.datasets.get_dataset`."""
    return load_spec(SPEC, verbose)


def load_spec(spec: CovertypeSpec, verbose: bool) -> Array:
    """Load a file of this format: a float32 array (rows, 1 + features), label first."""
    shape = (spec.rows, 1 + spec.features)

    def read(path: Path) -> Array:
        return load_or_parse(
            path, spec.source.filename, shape, partial(parse, spec=spec)
        )

    return fetch.load(spec.source, read, verbose)


def parse(path: Path, spec: CovertypeSpec) -> Array:
    """Return the checked content of a file, compressed or not, as float32 (rows, 1 + features).

    Column 0 is 1 for label 2 and 0 for label 1.
    """
    data = np.zeros((spec.rows, 1 + spec.features), np.float32)
    row = 0
    for text in _chunks(path):
        row += _parse_chunk(text, data[row:], row)
    if row != spec.rows:
        raise ValueError(f"{row} lines instead of {spec.rows}")
    positives = int(np.count_nonzero(data[:, 0]))
    if positives != spec.positives:
        raise ValueError(
            f"{positives} lines have the label 2 instead of {spec.positives}"
        )
    return data


def _chunks(path: Path) -> Iterator[bytes]:
    """Split the content into pieces of whole lines."""
    incomplete = b""
    with fetch.open_decompressed(path) as file:
        while block := file.read(_CHUNK):
            head, newline, tail = block.rpartition(b"\n")
            if newline:
                yield incomplete + head + newline
                incomplete = tail
            else:  # the last block, or no text at all
                incomplete += tail
                if len(incomplete) > 2 * _CHUNK:
                    raise ValueError("the content is not text in lines")
    if incomplete:
        yield incomplete + b"\n"


def _parse_chunk(text: bytes, out: Array, before: int) -> int:
    """Parse whole lines into the first rows of `out`; return their number.

    `before` is the number of lines before, for messages.
    """
    code = np.frombuffer(bytearray(text), np.uint8)
    lines = int(np.count_nonzero(code == ord("\n")))
    if lines > len(out):
        raise ValueError(f"more than {before + len(out)} lines")
    ends, is_index, is_label = _tokens(text, code, before)
    line = np.cumsum(is_label) - 1
    row, width = line[is_index], out.shape[1]
    column = _take_indices(code, ends[is_index])
    wrong = (column < 1) | (column >= width)
    _refuse(wrong, row, before, f"index is not one of 1 to {width - 1}")
    cell = row * width + column
    _refuse(np.diff(cell) <= 0, row[1:], before, "indices are not in ascending order")

    numbers = _numbers(code.tobytes())
    is_label = is_label[~is_index]
    if numbers.size != is_label.size:
        raise _no_line(text, before)
    label, value = numbers[is_label], numbers[~is_label]
    _refuse(
        (label != 1) & (label != 2), np.arange(lines), before, "label is not 1 or 2"
    )
    _refuse(~((value >= 0) & (value <= 1)), row, before, "value is not in [0, 1]")
    out[:lines, 0] = label == 2
    out.reshape(-1)[cell] = value
    return lines


def _tokens(text: bytes, code: Codes, before: int) -> tuple[Places, Mask, Mask]:
    """Return the end of each token in the text, and whether it is an index or a label.

    What follows a token decides. One that is neither is the value of the index before it.
    """
    colon = code == ord(":")
    separates = colon | (code <= ord(" "))
    ends = np.flatnonzero(separates[1:] & ~separates[:-1])
    is_index = colon[ends + 1]
    is_value = np.append(False, is_index[:-1])
    is_label = ~(is_index | is_value)
    newlines = np.flatnonzero(code == ord("\n"))
    # The first token of each line must be a label, and no other.
    first = np.searchsorted(ends, np.append(0, newlines[:-1] + 1))
    fine = np.array_equal(first, np.flatnonzero(is_label)) and not np.any(
        is_index & is_value
    )
    if not fine or np.count_nonzero(colon) != np.count_nonzero(is_index):
        raise _no_line(text, before)
    return ends, is_index, is_label


def _take_indices(code: Codes, ends: Places) -> Places:
    """Read the indices and blank them: numpy's parser would need half of its time for them.

    An index that is not one or two digits is given as -1.
    """
    low, high = (code[digit].astype(np.intp) - ord("0") for digit in (ends, ends - 1))
    alone = code[ends - 1] <= ord(" ")
    high[alone] = 0
    wrong = (low < 0) | (low > 9) | (high < 0) | (high > 9)
    wrong |= ~alone & (code[ends - 2] > ord(" "))
    code[ends - 1] = code[ends] = code[ends + 1] = ord(" ")
    return np.where(wrong, -1, 10 * high + low)


def _numbers(text: bytes) -> NDArray[np.float64]:
    """Read numbers up to the first that is none."""
    # There numpy stops, and warns (older) or raises (newer).
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        try:
            return np.fromstring(text, dtype=np.float64, sep=" ")
        except (DeprecationWarning, ValueError):
            return np.empty(0)


def _no_line(text: bytes, before: int) -> ValueError:
    """Find the first bad line for the message; only damaged files ever need it."""
    lines = text.split(b"\n")[:-1]
    bad = next((i for i, line in enumerate(lines) if not _LINE.fullmatch(line)), 0)
    return ValueError(f"line {before + bad + 1} is not 'label index:value ...'")


def _refuse(wrong: Mask, row: Places, before: int, reason: str) -> None:
    if wrong.any():
        raise ValueError(f"line {before + int(row[int(wrong.argmax())]) + 1}: {reason}")
