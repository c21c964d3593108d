"""Stepsizes that each parameter's own gradients scale, learned while the chain burns in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.dynamics.base import Dynamics, Elsewhere
from sgmcmc.dynamics.learning import BURN_IN, RunningMean, read_until
from sgmcmc.model.geometry import Space
from sgmcmc.model.layout import Layout

_LABEL = "root mean square gradient of "


@dataclass(frozen=True)
class GradientScaled:
    """The result of :func:`gradient_scaled`.

    Attributes:
        h: Stepsize before it is scaled, in the form of any other.
        until: Iteration at which the scales are frozen; ``"burn_in"``, or ``None`` for never.
    """

    h: Any
    until: int | str | None = BURN_IN


def gradient_scaled(h: Any, until: int | str | None = BURN_IN) -> GradientScaled:
    """Return a stepsize for each parameter, h over the root mean square of its own gradients.

    At iteration k, parameter θ_j with d_j coordinates moves with

    ε_j = h / √S_j,  S_j ← S_j + (‖ĝ_j(θ)‖² / d_j − S_j) / k,

    so that parameters of different sizes, such as the matrices and the biases of a factorization,
    or the layers of a network, share one constant. ĝ is the estimate that the chain itself uses, in
    the chain's own coordinates.

    The S_j change until iteration ``until`` and are then frozen, by default at the end of the
    burn-in: from there on the chain is the one whose stepsizes are these numbers, with the same
    distribution. Scales that went on changing with the gradients would need a correction for it in
    the drift (the term Γ of Ma, Chen & Fox). With ``until=None`` they do, without one, as in the
    published experiment: a running mean over k gradients changes by a part 1/k, so that the error
    that it adds dies out as 1/k; but the large gradients of a chain's first steps stay in it.

    Args:
        h: Stepsize: a number, a schedule, an array with a number for each coordinate, or a dict
            with such an entry for each parameter; in units of squared parameter times the size of
            its gradient.
        until: End of the learning of S_j: ``"burn_in"``, or the number of iterations, counted from
            1, burn-in included; ``None`` never freezes them. In the mode-finding of the control
            variate methods, ``"burn_in"`` is all of it.

    Returns:
        A stepsize, for ``stepsize`` and ``opt_stepsize``; not with SCIR, SGRLD, HMC and NUTS. A
        parameter whose gradients have all been zero so far does not move.

    Raises:
        ValueError, TypeError: ``until`` is not an integer ≥ 1, ``"burn_in"`` or ``None``; by the
            sampler, if ``h`` is not a stepsize, and for ``"burn_in"`` if the chain has none.

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> x = np.random.default_rng(1).normal([[0.0, 0.0, 500.0]], [[1.0, 1.0, 100.0]], (100, 3))
        >>> def log_lik(params, dataset):
        ...     small = dataset["x"][:, :2] - params["small"]
        ...     large = (dataset["x"][:, 2] - params["large"]) / 100
        ...     return -0.5 * (tf.reduce_sum(small**2, 1) + large**2)
        >>> chain = sgmcmc.sgld(
        ...     log_lik, {"x": x}, {"small": np.zeros(2), "large": 500.0},
        ...     sgmcmc.gradient_scaled(0.05), minibatch_size=100, burn_in=500, n_iters=2000,
        ...     seed=1, verbose=False)
        >>> bool((abs(10 * chain["small"].std(axis=0) - 1) < 0.2).all())
        True

    Source:
        J. Baker, *Large-Scale Bayesian Computation Using Stochastic Gradient MCMC*, Lancaster
        2018, appendix A.3; Ma, Chen & Fox, NeurIPS 2015, for scales that change.
    """
    return GradientScaled(h, read_until(until))


class ScaledState(NamedTuple):
    """The state of dynamics with scaled stepsizes.

    Attributes:
        inner: State of the dynamics.
        squares: S, the mean of the mean squares of the gradients, for each parameter.
    """

    inner: Any
    squares: RunningMean

    @property
    def position(self) -> tf.Tensor:
        """θ, flat and unconstrained."""
        return self.inner.position


def _of_inner(name: str) -> Any:
    """Return a property that is the inner dynamics' own."""
    return property(lambda scaled: getattr(scaled.inner, name))


