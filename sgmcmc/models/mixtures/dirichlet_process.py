"""The Dirichlet-process mixture of categoricals, made from counted observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sgmcmc.checks import positive_number, whole_number
from sgmcmc.models.mixtures.model import DPMixture
from sgmcmc.models.mixtures.observations import read_rows


def dp_mixture(
    counts: Any,
    base: float = 0.5,
    concentration: Sequence[float] = (1.0, 1.0),
    max_components: int = 128,
) -> DPMixture:
    """Return a Dirichlet-process mixture of categoricals, for samplers on the simplex.

    Observation i is drawn as x_i ~ Multi(n_i, θ_{z_i}) with P(z_i = j) = v_j Π_{l<j} (1 − v_l),
    v_j ~ Beta(1, α), θ_j ~ Dir(a, ..., a), j = 1, 2, ..., and α ~ Gamma(s, r). There are
    infinitely many components; the slice sampler (``gibbs``) needs finitely many at a time, of
    which the first ``max_components`` are held, whether any observation is in them or not. A slice
    that needs more ends the chain with an error. The sampler moves the sticks and the components,
    at the concentrations of ``model.alpha``.

    Args:
        counts: how often each word (category) stands in each observation, (N, W): an array, a
            sparse matrix of SciPy, or `sgmcmc.counts.Counts`.
        base: a, Dirichlet concentration of each word in a component.
        concentration: s and r, shape and rate of the gamma prior of α.
        max_components: K. Some 25 times α is enough for tens of thousands of observations.

    Returns:
        A :class:`DPMixture`.

    Raises:
        TypeError: ``counts`` holds no numbers, or another argument is not one.
        ValueError: a count is negative or not whole, an observation is empty, ``base`` or
            ``concentration`` is not positive, ``max_components`` is not a whole number of at
            least 1.

    Example:
        >>> from sgmcmc.models import dp_mixture
        >>> model = dp_mixture([[2, 0, 1], [0, 3, 0]], base=0.1, max_components=20)
        >>> model.dataset["words"].numpy().tolist()
        [[0, 0, 2], [1, 1, 1]]

    Source:
        Dunson and Xing, JASA 104 (2009); Baker, *Large-Scale Bayesian Computation Using Stochastic
        Gradient MCMC*, Lancaster 2018, equation 5.5.1.
    """
    base = positive_number("base", base)
    if isinstance(concentration, (str, Mapping)) or np.shape(concentration) != (2,):
        raise ValueError(
            "`concentration` must be two numbers, shape and rate of the gamma prior of α; it is "
            f"{concentration!r}."
        )
    shape, rate = (positive_number(f"concentration[{i}]", concentration[i]) for i in range(2))
    K = whole_number("max_components", max_components, 1)
    dataset, n_words = read_rows(counts)
    if n_words * K >= 2**31:
        raise ValueError(f"`max_components` × words must be below 2**31; {K} is too many.")
    return DPMixture(dataset, n_words, base, (shape, rate), K)
