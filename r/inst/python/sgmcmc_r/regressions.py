"""Regressions by formula, for R, which makes the columns of the design itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import sgmcmc
from sgmcmc_r.draws import parts, r_hat_of_one


def fit(
    formula: str,
    data: Mapping[str, Any],
    levels: Sequence[str] | None,
    family: str,
    link: str | None,
    keywords: Mapping[str, Any],
) -> dict[str, Any]:
    """Return a regression: the object of Python's, its draws by term, priors and warnings.

    Args:
        formula: Formula of the columns that R has made.
        data: Columns.
        levels: Levels of the response, lowest first; ``None`` if it is a number.
        family: Name of the family.
        link: Name of the link; ``None`` for the family's own.
        keywords: Further keyword arguments of :func:`sgmcmc.glm`.
    """
    import pandas as pd

    columns = _frame(data)
    if levels is not None:
        columns["y"] = pd.Categorical(columns["y"], list(levels), ordered=True)
    made = sgmcmc.glm(formula, columns, family, link=link, **keywords)
    return {
        "fit": made,
        "link": made.link,
        "draws": {name: np.asarray(values, float) for name, values in made._draws.items()},
        "priors": made.priors,
        "warnings": made.warnings,
        "chain": parts(made.samples),
    }


def robust(made: sgmcmc.Regression) -> list[float]:
    """Return standard deviations that hold if the model is wrong, by term."""
    return [float(sd) for sd in made.summary(robust=True)["robust"]]


def judged(draws: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return bulk effective sample sizes and R-hat, of a single chain between its halves."""
    import arviz

    arrays = [np.asarray(values, float) for values in draws.values()]
    return {
        "ess_bulk": [float(arviz.ess(values, method="bulk")) for values in arrays],
        "rhat": [
            float(arviz.rhat(values)) if len(values) > 1 else r_hat_of_one(values[0])
            for values in arrays
        ],
    }


def effects(made: sgmcmc.Regression, by: str) -> dict[str, Any]:
    """Return estimates and standard deviations of the effects of groups, (groups, effects)."""
    table = made.effects(by)
    wide = {name: table[name].unstack("term", sort=False) for name in ("estimate", "error")}
    return {
        "groups": [str(group) for group in wide["estimate"].index],
        "terms": [str(term) for term in wide["estimate"].columns],
        **{name: values.to_numpy(float) for name, values in wide.items()},
    }


def predict(
    made: sgmcmc.Regression,
    data: Mapping[str, Any] | None,
    kind: str,
    quantiles: Sequence[float] | None,
    seed: int,
) -> np.ndarray:
    """Return predictions of rows: of the linear predictor, the expected response or responses.

    Args:
        made: Regression.
        data: Columns; ``None`` for those of the regression.
        kind: ``"link"``, ``"response"`` or ``"predictive"``.
        quantiles: Probabilities, for quantiles in place of means.
        seed: Seed of the draws of responses.
    """
    frame = None if data is None else _frame(data)
    if kind == "predictive":
        return made.predict(frame, "response", seed=seed)
    if kind == "response":
        if quantiles is None:
            return made.predict(frame)
        return made.predict(frame, "quantiles", quantiles=quantiles)
    pieces = [eta for _, eta in made._predictor.pieces(frame)]
    if quantiles is None:
        return np.concatenate([eta.mean(0) for eta in pieces])
    return np.concatenate([np.quantile(eta, list(quantiles), axis=0) for eta in pieces], 1)


def loo(made: sgmcmc.Regression, seed: int) -> dict[str, Any]:
    """Return the leave-one-out cross-validation of a regression."""
    found = made.loo(seed)
    page = f"elpd {found.elpd:.1f}, standard error {found.se:.1f}; p_loo {found.p_loo:.1f}; "
    page += f"largest Pareto k {found.pareto_k.max():.2f} of {len(found.rows)} rows"
    return {"elpd": float(found.elpd), "se": float(found.se), "page": page}


def _frame(data: Mapping[str, Any]) -> Any:
    """Return columns as a frame; R makes a list of a single row's text."""
    import pandas as pd

    return pd.DataFrame({name: np.atleast_1d(values) for name, values in data.items()})
