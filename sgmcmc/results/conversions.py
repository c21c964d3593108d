"""Draws in a file, and in the forms of other libraries: pandas, ArviZ, Zarr.

ArviZ has ``InferenceData``; from ArviZ 1 on it is xarray's ``DataTree``.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from sgmcmc import checks, libraries
from sgmcmc.atomic_files import (
    KEPT,
    arrays_in,
    explained,
    new_folder,
    refuse_saved_model,
    write_arrays,
)
from sgmcmc.results.arrays import (
    LogPost,
    Results,
    by_chain,
    coordinate_names,
    draw_numbers,
)
from sgmcmc.results.draws import Draws

if TYPE_CHECKING:
    import arviz as az
    import xarray as xr

LOG_LIK = "log_lik"  # name of the terms of the log-likelihood in their group

_GROUPS = {
    "draws", "gradients", "test_functions", "mode", "mode_gradient", "reductions", "unnormalized",
    "weights",
}  # fmt: skip


@dataclass(frozen=True)
class _FormatSettings:
    archive: int = 2  # version of the format of files
    largest_terms: int = (
        2**28
    )  # bytes; ArviZ, which works on all at once, needs several times that
    chunk: int = 2**22  # bytes of draws in a Zarr store


_SETTINGS = _FormatSettings()


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
        "format": _SETTINGS.archive,
        "settings": settings,
        "report": None if report is None else dict(report),
        "names": {group: list(arrays) for group, arrays in groups.items()},
    }
    contents: dict[str, Any] = {
        f"{group}/{number}": array
        for group, arrays in groups.items()
        for number, array in enumerate(arrays.values())
    }
    contents["log_post/iterations"], contents["log_post/values"] = log_post
    contents["about"] = np.array(json.dumps(about))
    with explained("path", path, KEPT):
        write_arrays(path, contents)


def read_archive(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the content of a file by ``write_archive``, as arguments of ``Samples``.

    Raises:
        ValueError: The file is not one that ``write_archive`` wrote, or is incomplete.
        OSError: The file cannot be opened.
    """
    refuse_saved_model("path", Path(path))
    if os.path.isdir(path):
        raise ValueError(
            f"`path`: {os.fspath(path)!r} is a folder; Samples.open reads a store."
        )
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
    if about["format"] != _SETTINGS.archive:
        raise ValueError(
            f"its format is {about['format']}, this version's is {_SETTINGS.archive}"
        )
    settings, report = about["settings"], about["report"]
    if not isinstance(settings, dict) or not isinstance(report, dict | None):
        raise ValueError("its settings or its report are none")
    if (
        "draws" not in about["names"]
        or not checks.up_to_date(about["names"]).keys() <= _GROUPS
    ):
        raise ValueError(f"it holds {', '.join(about['names']) or 'nothing'}")
    if not all(
        isinstance(name, str) for names in about["names"].values() for name in names
    ):
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


def to_dataframe(draws: Draws) -> Any:
    """Return draws as a data frame, a row for each, a column for each component."""
    import pandas as pd

    if not draws:
        raise ValueError("`samples` holds no draws of parameters.")
    arrays = by_chain(draws.settings, draws)
    chains, count = next(iter(arrays.values())).shape[:2]
    columns = {}
    for name, array in arrays.items():
        flat = np.reshape(array, (chains * count, -1))
        for column, label in enumerate(coordinate_names(name, array.shape[2:])):
            columns[label] = flat[:, column]
    index = pd.MultiIndex.from_product(
        [range(chains), draw_numbers(draws.settings, count)], names=["chain", "draw"]
    )
    return pd.DataFrame(columns, index=index)


@dataclass(frozen=True)
class Contents:
    """Contents of ``InferenceData``; the fields are the arguments of ``Samples.to_arviz``."""

    dims: Mapping[str, Sequence[str]] | None = None
    coords: Mapping[str, Sequence[Any]] | None = None
    observed_data: Mapping[str, Any] | None = None
    log_likelihood: Any = None
    log_likelihood_draws: int | None = None
    effects: Any = None


def to_inference_data(
    samples: Any, contents: Contents | None = None
) -> az.InferenceData:
    """Return ``Samples`` as ``InferenceData``."""
    libraries.arviz()  # an error here if it is missing, before anything is computed
    contents = contents or Contents()
    groups: dict[str, Any] = {}
    terms = contents.log_likelihood
    if isinstance(terms, np.ndarray):
        draws = by_chain(samples.settings, samples)
        expected = next(iter(draws.values())).shape[:2] if draws else terms.shape[:2]
        if terms.ndim != 3 or terms.shape[:2] != expected:
            raise ValueError(
                f"`log_likelihood` must have the shape (chains, draws, N), that is {expected} and "
                f"the number of rows; it has {terms.shape}."
            )
        groups["log_likelihood"] = {LOG_LIK: terms}
    elif terms is not None and terms is not False:
        dataset = None if terms is True else terms
        rows = samples.rows_of(dataset)
        samples = _thinned(samples, rows, contents.log_likelihood_draws)
        groups["log_likelihood"] = {LOG_LIK: samples.log_lik(dataset)}
    if len(samples):
        groups["posterior"] = by_chain(samples.settings, samples)
        if contents.effects is not None:
            drawn, contents = _with_effects(samples, contents)
            groups["posterior"] = {**groups["posterior"], **drawn}
    observed = contents.observed_data
    if observed is not None:
        groups["observed_data"] = {name: np.asarray(a) for name, a in observed.items()}
    attributes = _attributes(samples)
    az, dims, coords = libraries.arviz(), contents.dims, contents.coords
    labels = {
        "dims": None if dims is None else {name: list(dims[name]) for name in dims},
        "coords": None if coords is None else dict(coords),
    }
    if libraries.arviz_is_new():
        by_group = {"/": attributes, **dict.fromkeys(groups, attributes)}
        data = az.from_dict(groups, **labels, attrs=by_group)
    else:
        data = az.from_dict(**groups, **labels, attrs=attributes)
    if samples.test_functions is not None:
        arrays = by_chain(samples.settings, samples.test_functions)
        _add(data, "test_functions", _dataset(arrays))
    statistics = _sample_stats(samples)
    if statistics:
        _add(data, "sample_stats", statistics)
    return data


