"""What is asked of draws once they are made."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import sgmcmc
from sgmcmc import Samples
from sgmcmc.results.arrays import by_chain
from sgmcmc.results.draws import need_chains
from sgmcmc_r.draws import parts, plain, r_hat_of_one, rebuilt, told

_TABLE = {
    "mean": "mean", "sd": "sd", "mcse_mean": "mcse_mean", "mcse_sd": "mcse_sd",
    "ess_bulk": "ess_bulk", "ess_tail": "ess_tail", "r_hat": "rhat",
}  # fmt: skip
"""Columns of a summary, and what the R package posterior calls them."""


def report(chain: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the report on draws, or ``None`` where they cannot be judged."""
    found = _judged(chain).report
    return None if found is None else told(found)


def quick_warnings(chain: Mapping[str, Any]) -> list[str]:
    """Return what speaks against draws, as far as it is found out in about a second."""
    return _judged(chain).quick_warnings()


def summary(
    chain: Mapping[str, Any], names: Sequence[str] | None, quantiles: Sequence[float]
) -> dict[str, Any]:
    """Return a summary: ``labels``, ``columns`` and ``warnings``."""
    samples = _judged(chain)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # they are in the table's attributes
        table = sgmcmc.summary(samples, names, quantiles=quantiles)
    if (samples.settings["n_chains"] or 1) == 1:
        flat = np.concatenate(
            [a.reshape(*a.shape[:1], -1) for a in _wanted(samples, names)], 1
        )
        table["r_hat"] = [r_hat_of_one(values) for values in flat.T]
    quantile = {f"q{100 * q:g}": f"q{100 * q:g}" for q in quantiles}
    ours = {"mean": "mean", "sd": "sd", **quantile, **_TABLE}
    columns = {
        ours[name]: table[name].to_numpy(float) for name in ours if name in table
    }
    return {
        "labels": list(table.index), "columns": columns, "warnings": table.attrs["warnings"],
    }  # fmt: skip


def _wanted(samples: Samples, names: Sequence[str] | None) -> list[np.ndarray]:
    """Return the draws of a single chain by parameter, (draws, ...), in the order of a summary."""
    draws = by_chain(samples.settings, samples)
    return [
        np.asarray(draws[name][0], float)
        for name in (draws if names is None else names)
    ]


def predict(
    chain: Mapping[str, Any],
    f: Callable[..., Any],
    dataset: Mapping[str, Any] | None,
    reduce: str | None,
    quantiles: Sequence[float],
) -> np.ndarray:
    """Return a function of parameters and data over all draws."""
    return rebuilt(chain).predict(f, dataset, reduce=reduce, quantiles=quantiles)


def effects(
    chain: Mapping[str, Any], by: str, groups: Sequence[str] | None, seed: int
) -> dict[str, Any]:
    """Return draws of the effects of some groups, (chains, draws, groups, ...), and their labels.

    Labels that are numbers come from R as strings.
    """
    samples = rebuilt(chain)
    structure = None if samples.origin is None else samples.origin.groups
    labels = None if structure is None else structure.labels.get(by)
    if groups is not None and labels is not None:
        kind = labels.dtype.type if labels.dtype.kind in "iu" else str
        labels = np.array([kind(group) for group in groups])
    found = samples.effects(by, labels, seed=seed)
    assert labels is not None
    return {"effects": plain(found), "groups": [str(label) for label in labels]}


def terms(
    chain: Mapping[str, Any],
    dataset: Mapping[str, Any] | None,
    log_lik: Callable[..., Any] | None,
) -> np.ndarray:
    """Return the terms of the log-likelihood, (draws, chains, N), as R's packages have them."""
    return np.swapaxes(rebuilt(chain).log_lik(dataset, log_lik=log_lik), 0, 1)


def extend(chain: Mapping[str, Any], n_iters: Any, verbose: bool) -> dict[str, Any]:
    """Run chains on, and return all draws."""
    samples = rebuilt(chain)
    need_chains(samples)
    return parts(samples.extend(n_iters, verbose))


def ksd(chain: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the kernel Stein discrepancy, and what it is to be compared with."""
    found = sgmcmc.ksd(rebuilt(chain), **options)
    return {
        "ksd": plain(np.asarray(found)), "expected": plain(np.asarray(found.expected)),
        "ratio": plain(np.asarray(found.ratio)), "draws": found.draws,
    }  # fmt: skip


def write(chain: Mapping[str, Any], path: str) -> None:
    """Write draws to a file that Python reads too."""
    rebuilt(chain).save(path)


def read(path: str) -> dict[str, Any]:
    """Return the draws of such a file."""
    return parts(Samples.load(path))


def _judged(chain: Mapping[str, Any]) -> Samples:
    """Return draws with their report, if it was made before."""
    samples, live = rebuilt(chain), chain.get("origin")
    return samples if live is None else live.judged(samples)
