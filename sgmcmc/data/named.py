"""Data by name: files and folders of Parquet and Zarr, here or at a URL.

At a URL they are read through a file system of fsspec's, or of pyarrow's. Such a name may hold
credentials (``s3://key:secret@bucket``, or the signature after ``?`` of a signed link), and so may
what a library says when it is turned away: neither is ever shown. All that fails at a URL fails
with an error of ours, which has no other error behind it.
"""

from __future__ import annotations

import importlib
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from sgmcmc.data.dataset import ArrayColumn, Data, MappedColumn

_PARQUET = (".parquet", ".pq", ".parq")

_NULL = "__HIVE_DEFAULT_PARTITION__"  # value of a missing one, in the names of folders

# Names of folders that are numbers.
_INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")
_FLOAT = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE]-?\d+)?")

# File systems that pyarrow has itself; they take options after ``?``.
_OF_ARROW = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs")

# Rows that Arrow returns at a time, and how many times as many it reads ahead; its own numbers are
# 2 million rows.
_FEW = {"batch_size": 2**13, "batch_readahead": 2}

# Names of environment variables and settings whose values are not shown.
_SECRET = re.compile(
    r"secret|token|passw|credential|access_key|api_key|account_key", re.IGNORECASE
)

# Names under which file systems of fsspec give versions of a file.
_VERSIONS = (
    "ETag",
    "etag",
    "LastModified",
    "mtime",
    "created",
    "updated",
    "md5Hash",
    "generation",
)

# Unpacked data of paths and URLs, with the state of their files, the latest last.
_unpacked: dict[Any, tuple[Any, Data]] = {}


def unpacked_by_name(
    where: str | os.PathLike[str], key: Any, unpack: Callable[[], Data]
) -> Data:
    """Return the unpacked data of a path or URL; unpack them if that is new or has changed.

    What was unpacked is kept as long as it needs no more than half of the room that the temporary
    folder has left; the oldest is dropped first.

    Args:
        where: Path or URL.
        key: Everything else that the columns depend on.
        unpack: Function that reads them.
    """
    name = (str(where) if is_url(where) else os.path.realpath(where)), key
    state = _state_of(where)
    last_state, data = _unpacked.pop(name, (None, None))
    if data is None or state is None or last_state != state:
        data = None  # its room is free before the next needs some
        _keep_within_room()
        data = unpack()
    if state is not None and _size_of(data):
        _unpacked[name] = state, data
        _keep_within_room()
    return data


def _keep_within_room() -> None:
    sizes = {name: _size_of(data) for name, (_, data) in _unpacked.items()}
    room = shutil.disk_usage(tempfile.gettempdir()).free // 2
    while sum(sizes.values()) > room:
        oldest = next(iter(sizes))
        del sizes[oldest], _unpacked[oldest]


def _size_of(data: Data) -> int:
    """Return the bytes of columns; zero if chunks of some are read again whenever they are used."""
    columns = data.columns.values()
    if not all(isinstance(column, ArrayColumn | MappedColumn) for column in columns):
        return 0
    return sum(
        data.size * math.prod(c.row_shape) * np.dtype(c.dtype).itemsize for c in columns
    )


def _state_of(where: str | os.PathLike[str]) -> tuple[Any, ...] | None:
    """Return a fingerprint of the files at a path or URL; ``None`` if there is none."""
    if not is_url(where):
        files = [Path(where)] if os.path.exists(where) else []
        if os.path.isdir(where):
            files = [
                Path(at, name) for at, _, names in os.walk(where) for name in names
            ]
        stats = {str(file): file.stat() for file in files}
        return tuple(
            sorted((n, s.st_size, s.st_mtime_ns, s.st_ino) for n, s in stats.items())
        )
    try:
        system, path = importlib.import_module("fsspec.core").url_to_fs(str(where))
        system.invalidate_cache()
        whole = system.isfile(path)
        listed = {path: system.info(path)} if whole else system.find(path, detail=True)
    except Exception:  # which opening it explains
        return None
    states = []
    for name, info in listed.items():
        versions = tuple(
            str(info[mark]) for mark in _VERSIONS if info.get(mark) is not None
        )
        if not versions:
            return None
        states.append((name, str(info.get("size")), *versions))
    return tuple(sorted(states))


