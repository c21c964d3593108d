"""Where the values of all draws and rows are written to: memory, or an npy file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from sgmcmc.atomic_files import KEPT, explained, replacement
from sgmcmc.checks import describe
from sgmcmc.results.evaluation import Evaluation, Span, all_pieces


def read_path(store: Any) -> Path | None:
    """Return the file that a user wants values written to, or ``None``."""
    if store is None:
        return None
    if not isinstance(store, str | os.PathLike) or not os.fspath(store):
        raise TypeError(f"`store` must be the path of a file, or None; it is {describe(store)}.")
    path = Path(store)
    if path.is_dir():
        raise ValueError(f"`store`: {str(path)!r} is a folder; these values go to one npy file.")
    return path


def all_values(evaluation: Evaluation, path: Path | None) -> np.ndarray:
    """Return the values at all draws, (chains, draws, rows, *shape); mapped, if to a file.

    Args:
        evaluation: what is evaluated.
        path: the npy file, which appears only once it is whole; ``None`` stays in memory.
    """
    shape = (evaluation.chains, evaluation.draws, evaluation.rows, *evaluation.shape)
    if path is None:
        found = np.empty(shape, evaluation.dtype)
        for rows, chain, draws, values in all_pieces(evaluation):
            found[chain, draws.new : draws.stop, rows.new : rows.stop] = values
        return found
    with (
        explained("store", path, KEPT),
        replacement(path) as part,
        _FileValues(part, shape, evaluation) as file,
    ):
        for rows, chain, draws, values in all_pieces(evaluation):
            file.write(chain, draws, rows, values)
    return np.load(path, mmap_mode="r", allow_pickle=False)


class _FileValues:
    """An npy file that pieces of an array are written into.

    Ordinary writes, not a mapping: a full disk is an error then, not the end of the process.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], evaluation: Evaluation) -> None:
        self._file = open(path, "xb", buffering=0)
        header = np.lib.format.header_data_from_array_1_0(np.empty(0, evaluation.dtype))
        np.lib.format.write_array_header_2_0(self._file, {**header, "shape": shape})
        self._start = self._file.tell()
        self._draws, self._rows = shape[1:3]
        self._bytes = evaluation.dtype.itemsize * int(np.prod(shape[3:]))

    def __enter__(self) -> _FileValues:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, chain: int, draws: Span, rows: Span, values: np.ndarray) -> None:
        """Write the values of new draws and rows."""
        for draw, line in zip(range(draws.new, draws.stop), values, strict=True):
            place = (chain * self._draws + draw) * self._rows + rows.new
            self._file.seek(self._start + place * self._bytes)
            data = memoryview(np.ascontiguousarray(line).tobytes())
            while data:
                data = data[self._file.write(data) :]
