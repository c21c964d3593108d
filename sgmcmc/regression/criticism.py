"""Criticism of a regression: terms determined by their priors, and predictive checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sgmcmc.regression.model import Model

_HELD = 0.5
"""Posterior SD, in prior SDs, from which a warning says that its prior determines a term."""


def held_by_priors(model: Model, draws: Mapping[str, np.ndarray]) -> list[str]:
    """Return a warning for each fixed term about which the data say little.

    A term is named if its default prior, normal with standard deviation s, has a part of the
    information that is not small: sd(β | y) > s/2. That happens if the response is separated by
    the term, or if terms are nearly collinear. Priors that the user has given are not checked.

    Args:
        model: Model.
        draws: Draws by name of the fixed term, on the user's scale.

    Returns:
        Warnings, which name the term and the likely reason.
    """
    found = []
    reason = (
        "It separates the responses, is nearly a combination of other terms, or there are few rows"
        if model.family.name in ("bernoulli", "binomial", "ordinal", "categorical")
        else "It is nearly a combination of other terms, or there are few rows"
    )
    sds, terms = model.default_sds, model.terms
    for place, (name, values) in enumerate(draws.items()):
        prior_sd = sds.get(terms[place % len(terms)])
        if prior_sd is None:
            continue
        part = float(values.std()) / prior_sd
        if part > _HELD:
            found.append(
                f"The term {name!r} is held by its prior: its posterior SD is {part:.2f} of the "
                f"prior's, normal(0, {prior_sd:.4g}). {reason}: see `priors`."
            )
    return found


def of_lost(model: Model) -> list[str]:
    """Return a warning that names the terms of which the data say nothing."""
    if not model.lost:
        return []
    return [
        f"Of {', '.join(map(repr, model.lost))} the data say nothing that other terms do not say: "
        "each is zero in every row, or a linear combination of the terms before it. The priors "
        "alone tell them from those. Predictions are not affected."
    ]


def predictive_panel(y: np.ndarray, drawn: np.ndarray, levels: tuple[Any, ...]) -> Any:
    """Return Matplotlib axes with the distribution of the response and of draws of it.

    Args:
        y: Response, (rows,); places of levels if there are any.
        drawn: Draws of the response, (draws, rows), in the same form.
        levels: Levels of the response, if it is not a number.
    """
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(figsize=(6, 4))
    whole = bool((y == np.floor(y)).all())
    if whole and np.ptp(y) <= 50:
        places = np.arange(y.min(), max(y.max(), np.quantile(drawn, 0.99)) + 1)
        shares = np.array([[(row == place).mean() for place in places] for row in drawn])
        ends = np.quantile(shares, [0.025, 0.975], axis=0)
        axes.bar(places, [(y == place).mean() for place in places], color="0.8", label="response")
        axes.vlines(places, *ends, color="C0")
        axes.plot(places, shares.mean(0), "o", color="C0", label="predictive, 95% interval")
        if levels:
            axes.set_xticks(places, [str(levels[int(place)]) for place in places])
        axes.set_ylabel("proportion")
    else:
        low, high = np.quantile(np.concatenate([y, drawn.ravel()]), [0.001, 0.999])
        edges = np.linspace(low, high, 41)
        middle = (edges[1:] + edges[:-1]) / 2
        for row in drawn:
            axes.plot(middle, np.histogram(row, edges, density=True)[0], color="C0", alpha=0.15)
        axes.plot([], [], color="C0", label="predictive draws")
        axes.plot(middle, np.histogram(y, edges, density=True)[0], color="k", label="response")
        axes.set_ylabel("density")
    axes.set_xlabel("response")
    axes.legend()
    return axes