def is_url(where: Any) -> bool:
    """Return whether a name is a URL, such as ``s3://bucket/x.parquet``, and no path."""
    return (
        isinstance(where, str)
        and re.match(r"[A-Za-z][\w+.-]*(::|://)", where) is not None
    )


def shown(where: Any) -> str:
    """Return a path or URL without credentials, for messages."""
    text = str(where)
    if not is_url(text):
        return text
    # To the last "@": of a secret with a slash in it nothing is to remain.
    return re.sub(r"://.*@", "://***@", text.partition("?")[0])


def open_named(label: str, where: str | os.PathLike[str]) -> Any:
    """Return the data at a path or URL.

    Args:
        label: Name of the data, for messages.
        where: Path or URL.

    Returns:
        Dataset of pyarrow's, array of Zarr's, or what reads like them; or a dict of the arrays
        of a group of Zarr's.
    """
    url = is_url(where)
    path = PurePosixPath(str(where).partition("?")[0]) if url else Path(where)
    in_zarr = any(name.endswith(".zarr") for name in path.parts)
    in_folder = path.suffix == "" if url else os.path.isdir(where)
    if not in_zarr and not in_folder and path.suffix.lower() not in _PARQUET:
        raise TypeError(
            f"`{label}` is {shown(where)!r}. Of files only Parquet's and Zarr's are read by name; "
            "open others first, for example with np.load(path, mmap_mode='r') or "
            "h5py.File(path)['x']."
        )
    if not url and not os.path.exists(where):
        raise ValueError(f"`{label}`: there is no {str(where)!r}.")
    if in_zarr:
        return _open_zarr(label, where)
    arrow = _library(label, "pyarrow.dataset", "is a Parquet file, which pyarrow reads")
    if not url:
        return _local_parquet(label, Path(where), arrow)
    table = guarded(label, str(where), lambda: _open_parquet(str(where), arrow))
    return RemoteTable(label, str(where), table)


