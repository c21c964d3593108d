"""Summaries of draws, through ArviZ, and of draws that have weights."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from sgmcmc import libraries
from sgmcmc.results.arrays import by_chain, coordinate_names
from sgmcmc.results.conversions import to_inference_data
from sgmcmc.results.diagnostics import weighted_quantiles
from sgmcmc.results.draws import need_draws
from sgmcmc.results.samples import Samples

_TAILS = (0.05, 0.95)


def weighted_table(
    draws: Mapping[str, np.ndarray], weights: np.ndarray, quantiles: Sequence[float]
) -> Any:
    """Return means, SDs, quantiles and diagnostics of draws with weights, a row for each component.

    A weighted mean μ is a ratio of averages, whose error is that of the average of w (x − μ): the
    MCSE is that of the mean of this series, and the ESS is σ²/MCSE². R-hat is that of the draws
    whose weight is not zero.

    Args:
        draws: Draws, (chains, draws, *shape), by parameter.
        weights: Weights of the draws of each chain, with mean one.
        quantiles: Probabilities of the quantiles.
    """
    import pandas as pd

    rows = {}
    for name, array in draws.items():
        flat = np.reshape(np.asarray(array, float), (*array.shape[:2], -1))
        for coordinate, label in enumerate(coordinate_names(name, array.shape[2:])):
            with np.errstate(
                divide="ignore", invalid="ignore"
            ):  # draws that are all alike
                rows[label] = _row(flat[..., coordinate], weights, quantiles)
    return pd.DataFrame.from_dict(rows, orient="index")


def _row(
    x: np.ndarray, weights: np.ndarray, quantiles: Sequence[float]
) -> dict[str, float]:
    mean = (weights * x).mean()
    variance = (weights * (x - mean) ** 2).mean()
    sd = np.sqrt(variance)
    draw_weights = np.tile(weights, len(x))
    values = weighted_quantiles(x.reshape(-1), [*quantiles, *_TAILS], draw_weights)
    tails = [
        p * (1 - p) / _mcse(weights * ((x <= q) - p)) ** 2
        for p, q in zip(_TAILS, values[len(quantiles) :], strict=True)
    ]
    mcse = _mcse(weights * (x - mean))
    return {
        "mean": mean,
        "sd": sd,
        **{f"q{100 * p:g}": q for p, q in zip(quantiles, values, strict=False)},
        "mcse_mean": mcse,
        "mcse_sd": _mcse(weights * ((x - mean) ** 2 - variance) / (2 * sd)),
        "ess_bulk": variance / mcse**2,
        "ess_tail": min(tails),
        "r_hat": float(libraries.arviz().rhat(x[:, weights > 0]))
        if len(x) > 1
        else np.nan,
    }


def _mcse(series: np.ndarray) -> np.floating:
    """Return the standard error of the mean of a series, (chains, draws)."""
    return series.std() / np.sqrt(float(libraries.arviz().ess(series, method="mean")))


def summary(
    samples: Samples,
    var_names: Sequence[str] | None = None,
    *,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
) -> Any:
    """Return means, standard deviations, quantiles and convergence diagnostics.

    ESS is the number of independent draws that would give the same precision, for the mean (bulk)
    and for the 5 % and 95 % quantiles (tail). MCSE is the standard error of mean and standard
    deviation due to the finite length of the chain. R-hat compares chains, and is NaN for a single
    one. These measure how well the *chain's* stationary distribution is known, not how far it is
    from the posterior: for that see ``samples.report``, whose warnings are shown with the table
    (and are in its ``attrs["warnings"]``), and :func:`ksd`.

    Draws with ``samples.weights``, of stepsizes that decrease or go in cycles, are weighted; their
    ESS is the variance over the squared MCSE of the mean.

    Args:
        samples: Draws.
        var_names: Names of the parameters to show; ``None`` shows all.
        quantiles: Quantiles to show.

    Returns:
        A pandas ``DataFrame``, a row for each component.

    Raises:
        ValueError: There are no draws, or no parameter of a name.

    Warns:
        UserWarning: The draws may not be reliable.

    Example:
        >>> import numpy as np
        >>> from sgmcmc import Samples, summary
        >>> theta = np.random.default_rng(1).normal(size=(4, 500, 2))
        >>> table = summary(Samples({"theta": theta}, settings={"n_chains": 4}))
        >>> list(table.index)
        ['theta[0]', 'theta[1]']
        >>> bool((table["r_hat"] < 1.05).all())
        True

    Source:
        Vehtari et al., Bayesian Analysis 16, 2021.
    """
    az = libraries.arviz()
    names = need_draws(samples, var_names)
    for q in quantiles:
        if not 0 < q < 1:
            raise ValueError(f"`quantiles` must be between 0 and 1; there is {q!r}.")
    weights = samples.weights
    if weights is not None:
        draws = by_chain(samples.settings, samples)
        with _silent():
            table = weighted_table(
                {name: draws[name] for name in names}, weights, quantiles
            )
        return _with_warnings(table, samples)
    # ArviZ adds up in the dtype of the draws: in float32 the mean of 400 000 of them, 200 SDs from
    # zero, is off by a third of an SD.
    exact = {name: np.asarray(samples[name], np.float64) for name in names}
    data = to_inference_data(Samples(exact, settings=samples.settings))
    if libraries.arviz_is_new():
        table = _table(data, by_chain(samples.settings, exact), names, quantiles)
        return _with_warnings(table, samples)
    with _silent():
        shown = az.summary(
            data,
            var_names=names,
            kind="stats",
            round_to="none",
            stat_funcs={f"q{100 * q:g}": partial(np.quantile, q=q) for q in quantiles},
        )
        judged = az.summary(data, var_names=names, kind="diagnostics", round_to="none")
    statistics = [name for name in shown.columns if not name.startswith("hdi_")]
    table = shown[statistics].join(judged)
    return _with_warnings(table, samples)


def _table(
    data: Any,
    draws: Mapping[str, np.ndarray],
    names: Sequence[str],
    quantiles: Sequence[float],
) -> Any:
    """Return the table from ArviZ 1, with the columns of ArviZ 0."""
    az = libraries.arviz()
    shown = az.summary(data, var_names=names, kind="stats", round_to="none")[
        ["mean", "sd"]
    ]
    judged = az.summary(data, var_names=names, kind="diagnostics", round_to="none")
    arrays = [draws[name] for name in names]
    flat = [np.reshape(a, (np.prod(a.shape[:2]), -1)) for a in arrays]
    by_quantile = np.quantile(np.concatenate(flat, axis=1), list(quantiles), axis=0)
    for q, values in zip(quantiles, by_quantile, strict=True):
        shown[f"q{100 * q:g}"] = values
    # With the quantiles of ArviZ 0; ArviZ 1 has others by default.
    tail = []
    for name in dict.fromkeys(names):
        chains = np.reshape(draws[name], (*draws[name].shape[:2], -1))
        for k in range(chains.shape[2]):
            series = np.asarray(chains[..., k], float)
            tail.append(float(az.ess(series, method="tail", prob=_TAILS)))
    judged["ess_tail"] = tail
    return shown.join(judged[["mcse_mean", "mcse_sd", "ess_bulk", "ess_tail", "r_hat"]])


def _with_warnings(table: Any, samples: Samples) -> Any:
    """Return the table with the report's warnings, which are also raised as a warning."""
    messages = samples.quick_warnings()
    table.attrs["warnings"] = messages
    if messages:
        warnings.warn(
            "\n".join(["These draws may not be reliable:", *messages]), stacklevel=3
        )
    return table


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep ArviZ from logging, for each component, that one chain has no R-hat."""
    # Its logger is a separate object, not registered in `logging`.
    log = getattr(libraries.arviz(), "_log", logging.getLogger("arviz"))
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before
