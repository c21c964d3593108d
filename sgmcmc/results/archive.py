"""Samples in one file, in NumPy's npz format."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from sgmcmc import checks
from sgmcmc.atomic_files import KEPT, arrays_in, explained, refuse_saved_model, write_arrays
from sgmcmc.results.arrays import LogPost, Results

_FORMAT = 2
_GROUPS = {
    "draws", "gradients", "test_functions", "mode", "mode_gradient", "reductions", "unnormalized",
    "weights",
}  # fmt: skip


def write_archive(
    path: Path,
    groups: Mapping[str, Mapping[str, np.ndarray]],
    log_post: LogPost,
    settings: Mapping[str, Any],
    report: Mapping[str, Any] | None,
) -> None:
    """Write samples to a file, which appears under its name only once it is complete.

    Args:
        path: File.
        groups: Arrays of each group, by the names of the arguments of ``Samples``; reductions flat.
        log_post: Log posterior estimates.
        settings: Settings.
        report: Report, or ``None``.
    """
    for group, arrays in groups.items():
        for name, array in arrays.items():
            if array.dtype.hasobject:
                raise TypeError(
                    f"{group}: {name!r} holds Python objects; only numbers can be saved."
                )
    about = {
        "format": _FORMAT,
        "settings": settings,
        "report": None if report is None else dict(report),
        "names": {group: list(arrays) for group, arrays in groups.items()},
    }
    contents: dict[str, Any] = {
        f"{group}/{place}": array
        for group, arrays in groups.items()
        for place, array in enumerate(arrays.values())
    }
    contents["log_post/iterations"], contents["log_post/values"] = log_post
    contents["about"] = np.array(json.dumps(about))
    with explained("path", path, KEPT):
        write_arrays(path, contents)


def read_archive(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what ``write_archive`` wrote, by the names of the arguments of ``Samples``.

    Raises:
        ValueError: The file is not one that ``write_archive`` wrote, or is incomplete.
        OSError: The file cannot be opened.
    """
    refuse_saved_model("path", Path(path))
    if os.path.isdir(path):
        raise ValueError(f"`path`: {os.fspath(path)!r} is a folder; Samples.open reads a store.")
    with open(path, "rb") as file:
        try:
            return _read(file)
        except Exception as error:
            raise ValueError(
                f"`path`: {os.fspath(path)!r} is not a file that Samples.save wrote, or is "
                f"incomplete: {error}"
            ) from error


def _read(file: BinaryIO) -> dict[str, Any]:
    arrays = arrays_in(file)
    if "about" not in arrays:
        raise ValueError("it does not say what it holds")
    about = json.loads(str(arrays["about"]))
    if about["format"] != _FORMAT:
        raise ValueError(f"its format is {about['format']}, this version's is {_FORMAT}")
    settings, report = about["settings"], about["report"]
    if not isinstance(settings, dict) or not isinstance(report, dict | None):
        raise ValueError("its settings or its report are none")
    if "draws" not in about["names"] or not checks.up_to_date(about["names"]).keys() <= _GROUPS:
        raise ValueError(f"it holds {', '.join(about['names']) or 'nothing'}")
    if not all(isinstance(name, str) for names in about["names"].values() for name in names):
        raise ValueError("names of parameters are none")
    groups: dict[str, Any] = {
        group: {name: arrays[f"{group}/{i}"] for i, name in enumerate(names)}
        for group, names in about["names"].items()
    }
    log_post = LogPost(arrays["log_post/iterations"], arrays["log_post/values"])
    if "weights" in groups:
        groups["weights"] = groups["weights"]["weights"]
    if "reductions" in groups:
        groups["reductions"] = Results.nested(groups["reductions"])
    return {
        **checks.up_to_date(groups),
        "log_post": log_post,
        "settings": checks.up_to_date(settings),
        "report": report,
    }
