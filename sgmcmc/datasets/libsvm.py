"""LIBSVM text, `label index:value index:value ...` on each line, parsed by arrays.

Only what the data sets here need: the labels 1 and 2, at most 99 features with values in [0, 1].
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sgmcmc.datasets import fetch

Array = NDArray[np.float32]
Codes = NDArray[np.uint8]
Mask = NDArray[np.bool_]
Places = NDArray[np.intp]

_CHUNK = 1 << 22  # bytes of text at once: bounds the memory that the parser needs
_NUMBER = rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
_LINE = re.compile(rb"\s*N(\s+\d+:\s*N)*\s*".replace(b"N", _NUMBER))


def parse(path: Path, rows: int, features: int) -> Array:
    """Parse and check a file.

    Args:
        path: The file, compressed or not.
        rows: Number of lines it has to have.
        features: Largest index it may have.

    Returns:
        float32 array (rows, 1 + features). Column 0 is 1 for label 2 and 0 for label 1.

    Raises:
        ValueError: The content is not what it has to be.
    """
    data = np.zeros((rows, 1 + features), np.float32)
    row = 0
    for text in _chunks(path):
        row += _parse_chunk(text, data[row:], row)
    if row != rows:
        raise ValueError(f"{row} lines instead of {rows}")
    return data


def _chunks(path: Path) -> Iterator[bytes]:
    """Split the content into pieces of whole lines."""
    rest = b""
    with fetch.open_decompressed(path) as file:
        while block := file.read(_CHUNK):
            head, newline, tail = block.rpartition(b"\n")
            if newline:
                yield rest + head + newline
                rest = tail
            else:  # the last block, or no text at all
                rest += tail
                if len(rest) > 2 * _CHUNK:
                    raise ValueError("the content is not text in lines")
    if rest:
        yield rest + b"\n"


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
    _refuse((label != 1) & (label != 2), np.arange(lines), before, "label is not 1 or 2")
    _refuse(~((value >= 0) & (value <= 1)), row, before, "value is not in [0, 1]")
    out[:lines, 0] = label == 2
    out.reshape(-1)[cell] = value
    return lines


def _tokens(text: bytes, code: Codes, before: int) -> tuple[Places, Mask, Mask]:
    """Tell what each token is from what follows it, in the order they stand in the text.

    Returns:
        Where in the text each token ends, whether it is an index, and whether it is a label.
        One that is neither is the value of the index before it.
    """
    colon = code == ord(":")
    gap = colon | (code <= ord(" "))
    ends = np.flatnonzero(gap[1:] & ~gap[:-1])
    is_index = colon[ends + 1]
    is_value = np.append(False, is_index[:-1])
    is_label = ~(is_index | is_value)
    newlines = np.flatnonzero(code == ord("\n"))
    # The first token of each line has to be a label, and no other.
    first = np.searchsorted(ends, np.append(0, newlines[:-1] + 1))
    fine = np.array_equal(first, np.flatnonzero(is_label)) and not np.any(is_index & is_value)
    if not fine or np.count_nonzero(colon) != np.count_nonzero(is_index):
        raise _no_line(text, before)
    return ends, is_index, is_label


def _take_indices(code: Codes, ends: Places) -> Places:
    """Read the indices and blank them: numpy's parser would need half of its time for them.

    An index that is not one or two digits is given as -1.
    """
    low, high = (code[place].astype(np.intp) - ord("0") for place in (ends, ends - 1))
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
