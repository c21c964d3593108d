"""Files as they were published: found in folders or downloaded, never used if damaged."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import os
import sys
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import numpy as np
import platformdirs
from numpy.typing import NDArray

from sgmcmc.atomic_files import part_of

VARIABLE = "SGMCMC_DATA"

T = TypeVar("T")

TIMEOUT = 30.0  # seconds without a byte, not for the whole transfer


def own_folder() -> Path | None:
    """Return the folder that the user has chosen by the environment variable, if any."""
    value = os.environ.get(VARIABLE)
    return Path(value).expanduser() if value else None


def user_folder() -> Path:
    """Return the cache folder of the user, by the convention of the operating system."""
    return Path(platformdirs.user_cache_dir("sgmcmc", appauthor=False))


def known_folders() -> list[Path]:
    """Return the folders that may hold files, in order of preference."""
    chosen = own_folder()
    return [user_folder()] if chosen is None else [chosen, user_folder()]


def writable_folder() -> Path | None:
    """Return the first folder in which files can be made, made if necessary; None if none."""
    for folder in known_folders():
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            # The administrator may write anywhere; a folder closed to all is still meant to be.
            if os.name == "posix" and not folder.stat().st_mode & 0o222:
                continue
            with tempfile.TemporaryFile(dir=folder):
                return folder
    return None


class DownloadError(OSError):
    """A data file is not there and none of its addresses gave a whole copy."""


class DamagedFileError(OSError):
    """The user's own data file exists, but its content is wrong."""


@dataclass(frozen=True)
class Source:
    """One published file.

    Attributes:
        filename: Its name, both where it was published and in the data folder; it may begin with
            the name of a folder in there.
        urls: Addresses of the same file, tried in turn.
        sha256: SHA-256 of the decompressed content, if the official one is known. Sums of
            archives are of no use: a file compressed again is just as good.
    """

    filename: str
    urls: tuple[str, ...]
    sha256: str | None = None


def open_decompressed(path: Path) -> IO[bytes]:
    """Open a file that may be compressed, for reading its content in binary.

    The first bytes decide, not the name: some browsers and servers decompress on the way.
    """
    with open(path, "rb") as file:
        magic = file.read(3)
    if magic[:2] == b"\x1f\x8b":
        return cast("IO[bytes]", gzip.open(path, "rb"))
    if magic == b"BZh":
        return bz2.open(path, "rb")
    return open(path, "rb")


def need_sum(content: bytes, sha256: str | None) -> None:
    """Raise a ``ValueError`` if decompressed content has another sum than the official one."""
    actual = hashlib.sha256(content).hexdigest()
    if sha256 is not None and actual != sha256:
        raise ValueError(
            f"SHA-256 of the decompressed content is {actual} instead of {sha256}"
        )


def whole_numbers(fields: Any) -> NDArray[np.int64]:
    """Return lists of bytes, nested or not, as integers in the same shape; else ``ValueError``."""
    try:
        return np.array(fields, dtype=bytes).astype(np.int64)
    except ValueError as error:
        raise ValueError("the content is not integers") from error


def need_range(name: str, values: NDArray[np.int64], upper: int) -> None:
    """Raise a ``ValueError`` unless all values are between 1 and ``upper``."""
    if values.size and not 1 <= values.min() <= values.max() <= upper:
        raise ValueError(f"{name}: not one of 1 to {upper}")


def load(source: Source, read: Callable[[Path], T], verbose: bool = True) -> T:
    """Read a file from the first folder that has it, or else download it.

    Args:
        source: File.
        read: Function that reads and checks the file; ValueError means that the content is wrong.
        verbose: Whether to show the progress of a download.

    Returns:
        What `read` returns.

    Raises:
        DamagedFileError: The user's own file has wrong content. It is left as it is.
        DownloadError: The file is not there and could not be downloaded.
    """
    failures = []
    for folder in known_folders():
        path = folder / source.filename
        if not os.path.isfile(path):
            continue
        try:
            return _read_checked(path, read)
        except FileNotFoundError:
            continue  # removed just now
        except (OSError, ValueError) as error:
            if folder != own_folder():
                # Nobody's but the package's: a new download takes its place.
                failures.append(f"{path}: not usable: {error}")
            elif isinstance(error, OSError):
                raise
            else:
                raise DamagedFileError(
                    f"{path} is damaged: {error}. It is left as it is: replace it by a complete "
                    f"copy of {source.urls[0]}, or remove it to have it downloaded."
                ) from error
    writable = writable_folder()
    if writable is not None:
        return _download(source, writable, read, verbose, failures)
    with tempfile.TemporaryDirectory() as temporary:
        return _download(source, Path(temporary), read, verbose, failures)


def _read_checked(path: Path, read: Callable[[Path], T]) -> T:
    """Read, turning all that damaged content can raise into ValueError."""
    try:
        return read(path)
    except (EOFError, zlib.error) as error:
        raise ValueError(str(error) or type(error).__name__) from error
    except OSError as error:
        # Decompressors raise OSError for bad data too, but only the system's have a number.
        if error.errno is not None:
            raise
        raise ValueError(str(error)) from error


def _download(
    source: Source,
    folder: Path,
    read: Callable[[Path], T],
    verbose: bool,
    failures: list[str],
) -> T:
    target = folder / source.filename
    partial = part_of(target)
    try:
        for url in source.urls:
            try:
                # A file's name may begin with a folder's.
                partial.parent.mkdir(exist_ok=True)
                _transfer(url, partial, source.filename, verbose)
            except (OSError, ValueError) as error:
                failures.append(f"{url}: {type(error).__name__}: {error}")
                continue
            try:
                value = _read_checked(partial, read)
            except ValueError as error:
                failures.append(f"{url}: damaged content: {error}")
                continue
            # The caller put a file there in the meantime keeps it.
            if folder != own_folder() or not os.path.lexists(target):
                with contextlib.suppress(OSError):  # the data are there, cached or not
                    os.replace(partial, target)
            return value
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
    advice = (
        f"To go without: get {source.urls[0]} by other means, put it as {source.filename!r} into "
        f"your own folder, and set the environment variable {VARIABLE} to that folder (now: "
        f"{own_folder() or 'not set'})."
    )
    lines = [f"could not download {source.filename}:", *failures, advice]
    raise DownloadError("\n  ".join(lines))


def _transfer(url: str, partial: Path, title: str, verbose: bool) -> None:
    # Slow to import, and of no use once the files are there.
    from pooch import HTTPDownloader

    from sgmcmc import bars

    hidden = not (verbose and (bars.are_replaced() or _shows_progress()))
    # pooch asks for the bar's truth value, which is an error without a total; it then sets it.
    with (
        bars.make_bar(
            desc=title, total=1, unit="B", unit_scale=True, disable=hidden
        ) as bar,
        open(partial, "wb") as file,
    ):
        download = HTTPDownloader(
            progressbar=False if hidden else bar,
            chunk_size=2**16,
            timeout=TIMEOUT,
            # Else requests would decompress archives that a server marks as encoded.
            headers={"Accept-Encoding": "identity"},
        )
        download(url, file, None)


def _shows_progress() -> bool:
    if "ipykernel" in sys.modules:  # not a terminal, but a notebook can show a bar
        return True
    return sys.stderr is not None and sys.stderr.isatty()
