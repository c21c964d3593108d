"""A regression in one line."""

from __future__ import annotations

from typing import Any

from sgmcmc import checks
from sgmcmc.regression.families import read_family
from sgmcmc.regression.fit import Regression
from sgmcmc.regression.formula import parse, used_columns, with_dot
from sgmcmc.regression.frames import held, read_rows
from sgmcmc.regression.sampling import row_weights
from sgmcmc.regression.saved import Content


def glm(
    formula: str,
    data: Any,
    family: str = "gaussian",
    *,
    link: str | None = None,
    priors: Any = None,
    weights: Any = None,
    missing: str = "raise",
    reduce: bool = True,
    **keywords: Any,
) -> Regression:
    """Sample the posterior of a regression given by a formula.

    The model is y_i ~ family(g⁻¹(η_i)) with η = Xβ + offset + Σ_g Z_g r_g, link g, fixed terms X
    from the formula, and effects r_g ~ N(0, Σ) of the groups of each bar. Effects of one factor are
    integrated out by quadrature (:class:`sgmcmc.Groups`); those of others are coordinates of the
    chain. :func:`sgmcmc.sample` samples it without constants.

    Args:
        formula: Formula, as in R: ``"y ~ x * C(f) + offset(log(t)) + (1 + x | site) + (1 | a/b)"``.
            On the left ``y | trials(n)`` for binomial responses, ``y | cens(c)`` for censored times
            (c is 1 if the time is a lower bound), or an expression such as ``log(y)``. ``||`` makes
            effects independent. A dot is the sum of all columns that the rest does not name.
            Operators have the precedence of R. Names that are no words are in backticks.
        data: Frame of pandas or polars, Arrow table or dataset, dict of columns, or path or URL of
            a Parquet file or folder. Only columns of the formula are read from a file.
        family: ``"gaussian"``, ``"student"``, ``"bernoulli"``, ``"binomial"``, ``"poisson"``,
            ``"negative_binomial"``, ``"gamma"``, ``"beta"``, ``"exponential"``, ``"weibull"``,
            ``"zero_inflated_poisson"``, ``"ordinal"`` (log odds of y ≤ k are c_k − η, cutpoints
            c_1 < c_2 < …; the response holds numbers or an ordered factor) or ``"categorical"``
            (log odds of each level against the first are linear; rows "level: term").
        link: Link; by default the family's first. ``"logit"``, ``"probit"`` and ``"cloglog"`` for
            ``"bernoulli"`` and ``"binomial"``.
        priors: Dict by term: a pair (mean, SD) of a normal for a coefficient, the rate of an
            exponential for ``"sigma"``, ``"shape"``, ``"phi"``, ``"nu"`` and ``"sd"`` (of groups),
            or a distribution with ``log_prob``. Defaults are wide, and have the units of the data:
            normal(0, 2.5 sd(y) / sd(x)) for a coefficient; exponential(1 / sd(y)) for ``sigma``;
            exponential(sd(x) / sd(y)) for the SD of an effect of groups, at the means of effects
            that are correlated with an intercept; sd(y) is that of the response less offset, and 1
            but for gaussian and student. The intercept at the means of all columns is normal, or
            has a uniform probability, or an exponential rate that is wide against the data's.
            1/``shape`` and 1/``phi`` are exponential with mean 10, ``nu`` has gamma(2, 0.1), ``zi``
            is uniform. Cutpoints: the probabilities of the levels at the means of all columns are
            uniform on the simplex. Correlations of effects have an LKJ distribution with shape 1.
        weights: Weight of each row's log-likelihood: the name of a column, or an array. A weight is
            a number of repeated rows, in default priors and in ``loo`` too.
        missing: Treatment of rows with missing values: ``"raise"``, or ``"drop"`` to drop them;
            dropped rows are counted.
        reduce: Whether a Gaussian regression is made of its sums: coefficients and effects are
            integrated out in closed form, and the scales alone are sampled. A prior that is a
            distribution, more than three effects a group of every factor, more than 400 effects of
            all factors but the one with the most levels (2000 of one other factor, with one effect
            for each level), or a keyword that chooses a sampler need the rows, and so does
            ``False``. Of other regressions without bars identical rows are one with a weight, if at
            most half of 2000 or more are distinct. With few rows and at most 16 parameters,
            elliptical slices of the density take the place of a chain; effects of one factor, one
            or two a group, are integrated out by quadrature.
        keywords: Keyword arguments of :func:`sgmcmc.sample`, such as ``seed``, ``ess`` and
            ``verbose``.

    Returns:
        A :class:`Regression`, whose ``summary()`` is a frame with a row for each term.

    Raises:
        ValueError, TypeError: Formula, data, family or priors are invalid; the message names the
            term and the reason.

    Example:
        >>> import numpy as np, sgmcmc
        >>> x = np.random.default_rng(1).normal(size=500)
        >>> y = 1.0 + 2.0 * x + np.random.default_rng(2).normal(size=500)
        >>> fit = sgmcmc.glm("y ~ x", {"x": x, "y": y}, seed=1, verbose=False)
        >>> fit.summary()["estimate"].round(0).to_dict()
        {'Intercept': 1.0, 'x': 2.0, 'sigma': 1.0}

    References:
        Gelman, Hill & Vehtari, *Regression and Other Stories*, 2020, section 9.5 (default priors);
        Pinheiro & Bates (1995) (quadrature).
    """
    parsed = parse(formula)
    chosen = read_family(family, link)
    checks.choice("missing", missing, ["raise", "drop"])
    checks.flag("reduce", reduce)
    frame, mask = read_rows(
        data,
        lambda all_: used_columns(with_dot(parsed, all_, weights), all_, weights),
        missing == "drop",
    )
    parsed = with_dot(parsed, frame, weights)
    if not len(frame):
        raise ValueError("`data` has no rows.")
    content = Content(
        formula=parsed.text,
        family=chosen.name,
        link=chosen.link,
        priors=priors,
        frame=held(frame, used_columns(parsed, frame, weights)),
        weights=row_weights(weights, data, frame, mask),
        weights_column=weights if isinstance(weights, str) else None,
        dropped=0 if mask is None else int((~mask).sum()),
        keywords={"missing": missing, "reduce": reduce, **keywords},
    )
    return Regression._sampled(content)
