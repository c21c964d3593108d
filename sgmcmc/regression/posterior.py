"""The posterior of a regression: log density, data, starting values and groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc.regression.model import Model, groups_of
from sgmcmc.regression.response import censored_of

if TYPE_CHECKING:
    import pandas as pd


def posterior(
    model: Model, y: np.ndarray, frame: pd.DataFrame, weights: np.ndarray | None
) -> dict[str, Any]:
    """Return the arguments of :func:`sgmcmc.sample` for the posterior of a regression.

    Args:
        model: Model.
        y: Response.
        frame: Data.
        weights: Weight of each row, or ``None``.

    Raises:
        ValueError: There is nothing to sample.
    """
    dataset = {"y": y.astype(np.float32), **model.rows(frame)}
    if model.family.name in ("exponential", "weibull"):
        dataset["censored"] = censored_of(model.formula, frame).astype(np.float32)
    if weights is not None:
        dataset["weights"] = weights.astype(np.float32)
    params: dict[str, Any] = {}
    bijectors: dict[str, Any] = {}
    if model.terms:
        several = (len(model.outcomes) - 1,) if model.family.several else ()
        params["b"] = np.zeros((*several, len(model.terms)))
        if model.terms[0] == "Intercept":
            params["b"][..., 0] = model.start
    _add_scales(model, params, bijectors)
    if not params:
        raise ValueError("`formula` has no terms: there is nothing to sample.")
    groups = groups_of(model)
    return {
        "log_lik": model.log_lik,
        "dataset": dataset,
        "params": params,
        "log_prior": model.log_prior,
        "bijectors": bijectors or None,
        **({"groups": groups} if groups else {}),
    }


def _add_scales(model: Model, params: dict[str, Any], bijectors: dict[str, Any]) -> None:
    """Add auxiliary parameters, and scales and correlations of effects."""
    from tensorflow_probability import bijectors as tfb

    for name, where in model.family.aux:
        if where == "ordered":
            params[name], bijectors[name] = np.asarray(model.cuts), tfb.Ascending()
        elif where == "unit":
            params[name], bijectors[name] = 0.2, tfb.Sigmoid()
        else:
            params[name] = model.response_scale if name == "sigma" else 5.0 if name == "nu" else 1.0
            bijectors[name] = tfb.Exp()
    for each in model.effects:
        sds = f"sd_{each.name}"
        params[sds] = np.full(len(each.terms), 0.5 * model.response_scale)
        bijectors[sds] = tfb.Exp()
        if each.pairs:
            params[f"cor_{each.name}"] = np.zeros(len(each.pairs))
            bijectors[f"cor_{each.name}"] = tfb.Tanh()
