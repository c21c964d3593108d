"""The environment of the package: variables, TensorFlow's log lines and forks, large libraries.

TensorFlow's C++ side writes information lines to file descriptor 2 when it is imported and when
it first compiles. Nothing in Python can filter them there, so the descriptor itself is turned
aside for that moment, and whatever is not known chatter is written to the real one afterward. So
this module is imported before TensorFlow, which it must not import itself.

In a process that was forked after TensorFlow was used its calls would hang: they are refused.

ArviZ and TensorFlow Probability take as long to import as TensorFlow does. A process that only
starts, reads draws or runs chains by stochastic gradients needs neither.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import os
import platform
import re
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np


def _on(name: str) -> bool:
    return os.environ.get(name, "") not in ("", "0")


def no_native() -> bool:
    """Return whether native code is switched off."""
    return _on("SGMCMC_NO_NATIVE")


def copy_blocks() -> bool:
    """Return whether prepared blocks should be copied."""
    return _on("SGMCMC_COPY_BLOCKS")


def public_calls() -> bool:
    """Return whether graphs should be called through the public interface alone."""
    return _on("SGMCMC_PUBLIC_CALLS")


def no_groups() -> bool:
    """Return whether each chain is to have its own kernel."""
    return _on("SGMCMC_NO_GROUPS")


def tensorflow_log() -> bool:
    """Return whether TensorFlow's log should be left alone."""
    return _on("SGMCMC_TENSORFLOW_LOG")


def silent_seconds() -> float | None:
    """Return the seconds that a call may make no progress; ``None`` if that is not set."""
    try:
        return max(0.0, float(os.environ["SGMCMC_SILENT_SECONDS"]))
    except (KeyError, ValueError):
        return None


@dataclass(frozen=True)
class _Settings:
    compiled_bytes: int = 2**30  # of compiled chains that are kept in a folder, at most
    free_bytes: int = 2**28  # of its disk, at least


_SETTINGS = _Settings()


def keep_compiled_chains(version: str) -> None:
    """Keep what XLA compiles in the folder that ``SGMCMC_COMPILED`` names, for later processes.

    TensorFlow reads its setting when the first operation runs. Each version of TensorFlow and each
    kind of processor has a folder of its own, from which the oldest files go when it is full.
    """
    given = os.environ.get("SGMCMC_COMPILED")
    if not given:
        return
    kind = f"{version} {_processor()}"
    name = hashlib.sha256(kind.encode()).hexdigest()[:16]
    folder = Path(given).expanduser().absolute() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = {}
        for file in folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another process renamed it
                files[file] = file.stat()
        size = sum(about.st_size for about in files.values())
        for file in sorted(files, key=lambda file: files[file].st_mtime):
            if size <= _SETTINGS.compiled_bytes:
                break
            size -= files[file].st_size
            file.unlink(missing_ok=True)
        if shutil.disk_usage(folder).free < _SETTINGS.free_bytes or not os.access(
            folder, os.W_OK
        ):
            raise OSError("the disk is full, or the folder cannot be written to")
    except OSError as error:
        warnings.warn(
            f"SGMCMC_COMPILED: nothing is kept in {str(folder)!r}: {error}.",
            stacklevel=3,
        )
        return
    before = os.environ.get("TF_XLA_FLAGS", "")
    flag = f'--tf_xla_persistent_cache_directory="{folder}"'
    os.environ["TF_XLA_FLAGS"] = f"{before} {flag}".strip()


def _processor() -> str:
    """Return a description of the processor that tells which instructions it has."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        kinds = ("model name", "flags", "Features", "CPU part")
        return "".join(sorted({line for line in lines if line.startswith(kinds)}))
    return f"{platform.machine()} {platform.processor()}"


# A message begins "I0000 00:00:17..." in new releases, "2024-05-01 12:00:00.123: I ..." in older
# ones.
_START = r"^(?:{0}\d{{4}} |\d{{4}}-\d\d-\d\d [\d:.]+: {0} )"
_CHATTER = re.compile(
    "|".join(
        [
            _START.format("I"),
            _START.format("E") + ".*(?:cuInit|Unable to register cu)",
            _START.format("W") + ".*(?:cudart|gpu_device|Cannot dlopen|TF-TRT)",
            "^WARNING: All log messages before absl",
            "^To enable the following instructions: ",
        ]
    ).encode()
)
# What XLA says, at length, of an op that it cannot compile; the exception says it again.
_CANNOT_COMPILE = re.compile((_START.format("W") + ".*OP_REQUIRES failed").encode())
_ITS_DETAILS = re.compile(
    rb'^(\s|File "|Stack trace for op|The op is created at|XLA compilation requires)'
)
# Re-entrant, since a user's function may run inside the block and come back here.
_lock = threading.RLock()


@contextlib.contextmanager
def without_chatter() -> Iterator[None]:
    """Hold back TensorFlow's information lines on standard error inside the ``with`` block.

    Lines that are not TensorFlow's start-up chatter are passed on at the end, in order. If
    standard error is not a plain descriptor, or the environment variable
    ``SGMCMC_TENSORFLOW_LOG`` asks for them, nothing is held back.

    Example:
        >>> with without_chatter():
        ...     import tensorflow as tf
    """
    if tensorflow_log():
        yield
        return
    with _lock:
        try:
            sys.stderr.flush()
            real = os.dup(2)
        except (AttributeError, OSError, ValueError):
            yield
            return
        try:
            aside = tempfile.TemporaryFile()
        except OSError:  # nowhere to write to
            os.close(real)
            yield
            return
        try:
            with aside:
                os.dup2(aside.fileno(), 2)
                try:
                    yield
                finally:
                    with contextlib.suppress(AttributeError, OSError, ValueError):
                        sys.stderr.flush()
                    os.dup2(real, 2)
                    aside.seek(0)
                    for line in _worth_reading(aside):
                        os.write(real, line)
        finally:
            os.close(real)


def _worth_reading(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines that are not chatter."""
    in_details = False
    for line in lines:
        if _CANNOT_COMPILE.match(line):
            in_details = True
        elif not (in_details and _ITS_DETAILS.match(line)):
            in_details = False
            if not _CHATTER.match(line):
                yield line


