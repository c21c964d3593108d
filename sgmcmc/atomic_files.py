"""Files that appear under their name, or are replaced, only once they are complete.

Reading gives what was written, or an error: an npz file keeps a checksum of each array, and uses no
more memory than its bytes.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

KEPT = "what was there before stays as it was"
"""Statement on a file that could not be replaced."""

SAVED_MODEL = "saved_model.pb"
"""The file by which a folder is known as a SavedModel of TensorFlow."""

_ENDS = 22, 22 + 20 + 56
"""Bytes after the list of members of a zip file, without and with the records of large files."""


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays to one file, in NumPy's npz format."""
    with replacement(path) as partial, open(partial, "xb") as file:
        np.savez(file, **arrays)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read a file of ``write_arrays``; nothing in it is ever executed.

    Raises:
        ValueError: The file is damaged.
        OSError: It cannot be read.
    """
    with open(path, "rb") as file:
        try:
            return arrays_in(file)
        except OSError:
            raise
        except Exception as error:
            raise ValueError(f"{str(path)!r} is damaged: {error}.") from error


def arrays_in(file: BinaryIO) -> dict[str, np.ndarray]:
    """Return the arrays of an open npz file, as ``write_arrays`` writes them: not compressed.

    Raises:
        ValueError, zipfile.BadZipFile: It is not such a file, or not whole.
    """
    if not zipfile.is_zipfile(file):
        raise ValueError("it is not in NumPy's npz format")
    size = file.seek(0, os.SEEK_END)
    with zipfile.ZipFile(file) as members:
        listed = members.infolist()
        if sum(member.file_size for member in listed) > size:
            raise ValueError("it promises more than it holds")
        # A byte that is wrong in the list of members can make it shorter.
        entries = sum(46 + len(m.filename) + len(m.extra) for m in listed)
        if size - members.start_dir - entries not in _ENDS:
            raise ValueError("its list of arrays is not whole")
        return {
            member.filename.removesuffix(".npy"): _array(members, member)
            for member in listed
        }


def _array(members: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """Return one array; its checksum is compared when its last byte is read."""
    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{member.filename!r} is compressed")
    with members.open(member) as data:
        version = np.lib.format.read_magic(data)
        if version != (1, 0):
            raise ValueError(f"{member.filename!r} has the version {version}")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(data)
        if dtype.hasobject:
            raise ValueError(f"{member.filename!r} holds Python objects")
        size = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or size != member.file_size - data.tell():
            raise ValueError(
                f"{member.filename!r} has the shape {shape} and another size"
            )
        content, filled = np.empty(size, np.uint8), 0
        at_a_time = 2**20  # bytes
        while chunk := data.read(at_a_time):
            content[filled : filled + len(chunk)] = np.frombuffer(chunk, np.uint8)
            filled += len(chunk)
    if filled != size:
        raise ValueError(f"{member.filename!r} is cut off")
    return np.ndarray(shape, dtype, content, order="F" if fortran else "C")


def write_json(path: Path, facts: Mapping[str, Any]) -> None:
    """Write facts to a file."""
    with replacement(path) as partial, open(partial, "x", encoding="utf-8") as file:
        json.dump(facts, file, indent=1)


@contextlib.contextmanager
def replacement(path: Path) -> Iterator[Path]:
    """Give the path of a file to write, which takes the place of ``path`` if all goes well."""
    partial = part_of(path)
    try:
        yield partial
        os.replace(partial, path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def is_taken(path: Path) -> bool:
    """Return whether there is something at a path, other than an empty folder."""
    return path.exists() and (not path.is_dir() or any(path.iterdir()))


@contextlib.contextmanager
def new_folder(argument: str, path: Path) -> Iterator[Path]:
    """Give a folder to write to, which gets the name ``path`` if all goes well.

    Raises:
        ValueError: There is something at ``path`` already, other than an empty folder.
    """
    if is_taken(path):
        raise ValueError(
            f"`{argument}`: {str(path)!r} is there already, and is not an empty folder."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        yield partial
        partial.chmod(0o755)
        os.replace(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def refuse_saved_model(argument: str, path: Path) -> None:
    """Say how a SavedModel is loaded, which a user has in the place of draws.

    Raises:
        ValueError: ``path`` is the folder of a SavedModel, or its file.
    """
    if (path / SAVED_MODEL).exists() or path.name == SAVED_MODEL:
        raise ValueError(
            f"`{argument}`: {str(path)!r} is a SavedModel, with predictions instead of draws. Load "
            "it by tf.saved_model.load; `sgmcmc_version` is an attribute of what that returns."
        )


@contextlib.contextmanager
def explained(argument: str, path: Path, kept: str) -> Iterator[None]:
    """Add to an error of the operating system which file could not be written, and which is kept.

    Args:
        argument: Name of the file or folder.
        path: File or folder.
        kept: Work that has not been lost, in words.
    """
    try:
        yield
    except OSError as error:
        raise type(error)(
            error.errno,
            f"`{argument}`: cannot write to {str(path)!r}; {kept}. {error.strerror or error}",
        ) from error


def part_of(path: Path) -> Path:
    """Return a name next to ``path``, unique to this process, for an incomplete file."""
    return path.with_name(f"{path.name}.{secrets.token_hex(16)}.part")
