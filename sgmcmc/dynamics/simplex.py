"""What the dynamics for points of the simplex share: their constants, state, and start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import tensorflow as tf

from sgmcmc.checks import flag
from sgmcmc.dynamics.base import Dynamics
from sgmcmc.target.geometry import Space
from sgmcmc.target.geometry.simplex import OnSimplex, Simplices, usable_counts
from sgmcmc.target.layout import Layout

_Own = TypeVar("_Own", bound="SimplexDynamics")


class SimplexState(NamedTuple):
    """The state of a chain on simplices.

    Attributes:
        position: flat; u = log θ for points of the simplex, the parameter itself for others.
    """

    position: tf.Tensor


@dataclass(frozen=True)
class SimplexDynamics(Dynamics):
    """Moves u = log θ, ω = θ / Σθ; parameters that are no points of the simplex move by SGLD.

    Args:
        alpha: Dirichlet concentrations: a number or an array for all parameters, or a dict that
            names those which are points of the simplex.
        theta0: dict of starts of the unnormalised θ > 0, in place of the ω in ``params``; without
            it θ starts at ω Σâ of the first minibatch.
        store_unnormalised: keep θ with each draw, in ``samples.unnormalised``.
        simplices: where the points of the simplex lie in the position; set by ``bind``.
        scaled: whether θ of each is given at the start; set by ``bind``.
        differences: whether counts come as differences of counts, which may be negative.
    """

    alpha: Any
    theta0: Mapping[str, Any] | None = field(default=None, metadata={"constant": False})
    store_unnormalised: bool = field(default=False, metadata={"constant": False})
    simplices: Simplices = field(
        default_factory=lambda: Simplices(Layout({}), {}), repr=False, metadata={"constant": False}
    )
    scaled: Mapping[str, bool] = field(
        default_factory=dict, repr=False, metadata={"constant": False}
    )
    differences: bool = field(default=False, repr=False, metadata={"constant": False})

    needs = ("alpha",)

    def bind(self: _Own, space: Space) -> _Own:
        """Return these dynamics, knowing which coordinates are on simplices."""
        flag("store_unnormalised", self.store_unnormalised)
        points = {n: g for n, g in space.geometries.items() if isinstance(g, OnSimplex)}
        return replace(
            self,
            simplices=Simplices(space.layout, {name: g.alpha for name, g in points.items()}),
            scaled={name: g.theta0 is not None for name, g in points.items()},
        )

    @property
    def moves(self) -> str:
        """What it moves, in words."""
        return "gamma parameters" if self.alpha is None else "points of the simplex"

    def usable(self, counts: tf.Tensor) -> tf.Tensor:
        """Return expected counts, NaN where they are negative and must not be."""
        return counts if self.differences else usable_counts(counts)

    def init(
        self, position: tf.Tensor, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> SimplexState:
        """Return the state at the start of a chain; ``gradient`` holds ĉ for the simplices."""
        counts = tf.nn.relu(gradient) if self.differences else gradient
        return SimplexState(self.simplices.scaled(position, counts, self.scaled))
