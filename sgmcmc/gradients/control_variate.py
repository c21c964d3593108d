"""Control variates: centered at a mode, or at a point that follows the chain (SVRG)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.checks import whole_number
from sgmcmc.data.dataset import Minibatch
from sgmcmc.gradients.base import Gradient, Search
from sgmcmc.gradients.whole_data import WholeData
from sgmcmc.model.target import Target


@checks.renamed("centre")
class CenteredState(NamedTuple):
    """The center of a control variate.

    Attributes:
        center: θ̂, flat.
        full_gradient: G = ∇log p(θ̂ | x) over the whole dataset, flat.
    """

    center: tf.Tensor
    full_gradient: tf.Tensor


class Centered(Gradient):
    """ĝ(θ) = G + [∇log p(θ) − ∇log p(θ̂)] + Σ_{i∈S} w_i [∇log p(x_i|θ) − ∇log p(x_i|θ̂)].

    The estimators of this kind differ in when they choose θ̂.
    """

    centered = True

    def init(self, whole: WholeData, position: np.ndarray) -> CenteredState:
        """Return the state centered at the chain's start."""
        return CenteredState(
            tf.constant(position), tf.constant(whole.gradient(position))
        )

    def center(self, state: CenteredState) -> tf.Tensor:
        """Return θ̂."""
        return state.center

    def estimate(
        self,
        target: Target,
        state: CenteredState,
        position: tf.Tensor,
        minibatch: Minibatch,
        at_center: Minibatch,
    ) -> tuple[tf.Tensor, CenteredState]:
        """Return ĝ at ``position`` from one minibatch, and the state for the next call."""
        at_position = target.gradient(position, minibatch)
        center = target.gradient(state.center, at_center)
        return state.full_gradient + (at_position - center), state

    def terms(
        self,
        target: Target,
        state: CenteredState,
        position: tf.Tensor,
        minibatch: Minibatch,
    ) -> tf.Tensor:
        """Return ∇log p(x_i | θ) − ∇log p(x_i | θ̂), (n, d)."""
        at_position = target.term_gradients(position, minibatch.columns)
        return at_position - target.term_gradients(
            self.center(state), minibatch.columns
        )


@checks.renamed("centre_at")
@dataclass(frozen=True)
class ControlVariate(Centered):
    """ĝ(θ) = G + [∇log p(θ) − ∇log p(θ̂)] + Σ_{i∈S} w_i [∇log p(x_i|θ) − ∇log p(x_i|θ̂)].

    θ̂ is the mode that stochastic gradient ascent finds first, or ``center_at`` if that is given.
    It is fixed; G = ∇log p(θ̂ | x) over the whole dataset.

    Args:
        opt_stepsize: Stepsize of the ascent: a number, a dict, or a schedule; or ``"auto"`` for no
            ascent: the mode is found by Newton steps on the whole dataset.
        n_iters_opt: Number of its iterations; 0 centers the control variate at ``params``.
        center_at: Dict of parameters, θ̂, instead of an ascent. Chains then start at ``params``.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.gradients.ControlVariate(1e-4)
        ControlVariate(opt_stepsize=0.0001, n_iters_opt=10000, center_at=None)

    Source:
        Baker, Fearnhead, Fox & Nemeth, Statistics and Computing 29, 2019, eq. 9.
    """

    opt_stepsize: Any = None
    n_iters_opt: int = 10_000
    center_at: Mapping[str, Any] | None = field(
        default=None, metadata={"constant": False}
    )

    name = "control_variate"
    needs = ("opt_stepsize",)

    def search(self) -> Search | None:
        """Return the ascent that finds the mode, unless the center is given."""
        if self.center_at is not None:
            if self.opt_stepsize not in (None, "auto"):
                raise ValueError(
                    "`gradient`: ControlVariate finds its center by `opt_stepsize`, or has it "
                    "from `center_at`; both were given."
                )
            return None
        return Search(
            self.opt_stepsize, whole_number("n_iters_opt", self.n_iters_opt, 0)
        )

    def init(self, whole: WholeData, position: np.ndarray) -> CenteredState:
        """Return the state centered at θ̂, the chain's start unless another center is given."""
        if self.center_at is not None:
            params = {name: np.asarray(value) for name, value in self.center_at.items()}
            position = whole.target.space.found_at(params, whole.target.dtype)
        return super().init(whole, position)

    def mode(self, state: CenteredState) -> tuple[tf.Tensor, tf.Tensor]:
        """Return θ̂ and G."""
        return state.center, state.full_gradient


@dataclass(frozen=True)
class SVRG(Centered):
    """ĝ(θ) = G + [∇log p(θ) − ∇log p(θ̃)] + Σ_{i∈S} w_i [∇log p(x_i|θ) − ∇log p(x_i|θ̃)].

    Every m iterations θ̃ becomes the present θ, and G = ∇log p(θ̃ | x) is computed again over the
    whole dataset; the first step from there has the exact gradient. No mode is needed.

    Args:
        every: m, the number of iterations between full gradients; by default N/n, so that each full
            gradient comes after one pass over the data in minibatches.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.gradients.SVRG(every=100)
        SVRG(every=100)

    Source:
        Dubey, Reddi, Póczos, Smola, Xing & Williamson, NeurIPS 2016, algorithm 2.
    """

    every: int | None = None

    name = "svrg"

    def bind(self, whole: WholeData) -> SVRG:
        """Return this estimator with its constant checked."""
        if self.every is not None:
            whole_number("every", self.every, 1)
        return self

    def refresh_every(self, whole: WholeData) -> int:
        """Return m."""
        if self.every is None:
            return max(1, round(whole.size / whole.minibatch_size))
        return int(self.every)

    def refresh(
        self, whole: WholeData, state: CenteredState, position: np.ndarray, visit: int
    ) -> tuple[np.ndarray, CenteredState]:
        """Return the full gradient at the present position, and the state centered there."""
        gradient = whole.gradient(position, visit)
        return gradient, CenteredState(tf.constant(position), tf.constant(gradient))
