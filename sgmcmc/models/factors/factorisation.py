"""Bayesian probabilistic matrix factorisation, made from ratings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sgmcmc.checks import is_number, positive_number, whole_number
from sgmcmc.models.factors.model import MatrixFactorisation
from sgmcmc.models.factors.ratings import Ratings
from sgmcmc.words import describe


def matrix_factorisation(
    ratings: Any,
    rank: int,
    *,
    precision: float = 3.0,
    prior: tuple[float, float] = (1.0, 300.0),
    centre: float | None = None,
    n_users: int | None = None,
    n_items: int | None = None,
) -> MatrixFactorisation:
    """Return Bayesian probabilistic matrix factorisation of ratings.

    The rating of item j by user i is r_ij ~ N(c + U_i·V_j + a_i + b_j, 1/τ), with D factors U_i of
    each user and V_j of each item and biases a_i and b_j. All entries of U are N(0, 1/λ_U), those
    of V, a and b have precisions λ_V, λ_a and λ_b of their own, and each λ ~ Gamma(s, t), which are
    integrated out.

    Args:
        ratings: a dict or a table with the columns ``"user"``, ``"item"`` (whole numbers from 0)
            and ``"rating"``, (N,) each, as ``get_dataset("movielens")["train"]`` is.
        rank: D.
        precision: τ.
        prior: (s, t), shape and rate of the gamma prior of each precision.
        centre: c; ``None`` takes the mean rating, 0 is the published model.
        n_users: L; ``None`` for as many as the largest number says.
        n_items: M; ``None`` for as many as the largest number says.

    Returns:
        A :class:`MatrixFactorisation`.

    Raises:
        TypeError: ``ratings`` has no columns of numbers, or another argument is not one.
        ValueError: a column is missing, or a number in it is wrong; ``rank`` is not a whole number
            of at least 1; a constant is not positive.

    Example:
        >>> import numpy as np, sgmcmc
        >>> rng = np.random.default_rng(1)
        >>> ratings = {"user": rng.integers(20, size=500), "item": rng.integers(30, size=500)}
        >>> ratings["rating"] = 3 + np.sin(ratings["user"]) * np.cos(ratings["item"])
        >>> model = sgmcmc.models.matrix_factorisation(ratings, rank=2, prior=(1, 1))
        >>> chain = sgmcmc.sghmc(
        ...     model.log_lik, model.dataset, model.start(seed=1), 1e-3, log_prior=model.log_prior,
        ...     minibatch_size=100, burn_in=200, n_iters=200, seed=1, verbose=False)
        >>> known = {"user": [0, 1], "item": [0, 0]}
        >>> chain.predict(model.predict_rating, known, reduce="quantiles").shape
        (3, 2)

    Source:
        Salakhutdinov & Mnih, ICML 2008; Chen, Fox & Guestrin, ICML 2014, appendix H.2; J. Baker,
        *Large-Scale Bayesian Computation Using Stochastic Gradient MCMC*, Lancaster 2018, section
        3.5.2 and appendix A.3.
    """
    rank = whole_number("rank", rank, 1)
    given: Mapping[str, int | None] = {
        "user": None if n_users is None else whole_number("n_users", n_users, 1),
        "item": None if n_items is None else whole_number("n_items", n_items, 1),
    }
    table = Ratings.read(ratings, given)
    if not isinstance(prior, tuple | list) or len(prior) != 2:
        raise TypeError(
            "`prior` must be two numbers, the shape and the rate of a gamma distribution; it is "
            f"{describe(prior)}."
        )
    if centre is not None and not (is_number(centre) and np.isfinite(centre)):
        raise TypeError(f"`centre` must be a number, or None; it is {describe(centre)}.")
    return MatrixFactorisation(
        table._asdict(),
        given["user"] or int(table.user.max()) + 1,
        given["item"] or int(table.item.max()) + 1,
        rank,
        positive_number("precision", precision),
        positive_number("prior", prior[0]),
        positive_number("prior", prior[1]),
        float(table.rating.mean()) if centre is None else float(centre),
    )