@dataclass(frozen=True)
class Scaled(Dynamics):
    """Other dynamics, with stepsizes ε / √S, S the mean square of each parameter's gradients.

    Args:
        inner: Dynamics that move the state.
        until: Iteration at which S is frozen; ``None`` for never.
        layout: Places of the parameters; set by ``bind``.

    Example:
        >>> import sgmcmc
        >>> Scaled(sgmcmc.dynamics.SGHMC(), until=100).steps
        5
    """

    inner: Dynamics
    until: int | None
    layout: Layout | None = field(default=None, repr=False, compare=False)

    steps = _of_inner("steps")
    start_normals = _of_inner("start_normals")
    refresh_normals = _of_inner("refresh_normals")
    step_normals = _of_inner("step_normals")
    seeds = _of_inner("seeds")
    compilable = _of_inner("compilable")
    on_manifolds = _of_inner("on_manifolds")
    learns_noise = _of_inner("learns_noise")
    learns_information = _of_inner("learns_information")
    visits = _of_inner("visits")
    separable = _of_inner("separable")

    def for_rows(self, rows: int, size: int, unseen: float) -> Scaled:
        """Return these dynamics for minibatches of a given size."""
        return replace(self, inner=self.inner.for_rows(rows, size, unseen))

    def bind(self, space: Space) -> Scaled:
        """Return these dynamics with the places of the parameters in the position."""
        return replace(self, inner=self.inner.bind(space), layout=space.layout)

    def init(
        self,
        position: tf.Tensor,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> ScaledState:
        """Return the state at the start of a chain, with S of the gradient there."""
        squares = self._squares(gradient)
        inner = self.inner.init(
            position, gradient, self._scale(stepsize, squares), normals
        )
        return ScaledState(inner, RunningMean(squares, tf.zeros_like(squares)))

    def refresh(
        self, state: ScaledState, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> ScaledState:
        """Return the state at the start of an iteration."""
        scaled = self._scale(stepsize, state.squares.mean)
        return state._replace(inner=self.inner.refresh(state.inner, scaled, normals))

    def step(
        self,
        state: ScaledState,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> ScaledState:
        """Return the state at the next position, with S updated by the gradient at this one."""
        until = None if self.until is None else self.until * self.steps
        squares = state.squares.updated(self._squares(gradient), until)
        scaled = self._scale(stepsize, squares.mean)
        inner = self.inner.step(state.inner, gradient, scaled, normals)
        return ScaledState(inner, squares)

    def finish_step(
        self, state: ScaledState, gradient: tf.Tensor, stepsize: tf.Tensor
    ) -> ScaledState:
        """Return the state at the end of a step."""
        scaled = self._scale(stepsize, state.squares.mean)
        return state._replace(
            inner=self.inner.finish_step(state.inner, gradient, scaled)
        )

    def visit(self, state: ScaledState, elsewhere: Elsewhere) -> ScaledState:
        """Return the state updated by estimates at other positions."""
        return state._replace(inner=self.inner.visit(state.inner, elsewhere))

    def learn(self, state: ScaledState, parts: tf.Tensor) -> ScaledState:
        """Return the state updated by the noise of a new gradient."""
        return state._replace(inner=self.inner.learn(state.inner, parts))

    def advice(self, state: ScaledState) -> str | None:
        """Return advice for a chain that has become NaN."""
        return self.inner.advice(state.inner)

    def facts(self, state: ScaledState) -> dict[str, float]:
        """Return diagnostics of the moves so far, including the scales √S by parameter."""
        assert self.layout is not None, "not bound"
        roots = tf.sqrt(state.squares.mean).numpy().tolist()
        names = [_LABEL + name for name in self.layout.names]
        return {**self.inner.facts(state.inner), **dict(zip(names, roots, strict=True))}

    def factors(self, facts: Sequence[Mapping[str, float]]) -> np.ndarray:
        """Return 1 / √S for each coordinate, √S the mean over chains."""
        assert self.layout is not None, "not bound"
        roots = {
            n: np.mean([chain[_LABEL + n] for chain in facts])
            for n in self.layout.names
        }
        sizes = self.layout.sizes
        return np.concatenate(
            [np.full(sizes[name], 1.0 / root) for name, root in roots.items()]
        )

    def _squares(self, gradient: tf.Tensor) -> tf.Tensor:
        """Return ‖g_j‖² / d_j of each parameter."""
        assert self.layout is not None, "not bound"
        return self.layout.means(gradient * gradient)

    def _scale(self, stepsize: tf.Tensor, mean_square: tf.Tensor) -> tf.Tensor:
        """Return ε / √S for each coordinate; zero if there was no gradient yet."""
        assert self.layout is not None, "not bound"
        factors = tf.math.divide_no_nan(tf.ones_like(mean_square), tf.sqrt(mean_square))
        return stepsize * self.layout.per_coordinate(factors)
