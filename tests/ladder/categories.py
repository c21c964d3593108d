"""Categories with Dirichlet priors: the model, its space, and laws near zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from scipy import stats

from sgmcmc.model.geometry import Space
from sgmcmc.model.geometry.gamma import OnSimplex
from tests.ladder import FALSE_ALARM, Array, bound

REPLICATES = 40_000
COUNTS = np.array([12, 5, 3, 0])
ALPHA = np.array([0.1, 0.5, 1.5, 0.3])


def categories() -> Array:
    """Return twenty observations, one-hot."""
    return np.repeat(np.eye(len(COUNTS)), COUNTS, axis=0)


def log_lik(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return the log-likelihood of categories, for any number of rows of omega."""
    counts = tf.reduce_sum(dataset["z"], 0)
    return tf.reduce_sum(counts * tf.math.log(params["omega"]))


def space_of(
    alpha: dict[str, Array], shapes: dict[str, tuple[int, ...]] | None = None
) -> Space:
    """Return the space of points of the simplex with these concentrations, and of others."""
    geometries = {name: OnSimplex(value) for name, value in alpha.items()}
    return Space(
        shapes or {name: value.shape for name, value in alpha.items()}, geometries
    )


def check_law(draws: Array, law: Any, least: float, tests: int) -> None:
    """Compare draws with a law on the part that floating point numbers can tell from zero."""
    below = law.cdf(least) if least else 0.0
    above, p = draws > least, 1.0 - below
    assert (
        abs(above.mean() - p)
        <= bound(tests) * np.sqrt(p * (1 - p) / len(draws)) + 1e-12
    )
    conditional = stats.kstest(draws[above], lambda x: (law.cdf(x) - below) / p)
    assert conditional.pvalue > FALSE_ALARM / tests