def _library(label: str, module: str, reason: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        name = module.partition(".")[0]
    raise ValueError(f"`{label}` {reason}: pip install {name}.")


def _local_parquet(label: str, where: Path, arrow: Any) -> Any:
    """Return the Arrow dataset of a file, or of the Parquet files in a folder.

    What is not Parquet's, such as a README, is left out. Names of folders such as ``year=2024`` are
    columns, as Hive and Spark write them.
    """
    if not where.is_dir():
        return arrow.dataset(where, format="parquet")
    files = []
    for folder, folders, names in os.walk(where):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        shown_names = [name for name in names if not name.startswith((".", "_"))]
        for path in (Path(folder, name) for name in shown_names):
            is_parquet = path.suffix.lower() in _PARQUET
            if not path.suffix or path.suffix[1:].isdigit():
                with open(path, "rb") as opened:
                    is_parquet = opened.read(4) == b"PAR1"
            if is_parquet:
                files.append(str(path))
    files.sort()
    if not files:
        raise ValueError(f"`{label}`: {str(where)!r} contains no Parquet files.")
    keys: dict[str, list[str]] = {}
    for file in files:
        for folder in Path(file).relative_to(where).parts[:-1]:
            name, sign, value = folder.partition("=")
            if sign:
                keys.setdefault(name, []).append(_unquoted(value))
    options: dict[str, Any] = {}
    if keys:
        options["partitioning"] = _partitioning(keys, arrow)
        options["partition_base_dir"] = str(where)
    return arrow.dataset(files, format="parquet", **options)


def _partitioning(keys: Mapping[str, list[str]], arrow: Any) -> Any:
    """Return the columns that names of folders give: integers, numbers or text, by all of them."""
    pa = importlib.import_module("pyarrow")
    fields, dictionaries = [], {}
    for name, values in keys.items():
        distinct = sorted({value for value in values if value != _NULL})
        if all(map(_INTEGER.fullmatch, distinct)):
            kind = pa.int64()
        elif all(map(_FLOAT.fullmatch, distinct)):
            kind = pa.float64()
        else:
            kind = pa.dictionary(pa.int32(), pa.string())
            dictionaries[name] = pa.array(distinct)
        fields.append((name, kind))
    return arrow.HivePartitioning(pa.schema(fields), dictionaries or None, _NULL)


def _open_parquet(where: str, arrow: Any) -> Any:
    scheme = where.partition("://")[0]
    if "?" not in where or scheme not in _OF_ARROW:
        try:
            opened = importlib.import_module("fsspec.core").url_to_fs(where)
        except ImportError as error:  # neither fsspec nor, say, s3fs need be there
            if scheme not in _OF_ARROW:
                raise ValueError(
                    f"fsspec opens it, with a further library. {error}"
                ) from None
        else:
            return _with_folders(arrow, opened[1], opened[0])
    systems = importlib.import_module("pyarrow.fs")
    system, path = systems.FileSystem.from_uri(where)
    return _with_folders(arrow, path, system)


def _with_folders(arrow: Any, path: str, system: Any) -> Any:
    """Return the Arrow dataset of a file or folder elsewhere, with the columns of its folders."""
    options = {"filesystem": system, "format": "parquet"}
    dataset = arrow.dataset(path, partitioning="hive", **options)
    keys: dict[str, list[str]] = {}
    for fragment in dataset.get_fragments():
        for name, value in arrow.get_partition_keys(
            fragment.partition_expression
        ).items():
            keys.setdefault(name, []).append(_NULL if value is None else str(value))
    if not keys:
        return dataset
    return arrow.dataset(path, partitioning=_partitioning(keys, arrow), **options)


def _open_zarr(label: str, where: str | os.PathLike[str]) -> Any:
    zarr = _library(label, "zarr", "is in Zarr's form, which Zarr reads")
    url = str(where)
    if not is_url(url):
        opened = zarr.open(url, mode="r")
        if hasattr(opened, "dtype"):
            return opened
        return _need_some(label, url, dict(opened.arrays()))
    opened = guarded(label, url, lambda: zarr.open(url, mode="r"))
    if hasattr(opened, "dtype"):
        return Remote(label, url, opened)
    arrays = _need_some(label, url, guarded(label, url, lambda: dict(opened.arrays())))
    return {name: Remote(label, url, array) for name, array in arrays.items()}


def _need_some(label: str, where: str, arrays: dict[str, Any]) -> dict[str, Any]:
    if not arrays:
        raise ValueError(f"`{label}`: {shown(where)!r} is a group without arrays.")
    return arrays


class Remote:
    """An array at a URL, which fails as :func:`guarded` has it."""

    def __init__(self, label: str, where: str, array: Any) -> None:
        self._label, self._where, self._array = label, where, array
        self.shape, self.dtype = array.shape, array.dtype
        self.chunks, self.shards = array.chunks, getattr(array, "shards", None)

    def __getitem__(self, rows: Any) -> Any:
        return guarded(self._label, self._where, lambda: self._array[rows])


class RemoteTable:
    """A dataset of pyarrow's at a URL, which fails as :func:`guarded` has it."""

    def __init__(self, label: str, where: str, rows: Any) -> None:
        self._label, self._where, self._rows = label, where, rows
        self.schema = rows.schema

    def count_rows(self) -> int:
        """Return the number of rows."""
        return guarded(self._label, self._where, self._rows.count_rows)

    def to_batches(self, columns: list[str] | None = None) -> Iterator[Any]:
        """Yield all rows of some columns, or of all, in batches."""
        end = object()
        batches = guarded(
            self._label, self._where, lambda: iter(arrow_batches(self._rows, columns))
        )
        while (
            batch := guarded(self._label, self._where, lambda: next(batches, end))
        ) is not end:
            yield batch


def arrow_batches(rows: Any, columns: list[str] | None = None) -> Iterable[Any]:
    """Return the batches of a table, scanner or dataset of Arrow's.

    By default Arrow reads a whole Parquet file before its first batch, and keeps it until its last.
    Here a few row groups are in memory, and local files are read faster. Arrow's own file systems
    for object stores keep the default: else each column of each row group would be a request.

    Args:
        rows: What has ``to_batches``.
        columns: Names of the columns that are read; ``None`` for all.
    """
    if hasattr(rows, "select"):  # a table in memory
        return (rows if columns is None else rows.select(columns)).to_batches()
    if not hasattr(rows, "get_fragments"):
        return rows.to_batches() if columns is None else rows.to_batches(columns)
    # With threads, batches pile up in front of a reader that is slower than they are.
    options = {"columns": columns, "use_threads": False, **_FEW}
    arrow = importlib.import_module("pyarrow.dataset")
    if isinstance(form := getattr(rows, "format", None), arrow.ParquetFileFormat):
        systems = importlib.import_module("pyarrow.fs")
        system = getattr(rows.filesystem, "base_fs", rows.filesystem)
        reads_ahead = isinstance(system, systems.LocalFileSystem | systems.PyFileSystem)
        if (
            reads_ahead
            and form.default_fragment_scan_options == arrow.ParquetFragmentScanOptions()
        ):
            options["fragment_scan_options"] = arrow.ParquetFragmentScanOptions(
                pre_buffer=False
            )
    return rows.to_batches(**options)


def guarded(label: str, where: str, call: Callable[[], Any]) -> Any:
    """Return the result of a call to a library, or raise an error without secrets.

    Raises:
        ValueError: The call has failed; the error has neither cause nor context.
    """
    try:
        return call()
    except FileNotFoundError:
        problem = f"there is no {shown(where)!r}."
    except Exception as error:
        explanation = " ".join(str(error).split())[:500] or "nothing is said of why."
        problem = (
            f"{shown(where)!r} cannot be read. {type(error).__name__}: {explanation}"
        )
        for secret in sorted(_secrets(where), key=len, reverse=True):
            problem = problem.replace(secret, "***")
        if re.search(
            r"permission|forbidden|denied|credential|access|40[13]", problem.lower()
        ):
            problem += (
                " Credentials are looked for where the library of the file system does: in "
                "environment variables and its own files. Or open it yourself, with them, and hand "
                "in the dataset of pyarrow's or the array of Zarr's."
            )
    # Not in the handler: what was raised there must not hang on to this one.
    raise ValueError(f"`{label}`: {problem}")


def _secrets(where: str) -> set[str]:
    """Return the secrets in a URL, in the environment, and in fsspec's settings."""
    head, _, signed = where.partition("?")
    secrets = {signed, *re.split(r"[&;=]", signed)}
    for user in re.findall(r"://(.*)@", head):
        secrets |= {user, *user.split(":")}
    secrets |= {value for name, value in os.environ.items() if _SECRET.search(name)}
    try:
        secrets |= set(_secret_settings(importlib.import_module("fsspec.config").conf))
    except ImportError:
        pass
    texts = secrets | set(map(_unquoted, secrets))
    shortest = 6  # characters: shorter ones are part of many words
    return {text for text in texts if len(text) >= shortest}


def _unquoted(text: str) -> str:
    """Return a text with the ``%xx`` of a URL decoded to characters."""
    coded = r"(?:%[0-9A-Fa-f]{2})+"
    return re.sub(
        coded,
        lambda run: bytes.fromhex(run[0].replace("%", "")).decode("utf-8", "replace"),
        text,
    )


def _secret_settings(
    settings: Mapping[str, Any], within: bool = False
) -> Iterator[str]:
    for name, value in settings.items():
        named_so = _SECRET.search(str(name)) is not None
        secret = within or named_so or name in ("key", "password")
        if isinstance(value, Mapping):
            yield from _secret_settings(value, secret)
        elif secret and isinstance(value, str):
            yield value