_FORKED = (
    "This process was forked from one in which TensorFlow had run, and TensorFlow does not survive "
    "that: its threads are gone, and a call would wait for them for ever. Start processes with "
    'multiprocessing.get_context("spawn") or "forkserver", or joblib\'s backend="loky"; or fork '
    "before the first call of sgmcmc and TensorFlow."
)

_forked = False  # after TensorFlow had started its threads


def need_no_fork() -> None:
    """Raise an error in a process that was forked after TensorFlow had started its threads.

    Raises:
        RuntimeError: It is one.
    """
    if _forked:
        raise RuntimeError(_FORKED)


def _note_fork() -> None:
    """Note whether TensorFlow had threads before the fork, by an attribute that is not public."""
    global _forked
    module = sys.modules.get("tensorflow.python.eager.context")
    context = getattr(module, "_context", None)
    _forked = _forked or bool(getattr(context, "_initialized", False))


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_note_fork)


_FOLDERS = ("HOME", "USERPROFILE", "LOCALAPPDATA", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
"""Environment variables by which libraries find the folders of their caches and settings."""


@functools.cache
def arviz() -> ModuleType:
    """Return ArviZ, which writes to the user's cache on import, or to a temporary folder."""
    with warnings.catch_warnings():
        # ArviZ warns about its next major version on import, once a day.
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module("arviz")
        except OSError:  # the home folder cannot be written to, as in many containers
            for name in [
                name for name in sys.modules if name.partition(".")[0] == "arviz"
            ]:
                del sys.modules[name]
            with tempfile.TemporaryDirectory() as folder, _at_home_in(folder):
                return importlib.import_module("arviz")


@contextlib.contextmanager
def _at_home_in(folder: str) -> Iterator[None]:
    """Have libraries use another folder for their caches and settings inside the block."""
    before = {name: os.environ.get(name) for name in _FOLDERS}
    os.environ.update(dict.fromkeys(_FOLDERS, folder))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@functools.cache
def arviz_is_new() -> bool:
    """Return whether ArviZ is 1.0 or later: DataTree, and plots that return no axes."""
    return int(metadata.version("arviz").partition(".")[0]) >= 1


@functools.cache
def psislw() -> Callable[[Any], tuple[Any, Any]]:
    """Return ArviZ's Pareto-smoothing of log weights, (rows, draws)."""
    az = arviz()
    if hasattr(az, "psislw"):
        return az.psislw
    from arviz_stats.base import array_stats  # of ArviZ 1, which takes log-likelihoods

    return lambda log_weights: array_stats.psislw(-log_weights)


_PAD = "tensorflow_probability.python.bijectors.pad"


class _NumPyWithNewshape:
    """NumPy, with the name of an argument of `reshape` that NumPy 2.4 has removed."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def reshape(array: Any, newshape: Any = None, **keywords: Any) -> Any:
        """Return `numpy.reshape`."""
        return np.reshape(array, keywords.pop("shape", newshape), **keywords)


class _PadFinder(importlib.abc.MetaPathFinder):
    """Gives one module of TensorFlow Probability the NumPy that it was written for."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """Return the spec of that module, and of no other."""
        if fullname != _PAD:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                module.np = _NumPyWithNewshape()  # type: ignore[attr-defined]

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def let_probability_see_old_numpy() -> None:
    """Have `tfp.bijectors.Pad` work with NumPy 2.4 and later, in this process.

    It calls ``np.reshape(newshape=...)`` in TensorFlow Probability 0.25, its last stable release;
    SoftmaxCentered and IteratedSigmoidCentered need it. Other modules are not affected.
    """
    if tuple(int(part) for part in np.__version__.split(".")[:2]) < (2, 4):
        return
    if _PAD in sys.modules:
        sys.modules[_PAD].np = _NumPyWithNewshape()  # type: ignore[attr-defined]
    elif not any(isinstance(finder, _PadFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _PadFinder())


@functools.cache
def tensorflow_probability() -> ModuleType:
    """Return TensorFlow Probability."""
    import tensorflow as tf

    # A graph may be traced just now, in which nothing may land that is made by the import.
    with tf.init_scope(), warnings.catch_warnings():
        # Its warnings about its own dependencies do not concern the user.
        warnings.simplefilter("ignore")
        import tensorflow_probability
    return tensorflow_probability


@functools.cache
def probability_version() -> str:
    """Return the version of TensorFlow Probability, which need not be loaded for that."""
    for name in ("tensorflow-probability", "tfp-nightly"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return str(tensorflow_probability().__version__)


def library_of(values: Any) -> str:
    """Return the name of the library that an object comes from."""
    for kind in type(values).__mro__:
        name = kind.__module__.partition(".")[0]
        if name in ("pandas", "polars", "pyarrow", "datasets", "dask", "xarray"):
            return name
    return ""