def _sample_stats(samples: Any) -> xr.Dataset:
    """Return log posterior estimates and weights of the draws, if there are such."""
    import xarray as xr  # by ArviZ already

    statistics = xr.Dataset()
    iterations, values = samples.log_post
    if iterations.size:
        values = by_chain(samples.settings, {"lp": values})["lp"]
        statistics = xr.Dataset(
            {"lp": (("chain", "lp_iteration"), values)},
            {"chain": np.arange(values.shape[0]), "lp_iteration": iterations},
        )
    weights = samples.weights
    if weights is not None:
        chains = samples.settings.get("n_chains") or 1
        statistics["weight"] = ("chain", "draw"), np.tile(weights, (chains, 1))
        statistics = statistics.assign_coords(
            chain=np.arange(chains), draw=np.arange(weights.size)
        )
    return statistics


def write_zarr(
    samples: Any,
    path: str | os.PathLike[str],
    dims: Mapping[str, Sequence[str]] | None,
    coords: Mapping[str, Sequence[Any]] | None,
) -> Path:
    """Write draws as a Zarr store, which appears once it is whole; see ``Samples.to_zarr``."""
    import xarray as xr

    try:
        import zarr  # noqa: F401
    except ImportError as error:
        raise ImportError("`to_zarr` needs zarr: pip install zarr.") from error
    if not len(samples):
        raise ValueError("`samples` holds no draws of parameters.")
    target = Path(path)
    arrays = by_chain(samples.settings, samples)
    chains, count = next(iter(arrays.values())).shape[:2]
    entries, encoding = {}, {}
    for name, array in arrays.items():
        axes = [f"{name}_dim_{k}" for k in range(array.ndim - 2)]
        axes = list((dims or {}).get(name, axes))
        entries[name] = (["chain", "draw", *axes], array)
        row = max(1, math.prod(array.shape[2:]) * array.itemsize)
        chunk = min(count, max(1, _SETTINGS.chunk // row))
        encoding[name] = {"chunks": (1, chunk, *array.shape[2:])}
    labels = {
        "chain": np.arange(chains),
        "draw": draw_numbers(samples.settings, count),
        **(coords or {}),
    }
    dataset = xr.Dataset(entries, labels, _attributes(samples))
    with new_folder("path", target) as temporary:
        # Format 2 is what every version reads, and its metadata in one file are part of it.
        dataset.to_zarr(
            str(temporary), encoding=encoding, zarr_format=2, consolidated=True
        )
    return target


def _with_effects(
    samples: Any, contents: Contents
) -> tuple[dict[str, np.ndarray], Contents]:
    """Return draws of effects of groups, and contents that label their dimensions."""
    effects = contents.effects
    if isinstance(effects, str):
        effects = [effects]
    if not isinstance(effects, Mapping):
        effects = dict.fromkeys(effects)
    drawn: dict[str, np.ndarray] = {}
    dims = dict(contents.dims or {})
    coords: dict[str, Any] = dict(contents.coords or {})
    for by, labels in effects.items():
        of_factor = samples.effects(by, labels)
        drawn |= of_factor
        if labels is None:
            coords[by] = samples.origin.groups.shown(by)
        else:
            coords[by] = np.atleast_1d(labels)
        for name, array in of_factor.items():
            axes = [f"{name}_dim_{k}" for k in range(array.ndim - 3)]
            dims[name] = [by, *dims.get(name, axes)]
    return drawn, replace(contents, dims=dims, coords=coords)


def _thinned(samples: Any, rows: int, draws: int | None) -> Any:
    """Return evenly spaced draws, as many as memory allows for the terms of all rows.

    All groups get the same draws: ArviZ divides the effective sample size of the posterior by the
    number of draws of the log-likelihood.
    """
    if not len(samples):
        return samples
    arrays = by_chain(samples.settings, samples)
    chains, count = next(iter(arrays.values())).shape[:2]
    if draws is None:
        limit = _SETTINGS.largest_terms // (4 * rows * chains)
    else:
        limit = checks.whole_number("log_likelihood_draws", draws, chains) // chains
    step = -(-count // max(1, limit))
    if step > 1 and draws is None:
        warnings.warn(
            f"`log_likelihood`: the terms of {rows} rows are computed at one draw in {step}, and "
            "all groups hold only these. `log_likelihood_draws` says how many, of all chains "
            "together.",
            stacklevel=4,
        )
    return samples if step == 1 else samples[step - 1 :: step]


def _dataset(arrays: Mapping[str, np.ndarray]) -> xr.Dataset:
    az, arrays = libraries.arviz(), dict(arrays)
    if libraries.arviz_is_new():
        return az.from_dict({"posterior": arrays}).posterior.to_dataset()
    return az.from_dict(posterior=arrays).posterior


def _add(data: Any, group: str, dataset: xr.Dataset) -> None:
    if libraries.arviz_is_new():
        import xarray as xr

        data[group] = xr.DataTree(dataset)
    else:
        data.add_groups({group: dataset})


def _attributes(samples: Any) -> dict[str, str]:
    method = str(samples.settings.get("method", "unknown"))
    return {"inference_library": "sgmcmc", "sampling_method": method}
