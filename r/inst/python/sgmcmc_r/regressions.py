"""Regressions by formula, for R, which makes the columns of the design itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import sgmcmc
from sgmcmc_r.draws import parts, r_hat_of_one


def fit(sent: Mapping[str, Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return a regression: the object of Python's, its draws, priors and warnings.

    Entries are told from each other by their ``role``, not by names.

    Args:
        sent: Columns that R has made, formula, family and link, and the response: numbers, or the
            numbers of its levels from 1.
        keywords: Further keyword arguments of :func:`sgmcmc.glm`.
    """
    import pandas as pd

    columns = frame_of(sent)
    levels = list(sent.get("levels") or ())
    y = np.atleast_1d(sent["y"])
    if levels:
        y = pd.Categorical.from_codes(y.astype(int) - 1, levels, ordered=True)
    columns["y"] = y
    if sent.get("trials") is not None:
        columns["trials_"] = np.atleast_1d(sent["trials"])
    made = sgmcmc.glm(
        sent["formula"],
        columns,
        sent["family"],
        link=sent.get("link"),
        weights=None if sent.get("weights") is None else np.atleast_1d(sent["weights"]),
        **keywords,
    )
    return {
        "fit": made,
        "link": made.link,
        "entries": entries(made),
        "priors": [{"key": key, "text": text} for key, text in made.priors.items()],
        "warnings": made.warnings,
        "chain": parts(made.samples),
    }


def entries(made: sgmcmc.Regression) -> list[dict[str, Any]]:
    """Return the draws of a regression in the order of its summary, each with its role.

    Roles are ``"fixed"``, ``"sd"``, ``"cor"``, ``"auxiliary"`` and ``"cutpoint"``. Entries have the
    names of their columns in ``terms``, that of the factor in ``by``, and the number of the level
    that they are of, or above, in ``level``.
    """
    model = made._model
    found: list[dict[str, Any]] = []
    outcomes = range(2, len(model.outcomes) + 1) if model.family.several else [None]
    for level in outcomes:
        found += [
            {"role": "fixed", "terms": [term], "level": level} for term in model.terms
        ]
    for each in model.effects:
        pairs = [[each.terms[j], each.terms[i]] for i, j in each.pairs]
        found += [{"role": "sd", "by": each.by, "terms": [term]} for term in each.terms]
        found += [{"role": "cor", "by": each.by, "terms": pair} for pair in pairs]
    for parameter in model.family.aux:
        if parameter.support == "ordered":
            places = range(1, len(model.outcomes))
            found += [
                {"role": "cutpoint", "terms": [], "level": place} for place in places
            ]
        else:
            found.append({"role": "auxiliary", "terms": [parameter.name]})
    draws = made._draws
    if len(found) != len(draws):
        raise AssertionError(
            f"{len(found)} entries and {len(draws)} draws of {list(draws)}"
        )
    for entry, (key, values) in zip(found, draws.items(), strict=True):
        entry.update(key=key, draws=np.asarray(values, float))
    return found


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
    wide = {
        name: table[name].unstack("term", sort=False) for name in ("estimate", "error")
    }
    return {
        "groups": [str(group) for group in wide["estimate"].index],
        "terms": [str(term) for term in wide["estimate"].columns],
        **{name: values.to_numpy(float) for name, values in wide.items()},
    }


def loo(made: sgmcmc.Regression, seed: int) -> dict[str, Any]:
    """Return the leave-one-out cross-validation of a regression."""
    found = made.loo(seed)
    page = f"elpd {found.elpd:.1f}, standard error {found.se:.1f}; p_loo {found.p_loo:.1f}; "
    page += f"largest Pareto k {found.pareto_k.max():.2f} of {len(found.rows)} rows"
    rows = {"terms": np.atleast_1d(found.terms), "k": np.atleast_1d(found.pareto_k)}
    return {"elpd": float(found.elpd), "se": float(found.se), "page": page, **rows}


def frame_of(sent: Mapping[str, Any]) -> Any:
    """Return the columns of terms, effects, groups and offset as a frame."""
    import pandas as pd

    found: dict[str, Any] = {}
    for part in sent.get("matrices") or ():
        values = np.asarray(part["values"], float)
        found.update(zip(np.atleast_1d(part["names"]).tolist(), values.T, strict=True))
    for name, codes in (sent.get("groups") or {}).items():
        found[name] = np.atleast_1d(codes)
    if sent.get("offset") is not None:
        found["offset_"] = np.atleast_1d(sent["offset"])
    return pd.DataFrame(found, index=range(int(sent["rows"])))
