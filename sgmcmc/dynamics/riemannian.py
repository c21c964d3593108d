"""Dynamics for points of the simplex: what they share, and Riemannian Langevin dynamics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import tensorflow as tf

from sgmcmc import checks
from sgmcmc.checks import describe, flag, or_list
from sgmcmc.dynamics.base import Dynamics
from sgmcmc.dynamics.langevin import overdamped
from sgmcmc.model.geometry import Space
from sgmcmc.model.geometry.gamma import OnSimplex, Simplices, smallest, usable_counts
from sgmcmc.model.layout import Layout

PARAMETERIZATIONS = ("expanded_mean", "expanded_natural", "reduced_natural")


_Simplex = TypeVar("_Simplex", bound="SimplexDynamics")


class SimplexState(NamedTuple):
    """The state of a chain on simplices.

    Attributes:
        position: Flat position: u = log θ for points of the simplex, the parameter itself for
            others.
    """

    position: tf.Tensor


@dataclass(frozen=True)
class SimplexDynamics(Dynamics):
    """Moves u = log θ, ω = θ / Σθ; parameters that are no points of the simplex move by SGLD.

    Args:
        alpha: Dirichlet concentrations: a number or an array for all parameters, or a dict that
            names the points of the simplex.
        theta0: Dict of starting values of the unnormalized θ > 0, instead of the ω in ``params``;
            without it θ starts at ω Σâ of the first minibatch.
        store_unnormalized: Whether to store θ with each draw, in ``samples.unnormalized``.
        simplices: Places of points of the simplex in the position; set by ``bind``.
        scaled: Whether θ of each is given at the start; set by ``bind``.
        differences: Whether counts come as differences of counts, which may be negative.
    """

    alpha: Any
    theta0: Mapping[str, Any] | None = field(default=None, metadata={"constant": False})
    store_unnormalized: bool = field(default=False, metadata={"constant": False})
    simplices: Simplices = field(
        default_factory=lambda: Simplices(Layout({}), {}),
        repr=False,
        metadata={"constant": False},
    )
    scaled: Mapping[str, bool] = field(
        default_factory=dict, repr=False, metadata={"constant": False}
    )
    differences: bool = field(default=False, repr=False, metadata={"constant": False})

    needs = ("alpha",)

    def bind(self: _Simplex, space: Space) -> _Simplex:
        """Return these dynamics with the coordinates that are on simplices."""
        flag("store_unnormalized", self.store_unnormalized)
        points = {n: g for n, g in space.geometries.items() if isinstance(g, OnSimplex)}
        return replace(
            self,
            simplices=Simplices(
                space.layout, {name: g.alpha for name, g in points.items()}
            ),
            scaled={name: g.theta0 is not None for name, g in points.items()},
        )

    @property
    def moves(self) -> str:
        """Description of the moved quantity."""
        return "gamma parameters" if self.alpha is None else "points of the simplex"

    def usable(self, counts: tf.Tensor) -> tf.Tensor:
        """Return expected counts, NaN if they are negative and must not be."""
        return counts if self.differences else usable_counts(counts)

    def init(
        self,
        position: tf.Tensor,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> SimplexState:
        """Return the state at the start of a chain; ``gradient`` holds ĉ for the simplices."""
        counts = tf.nn.relu(gradient) if self.differences else gradient
        return SimplexState(self.simplices.scaled(position, counts, self.scaled))


@checks.renamed("parameterisation", "store_unnormalised")
@dataclass(frozen=True)
class SGRLD(SimplexDynamics):
    """θ' = | θ + (h/2) [alpha − θ + ĉ − ω Σĉ] + √(hθ) η |.

    That is the expanded-mean parameterization. In the natural ones u = log θ moves by Langevin
    dynamics without a metric: in the expanded one u' = u + (h/2) [alpha − e^u + ĉ − ω Σĉ] + √h η;
    in the reduced one, where the last component of u stays at zero, u' = u + (h/2) [â − ω Σâ] + √h
    η, with â = alpha + ĉ.

    Args:
        alpha: Dirichlet concentrations: a number or an array for all parameters, or a dict that
            names the points of the simplex.
        theta0: Dict of starting values of the unnormalized θ > 0; without it θ starts at ω Σâ, or ω
            Σalpha in the expanded-natural parameterization.
        store_unnormalized: Whether to store θ with each draw.
        parameterization: Parameterization: "expanded_mean", "expanded_natural" or
            "reduced_natural".

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.SGRLD(alpha=0.1).alpha
        0.1

    Source:
        Patterson & Teh, NeurIPS 2013, eq. 10 and table 1; Baker, *Large-Scale Bayesian Computation
        Using Stochastic Gradient MCMC*, Lancaster 2018, section 5.2.2.
    """

    parameterization: str = "expanded_mean"

    name = "sgrld"

    def bind(self, space: Space) -> SGRLD:
        """Return these dynamics with the coordinates that are on simplices."""
        if self.parameterization not in PARAMETERIZATIONS:
            raise ValueError(
                f"`parameterization` must be {or_list(PARAMETERIZATIONS)}; it is "
                f"{describe(self.parameterization)}."
            )
        return super().bind(space)

    def init(
        self,
        position: tf.Tensor,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> SimplexState:
        """Return the state at the start of a chain; ``gradient`` holds ĉ for the simplices."""
        if self.parameterization == "expanded_natural":
            gradient = tf.zeros_like(gradient)
        state = super().init(position, gradient, stepsize, normals)
        if self.parameterization != "reduced_natural":
            return state
        u, remaining = self.simplices.divide(state.position)
        return SimplexState(
            self.simplices.unite(u - self.simplices.lasts(u), remaining)
        )

    def step(
        self,
        state: SimplexState,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> SimplexState:
        """Return the state one step on; ``normals`` is η, of shape (1, d)."""
        simplices = self.simplices
        u, remaining = simplices.divide(state.position)
        counts, slopes = simplices.divide(gradient)
        h, epsilon = simplices.divide(stepsize)
        noise, other_noise = simplices.divide(normals[0])
        drift = self.drift(u, self.usable(counts))
        if self.parameterization == "expanded_mean":
            theta = tf.exp(u)
            proposal = theta + 0.5 * h * drift + tf.sqrt(h * theta) * noise
            u = tf.math.log(tf.maximum(tf.abs(proposal), smallest(u.dtype)))
        else:
            proposal = overdamped(u, drift, h, noise)
            reduced = self.parameterization == "reduced_natural"
            u = tf.where(simplices.last, u, proposal) if reduced else proposal
        if not simplices.has_all:
            remaining = overdamped(remaining, slopes, epsilon, other_noise)
        return SimplexState(simplices.unite(u, remaining))

    def drift(self, u: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        """Return alpha − θ + ĉ − ωΣĉ, flat, of u = log θ and ĉ; or â − ωΣâ if it is reduced.

        It is the same for θ in the expanded-mean parameterization, by the natural gradient, and for
        u in the expanded-natural one.
        """
        points = tf.exp(self.simplices.log_points(u))
        alpha = tf.constant(self.simplices.alpha, u.dtype)
        if self.parameterization == "reduced_natural":
            expected = alpha + counts
            return expected - points * self.simplices.totals(expected)
        return alpha - tf.exp(u) + counts - points * self.simplices.totals(counts)
