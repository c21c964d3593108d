"""Langevin dynamics whose preconditioner is learned from the gradients of the chain."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import tensorflow as tf

from sgmcmc.checks import describe, is_number
from sgmcmc.dynamics.base import Dynamics
from sgmcmc.dynamics.langevin import overdamped
from sgmcmc.dynamics.scaled import BURN_IN, read_until
from sgmcmc.target.geometry import Space
from sgmcmc.target.layout import Layout, positive_constant


class PreconditionedState(NamedTuple):
    """The state of dynamics with a preconditioner from the squares of gradients.

    Attributes:
        position: θ, flat and unconstrained.
        mean_square: V, for each coordinate.
        moves: Gradients that V has seen, for each parameter; constant once V is.
    """

    position: tf.Tensor
    mean_square: tf.Tensor
    moves: tf.Tensor


@dataclass(frozen=True)
class PSGLD(Dynamics):
    """V ← αV + (1 − α) ĝ(θ)²; θ' = θ + (ε/2) G ĝ(θ) + √(εG) η with G = 1/(λ + √V).

    Squares, roots and products are by coordinate, and V starts at ĝ². V is learned in the burn-in
    and then frozen: from there on the chain is SGLD with stepsizes εG, and has its law.

    A V that goes on changing (``until=None``, as published) changes the law: Langevin dynamics with
    a G that depends on θ need the term Γ_i = ∂G_i/∂θ_i in the drift (the update with it is
    θ' = θ + (ε/2) [G ĝ + Γ] + √(εG) η). It takes second derivatives, and the paper drops it.
    The error does not vanish with ε: as ε → 0 at fixed α, V becomes E[ĝ²] at the present θ, and in
    one dimension the stationary density is p(θ|x) (λ + √E[ĝ(θ)²]) up to a constant. It is small
    where 1/(1 − α) iterations are long against the autocorrelation of the chain.

    Here ĝ is the gradient of the log posterior. The paper divides it by N: ε is N times, and λ is N
    times that of the paper.

    Args:
        alpha: α, the weight of the past in V, at least 0 and less than 1.
        damping: λ, positive: a number, or a dict with one for each parameter.
        until: End of the learning of V: ``"burn_in"``, or the number of iterations, burn-in
            included; ``None`` never freezes it.
        layout: Places of the named parameters in the flat position; set by ``bind``.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.PSGLD(alpha=0.9, until=1000)
        PSGLD(alpha=0.9, damping=1e-05, until=1000)

    Source:
        Li, Chen, Carlson & Carin, AAAI 2016, algorithm 1; Ma, Chen & Fox, NeurIPS 2015, eq. 5, for
        Γ.
    """

    alpha: float = 0.99
    damping: Any = 1e-5
    until: int | str | None = BURN_IN
    layout: Layout | None = field(default=None, repr=False, metadata={"constant": False})

    name = "psgld"

    def after_burn_in(self, burn_in: int) -> PSGLD:
        """Return these dynamics, with the iteration at which V is frozen."""
        if self.until != BURN_IN:
            return self
        if burn_in == 0:
            raise ValueError(
                "`until`: PSGLD learns its preconditioner in the burn-in, and there is none. Give "
                "a `burn_in`, or write sgmcmc.dynamics.PSGLD(until=...) with a number of "
                "iterations."
            )
        return replace(self, until=burn_in)

    def bind(self, space: Space) -> PSGLD:
        """Return these dynamics with their constants checked."""
        if not is_number(self.alpha):
            raise TypeError(f"`alpha` must be a number; it is {describe(self.alpha)}.")
        if not 0 <= self.alpha < 1:
            raise ValueError(f"`alpha` must be at least 0 and less than 1; it is {self.alpha!r}.")
        damping = positive_constant("damping", self.damping, space.layout)
        return replace(self, damping=damping, until=read_until(self.until), layout=space.layout)

    def init(
        self, position: tf.Tensor, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> PreconditionedState:
        """Return the state at the start of a chain, with V of the gradient there."""
        assert self.layout is not None, "not bound"
        moves = tf.zeros([len(self.layout.names)], position.dtype)
        return PreconditionedState(position, gradient * gradient, moves)

    def step(
        self,
        state: PreconditionedState,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> PreconditionedState:
        """Return the state one step on; ``normals`` is η, of shape (1, d)."""
        assert self.layout is not None, "not bound"
        square, moves = state.mean_square, state.moves
        learned = self.alpha * square + (1.0 - self.alpha) * gradient * gradient
        if isinstance(self.until, int):
            learns = moves < float(self.until)
            learned = tf.where(self.layout.spread(learns), learned, square)
            moves = tf.where(learns, moves + 1.0, moves)
        scaled = stepsize / (tf.constant(self.damping, gradient.dtype) + tf.sqrt(learned))
        position = overdamped(state.position, gradient, scaled, normals[0])
        return PreconditionedState(position, learned, moves)
