"""Draws between Python's ``Samples`` and R's lists of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.stats

from sgmcmc import Samples
from sgmcmc.results.arrays import LogPost
from sgmcmc.results.report import Report
from sgmcmc_r.live import Live, made_before

_EXACT_IN_R = 2**53


def parts(samples: Samples) -> dict[str, Any]:
    """Return everything that samples hold as dicts of arrays, under R's names.

    As in R, a scalar has a last axis of length one. ``origin`` is an object of Python's.
    """
    leading = 1 if samples.settings.get("n_chains") is None else 2
    unnormalized = getattr(samples, "unnormalized", None)
    known = made_before(samples)
    return {
        "draws": _with_last_axis(samples, leading),
        "scalars": [name for name, draws in samples.items() if draws.ndim == leading],
        "gradients": _with_last_axis(samples.gradients, leading),
        "testFunctions": _with_last_axis(samples.test_functions, leading),
        "unnormalized": _with_last_axis(unnormalized, leading),
        "logPost": samples.log_post._asdict(),
        "settings": _settings(samples.settings),
        "mode": plain(samples.mode),
        "modeGradient": plain(samples.mode_gradient),
        "reductions": plain(samples.reductions),
        "report": None if known is None else told(known),
        "origin": None if samples.origin is None else Live(samples),
    }


def told(report: Report) -> dict[str, Any]:
    """Return a report as R takes it: its facts, the page, and the warnings."""
    return {
        "facts": plain(dict(report)),
        "page": str(report),
        "warnings": report.warnings,
    }


def rebuilt(chain: Mapping[str, Any]) -> Samples:
    """Return the samples whose parts these are.

    Args:
        chain: draws, and whatever else there is, under R's names. Of ``settings`` those that
            Python remembers count, but for the slice.
    """
    live, settings = chain.get("origin"), dict(chain["settings"])
    place = settings.get("slice")
    if place is not None:
        first, last, by = map(int, place)
        place = [first - 1, last, by]
    if live is not None:
        settings = {**live.settings, **({} if place is None else {"slice": place})}
    elif place is not None:
        settings["slice"] = place
    settings.setdefault("n_chains", None)
    dtype = settings.get("dtype", "float64")

    def arrays(group: str) -> dict[str, np.ndarray] | None:
        if chain.get(group) is None:
            return None
        return {
            name: np.asarray(array, dtype)[..., 0]
            if name in chain["scalars"]
            else np.asarray(array, dtype)
            for name, array in chain[group].items()
        }

    def points(group: str) -> dict[str, np.ndarray] | None:
        found = chain.get(group)
        return (
            None
            if found is None
            else {n: np.asarray(a, dtype) for n, a in found.items()}
        )

    samples = Samples(
        arrays("draws") or {},
        gradients=arrays("gradients"),
        test_functions=points("testFunctions"),
        unnormalized=arrays("unnormalized"),
        mode=points("mode"),
        mode_gradient=points("modeGradient"),
        log_post=_log_post(chain.get("logPost")),
        settings=settings,
    )
    return samples if live is None else samples.made_by(live.origin)


def _settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    found = plain(settings)
    if settings.get("slice") is not None:
        kept = range(*settings["slice"])  # first, last and step, counted from 1
        found["slice"] = [kept[0] + 1, kept[-1] + 1, kept.step]
    return found


def _log_post(found: Mapping[str, Any] | None) -> LogPost | None:
    if found is None:
        return None
    iterations = np.atleast_1d(np.asarray(found["iterations"], int))
    return LogPost(iterations, np.asarray(found["values"], float))


def _with_last_axis(
    arrays: Mapping[str, np.ndarray] | None, leading: int
) -> dict[str, np.ndarray] | None:
    if arrays is None:
        return None
    return {
        name: np.asarray(values)[..., np.newaxis]
        if values.ndim == leading
        else np.asarray(values)
        for name, values in arrays.items()
    }


def plain(value: Any) -> Any:
    """Return mappings as dicts, arrays without axes as numbers, and large numbers as text."""
    if isinstance(value, Mapping):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic) and value.ndim == 0:
        return value.item()
    if isinstance(value, int) and abs(value) > _EXACT_IN_R:
        return str(value)
    return value


def r_hat_of_one(values: np.ndarray) -> float:
    """Return rank-normalized R-hat between the halves of a chain, as R's posterior has it.

    Vehtari, Gelman, Simpson, Carpenter & Buerkner (2021), equations 1 to 4 and section 4.
    """
    half = len(values) // 2
    chains = np.stack([values[:half], values[-half:]])
    return max(
        _r_hat(_normal_scores(x)) for x in (chains, np.abs(chains - np.median(chains)))
    )


def _normal_scores(chains: np.ndarray) -> np.ndarray:
    ranks = scipy.stats.rankdata(chains).reshape(chains.shape)
    return np.asarray(scipy.stats.norm.ppf((ranks - 0.375) / (chains.size + 0.25)))


def _r_hat(chains: np.ndarray) -> float:
    within = chains.var(axis=1, ddof=1).mean()
    n = chains.shape[1]
    return float(np.sqrt((n - 1) / n + chains.mean(1).var(ddof=1) / within))
