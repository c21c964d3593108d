"""One regression of the rows of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sgmcmc.checks import describe
from sgmcmc.regression.fit import Regression
from sgmcmc.regression.formula import tokens_of
from sgmcmc.regression.sampling import stacked


def combine(fits: Sequence[Regression], **keywords: Any) -> Regression:
    """Return the regression of the rows of several: the posterior of all rows together.

    Regressions of one formula are made on several machines, or month by month, saved, and loaded
    where they are combined. The result is that of :func:`sgmcmc.glm` on all rows, with default
    priors that are theirs; nothing is approximated. Gaussian regressions are made of sums, so that
    this takes one or two passes over the rows.

    Args:
        fits: Two or more regressions of the same formula, family, link and priors. Levels of
            factors and groups are those of the same value.
        keywords: Keyword arguments of :func:`sgmcmc.sample`, such as ``seed`` and ``verbose``; by
            default those of the first regression.

    Returns:
        A new regression; the others are unchanged.

    Raises:
        TypeError: ``fits`` are no regressions.
        ValueError: They are fewer than two, or differ in more than their rows.

    Example:
        >>> import numpy as np, sgmcmc
        >>> x = np.random.default_rng(1).normal(size=500)
        >>> y = 1.0 + 2.0 * x + np.random.default_rng(2).normal(size=500)
        >>> parts = np.split(np.arange(500), [300])
        >>> fits = [
        ...     sgmcmc.glm("y ~ x", {"x": x[part], "y": y[part]}, seed=1, verbose=False)
        ...     for part in parts]
        >>> sgmcmc.combine(fits).summary()["estimate"].round(0).to_dict()
        {'Intercept': 1.0, 'x': 2.0, 'sigma': 1.0}
    """
    if not isinstance(fits, Sequence) or not all(
        isinstance(fit, Regression) for fit in fits
    ):
        raise TypeError(
            "`fits` must be a list of regressions, as glm() returns them; it is "
            f"{describe(fits)}."
        )
    if len(fits) < 2:
        raise ValueError(
            f"`fits` must be two regressions or more; there are {len(fits)}."
        )
    contents = [fit._content(only_used=True) for fit in fits]
    first = _compared(fits[0])
    for number, fit in enumerate(fits[1:], 1):
        for name, value in _compared(fit).items():
            if value != first[name]:
                raise ValueError(
                    f"`fits` must differ in their rows alone; {name} is {first[name]!r} in the "
                    f"first and {value!r} in number {number}."
                )
    together = stacked(contents, fits[0]._model.coded_columns)
    return Regression._sampled(
        replace(together, keywords={**together.keywords, **keywords})
    )


def _compared(fit: Regression) -> dict[str, Any]:
    """Return the facts in which regressions of one model agree, by name."""
    formula = fit._model.formula
    # A dot stands for other columns in another table.
    text = formula.text if not formula.dotted else f"{formula.text}: {formula.fixed}"
    return {
        "formula": " ".join(token.text for token in tokens_of(text)).strip(),
        "family": fit.family,
        "link": fit.link,
        "factors": sorted(fit._model.coded_columns),
        "priors": fit._model.priors,
    }
