"""Draws as ArviZ's ``InferenceData``, or from ArviZ 1 on as xarray's ``DataTree``."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc import checks, libraries
from sgmcmc.atomic_files import new_folder
from sgmcmc.results.arrays import by_chain, draw_numbers

if TYPE_CHECKING:
    import arviz as az
    import xarray as xr

LOG_LIK = "log_lik"  # name of the terms of the log-likelihood in their group

# Bytes of the terms. ArviZ, which works on all of them at once, needs several times that.
_MOST_BYTES = 2**28

_CHUNK_BYTES = 2**22  # bytes of a chunk of draws


def to_inference_data(
    samples: Any,
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Sequence[Any]] | None = None,
    observed_data: Mapping[str, Any] | None = None,
    log_likelihood: Any = None,
    log_likelihood_draws: int | None = None,
    effects: Any = None,
) -> az.InferenceData:
    """Return ``Samples`` as ``InferenceData``; the arguments are those of its ``to_arviz``."""
    az = libraries.arviz()
    import xarray as xr  # by ArviZ already

    groups: dict[str, Any] = {}
    if isinstance(log_likelihood, np.ndarray):
        groups["log_likelihood"] = {LOG_LIK: _fitting(samples, log_likelihood)}
    elif log_likelihood is not None and log_likelihood is not False:
        dataset = None if log_likelihood is True else log_likelihood
        samples = _thinned(samples, samples.rows_of(dataset), log_likelihood_draws)
        groups["log_likelihood"] = {LOG_LIK: samples.log_lik(dataset)}
    if len(samples):
        groups["posterior"] = by_chain(samples.settings, samples)
        if effects is not None:
            drawn, dims, coords = _effects(samples, effects, dims or {}, coords or {})
            groups["posterior"] = {**groups["posterior"], **drawn}
    if observed_data is not None:
        groups["observed_data"] = {
            name: np.asarray(a) for name, a in observed_data.items()
        }
    named = {
        "dims": None
        if dims is None
        else {name: list(names) for name, names in dims.items()},
        "coords": None if coords is None else dict(coords),
    }
    attrs = {"inference_library": "sgmcmc", "sampling_method": _text(samples, "method")}
    if libraries.arviz_is_new():
        all_attrs = {"/": attrs, **dict.fromkeys(groups, attrs)}
        data = az.from_dict(groups, **named, attrs=all_attrs)
    else:
        data = az.from_dict(**groups, **named, attrs=attrs)
    if samples.test_functions is not None:
        arrays = by_chain(samples.settings, samples.test_functions)
        _add(data, "test_functions", _dataset(arrays))
    statistics = xr.Dataset()
    if samples.log_post.iterations.size:
        values = by_chain(samples.settings, {"lp": samples.log_post.values})["lp"]
        statistics = xr.Dataset(
            {"lp": (("chain", "lp_iteration"), values)},
            {
                "chain": np.arange(values.shape[0]),
                "lp_iteration": samples.log_post.iterations,
            },
        )
    if samples.weights is not None:
        chains = samples.settings.get("n_chains") or 1
        statistics["weight"] = (
            ("chain", "draw"),
            np.tile(samples.weights, (chains, 1)),
        )
        statistics = statistics.assign_coords(
            chain=np.arange(chains), draw=np.arange(samples.weights.size)
        )
    if statistics:
        _add(data, "sample_stats", statistics)
    return data


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
        chunk = min(count, max(1, _CHUNK_BYTES // row))
        encoding[name] = {"chunks": (1, chunk, *array.shape[2:])}
    labels = {
        "chain": np.arange(chains),
        "draw": draw_numbers(samples.settings, count),
        **(coords or {}),
    }
    attrs = {"inference_library": "sgmcmc", "sampling_method": _text(samples, "method")}
    dataset = xr.Dataset(entries, labels, attrs)
    with new_folder("path", target) as temporary:
        # Format 2 is what every version reads, and its metadata in one file are part of it.
        dataset.to_zarr(
            str(temporary), encoding=encoding, zarr_format=2, consolidated=True
        )
    return target


def _effects(
    samples: Any, effects: Any, dims: Mapping[str, Any], coords: Mapping[str, Any]
) -> tuple[dict[str, np.ndarray], dict[str, Any], dict[str, Any]]:
    """Return draws of effects of groups, and names and labels of their dimensions."""
    if isinstance(effects, str):
        effects = [effects]
    if not isinstance(effects, Mapping):
        effects = dict.fromkeys(effects)
    drawn: dict[str, np.ndarray] = {}
    dims, coords = dict(dims), dict(coords)
    for by, labels in effects.items():
        of_factor = samples.effects(by, labels)
        drawn |= of_factor
        coords[by] = (
            samples.origin.groups.shown(by) if labels is None else np.atleast_1d(labels)
        )
        for name, array in of_factor.items():
            axes = list(
                dims.get(name, [f"{name}_dim_{k}" for k in range(array.ndim - 3)])
            )
            dims[name] = [by, *axes]
    return drawn, dims, coords


def _fitting(samples: Any, terms: np.ndarray) -> np.ndarray:
    arrays = by_chain(samples.settings, samples)
    expected = next(iter(arrays.values())).shape[:2] if arrays else terms.shape[:2]
    if terms.ndim != 3 or terms.shape[:2] != expected:
        raise ValueError(
            f"`log_likelihood` must have the shape (chains, draws, N), that is {expected} and the "
            f"number of rows; it has {terms.shape}."
        )
    return terms


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
        limit = _MOST_BYTES // (4 * rows * chains)
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
    if libraries.arviz_is_new():
        return (
            libraries.arviz()
            .from_dict({"posterior": dict(arrays)})
            .posterior.to_dataset()
        )
    return libraries.arviz().from_dict(posterior=dict(arrays)).posterior


def _add(data: Any, group: str, dataset: xr.Dataset) -> None:
    if libraries.arviz_is_new():
        import xarray as xr

        data[group] = xr.DataTree(dataset)
    else:
        data.add_groups({group: dataset})


def _text(samples: Any, setting: str) -> str:
    return str(samples.settings.get(setting, "unknown"))
