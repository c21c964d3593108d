"""Draws as ArviZ's ``InferenceData``."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sgmcmc.results.chains import by_chain

with warnings.catch_warnings():
    # ArviZ announces its next major version once a day, wherever it is imported.
    warnings.simplefilter("ignore")
    import arviz as az
    import xarray as xr

__all__ = ["az", "to_inference_data"]


def to_inference_data(
    samples: Any,
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Sequence[Any]] | None = None,
    observed_data: Mapping[str, Any] | None = None,
) -> az.InferenceData:
    """Return ``Samples`` as ``InferenceData``; the arguments are those of its ``to_arviz``."""
    groups: dict[str, Any] = {}
    if len(samples):
        groups["posterior"] = by_chain(samples.settings, samples)
    if observed_data is not None:
        groups["observed_data"] = {name: np.asarray(a) for name, a in observed_data.items()}
    data = az.from_dict(
        **groups,
        dims=None if dims is None else {name: list(names) for name, names in dims.items()},
        coords=None if coords is None else dict(coords),
        attrs={"inference_library": "sgmcmc", "sampling_method": _text(samples, "method")},
    )
    if samples.test_functions is not None:
        data.add_groups(test_functions=_dataset(by_chain(samples.settings, samples.test_functions)))
    if samples.log_post.iterations.size:
        values = by_chain(samples.settings, {"lp": samples.log_post.values})["lp"]
        data.add_groups(
            sample_stats=xr.Dataset(
                {"lp": (("chain", "lp_iteration"), values)},
                {
                    "chain": np.arange(values.shape[0]),
                    "lp_iteration": samples.log_post.iterations,
                },
            )
        )
    return data


def _dataset(arrays: Mapping[str, np.ndarray]) -> xr.Dataset:
    return az.from_dict(posterior=dict(arrays)).posterior


def _text(samples: Any, setting: str) -> str:
    return str(samples.settings.get(setting, "unknown"))
