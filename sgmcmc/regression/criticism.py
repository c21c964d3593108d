"""Criticism of a regression: terms determined by their priors, and predictive checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from sgmcmc.regression.model import SD_OF_LOG, Model
from sgmcmc.regression.names import INTERCEPT

# Posterior SD, in prior SDs, from which a warning says that its prior determines a term.
_LARGEST_RATIO = 0.5

# The same for a uniform prior, whose density has no curvature that adds to that of the data.
_LARGEST_RATIO_UNIFORM = 0.75

_SD_OF_LOG_NU = (
    0.9  # standard deviation of log(ν − 1) if ν > 1 has a gamma(2, 0.1) distribution
)


def determined_by_priors(model: Model, draws: Mapping[str, np.ndarray]) -> list[str]:
    """Return a warning for each parameter about which the data say little.

    A term is named if its default prior, normal with standard deviation s, has a part of the
    information that is not small: sd(β | y) > s/2. That happens if the response is separated by
    the term, or if terms are nearly collinear. The intercept is compared at the means of all
    columns. Of standard deviations σ, both σ and log σ must be so uncertain: else the data at least
    bound it. Of shapes log k counts, since they have no upper bound. Priors that the user has given
    are not checked.

    Args:
        model: Model.
        draws: Draws of the chain by parameter, (chains, draws, ...).

    Returns:
        Warnings, which name the term and the likely reason.
    """
    messages = _determined_terms(model, draws) if model.terms else []
    for name, ratio, largest in _sd_ratios(model, draws):
        if ratio > largest:
            messages.append(
                f"{name!r} is held by its prior: its posterior SD is {ratio:.2f} of the prior's. "
                "The data say little of it: see `priors`."
            )
    return messages


def _determined_terms(model: Model, draws: Mapping[str, np.ndarray]) -> list[str]:
    messages = []
    reason = (
        "It separates the responses, is nearly a combination of other terms, or there are few rows"
        if model.family.name in ("bernoulli", "binomial", "ordinal", "categorical")
        else "It is nearly a combination of other terms, or there are few rows"
    )
    priors, sds = model.described_priors(), model.default_sds
    b = np.asarray(draws["b"], np.float64)
    sizes = (
        b.std((0, 1)) * model.unit / np.where(model.is_intercept, 1.0, model.scale)
    ).ravel()
    for name, term, size in zip(
        model.fixed_names,
        model.terms * (len(sizes) // len(model.terms)),
        sizes,
        strict=True,
    ):
        ratio = float(size) / sds.get(term, np.inf)
        if ratio > _LARGEST_RATIO:
            why = "Nearly all responses are alike" if term == INTERCEPT else reason
            messages.append(
                f"The term {name!r} is held by its prior: its posterior SD is {ratio:.2f} of the "
                f"prior's, {priors[term]}. {why}: see `priors`."
            )
    return messages


def _sd_ratios(
    model: Model, draws: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, float, float]]:
    """Yield scales, shapes and correlations, posterior over prior SD, and what is too much."""
    draws = {name: np.asarray(values, np.float64) for name, values in draws.items()}
    for name, support in model.family.aux:
        if support == "ordered" or name in model.priors:
            continue
        values = draws[name]
        if support == "unit":
            yield name, float(values.std() * np.sqrt(12.0)), _LARGEST_RATIO_UNIFORM
            continue
        ratio = np.log(values).std() / (_SD_OF_LOG_NU if name == "nu" else SD_OF_LOG)
        bound = values.std() / model.unit if name == "sigma" else np.inf
        yield name, float(min(ratio, bound)), _LARGEST_RATIO
    for effects in model.effects:
        sds = draws[f"sd_{effects.name}"]
        for index, name in enumerate(effects.rows[: len(effects.terms)]):
            if "sd" in model.priors:
                continue
            bound = sds[..., index].std() * effects.scale[index] / model.unit
            ratio = np.log(sds[..., index]).std() / SD_OF_LOG
            yield name, float(min(ratio, bound)), _LARGEST_RATIO
        for number, (name, (i, j)) in enumerate(
            zip(effects.rows[len(effects.terms) :], effects.pairs, strict=True)
        ):
            partial = draws[f"cor_{effects.name}"][..., number]
            ratio = float(partial.std() * np.sqrt(2.0 * effects.power(i, j) + 3.0))
            yield name, ratio, _LARGEST_RATIO_UNIFORM


def of_aliased(model: Model) -> list[str]:
    """Return a warning that names the terms of which the data say nothing."""
    if not model.aliased:
        return []
    names = ", ".join(map(repr, model.aliased))
    return [
        f"Of {names} the data say nothing that other terms do not say: "
        "each is zero in every row, or a linear combination of the terms before it. The priors "
        "alone tell them from those. Predictions are not affected."
    ]


def predictive_panel(y: np.ndarray, drawn: np.ndarray, levels: tuple[Any, ...]) -> Any:
    """Return Matplotlib axes with the distribution of the response and of draws of it.

    Args:
        y: Response, (rows,); indices of levels if there are any.
        drawn: Draws of the response, (draws, rows), in the same form.
        levels: Levels of the response, if it is not a number.
    """
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(figsize=(6, 4))
    whole = bool((y == np.floor(y)).all())
    if whole and np.ptp(y) <= 50:
        values = np.arange(y.min(), max(y.max(), np.quantile(drawn, 0.99)) + 1)
        shares = np.array(
            [[(row == value).mean() for value in values] for row in drawn]
        )
        ends = np.quantile(shares, [0.025, 0.975], axis=0)
        axes.bar(
            values,
            [(y == value).mean() for value in values],
            color="0.8",
            label="response",
        )
        axes.vlines(values, *ends, color="C0")
        axes.plot(
            values, shares.mean(0), "o", color="C0", label="predictive, 95% interval"
        )
        if levels:
            axes.set_xticks(values, [str(levels[int(value)]) for value in values])
        axes.set_ylabel("proportion")
    else:
        low, high = np.quantile(np.concatenate([y, drawn.ravel()]), [0.001, 0.999])
        edges = np.linspace(low, high, 41)
        middle = (edges[1:] + edges[:-1]) / 2
        for row in drawn:
            axes.plot(
                middle,
                np.histogram(row, edges, density=True)[0],
                color="C0",
                alpha=0.15,
            )
        axes.plot([], [], color="C0", label="predictive draws")
        axes.plot(
            middle, np.histogram(y, edges, density=True)[0], color="k", label="response"
        )
        axes.set_ylabel("density")
    axes.set_xlabel("response")
    axes.legend()
    return axes


def of_single_rows(model: Model, levels: Mapping[str, int], rows: int) -> list[str]:
    """Return a warning for each factor whose groups have one row each, like the residuals.

    Args:
        model: Model.
        levels: Number of groups of each factor, by entry of the dataset.
        rows: Number of rows.
    """
    if not model.family.scaled:
        return []
    return [
        f"Each group of {effects.by!r} has one row: the data do not tell the SD of its intercepts "
        "from 'sigma', their priors do. Leave the group term out, or give groups of several rows."
        for effects in model.effects
        if INTERCEPT in effects.terms and levels.get(effects.entry) == rows
    ]
